package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apiwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// table is what the API server has of one resource, as far as it was heard. A reflector writes it: a list first, then changes, and a
// list again whenever the changes cannot be had any more. Of every object only what T names is kept.
//
// A table is the reflector's store by itself, without client-go's informer around it: there is one reader, who takes everything at
// every change, so that there is nothing to deliver one by one or to repeat. It is safe for concurrent use.
type table[T any] struct {
	changed func() // called without the lock

	mu   sync.Mutex // guards rows
	rows map[string]T
}

func newTable[T any](changed func()) *table[T] { return &table[T]{changed: changed} }

// all are the rows, in no order; ok is false before the first list.
func (t *table[T]) all() (rows []T, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, row := range t.rows {
		rows = append(rows, row)
	}
	return rows, t.rows != nil
}

// get finds a row by "namespace/name".
func (t *table[T]) get(key string) (row T, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	row, ok = t.rows[key]
	return row, ok
}

// Add implements cache.ReflectorStore.
func (t *table[T]) Add(object any) error {
	key, row, err := read[T](object)
	if err != nil {
		return err
	}
	t.mu.Lock()
	if t.rows == nil {
		t.rows = map[string]T{}
	}
	t.rows[key] = row
	t.mu.Unlock()
	t.changed()
	return nil
}

// Update implements cache.ReflectorStore.
func (t *table[T]) Update(object any) error { return t.Add(object) }

// Delete implements cache.ReflectorStore.
func (t *table[T]) Delete(object any) error {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return errObject
	}
	t.mu.Lock()
	delete(t.rows, keyOf(u))
	t.mu.Unlock()
	t.changed()
	return nil
}

// Replace implements cache.ReflectorStore.
func (t *table[T]) Replace(objects []any, _ string) error {
	rows := make(map[string]T, len(objects))
	for _, object := range objects {
		key, row, err := read[T](object)
		if err != nil {
			return err
		}
		rows[key] = row
	}
	t.mu.Lock()
	t.rows = rows
	t.mu.Unlock()
	t.changed()
	return nil
}

// Resync implements cache.ReflectorStore. There is nothing to repeat.
func (t *table[T]) Resync() error { return nil }

var errObject = errors.New("the reflector stores something other than an object of the dynamic client")

func keyOf(u *unstructured.Unstructured) string { return u.GetNamespace() + "/" + u.GetName() }

func read[T any](object any) (key string, row T, err error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return "", row, errObject
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &row); err != nil {
		return "", row, fmt.Errorf("%s %s: %w", u.GetKind(), keyOf(u), err)
	}
	return keyOf(u), row, nil
}

// watched is a resource to follow, and who hears how that goes.
type watched struct {
	resource       dynamic.ResourceInterface
	labels, fields string
	hear           func(error) // of every request; nil when it went well
	backoff        *apiwait.Backoff
}

// fill keeps a table as the API server has it until ctx ends. Whatever goes wrong it tries again, later and later, and what was heard
// last stays.
func (t *table[T]) fill(ctx context.Context, w watched) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = w.labels, w.fields
			list, err := w.resource.List(ctx, o)
			if ctx.Err() == nil {
				w.hear(err)
			}
			if err != nil {
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = w.labels, w.fields
			watching, err := w.resource.Watch(ctx, o)
			if ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				w.hear(err) // where changes are not kept that long there will be a list, which tells how things are
			}
			return watching, err
		},
	}
	cache.NewReflectorWithOptions(listed{lw}, nil, t, cache.ReflectorOptions{Backoff: w.backoff}).RunWithContext(ctx)
}

// listed makes the reflector begin with a list in one answer. A list as a watch spares the server memory where there are very many objects;
// here are few, and servers that do not know it leave a client waiting.
type listed struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported tells the reflector.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }

// settle is how long changes may take to be complete: a rollout touches many objects at once.
const settle = 50 * time.Millisecond
