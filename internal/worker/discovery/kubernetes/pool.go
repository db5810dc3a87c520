package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// poolResources are the versions of InferencePool, the one to be preferred first.
var poolResources = []schema.GroupVersionResource{
	{Group: "inference.networking.k8s.io", Version: "v1", Resource: "inferencepools"},
	{Group: "inference.networking.x-k8s.io", Version: "v1alpha2", Resource: "inferencepools"},
}

// inferencePool is what is read of an InferencePool, of either version.
type inferencePool struct {
	Spec struct {
		// Selector is {matchLabels: {…}} in v1; the labels themselves in v1alpha2.
		Selector    selector `json:"selector"`
		TargetPorts []struct {
			Number int `json:"number"`
		} `json:"targetPorts"`
		TargetPortNumber int `json:"targetPortNumber"` // v1alpha2
	} `json:"spec"`
}

// selector are the labels that a pod must have.
type selector map[string]string

// UnmarshalJSON reads either form.
func (s *selector) UnmarshalJSON(text []byte) error {
	var v1 struct {
		MatchLabels map[string]string `json:"matchLabels"`
	}
	if json.Unmarshal(text, &v1) == nil && v1.MatchLabels != nil {
		*s = v1.MatchLabels
		return nil
	}
	var v1alpha2 map[string]string
	err := json.Unmarshal(text, &v1alpha2)
	*s = v1alpha2
	return err
}

// ports are the target ports, in order.
func (p *inferencePool) ports() ([]uint16, error) {
	var ports []uint16
	numbers := []int{p.Spec.TargetPortNumber}
	if len(p.Spec.TargetPorts) > 0 {
		numbers = numbers[:0]
		for _, t := range p.Spec.TargetPorts {
			numbers = append(numbers, t.Number)
		}
	}
	for _, n := range numbers {
		if n <= 0 || n > 65535 {
			return nil, fmt.Errorf("a target port is %d: must be 1 to 65535", n)
		}
		ports = append(ports, uint16(n))
	}
	slices.Sort(ports)
	return slices.Compact(ports), nil
}

// pod is what is read of a core/v1 Pod.
type pod struct {
	Metadata struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		Labels            map[string]string `json:"labels"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
	} `json:"metadata"`
	Status struct {
		Phase      string `json:"phase"`
		PodIP      string `json:"podIP"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// endpoint is the pod as one; ok is false for a pod that has no address yet, or is over.
func (p *pod) endpoint() (e endpoint, ok bool, err error) {
	if p.Status.PodIP == "" || p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" {
		return e, false, nil
	}
	e.pod = p.Metadata.Namespace + "/" + p.Metadata.Name
	if e.addr, err = address(p.Status.PodIP); err != nil {
		return e, false, fmt.Errorf("pod %s: status.podIP: %w", e.pod, err)
	}
	serving := false
	for _, c := range p.Status.Conditions {
		serving = serving || c.Type == "Ready" && c.Status == "True"
	}
	e.state = stateOf(serving && p.Metadata.DeletionTimestamp == "", serving)
	e.labels = p.Metadata.Labels
	return e, true, nil
}

// pool finds endpoints as an InferencePool says.
type pool struct {
	d       *Discovery
	changed chan struct{}

	mu     sync.Mutex // guards everything below
	table  *table[inferencePool]
	chosen selector    // that pods is for
	ports  []uint16    // of the pool as it was read last
	pods   *table[pod] // nil before the pool was read
	next   *table[pod] // of a changed selector, until it is filled
}

func newPool(d *Discovery) *pool { return &pool{d: d, changed: make(chan struct{}, 1)} }

func (p *pool) poke() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// follow implements finder.
func (p *pool) follow(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { p.followPool(ctx) })
	pods, podSelector := p.await(ctx)
	for pods != nil {
		inner, stop := context.WithCancel(ctx)
		var filling sync.WaitGroup
		filling.Go(func() { pods.fill(inner, p.d.watched(podsResource, podSelector, "")) })
		next, nextSelector := p.await(ctx)
		stop()
		filling.Wait()
		pods, podSelector = next, nextSelector
	}
}

// await returns when the pool chooses other pods, or with nil when ctx ends.
func (p *pool) await(ctx context.Context) (pods *table[pod], podSelector string) {
	for {
		select {
		case <-p.changed:
			pods, podSelector = p.take()
			p.d.poke()
			if pods != nil {
				return pods, podSelector
			}
		case <-ctx.Done():
			return nil, ""
		}
	}
}

// take looks at the pool. When it chooses other pods than before, it returns the table for them and their selector. A pool that is
// gone, or makes no sense, changes nothing: its pods are followed as before.
func (p *pool) take() (pods *table[pod], podSelector string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.table == nil {
		return nil, ""
	}
	rows, ok := p.table.all()
	if !ok {
		return nil, ""
	}
	name := "InferencePool " + p.d.p.InferencePool
	if len(rows) == 0 {
		p.d.hear(name, errors.New("there is none of this name"))
		return nil, ""
	}
	ports, err := rows[0].ports()
	if err == nil && len(rows[0].Spec.Selector) == 0 {
		err = errors.New("its selector is empty; it must not choose every pod")
	}
	p.d.hear(name, err)
	if err != nil {
		return nil, ""
	}
	p.ports = ports
	if maps.Equal(p.chosen, rows[0].Spec.Selector) {
		return nil, ""
	}
	p.chosen = rows[0].Spec.Selector
	p.next = newTable[pod](p.d.poke)
	return p.next, labels.SelectorFromSet(labels.Set(p.chosen)).String()
}

// followPool keeps the pool's table filled, from the newest version that the cluster has; versions come and go.
func (p *pool) followPool(ctx context.Context) {
	for ctx.Err() == nil {
		version, err := p.version(ctx)
		p.d.hear("inferencepools", err)
		if err != nil {
			wait(ctx, p.d.retry)
			continue
		}
		inner, stop := context.WithCancel(ctx)
		rows := newTable[inferencePool](p.poke)
		p.mu.Lock()
		p.table = rows
		p.mu.Unlock()
		w := p.d.watched(version, "", "metadata.name="+p.d.p.InferencePool)
		hear := w.hear
		w.hear = func(err error) {
			hear(err)
			if apierrors.IsNotFound(err) { // the version is gone
				stop()
			}
		}
		rows.fill(inner, w)
		stop()
		wait(ctx, p.d.retry)
	}
}

// version is the first version of InferencePool that the cluster has.
func (p *pool) version(ctx context.Context) (schema.GroupVersionResource, error) {
	for _, v := range poolResources {
		_, err := p.d.client.Resource(v).Namespace(p.d.namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + p.d.p.InferencePool, Limit: 1})
		if err == nil || !apierrors.IsNotFound(err) {
			return v, err
		}
	}
	return schema.GroupVersionResource{}, errors.New("the cluster has no such resource; install the CRDs of the Gateway API inference extension")
}

// endpoints implements finder.
func (p *pool) endpoints() ([]endpoint, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next != nil {
		if _, ok := p.next.all(); ok {
			p.pods, p.next = p.next, nil
		}
	}
	if p.pods == nil {
		return nil, errNotYet
	}
	all, ok := p.pods.all()
	if !ok {
		return nil, errNotYet
	}
	var list []endpoint
	for i := range all {
		e, ok, err := all[i].endpoint()
		if err != nil {
			return nil, err
		}
		if ok {
			e.ports = p.ports
			list = append(list, e)
		}
	}
	return list, nil
}
