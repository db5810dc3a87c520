package register

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/worker"
)

// Source is what the registry knows these workers by.
const Source = "registered"

// group is where the store keeps them.
const group = "workers"

const (
	pollEvery    = 500 * time.Millisecond // how late another gateway's news are here
	storeTimeout = time.Second            // how long the store may take
)

// Registry is who serves. Its methods return at once.
type Registry interface {
	Apply(source string, specs []worker.Spec)
	Farewell(addr netip.AddrPort, cause string)
	Tell(addr netip.AddrPort, stats worker.Stats)
	Set() *worker.Set
}

// Pool is where workers may register.
type Pool struct {
	Name   string
	Models []string // a name, or the beginning of names followed by "*"
}

// Params are what Registrations need.
type Params struct {
	Config   worker.RegistrationConfig
	Pools    []Pool // the first is the default one
	Store    Store
	Registry Registry
	InFlight func(netip.AddrPort) int // requests at a worker; nil: not known
	Log      *slog.Logger
	Metrics  prometheus.Registerer
}

// Registrations are the workers that registered themselves, at this gateway or another. Safe for concurrent use; Run keeps them current.
type Registrations struct {
	p       Params
	metrics *metrics
	token   *token // nil: nobody may register

	polling  sync.Mutex // one list is read at a time; before putting, applying and mu
	putting  sync.Mutex // one record is put at a time, the latest of its worker; before mu
	applying sync.Mutex // one list is given to the registry at a time, the latest; before mu

	mu      sync.Mutex // guards what follows
	known   map[string]*entry
	stale   bool                            // the registry does not have known as it is
	parted  map[netip.AddrPort]string       // why workers left that the registry still has
	news    map[netip.AddrPort]worker.Stats // that came with heartbeats, and that the registry does not have
	failed  error                           // why the store cannot be reached; nil: it can
	unput   error                           // why it did not take the last worker that was put; nil: it did
	since   time.Time                       // when that began
	badOnes map[string]bool                 // names whose records could not be read, and that were logged
}

// entry is a worker as this gateway knows it.
type entry struct {
	record

	raw     string    // the record as the store had it last
	ends    time.Time // of its lease, by our clock and generously
	beat    time.Time // when it was heard of last
	touched time.Time // when it was changed here last
	pending bool      // the store does not have it as it is
	changes int
}

func (e *entry) here() bool { return e != nil && e.Left == "" }

func (e *entry) touch(now time.Time) {
	e.touched, e.beat, e.ends, e.pending = now, now, now.Add(e.ttl()), true
	e.changes++
}

// New makes Registrations. The configuration must be valid.
func New(p Params) (*Registrations, error) {
	r := &Registrations{
		p: p, metrics: newMetrics(p.Metrics), known: map[string]*entry{}, parted: map[netip.AddrPort]string{},
		news: map[netip.AddrPort]worker.Stats{}, badOnes: map[string]bool{},
	}
	if !p.Config.Enabled() {
		return r, nil
	}
	var err error
	if r.token, err = newToken(p.Config.TokenFile); err != nil {
		return nil, fmt.Errorf("workers.registration.token_file: %w", err)
	}
	return r, nil
}

// Run follows the store until ctx ends.
func (r *Registrations) Run(ctx context.Context) error {
	if r.token == nil {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		r.poll(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Authorize reports, as a *RefusedError, whether who shows this token may not register workers.
func (r *Registrations) Authorize(shown string) error {
	switch {
	case r.token == nil:
		return &RefusedError{Off, "workers cannot register here: set workers.registration.token_file to a file with a token of at least 16 characters"}
	case shown == "":
		return &RefusedError{Stranger, "authorization: must be Bearer and the token in workers.registration.token_file"}
	case !r.token.is(shown):
		return &RefusedError{Stranger, "authorization: this is not the token in workers.registration.token_file"}
	}
	return nil
}

// Register takes a worker in, or what it says anew. The error is a *RefusedError.
func (r *Registrations) Register(ctx context.Context, said *Registration) (*Lease, error) {
	lease, err := r.register(ctx, said)
	r.metrics.asked("register", err)
	return lease, err
}

func (r *Registrations) register(ctx context.Context, said *Registration) (*Lease, error) {
	pool, err := r.poolFor(said)
	if err != nil {
		return nil, err
	}
	addr, err := worker.Resolve(said.Address)
	if err != nil {
		return nil, invalidf("address: %v", err)
	}
	ttl := r.p.Config.TTL.Seconds()
	if said.TTL > 0 {
		ttl = min(ttl, said.TTL)
	}
	now := time.Now()
	r.mu.Lock()
	if err := r.roomLocked(said.Name, addr, now); err != nil {
		r.mu.Unlock()
		return nil, err
	}
	before := r.known[said.Name]
	e := &entry{record: record{Registration: *said, Addr: addr, Lease: ttl, Since: now.UTC()}}
	e.Pool = pool
	if before.here() {
		e.Since, e.Beats, e.changes = before.Since, before.Beats, before.changes
	}
	e.touch(now)
	r.known[said.Name] = e
	r.stale = true
	r.mu.Unlock()
	if !before.here() {
		r.p.Log.Info("worker registered", "worker", said.Name, "pool", pool, "address", addr.String())
	}
	r.put(ctx, said.Name)
	r.publish()
	return r.lease(said.Name)
}

// poolFor is where a worker serves that may not say it.
func (r *Registrations) poolFor(said *Registration) (string, error) {
	var names, fitting []string
	for _, p := range r.p.Pools {
		names = append(names, p.Name)
		if p.Name == said.Pool {
			return said.Pool, nil
		}
		if slices.ContainsFunc(p.Models, func(model string) bool {
			beginning, open := strings.CutSuffix(model, "*")
			return slices.ContainsFunc(said.Models, func(m string) bool { return m == model || open && strings.HasPrefix(m, beginning) })
		}) {
			fitting = append(fitting, p.Name)
		}
	}
	switch {
	case said.Pool != "":
		return "", invalid("pool", said.Pool, "must be one of %s", strings.Join(names, ", "))
	case len(names) == 1:
		return names[0], nil
	case len(fitting) == 1:
		return fitting[0], nil
	}
	return "", invalidf("pool: must be one of %s, because its models, %q, do not tell", strings.Join(names, ", "), said.Models)
}

// roomLocked reports whether a worker cannot be taken in.
func (r *Registrations) roomLocked(name string, addr netip.AddrPort, now time.Time) error {
	count := 0
	for other, e := range r.known {
		switch {
		case !e.here():
		case other == name && e.Addr != addr:
			return &RefusedError{Taken, fmt.Sprintf("name: %q is taken by the worker at %s, whose lease lasts for another %s; give every worker a name of its own",
				name, e.Address, max(0, e.ends.Sub(now)).Round(time.Second))}
		case other != name && e.Addr == addr:
			return &RefusedError{Taken, fmt.Sprintf("address: %s is taken by worker %s, whose lease lasts for another %s", addr, other, max(0, e.ends.Sub(now)).Round(time.Second))}
		case other != name:
			count++
		}
	}
	for _, w := range r.p.Registry.Set().All() {
		if w.Name == name && w.Source != Source && w.Addr != addr {
			return &RefusedError{Taken, fmt.Sprintf("name: %q is taken by the worker at %s, which %s names", name, w.Address, w.Source)}
		}
	}
	if count >= r.p.Config.MaxWorkers {
		return &RefusedError{Full, fmt.Sprintf("%d workers are registered, as many as workers.registration.max_workers allows", count)}
	}
	return nil
}

// Heartbeat renews a lease. The error is a *RefusedError; Unknown says that the worker should register again.
func (r *Registrations) Heartbeat(ctx context.Context, name string, said *Heartbeat) (*Lease, error) {
	lease, err := r.heartbeat(ctx, name, said)
	r.metrics.asked("heartbeat", err)
	return lease, err
}

func (r *Registrations) heartbeat(ctx context.Context, name string, said *Heartbeat) (*Lease, error) {
	renew := func(e *entry) {
		e.Load, e.Beats = said.Load, e.Beats+1
		r.news[e.Addr] = e.stats()
	}
	if !r.change(name, renew) {
		if !r.away() {
			r.poll(ctx) // another gateway may have taken it in a moment ago
		}
		if !r.change(name, renew) {
			return nil, r.unknown(name)
		}
	}
	r.put(ctx, name)
	r.publish()
	return r.lease(name)
}

// Drain takes a worker out of new decisions of all gateways, until it registers again. It is the worker's own word: what an operator says
// is said to the registry. The error is a *RefusedError.
func (r *Registrations) Drain(ctx context.Context, name string) (*Lease, error) {
	drained := r.change(name, func(e *entry) { e.Draining, r.stale = true, true })
	if drained {
		r.put(ctx, name)
		r.publish()
	}
	lease, err := r.lease(name)
	r.metrics.asked("drain", err)
	return lease, err
}

// Deregister lets a worker go at once. The error is a *RefusedError.
func (r *Registrations) Deregister(ctx context.Context, name string) error {
	const cause = "it said goodbye"
	gone := r.change(name, func(e *entry) {
		e.Left, r.stale = cause, true
		r.parted[e.Addr] = cause
	})
	if !gone {
		err := r.unknown(name)
		r.metrics.asked("deregister", err)
		return err
	}
	r.metrics.asked("deregister", nil)
	r.put(ctx, name)
	r.publish()
	return nil
}

func (r *Registrations) unknown(name string) error {
	return &RefusedError{Unknown, fmt.Sprintf("no worker %q is registered; register it again", name)}
}

// change edits a worker that is here, with the lock held; false says that there is none.
func (r *Registrations) change(name string, edit func(*entry)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.known[name]
	if !e.here() {
		return false
	}
	edit(e)
	e.touch(time.Now())
	return true
}

func (r *Registrations) lease(name string) (*Lease, error) {
	r.mu.Lock()
	e := r.known[name]
	if !e.here() {
		r.mu.Unlock()
		return nil, r.unknown(name)
	}
	l := &Lease{Worker: name, Pool: e.Pool, TTL: e.Lease, Heartbeat: e.Lease / 3, Draining: e.Draining}
	addr := e.Addr
	r.mu.Unlock()
	if r.p.InFlight != nil {
		l.InFlight = r.p.InFlight(addr)
	}
	return l, nil
}

// Held is one registered worker as this gateway knows it.
type Held struct {
	Registration

	Since    time.Time     // when it registered
	TTL      time.Duration // of its lease
	Left     time.Duration // of its lease, by our clock; not below 0
	Beat     time.Time     // when it was heard of last
	Draining bool
	Load     Load
}

// Held are the workers that are registered, by address.
func (r *Registrations) Held() map[netip.AddrPort]Held {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := make(map[netip.AddrPort]Held, len(r.known))
	now := time.Now()
	for _, e := range r.known {
		if e.here() {
			held[e.Addr] = Held{Registration: e.Registration, Since: e.Since, TTL: e.ttl(), Left: max(0, e.ends.Sub(now)), Beat: e.beat,
				Draining: e.Draining, Load: e.Load}
		}
	}
	return held
}

// StoreFailure is why the store cannot be reached, or does not take all workers, and since when; nil when all is well.
func (r *Registrations) StoreFailure() (since time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since, cmp.Or(r.failed, r.unput)
}

func (r *Registrations) away() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed != nil
}
