package router

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"attache/internal/field"
	"attache/scoring"
	"attache/scoring/queue"
)

// SaturationConfig says when a worker is saturated. A request that finds every candidate saturated waits in the queue, if there is
// one, and is sent late to the worker that is best then; without a queue it is turned away. Requests in flight are limited by
// router.max_in_flight.
type SaturationConfig struct {
	// PrefillTokens is how many prompt tokens may be booked on one worker and not be computed yet, the new request's uncached
	// ones included; a worker with nothing to compute takes any prompt. 0: no limit. Two or three times the tokens that an
	// engine computes per step (vLLM: max_num_batched_tokens) keep it busy; less leaves it idle between two requests.
	PrefillTokens int `yaml:"prefill_tokens"`
	// KVShare is the share of a worker's KV cache that prompts and expected answers in flight may take, the new request
	// included. 0: no limit. Above 1 engines run out of memory and preempt requests; 0.9 leaves some for answers that are
	// longer than expected.
	KVShare float64 `yaml:"kv_share"`
	// TTFT is the predicted time to first token from which on a worker that has work is saturated. 0: no limit; a request's own
	// objective (x-llm-d-slo-ttft-ms) counts anyway, while there is a queue.
	TTFT time.Duration `yaml:"ttft"`
}

// Validate reports every field that breaks its rule.
func (c SaturationConfig) Validate() error {
	var check field.Checker
	check.Check(c.PrefillTokens >= 0 && c.PrefillTokens <= 1e9, "prefill_tokens", c.PrefillTokens, "must be 0 (no limit) to 1000000000 tokens")
	check.Check(c.KVShare >= 0 && c.KVShare <= 10, "kv_share", c.KVShare, "must be 0 (no limit) to 10")
	check.Check(c.TTFT >= 0 && c.TTFT <= time.Hour, "ttft", c.TTFT, "must be 0 (no limit) to 1h")
	return check.Err()
}

// gate lets requests of one pool through while there is room for them, and keeps the others waiting in order. Safe for concurrent
// use.
type gate struct {
	router *Router
	pool   *pool
	start  time.Time
	wake   chan struct{} // room may have come; capacity 1

	mu    sync.Mutex // guards queue
	queue *queue.Queue[*waiting]
}

// waiting is a request at the gate. While it waits, whoever holds the gate's lock may use it.
type waiting struct {
	attempt

	entry  *queue.Entry[*waiting]
	looked time.Time // when its candidates were worked out
	done   chan struct{}
	why    queue.Reason // why it was dropped; "" it was not
	err    error
}

func newGate(r *Router, p *pool, cfg queue.Config) *gate {
	return &gate{router: r, pool: p, start: r.now(), wake: make(chan struct{}, 1), queue: queue.New[*waiting](cfg)}
}

// limit puts the limits that hold for the request into its demand, if there are any.
func (a *attempt) limit() {
	cfg := &a.router.cfg
	a.limits = scoring.Limits{
		InFlight: cfg.MaxInFlight, PrefillTokens: cfg.Saturation.PrefillTokens, KVShare: cfg.Saturation.KVShare, TTFT: cfg.Saturation.TTFT,
	}
	if slo := a.req.Hints.TTFT; slo > 0 && cfg.Queue.Enabled() {
		a.limits.TTFT = slo
	}
	if a.limits != (scoring.Limits{}) {
		a.demand.Limits = &a.limits
	}
}

// pass books the request, now or when there is room for it. The error is a *ShedError, *NoWorkerError or the context's.
func (g *gate) pass(ctx context.Context, a *attempt) error {
	if a.demand.Limits == nil {
		a.pick()
		return nil
	}
	w, err := g.enter(a)
	if w == nil || err != nil {
		return err
	}
	if a.req.Waiting != nil {
		a.req.Waiting(g.router.cfg.Queue.Limits.MaxWait)
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if g.quit(w) {
			return ctx.Err()
		}
		<-w.done // it was its turn just now
	}
	a.waited = g.router.now().Sub(a.started)
	a.ranked, a.set = w.ranked, w.set
	switch {
	case w.err != nil:
		return w.err
	case w.why != "":
		return &ShedError{Pool: g.pool.name, Reason: w.why, RetryAfter: g.router.cfg.RetryAfter}
	}
	return nil
}

// enter books the request at once if there is room and nobody is before it; else w waits from then on.
func (g *gate) enter(a *attempt) (w *waiting, err error) {
	r := g.router
	g.mu.Lock()
	defer g.mu.Unlock()
	entry := g.entryOf(a)
	if g.queue.Backlog(entry.Class, entry.Lane) == 0 && a.pick() {
		return nil, nil
	}
	if !r.cfg.Queue.Enabled() {
		return nil, &ShedError{Pool: g.pool.name, Reason: queue.RejectedSaturated, RetryAfter: r.cfg.RetryAfter, Limit: r.cfg.MaxInFlight}
	}
	w = &waiting{attempt: *a, looked: a.started, done: make(chan struct{})}
	var evicted []queue.Drop[*waiting]
	var no *queue.Rejection
	w.entry, evicted, no = g.queue.Push(r.now().Sub(g.start), entry, w)
	for _, d := range evicted {
		d.Entry.Value.drop(d.Reason)
	}
	if no != nil {
		return nil, &ShedError{Pool: g.pool.name, Reason: no.Reason, RetryAfter: no.RetryAfter, Detail: no.String()}
	}
	g.poke()
	return w, nil
}

// entryOf is what the queue is to know of a request.
func (g *gate) entryOf(a *attempt) queue.Request {
	h := &a.req.Hints
	best := 0
	for i := range a.candidates {
		best = max(best, a.candidates[i].CachedTokens)
	}
	uncached := max(a.chain.Tokens-best, 1)
	e := queue.Request{
		Class: g.queue.ClassOf(cmp.Or(h.PolicyClass, h.Objective), uncached), Lane: a.lane(), Tier: h.StrictPriority, Priority: h.Urgency(false), Flow: a.flow(),
		PromptTokens: a.chain.Tokens, UncachedTokens: uncached, BodyBytes: int64(len(a.req.Body)), SLO: h.TTFT,
	}
	if h.Deadline > 0 {
		e.Deadline = a.started.Add(h.Deadline).Sub(g.start)
	}
	return e
}

// flow is whose share of a fair queue the request takes.
func (a *attempt) flow() string { return cmp.Or(a.req.Hints.Flow, a.req.Hints.Program, a.req.Tenant) }

// lane is what requests that compete for the same workers have in common: those that are bound to one, or to a subset, do not
// hold up the others.
func (a *attempt) lane() uint64 {
	s, h := &a.req.Subset, &a.req.Hints
	if !s.Stated && h.Worker == "" && !h.Ranked && h.Required[0] == "" {
		return 0
	}
	var hash xxh3.Hasher
	for _, e := range s.Endpoints {
		_, _ = hash.WriteString(e.String()) // never fails
	}
	for _, e := range s.Hosts {
		_, _ = hash.WriteString(e.String())
	}
	_, _ = hash.WriteString(h.Worker)
	for _, t := range h.Required {
		_, _ = hash.WriteString(t)
	}
	_, _ = hash.Write([]byte{byte(h.Rank), byte(h.Rank >> 8)})
	return max(hash.Sum64(), 1)
}

// quit takes a request out whose client has left; false: it was its turn already.
func (g *gate) quit(w *waiting) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queue.Remove(w.entry)
}

// poke says that there may be room.
func (g *gate) poke() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// beat is how often the gate looks by itself: the clock of predicted work makes room without telling.
const beat = 5 * time.Millisecond

// run lets waiting requests through until ctx ends; then it drops them.
func (g *gate) run(ctx context.Context) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			g.mu.Lock()
			defer g.mu.Unlock()
			for _, d := range g.queue.Drain(queue.RejectedShuttingDown) {
				d.Entry.Value.drop(d.Reason)
			}
			return
		case <-g.wake:
		case <-tick.C:
		}
		g.dispatch()
	}
}

// dispatch drops what has waited too long, and places what there is room for.
func (g *gate) dispatch() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queue.Len() == 0 {
		return
	}
	now := g.router.now().Sub(g.start)
	for _, d := range g.queue.Expire(now, nil) {
		d.Entry.Value.drop(d.Reason)
	}
	g.queue.Dispatch(now, func(e *queue.Entry[*waiting]) queue.Placement {
		w := e.Value
		if err := w.refresh(); err != nil {
			w.err = err
			close(w.done)
			return queue.Dropped
		}
		if !w.pick() {
			return queue.Blocked
		}
		close(w.done)
		return queue.Placed
	})
}

// drop tells a request that it will not be served.
func (w *waiting) drop(why queue.Reason) {
	w.why = why
	close(w.done)
}

// stale is how old a candidate's figures may become while a request waits.
const stale = 100 * time.Millisecond

// refresh works the candidates out again after a wait, or when other workers serve now.
func (w *waiting) refresh() error {
	r := w.router
	now, set := r.now(), r.workers.Set()
	if set == w.set && now.Sub(w.looked) < stale {
		return nil
	}
	w.looked, w.set = now, set
	return w.look(now)
}

// depth is how many requests wait.
func (g *gate) depth() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queue.Len()
}

// served tells the queue what a flow got, once its answer is known.
func (g *gate) served(flow string, output int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue.Served(g.router.now().Sub(g.start), flow, 0, output)
}

// runGates lets waiting requests of all pools through until ctx ends.
func (r *Router) runGates(ctx context.Context) (wait func()) {
	var running sync.WaitGroup
	for _, p := range r.pools {
		running.Go(func() { p.gate.run(ctx) })
	}
	return running.Wait
}
