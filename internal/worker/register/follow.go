package register

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"attache/internal/worker"
)

// How a gateway's list follows the store, and the registry the list:
//
//	said here --> known --put--> store --poll--> known, but for what is newer here --publish--> registry
//
// What was said here is pending until it was put; while anything is, the store's word on that worker does not count.

// put brings a worker into the store, and reports whether it is there as it is. While the store cannot be reached nobody waits for it: poll
// puts what is pending. A store that answers and does not take a worker is not away.
func (r *Registrations) put(ctx context.Context, name string) bool {
	r.putting.Lock()
	defer r.putting.Unlock()
	r.mu.Lock()
	e := r.known[name]
	if e == nil || !e.pending || r.failed != nil {
		r.mu.Unlock()
		return e == nil || !e.pending
	}
	value, err := e.encode()
	changes, ttl := e.changes, e.ttl()
	r.mu.Unlock()
	if err == nil {
		// Whoever asked may leave; the store is not to be taken for unreachable because of that.
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		err = r.p.Store.Put(within, group, name, value, ttl)
		cancel()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if r.unput == nil && r.failed == nil {
			r.since = time.Now()
			r.p.Log.Warn("the store of registrations does not take a worker; it is tried again", "worker", name, "error", err)
		}
		r.unput = err
		return false
	}
	r.unput = nil
	if now := r.known[name]; now != nil && now.changes == changes {
		now.pending, now.raw = false, string(value)
	}
	return true
}

func (r *Registrations) failLocked(err error) {
	if r.failed == nil {
		r.since = time.Now()
		r.p.Log.Warn("the store of registrations cannot be reached; who is known is kept", "error", err)
	}
	r.failed = err
	r.metrics.storeUp.Set(0)
}

// poll takes in what the store has, and puts into it what it lacks.
func (r *Registrations) poll(ctx context.Context) {
	r.polling.Lock()
	defer r.polling.Unlock()
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, storeTimeout)
	members, err := r.p.Store.Members(within, group)
	cancel()
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	if err != nil {
		r.failLocked(err)
		r.mu.Unlock()
		r.publish()
		return
	}
	r.mergeLocked(members, began)
	var pending []string
	for name, e := range r.known {
		if e.pending {
			pending = append(pending, name)
		}
	}
	r.mu.Unlock()
	for _, name := range pending { // in any order, so that one that is not taken keeps nobody out for long
		if !r.put(ctx, name) {
			break
		}
	}
	r.publish()
}

// mergeLocked replaces what is known by what the store had when it was asked, began. What was changed here since, or is not in the store
// yet, stays.
func (r *Registrations) mergeLocked(members []Member, began time.Time) {
	now := time.Now()
	back := r.failed != nil
	if back {
		r.p.Log.Info("the store of registrations is back", "after", now.Sub(r.since).Round(time.Millisecond).String())
		r.failed = nil
		r.metrics.storeUp.Set(1)
	}
	ours := func(e *entry) bool { return e != nil && (e.pending || !e.touched.Before(began)) }
	seen := make(map[string]bool, len(members))
	for _, m := range members {
		seen[m.Name] = true
		e := r.known[m.Name]
		if ours(e) {
			continue
		}
		ends := now.Add(m.Left)
		if e != nil && e.raw == string(m.Value) {
			e.ends, e.beat = ends, ends.Add(-e.ttl())
			continue
		}
		rec, err := decodeRecord(m.Name, m.Value)
		if err != nil {
			r.badLocked(m.Name, err)
			continue
		}
		fresh := &entry{record: *rec, raw: string(m.Value), ends: ends, beat: ends.Add(-rec.ttl())}
		if e.here() && !fresh.here() {
			r.parted[e.Addr] = fresh.Left
		}
		r.stale = r.stale || e.here() != fresh.here() || fresh.here() && !e.sameSpec(rec)
		if fresh.here() && (e == nil || e.Beats != fresh.Beats) && fresh.Beats > 0 {
			r.news[fresh.Addr] = fresh.stats()
		}
		if e != nil {
			fresh.changes = e.changes
		}
		r.known[m.Name] = fresh
	}
	for name, e := range r.known {
		if back && e.ends.Before(now.Add(e.ttl())) && (e.pending || !seen[name]) {
			e.ends = now.Add(e.ttl()) // the store may have forgotten it: it has a lease's time to be heard of
		}
		switch {
		case !e.touched.Before(began), seen[name] && !e.pending, e.pending && now.Before(e.ends):
		case !e.here():
			delete(r.known, name)
		case !now.Before(e.ends):
			r.parted[e.Addr] = fmt.Sprintf("its lease ended: no heartbeat for %s", e.ttl())
			r.metrics.ended.Inc()
			r.stale = true
			delete(r.known, name)
		}
	}
}

func (r *Registrations) badLocked(name string, err error) {
	r.metrics.bad.Inc()
	if !r.badOnes[name] && len(r.badOnes) < r.p.Config.MaxWorkers {
		r.badOnes[name] = true
		r.p.Log.Error("a record in the store of registrations cannot be read", "error", err)
	}
}

// publish gives the registry what is known, if that changed, and the figures that came with heartbeats.
func (r *Registrations) publish() {
	r.applying.Lock()
	defer r.applying.Unlock()
	r.mu.Lock()
	stale, parted := r.stale, r.parted
	var specs []worker.Spec
	if stale {
		for _, name := range slices.Sorted(maps.Keys(r.known)) {
			if e := r.known[name]; e.here() {
				specs = append(specs, e.spec())
			}
		}
		r.stale, r.parted = false, map[netip.AddrPort]string{}
	}
	var news map[netip.AddrPort]worker.Stats
	if len(r.news) > 0 {
		news, r.news = r.news, map[netip.AddrPort]worker.Stats{}
	}
	r.mu.Unlock()
	if stale {
		for addr, cause := range parted {
			r.p.Registry.Farewell(addr, cause)
		}
		r.p.Registry.Apply(Source, specs)
		r.metrics.workers.Set(float64(len(specs)))
	}
	for addr, stats := range news {
		r.p.Registry.Tell(addr, stats)
	}
}
