package worker

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Source is one source of discovery. What it says goes into the registry's list by rule, whatever the order in which sources come:
//
//   - a worker is what has an address; of several sources that name one address the highest kind says its name, its pool and the
//     address as written: static > file > registered > dns > kubernetes, and of two of one kind the first by name. What a person
//     wrote stands above what a worker says of itself, and that above what was concluded from names and objects;
//   - what the higher one leaves open is taken from the next that says it, of the same pool: the engine, where the events are, and
//     labels, one by one;
//   - a worker drains when any of them says so.
//
// Its methods are safe for concurrent use and take effect at once.
type Source struct {
	registry *Registry
	name     string
}

// Source opens a source that is followed: one that says of its own accord, again and again, that its list still holds. It is called
// "kind/pool" or "kind/pool/what".
func (r *Registry) Source(name string) *Source {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.sources.open(name)
	e.followed, e.good = true, time.Now()
	r.metrics.touch(e)
	return &Source{registry: r, name: name}
}

// Apply takes in the complete list; what is named no longer is gone. A source that failed does so until Confirm.
func (s *Source) Apply(specs []Spec) { s.registry.Apply(s.name, specs) }

// Close says that the source is not followed any more. What it named stays until it is applied otherwise.
func (s *Source) Close() {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.sources.open(s.name)
	e.followed, e.err, e.failing = false, "", time.Time{}
}

// Confirm says that the list was read again and still holds.
func (s *Source) Confirm() {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	r.goodLocked(r.sources.open(s.name))
}

// Failed says that the list could not be read; the last one is kept. It is logged when it begins and when it is over.
func (s *Source) Failed(err error) {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.sources.open(s.name)
	if e.err == "" {
		e.failing = time.Now()
		r.log.Warn("discovery fails; its last list is kept", "source", e.label(), "pool", e.pool, "workers", len(e.specs), "error", err)
	}
	e.err = err.Error()
	r.metrics.sourceErrors.WithLabelValues(e.pool, e.label()).Inc()
}

// goodLocked notes that a source was read.
func (r *Registry) goodLocked(e *source) {
	if e.err != "" {
		r.log.Info("discovery works again", "source", e.label(), "pool", e.pool, "workers", len(e.specs), "after", time.Since(e.failing))
	}
	e.good, e.err, e.failing = time.Now(), "", time.Time{}
}

// SourceStatus is how a source of discovery fares.
type SourceStatus struct {
	// Name is the kind, and what is followed where that has a name: "static", "dns/engines.models.svc".
	Name string
	Pool string // "" for a source that names workers of all pools
	// Workers is how many it named last, also those that a higher source names as well.
	Workers int
	// Followed says that it is read again and again; Good is when that succeeded last, or when it was opened.
	Followed bool
	Good     time.Time
	// Err is why it cannot be read now, since Failing; "" when it can.
	Err     string
	Failing time.Time
}

// Sources are the sources of discovery, the highest first.
func (r *Registry) Sources() []SourceStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]SourceStatus, 0, len(r.sources))
	for _, e := range r.sources {
		all = append(all, SourceStatus{Name: e.label(), Pool: e.pool, Workers: len(e.specs), Followed: e.followed, Good: e.good, Err: e.err,
			Failing: e.failing})
	}
	return all
}

// source is what is known of one source.
type source struct {
	name             string // "kind/pool/what"
	kind, pool, what string
	specs            []Spec

	followed      bool
	good, failing time.Time
	err           string
}

// label is the name without the pool.
func (s *source) label() string {
	if s.what == "" {
		return s.kind
	}
	return s.kind + "/" + s.what
}

// kinds are the kinds of sources, the highest first. Others stand below.
var kinds = []string{"static", "file", "registered", "dns", "kubernetes"}

func (s *source) rank() int {
	if i := slices.Index(kinds, s.kind); i >= 0 {
		return i
	}
	return len(kinds)
}

// sources are all of them, the highest first. It is not safe for concurrent use.
type sources []*source

// open finds a source, or makes it.
func (s *sources) open(name string) *source {
	for _, e := range *s {
		if e.name == name {
			return e
		}
	}
	e := &source{name: name}
	kind, rest, _ := strings.Cut(name, "/")
	e.kind = kind
	e.pool, e.what, _ = strings.Cut(rest, "/")
	*s = append(*s, e)
	slices.SortFunc(*s, func(a, b *source) int { return cmp.Or(a.rank()-b.rank(), strings.Compare(a.name, b.name)) })
	return e
}

// merged is the list that follows, by address, and the addresses in the order in which sources name them.
func (s sources) merged() (map[netip.AddrPort]Spec, []netip.AddrPort) {
	all := map[netip.AddrPort]Spec{}
	var order []netip.AddrPort
	for _, e := range s {
		for _, spec := range e.specs {
			above, named := all[spec.Addr]
			if named {
				above.fill(&spec)
				spec = above
			} else {
				spec.Source = e.name
				order = append(order, spec.Addr)
			}
			all[spec.Addr] = spec
		}
	}
	return all, order
}

// fill takes from a lower source of the same pool what is left open. It changes no map that a source gave.
func (s *Spec) fill(from *Spec) {
	if s.Pool != from.Pool {
		return // one of them is late: addresses move from one pool to another
	}
	if s.Engine == "" || s.Engine == Auto {
		s.Engine = cmp.Or(from.Engine, s.Engine)
	}
	if s.Events == (EventSource{}) {
		s.Events = from.Events
	}
	s.Drain = s.Drain || from.Drain
	switch {
	case len(from.Labels) == 0:
	case len(s.Labels) == 0:
		s.Labels = from.Labels
	default:
		labels := maps.Clone(from.Labels)
		maps.Copy(labels, s.Labels)
		s.Labels = labels
	}
}

// ages collects how long ago the lists of followed sources were read.
type ages struct{ registry *Registry }

// Describe implements prometheus.Collector.
func (ages) Describe(ch chan<- *prometheus.Desc) { ch <- sourceAge }

// Collect implements prometheus.Collector.
func (a ages) Collect(ch chan<- prometheus.Metric) {
	for _, s := range a.registry.Sources() {
		if s.Followed {
			ch <- prometheus.MustNewConstMetric(sourceAge, prometheus.GaugeValue, time.Since(s.Good).Seconds(), s.Pool, s.Name)
		}
	}
}
