package worker

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/slot"
)

// Registry is the only writer of who serves. Its methods are safe for concurrent use and take effect at once, also
// before Run; Run is what looks after the workers: health checks, metrics, and what follows from time alone.
type Registry struct {
	cfg     atomic.Pointer[Config]
	log     *slog.Logger
	metrics *metrics
	client  *http.Client
	set     atomic.Pointer[Set]

	// mu guards everything below. Observers are called with it held, one set after another: they must return at once and
	// must not call back into the registry, except for Set.
	mu        sync.Mutex
	sources   sources
	words     map[netip.AddrPort]Drain // of operators
	tellDrain func(Drain)              // nil: nobody is told
	entries   map[netip.AddrPort]*entry
	slots     slots
	observers []func(*Set)
	gateOn    bool
	known     map[netip.AddrPort]struct{}
	farewells map[netip.AddrPort]string // why workers will be gone
	departed  []Departed                // oldest first
	inFlight  func(slot.Slot) int
	watch     func(*entry) // starts looking after a worker; nil before Run
}

// entry is one worker in the making.
type entry struct {
	facts

	spec    Spec
	slots   []slot.Slot // one for each data-parallel rank
	live    *atomic.Pointer[Stats]
	told    *atomic.Pointer[Stats] // by itself
	names   *atomic.Pointer[Served]
	proven  *proof
	flap    flap
	verdict verdict
	now     *Worker       // as it was published last
	stop    func()        // ends looking after it
	probe   chan struct{} // asks for a check at once
}

// New makes an empty registry.
func New(cfg Config, log *slog.Logger, reg prometheus.Registerer) (*Registry, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Registry{
		log: log, metrics: newMetrics(reg), entries: map[netip.AddrPort]*entry{}, farewells: map[netip.AddrPort]string{}, words: map[netip.AddrPort]Drain{},
	}
	r.client = &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return (&net.Dialer{Timeout: r.cfg.Load().Health.Timeout}).DialContext(ctx, network, addr)
			},
			MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	r.cfg.Store(&cfg)
	r.set.Store(NewSet())
	reg.MustRegister(ages{r})
	return r, nil
}

// Set is who serves now. It takes no lock.
func (r *Registry) Set() *Set { return r.set.Load() }

// Observe calls back with the current set, and with every one that follows, in order.
func (r *Registry) Observe(f func(*Set)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observers = append(r.observers, f)
	f(r.set.Load())
}

// CountInFlight says how many requests a worker has: busy ones are read more often.
func (r *Registry) CountInFlight(f func(slot.Slot) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight = f
}

// Reconfigure watches workers by another configuration from now on: every one is checked at once, and what was counted of its failures
// stays. The error names what Validate refuses; then nothing changes.
func (r *Registry) Reconfigure(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	r.cfg.Store(&cfg)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		e.ask() // else a pause that was long would be waited for
	}
	r.publishLocked(time.Now())
	return nil
}

// List is the complete list of one source of discovery.
type List struct {
	Source string
	Specs  []Spec
}

// Apply takes in the complete list of one source of discovery, which is called "kind" or "kind/pool" (see Source); what the source
// named before and names no longer is gone, unless another source names it.
func (r *Registry) Apply(source string, specs []Spec) { r.ApplyAll(List{source, specs}) }

// ApplyAll is Apply for several sources at once: a worker that moves from one to another stays who it is.
func (r *Registry) ApplyAll(lists ...List) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range lists {
		from := r.sources.open(l.Source)
		from.specs = l.Specs
		r.metrics.sourceWorkers.WithLabelValues(from.pool, from.label()).Set(float64(len(l.Specs)))
	}
	wanted, inOrder := r.sources.merged()
	now := time.Now()
	for addr, e := range r.entries {
		if spec, still := wanted[addr]; !still || spec.Pool != e.spec.Pool {
			r.removeLocked(addr, e, now)
			if !still {
				delete(r.words, addr) // who comes to this address is another one
				r.departLocked(e.spec, now)
			}
		}
	}
	clear(r.farewells)
	for _, addr := range inOrder {
		e := r.entries[addr]
		if e == nil {
			e = &entry{slots: []slot.Slot{r.slots.take(now)}, live: new(atomic.Pointer[Stats]), told: new(atomic.Pointer[Stats]),
				names: new(atomic.Pointer[Served]), proven: new(proof), probe: make(chan struct{}, 1)}
			e.drainByHand = r.words[addr].On
			r.entries[addr] = e
		}
		if e.stop != nil && e.spec.Engine != wanted[addr].Engine { // it is looked after in another way
			e.stop()
			e.stop = nil
		}
		e.spec, e.drain = wanted[addr], wanted[addr].Drain
	}
	r.forgetDepartedLocked(now)
	r.publishLocked(now)
	for _, addr := range inOrder {
		r.startLocked(r.entries[addr])
	}
}

func (r *Registry) removeLocked(addr netip.AddrPort, e *entry, now time.Time) {
	if e.stop != nil {
		e.stop()
	}
	delete(r.entries, addr)
	for _, s := range e.slots {
		r.slots.free(s, now)
	}
	r.metrics.states.DeletePartialMatch(prometheus.Labels{"pool": e.spec.Pool, "worker": e.spec.Name})
}

func (r *Registry) startLocked(e *entry) {
	if r.watch != nil && e.stop == nil {
		r.watch(e)
	}
}

// Report takes in what a request met on a worker.
func (r *Registry) Report(s slot.Slot, o Outcome) {
	w := r.Set().BySlot(s)
	if w == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[w.Addr]
	if e != nil && o.OK && r.cfg.Load().Health.Canary.Interval > 0 {
		e.proven.now()
	}
	if e == nil || o.OK && e.circuit == (circuit{}) {
		return // the usual news changes nothing
	}
	now := time.Now()
	e.circuit.report(o, r.cfg.Load().Circuit, now)
	if !o.OK {
		e.ask()
	}
	r.publishLocked(now)
}

// BadFile counts a watched file that turned bad.
func (r *Registry) BadFile(error) { r.metrics.badFiles.Inc() }

// ask wants a health check at once; one that is wanted already is enough.
func (e *entry) ask() {
	select {
	case e.probe <- struct{}{}:
	default:
	}
}

// UseGate says whether Envoys take endpoints from us: then a new worker waits until they know it.
func (r *Registry) UseGate(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gateOn != on {
		r.gateOn = on
		r.publishLocked(time.Now())
	}
}

// Acknowledged says which addresses every connected Envoy knows.
func (r *Registry) Acknowledged(addrs map[netip.AddrPort]struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = addrs
	r.publishLocked(time.Now())
}

// change edits one worker and publishes what follows.
func (r *Registry) change(addr netip.AddrPort, edit func(*entry, time.Time)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[addr]
	if e == nil {
		return
	}
	now := time.Now()
	edit(e, now)
	r.publishLocked(now)
}

// publishLocked works out every worker's state and, when anything differs, publishes a new set.
func (r *Registry) publishLocked(now time.Time) {
	changed := len(r.entries) != len(r.Set().All())
	workers := make([]*Worker, 0, len(r.entries))
	for addr, e := range r.entries {
		_, known := r.known[addr]
		r.rankLocked(e, now)
		cfg := r.cfg.Load()
		e.verdict.state, e.verdict.cause = e.state(gate{on: r.gateOn, known: known, timeout: cfg.AckTimeout}, now)
		if e.flap.see(e.verdict.state, cfg.Flap, now) {
			r.metrics.flaps.WithLabelValues(e.spec.Pool).Inc()
			r.log.Warn("worker held back", "worker", e.spec.Name, "pool", e.spec.Pool, "cause", e.flap.cause(cfg.Flap))
		}
	}
	r.holdBackLocked(now)
	for addr, e := range r.entries {
		state, cause, before := e.verdict.state, e.verdict.cause, e.now
		if before == nil || before.State != state || before.Cause != cause || before.Epoch != e.epoch || !sameSpec(&before.Spec, &e.spec) ||
			len(before.slots) != len(e.slots) {
			traits, _ := ParseTraits(e.spec.Labels) // files with bad ones were refused
			e.now = &Worker{Spec: e.spec, Traits: traits, Slot: e.slots[0], State: state, Cause: cause, Since: now, Epoch: e.epoch,
				Endpoint: addr.String(), live: e.live, served: e.names, slots: slices.Clone(e.slots)}
			if before != nil && before.State == state {
				e.now.Since = before.Since
			}
			r.note(before, e.now)
			changed = true
		}
		workers = append(workers, e.now)
	}
	if !changed {
		return
	}
	set := NewSet(workers...)
	set.Version = r.Set().Version + 1
	r.set.Store(set)
	r.metrics.changes.Inc()
	for _, f := range r.observers {
		f(set)
	}
}

func sameSpec(a, b *Spec) bool {
	return a.Name == b.Name && a.Pool == b.Pool && a.Engine == b.Engine && a.Drain == b.Drain && a.Events == b.Events && a.Source == b.Source &&
		maps.Equal(a.Labels, b.Labels)
}

// maxRanks bounds the data-parallel ranks of a worker.
const maxRanks = 256

// rankLocked gives a worker a slot for every data-parallel rank that it is said to have, or shows. It loses none: an engine that
// restarts with fewer leaves some unused.
func (r *Registry) rankLocked(e *entry, now time.Time) {
	ranks := e.spec.Events.Ranks
	if stats := e.live.Load(); ranks == 0 && stats != nil {
		ranks = stats.Ranks
	}
	for len(e.slots) < min(ranks, maxRanks) {
		e.slots = append(e.slots, r.slots.take(now))
	}
}

// note tells the log and the metrics of a change.
func (r *Registry) note(before, after *Worker) {
	if before == nil || before.State != after.State || before.Name != after.Name {
		if before != nil {
			r.metrics.states.DeleteLabelValues(before.Pool, before.Name, string(before.State))
		}
		r.metrics.states.WithLabelValues(after.Pool, after.Name, string(after.State)).Set(1)
		r.log.Info("worker "+string(after.State), "worker", after.Name, "pool", after.Pool, "address", after.Endpoint, "cause", after.Cause)
	}
}

// tick is how late a state may follow from time alone: the end of a pause, of waiting for an acknowledgement.
const tick = 50 * time.Millisecond

// Run looks after the workers until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	var running sync.WaitGroup
	r.mu.Lock()
	r.watch = func(e *entry) {
		mine, stop := context.WithCancel(ctx)
		e.stop = stop
		spec, live, told, names := e.spec, e.live, e.told, e.names
		running.Go(func() { r.checkHealth(mine, spec, e.probe, e.proven) })
		running.Go(func() { r.readMetrics(mine, spec, e.slots[0], live, told, names) })
	}
	for _, e := range r.entries {
		r.startLocked(e)
	}
	r.mu.Unlock()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.mu.Lock()
			r.forgetDepartedLocked(time.Now())
			r.publishLocked(time.Now())
			r.mu.Unlock()
		case <-ctx.Done():
			r.mu.Lock()
			r.watch = nil
			for _, e := range r.entries {
				e.stop()
			}
			r.mu.Unlock()
			running.Wait()
			r.client.CloseIdleConnections()
			return nil
		}
	}
}

// slots hands out small integers. A freed one rests before it is used again: what is still booked or remembered under
// it must not be taken for the next worker's.
type slots struct {
	next  slot.Slot
	freed []freed // oldest first
}

type freed struct {
	slot slot.Slot
	at   time.Time
}

const quarantine = time.Minute

func (s *slots) take(now time.Time) slot.Slot {
	if len(s.freed) > 0 && now.Sub(s.freed[0].at) >= quarantine {
		n := s.freed[0].slot
		s.freed = s.freed[1:]
		return n
	}
	s.next++
	return s.next - 1
}

func (s *slots) free(n slot.Slot, now time.Time) { s.freed = append(s.freed, freed{n, now}) }
