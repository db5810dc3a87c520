package gateway

import (
	"errors"
	"math/rand/v2"
	"time"

	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
	"attache/internal/slot"
	"attache/scoring"
)

// Alone is a delay after which nobody hears anything: every replica decides by itself.
const Alone = time.Duration(-1)

// Replicas are several gateways before one cluster. Each request comes to any of them; all follow the engines' events; and what one
// decides, and what becomes of it, the others know a while later, as they do by internal/replica in production. It is a
// virtual.Router.
type Replicas struct {
	all   []*Gateway
	delay time.Duration
	rand  *rand.Rand
	by    []int // by request: the replica that decided
	news  []news
	first int // of news that has not been told
}

// news is what one replica has to tell the others at some time.
type news struct {
	at      time.Duration
	from    int
	kind    newsKind
	request *trace.Request
	cached  int
	slot    slot.Slot
	outcome virtual.Outcome
	waited  time.Duration
}

type newsKind uint8

const (
	booked newsKind = iota
	prefilled
	over
)

// NewReplicas makes so many gateways. The others know what one decides after delay, or never when that is Alone.
func NewReplicas(n int, delay time.Duration, o Options, c *virtual.Cluster, w *trace.Workload) (*Replicas, error) {
	if o.Queue.Enabled() {
		return nil, errors.New("several replicas with a queue each are not simulated")
	}
	r := &Replicas{delay: delay, rand: rand.New(rand.NewPCG(o.Seed, 2)), by: make([]int, len(w.All))}
	for i := range n {
		own := o
		own.Seed = o.Seed + uint64(i)<<32
		g, err := New(own, c, w)
		if err != nil {
			return nil, err
		}
		r.all = append(r.all, g)
	}
	return r, nil
}

// Reuse is what was to be had of caches so far, by what the replicas knew that decided.
func (r *Replicas) Reuse() (sum Reuse) {
	for _, g := range r.all {
		sum.Prompt += g.reuse.Prompt
		sum.Available += g.reuse.Available
		sum.Captured += g.reuse.Captured
	}
	return sum
}

// share notes news for the others.
func (r *Replicas) share(n news) {
	if r.delay == Alone || len(r.all) == 1 {
		return
	}
	n.at += r.delay
	r.news = append(r.news, n)
}

// catchUp tells all news that has come by now.
func (r *Replicas) catchUp(now time.Duration) {
	for ; r.first < len(r.news) && r.news[r.first].at <= now; r.first++ {
		n := &r.news[r.first]
		for i, g := range r.all {
			if i != n.from {
				g.hear(n)
			}
		}
		n.request = nil
	}
	if r.first > 1024 && r.first > len(r.news)/2 {
		r.news = append(r.news[:0], r.news[r.first:]...)
		r.first = 0
	}
}

// hear takes in what another replica has decided.
func (g *Gateway) hear(n *news) {
	g.now = max(g.now, n.at)
	r := n.request
	switch n.kind {
	case booked:
		b := new(scoring.Booking)
		g.scorer.Mirror(b, &scoring.Demand{PromptTokens: r.Prompt, BlockTokens: g.workload.BlockTokens, Chain: r.Chain}, n.slot, n.cached, g.options.FirstTokens != Clock)
		g.heard[r.Index] = b
		if r.Session >= 0 {
			g.sessions[r.Session] = int(n.slot) + 1
		}
	case prefilled:
		g.heard[r.Index].Prefilled()
	case over:
		g.over(g.heard[r.Index], n.waited, n.outcome)
		delete(g.heard, r.Index)
	}
}

// Route has any of the replicas choose, as a load balancer before them does.
func (r *Replicas) Route(now time.Duration, q *trace.Request) (worker int, ok bool) {
	r.catchUp(now)
	by := r.rand.IntN(len(r.all))
	g := r.all[by]
	if worker, ok = g.Route(now, q); ok {
		r.by[q.Index] = by
		r.share(news{at: now, from: by, kind: booked, request: q, slot: slot.Slot(worker), cached: g.ranked[0].CachedTokens})
	}
	return worker, ok
}

// FirstToken implements virtual.Router.
func (r *Replicas) FirstToken(now time.Duration, q *trace.Request) {
	r.catchUp(now)
	by := r.by[q.Index]
	r.all[by].FirstToken(now, q)
	if r.all[by].options.FirstTokens == Live {
		r.share(news{at: now, from: by, kind: prefilled, request: q})
	}
}

// End implements virtual.Router.
func (r *Replicas) End(now time.Duration, q *trace.Request, o virtual.Outcome) {
	r.catchUp(now)
	by := r.by[q.Index]
	waited := r.all[by].waited[q.Index]
	r.all[by].End(now, q, o)
	r.share(news{at: now, from: by, kind: over, request: q, outcome: o, waited: waited})
}

// Stored implements virtual.Router.
func (r *Replicas) Stored(now time.Duration, worker int, q *trace.Request, from, to int) {
	r.catchUp(now)
	for _, g := range r.all {
		g.Stored(now, worker, q, from, to)
	}
}

// Removed implements virtual.Router.
func (r *Replicas) Removed(now time.Duration, worker int, ids []int32) {
	r.catchUp(now)
	for _, g := range r.all {
		g.Removed(now, worker, ids)
	}
}

// Outputs implements virtual.Router.
func (r *Replicas) Outputs(now time.Duration, worker, stored, evicted int) {
	for _, g := range r.all {
		g.Outputs(now, worker, stored, evicted)
	}
}

// Up implements virtual.Router.
func (r *Replicas) Up(now time.Duration, worker int) {
	r.catchUp(now)
	for _, g := range r.all {
		g.Up(now, worker)
	}
}

// Down implements virtual.Router.
func (r *Replicas) Down(now time.Duration, worker int) {
	r.catchUp(now)
	for _, g := range r.all {
		g.Down(now, worker)
	}
}
