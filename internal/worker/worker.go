// Package worker knows who serves, in what state, and why.
//
// Discovery says which engines there are. The Registry, the only writer, checks their health, reads their metrics, and
// takes in the failures that requests met; from all that follows one state per worker. What readers see is an immutable
// Set, replaced whole whenever something changed: the request path reads it without a lock.
package worker

import (
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"attache/internal/slot"
)

// State is what may be done with a worker. Only a ready one is chosen.
type State string

// The states. The first that applies holds, from draining down to ready. Other gateways say "joining" for starting and syncing, and
// "active" for ready. Gone is of those only that left (Departed); no worker of a Set has it.
const (
	Draining  State = "draining"  // told to take nothing new; what runs finishes
	Starting  State = "starting"  // its health was never answered
	Unhealthy State = "unhealthy" // its health check fails
	Suspect   State = "suspect"   // requests failed on it, or it comes and goes; it is tried again after a pause
	Syncing   State = "syncing"   // healthy, but not every connected Envoy has acknowledged its address
	Ready     State = "ready"
	Gone      State = "gone" // it left, or its lease ended
)

// Engine is what a worker runs.
type Engine string

// The engines. Auto is told by the names of the metrics.
const (
	Auto   Engine = "auto"
	VLLM   Engine = "vllm"
	SGLang Engine = "sglang"
	TRTLLM Engine = "trtllm"
)

// Valid reports whether the engine is known.
func (e Engine) Valid() bool { return e == Auto || e == VLLM || e == SGLang || e == TRTLLM }

// Spec is what discovery says of a worker.
type Spec struct {
	Name    string // unique; the address when nothing better is known
	Pool    string
	Address string // as it was written, host:port
	Addr    netip.AddrPort
	Engine  Engine
	Drain   bool
	Labels  map[string]string
	Events  EventSource
	Source  string // of discovery that named it; set by Registry.Apply
}

// EventSource is where a worker publishes its KV events, in place of what its pool says. The zero value says nothing.
type EventSource struct {
	// Off says that it publishes none.
	Off bool
	// Endpoint is its publisher and Replay its replay socket, as ZeroMQ writes addresses: "tcp://10.0.0.1:5557". Further
	// data-parallel ranks are at the ports that follow.
	Endpoint, Replay string
	// Topic is the beginning of the topics wanted; "" as the pool says.
	Topic string
	// Ranks is how many data-parallel ranks it has, FirstRank how its events number the first. 0 ranks: as its metrics show.
	Ranks, FirstRank int
}

// Worker is one engine endpoint at one moment. It is immutable; Stats alone moves on.
type Worker struct {
	Spec

	Slot     slot.Slot
	State    State
	Cause    string    // why it is in this state, a sentence; "" when there is nothing to say
	Since    time.Time // of the state
	Epoch    uint64    // one more for every time its process was seen gone or restarted: its KV cache is empty since
	Endpoint string    // Addr as text

	// Traits is what its labels say.
	Traits Traits

	live   *atomic.Pointer[Stats]
	served *atomic.Pointer[Served]
	slots  []slot.Slot
}

// Serves reports whether a name is one of the engine's names of its base model, as it said last: what is asked for under any of
// them has one KV cache. An adapter's name is none.
func (w *Worker) Serves(model string) bool {
	if model == w.Stats().Model {
		return true
	}
	served := w.Served()
	return served != nil && slices.Contains(served.Names, model)
}

// Served is what the engine said it serves; nil when it was not asked yet, or does not tell. It changes without a new Set, and
// must not be changed.
func (w *Worker) Served() *Served {
	if w.served == nil {
		return nil
	}
	return w.served.Load()
}

// Slots are the worker's data-parallel ranks, at least one; the first is Slot. The slice must not be changed.
func (w *Worker) Slots() []slot.Slot {
	if len(w.slots) == 0 {
		return []slot.Slot{w.Slot}
	}
	return w.slots
}

// Rank is which of the worker's ranks a slot is, counted from 0; 0 for a slot that is none of them.
func (w *Worker) Rank(s slot.Slot) int { return max(0, slices.Index(w.slots, s)) }

// WithStats is the worker with figures as if its engine had told them, for tests.
func (w *Worker) WithStats(s Stats) *Worker {
	c := *w
	c.live = new(atomic.Pointer[Stats])
	c.live.Store(&s)
	return &c
}

// WithServed is the worker as if its engine had told that it serves this, for tests.
func (w *Worker) WithServed(s Served) *Worker {
	c := *w
	c.served = new(atomic.Pointer[Served])
	c.served.Store(&s)
	return &c
}

// NewWorker makes a worker in a given state, for tests and benchmarks. ranks are the slots of further data-parallel ranks.
func NewWorker(spec Spec, s slot.Slot, state State, ranks ...slot.Slot) *Worker {
	traits, _ := ParseTraits(spec.Labels)
	return &Worker{Spec: spec, Slot: s, State: state, Endpoint: spec.Addr.String(), Traits: traits, slots: append([]slot.Slot{s}, ranks...)}
}

// Eligible reports whether the worker may be chosen.
func (w *Worker) Eligible() bool { return w.State == Ready }

// Runs is the engine that the worker runs: as configured, else as its metrics show, else Auto.
func (w *Worker) Runs() Engine {
	if w.Engine == Auto || w.Engine == "" {
		if seen := w.Stats().Engine; seen != "" {
			return seen
		}
		return Auto
	}
	return w.Engine
}

// Stats is what the engine's metrics said last; zero when they were never read. It changes without a new Set.
func (w *Worker) Stats() Stats {
	if w.live == nil {
		return Stats{}
	}
	if s := w.live.Load(); s != nil {
		return *s
	}
	return Stats{}
}

// Stats is one reading of an engine's metrics.
type Stats struct {
	At               time.Time
	Running, Waiting int     // requests
	KVUsage          float64 // of the KV cache, 0 to 1
	BlockTokens      int     // tokens per block; 0 not known
	Blocks           int     // blocks in the KV cache, of all ranks together; 0 not known
	Ranks            int     // data-parallel ranks; 0: one, or not known
	PrefixQueries    float64 // tokens looked up in the prefix cache since the start
	PrefixHits       float64 // tokens found there
	Model            string  // as the engine calls it
	Engine           Engine  // as its metrics show
	ProcessStart     float64 // Unix time; 0 not known
	Err              string  // why the last reading failed; the figures are then those of the one before
	Told             bool    // since that failed, load and cache are as the worker told by itself
}

// Set is who serves, at one moment. It is immutable and safe for concurrent use.
type Set struct {
	Version  uint64
	all      []*Worker
	pools    map[string][]*Worker
	eligible map[string][]*Worker
	byAddr   map[netip.AddrPort]*Worker
	bySlot   []*Worker
}

// NewSet makes a set, ordered by pool and address.
func NewSet(workers ...*Worker) *Set {
	s := &Set{all: slices.Clone(workers), pools: map[string][]*Worker{}, eligible: map[string][]*Worker{}, byAddr: map[netip.AddrPort]*Worker{}}
	slices.SortFunc(s.all, func(a, b *Worker) int {
		if c := strings.Compare(a.Pool, b.Pool); c != 0 {
			return c
		}
		return a.Addr.Compare(b.Addr)
	})
	for _, w := range s.all {
		s.pools[w.Pool] = append(s.pools[w.Pool], w)
		if w.Eligible() {
			s.eligible[w.Pool] = append(s.eligible[w.Pool], w)
		}
		s.byAddr[w.Addr] = w
		for _, n := range w.Slots() {
			for int(n) >= len(s.bySlot) {
				s.bySlot = append(s.bySlot, nil)
			}
			s.bySlot[n] = w
		}
	}
	return s
}

// All lists every worker; the slice must not be changed.
func (s *Set) All() []*Worker { return s.all }

// Pool lists the workers of a pool; the slice must not be changed.
func (s *Set) Pool(name string) []*Worker { return s.pools[name] }

// Eligible lists the workers of a pool that may be chosen; the slice must not be changed.
func (s *Set) Eligible(pool string) []*Worker { return s.eligible[pool] }

// ByAddr finds a worker; nil when there is none.
func (s *Set) ByAddr(addr netip.AddrPort) *Worker { return s.byAddr[addr] }

// BySlot finds a worker; nil when the slot is free.
func (s *Set) BySlot(n slot.Slot) *Worker {
	if int(n) >= len(s.bySlot) {
		return nil
	}
	return s.bySlot[n]
}
