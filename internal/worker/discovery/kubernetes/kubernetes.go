// Package kubernetes finds workers in a cluster: the endpoints of a service, or the pods of an InferencePool.
//
// It watches: a list once, then every change as it happens. What Kubernetes calls ready is a worker; what serves while it terminates,
// or is not ready for now, drains; what leaves the list is gone. An API server that cannot be reached changes nothing: the last list
// holds, the health checks of its workers go on, and the list is read again when the server is back.
//
// The dynamic client is used, with the few fields that are needed read into types of this package: the typed clients would bring
// every resource of Kubernetes into the binary.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"attache/internal/worker"
)

// Source takes what is found. A *worker.Source is one.
type Source interface {
	// Apply takes the complete list.
	Apply(specs []worker.Spec)
	// Confirm says that the list that was applied last holds now.
	Confirm()
	// Failed says that the list could not be read and the last one holds.
	Failed(err error)
}

// Params are what following a cluster needs.
type Params struct {
	Config

	Pool     string
	Fallback worker.Engine // of a Config that names none
	// EventsPort and ReplayPort are the pool's; where a pod has several ports each is a rank, and publishes at these plus its number.
	EventsPort, ReplayPort int
	Source                 Source
}

// Discovery follows a part of a cluster.
type Discovery struct {
	p         Params
	client    dynamic.Interface
	namespace string
	finder    finder
	backoff   *apiwait.Backoff // between attempts; nil: client-go's, 0.8 to 30 s
	retry     time.Duration    // before it is looked again whether a resource is there
	changed   chan struct{}

	mu   sync.Mutex // guards errs
	errs map[string]error
}

// finder is where endpoints are looked for.
type finder interface {
	// follow keeps what endpoints returns up to date until ctx ends.
	follow(ctx context.Context)
	// endpoints are all that there are. errNotYet says that not everything was heard yet.
	endpoints() ([]endpoint, error)
}

var errNotYet = errors.New("not yet known")

// New connects to nothing yet. The configuration must be valid; an error says why there is no way to reach a cluster.
func New(p Params) (*Discovery, error) {
	cfg, namespace, err := reach(p.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubernetes discovery %s: %w", p.Config.Source(), err)
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes discovery %s: %w", p.Config.Source(), err)
	}
	if p.Namespace != "" {
		namespace = p.Namespace
	}
	return over(p, client, namespace), nil
}

// over is New with a client that is there.
func over(p Params, client dynamic.Interface, namespace string) *Discovery {
	if p.Engine == "" {
		p.Engine = p.Fallback
	}
	d := &Discovery{p: p, client: client, namespace: namespace, retry: 5 * time.Second, changed: make(chan struct{}, 1), errs: map[string]error{}}
	if p.InferencePool != "" {
		d.finder = newPool(d)
	} else {
		d.finder = newService(d)
	}
	return d
}

// ownNamespace is where a pod finds the namespace that it is in.
const ownNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// reach says how to reach the cluster, and in which namespace one is there.
func reach(kubeconfig string) (cfg *rest.Config, namespace string, err error) {
	if kubeconfig == "" {
		if cfg, err = rest.InClusterConfig(); err != nil {
			return nil, "", fmt.Errorf("no kubeconfig is given, and attache is no pod of a cluster: %w", err)
		}
		text, err := os.ReadFile(ownNamespace)
		if err != nil {
			return nil, "", fmt.Errorf("no namespace is given: %w", err)
		}
		namespace = strings.TrimSpace(string(text))
	} else {
		loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, nil)
		if cfg, err = loaded.ClientConfig(); err != nil {
			return nil, "", err
		}
		if namespace, _, err = loaded.Namespace(); err != nil {
			return nil, "", err
		}
	}
	cfg.UserAgent = "attache"
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	return cfg, namespace, nil
}

// fresh is how often a list that is watched is said to hold.
const fresh = 5 * time.Second

// Run follows the cluster until ctx ends.
func (d *Discovery) Run(ctx context.Context) error {
	ctx = logr.NewContext(ctx, logr.Discard()) // client-go's words; errors are told by the source
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { d.finder.follow(ctx) })
	made := maker{p: &d.p}
	var last []worker.Spec
	applied := false
	ticker := time.NewTicker(fresh)
	defer ticker.Stop()
	for {
		select {
		case <-d.changed:
			wait(ctx, settle)
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		list, err := d.finder.endpoints()
		if errors.Is(err, errNotYet) {
			continue
		}
		d.hear("endpoints", err)
		if err == nil {
			if specs := made.specs(list); !applied || !slices.EqualFunc(last, specs, same) {
				d.p.Source.Apply(specs)
				last, applied = specs, true
			}
		}
		if d.good() {
			d.p.Source.Confirm()
		}
	}
}

// same reports whether two workers need no new list.
func same(a, b worker.Spec) bool {
	return a.Addr == b.Addr && a.Name == b.Name && a.Drain == b.Drain && a.Events == b.Events && maps.Equal(a.Labels, b.Labels)
}

// poke says that something has changed.
func (d *Discovery) poke() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// hear takes in how it stands with one of the things that the list needs; the source is told of every failure, and that all is well
// when nothing fails any more.
func (d *Discovery) hear(what string, err error) {
	d.mu.Lock()
	before := d.errs[what]
	if err == nil {
		delete(d.errs, what)
	} else {
		d.errs[what] = err
	}
	d.mu.Unlock()
	if err != nil {
		d.p.Source.Failed(fmt.Errorf("%s: %w", what, err))
	}
	if (err == nil) != (before == nil) {
		d.poke()
	}
}

// good reports whether nothing fails.
func (d *Discovery) good() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.errs) == 0
}

// fails reports whether a resource cannot be read.
func (d *Discovery) fails(resource schema.GroupVersionResource) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.errs[resource.Resource] != nil
}

// watched is a resource of the namespace.
func (d *Discovery) watched(resource schema.GroupVersionResource, labels, fields string) watched {
	return watched{resource: d.client.Resource(resource).Namespace(d.namespace), labels: labels, fields: fields, backoff: d.backoff,
		hear: func(err error) { d.hear(resource.Resource, err) }}
}

// wait pauses, or ends with ctx.
func wait(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
