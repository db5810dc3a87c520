package router

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"attache/internal/field"
	"attache/internal/replica"
	"attache/internal/slot"
	"attache/internal/worker"
	"attache/scoring"
	"attache/scoring/queue"
)

// SaturationConfig says when a worker is saturated. A request that finds every candidate saturated waits in the queue, if there is
// one, and is sent late to the worker that is best then; without a queue it is turned away. Requests in flight are limited by
// router.max_in_flight.
type SaturationConfig struct {
	// PrefillTokens is how many prompt tokens may be booked on one worker and not be computed yet, the new request's uncached
	// ones included; a worker with nothing to compute takes any prompt. 0: no limit. Sixteen times the tokens that an engine
	// computes per step (vLLM: max_num_batched_tokens) are a good limit for a queue; with fewer, requests leave the worker that
	// holds their prefix for one that has room, and with less than two steps engines are idle between two requests.
	PrefillTokens int `yaml:"prefill_tokens"`
	// KVShare is the share of a worker's KV cache that prompts and expected answers in flight may take, the new request
	// included. 0: no limit. Above 1 engines run out of memory and preempt requests; 0.9 leaves some for answers that are
	// longer than expected.
	KVShare float64 `yaml:"kv_share"`
	// TTFT is the predicted time to first token from which on a worker that has work is saturated. 0: no limit. A request's own
	// objective (x-llm-d-slo-ttft-ms) counts in its place if it is shorter, while there is a queue.
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
	fair   atomic.Bool   // some class is fair among flows
	length atomic.Int64  // requests that wait, as of when mu was free last

	mu     sync.Mutex // guards what follows; unlock frees it
	queue  *queue.Queue[*waiting]
	placed []*waiting // of one dispatch
	closed bool       // nobody lets requests through any more
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
	g := &gate{router: r, pool: p, start: r.now(), wake: make(chan struct{}, 1), queue: queue.New[*waiting](cfg)}
	g.fair.Store(fair(cfg))
	return g
}

func fair(cfg queue.Config) bool {
	return slices.ContainsFunc(cfg.Classes, func(c queue.ClassConfig) bool { return c.Fair })
}

// reconfigure lets requests wait as another configuration says. Those that wait go on to, and whether there is room for them the new
// limits say: else the old ones would hold up whoever comes later.
func (g *gate) reconfigure(s *settings) {
	g.mu.Lock()
	g.queue.Reconfigure(g.now(), s.Queue)
	g.queue.Each(func(e *queue.Entry[*waiting]) {
		w := e.Value
		w.limits = s.limitsOf(w.req)
		w.demand.Limits = &w.limits // none are limits, too: a worker may have its own
	})
	g.fair.Store(fair(s.Queue))
	g.unlock()
	g.poke() // there may be room by the new limits
}

// now is the time as the queue counts it.
func (g *gate) now() time.Duration { return g.router.now().Sub(g.start) }

func (g *gate) unlock() {
	g.length.Store(int64(g.queue.Len()))
	g.mu.Unlock()
}

// limit puts the limits that hold for the request into its demand, if there are any.
func (a *attempt) limit() {
	if a.limits = a.settings.limitsOf(a.req); a.limits != (scoring.Limits{}) {
		a.demand.Limits = &a.limits
	}
}

// limitsOf are the limits that hold for a request.
func (s *settings) limitsOf(req *Request) scoring.Limits {
	limits := scoring.Limits{
		InFlight: s.MaxInFlight, PrefillTokens: s.Saturation.PrefillTokens, KVShare: s.Saturation.KVShare, TTFT: s.Saturation.TTFT,
	}
	if own := req.Hints.TTFT; own > 0 && s.Queue.Enabled() && (limits.TTFT == 0 || own < limits.TTFT) {
		limits.TTFT = own
	}
	return limits
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
	select {
	case <-w.done: // there was room for it, though not for others
	default:
		if err := g.wait(ctx, w); err != nil {
			return err
		}
		a.waited = g.now() - w.entry.Arrival
	}
	a.ranked, a.set = w.ranked, w.set
	switch {
	case w.err != nil:
		return w.err
	case w.why != "":
		return &ShedError{Pool: g.pool.name, Reason: w.why, RetryAfter: a.settings.RetryAfter}
	}
	return nil
}

// enter books the request at once if there is room and it is before all that wait; else w waits from then on.
func (g *gate) enter(a *attempt) (w *waiting, err error) {
	g.mu.Lock()
	defer g.unlock()
	idle := g.queue.Len() == 0
	if idle && a.pick() {
		g.attained(a)
		return nil, nil
	}
	switch {
	case !a.settings.Queue.Enabled():
		no := &ShedError{Pool: g.pool.name, Reason: queue.RejectedSaturated, RetryAfter: a.settings.RetryAfter}
		if most := a.settings.MaxInFlight; *a.demand.Limits == (scoring.Limits{InFlight: most}) {
			no.Limit = most
		}
		return nil, no
	case g.closed:
		return nil, &ShedError{Pool: g.pool.name, Reason: queue.RejectedShuttingDown, RetryAfter: a.settings.RetryAfter}
	}
	entry := g.entryOf(a)
	first := g.queue.Backlog(entry.Class, entry.Lane) == 0
	w = &waiting{attempt: *a, looked: a.started, done: make(chan struct{})}
	var evicted []queue.Drop[*waiting]
	var no *queue.Rejection
	w.entry, evicted, no = g.queue.Push(g.now(), entry, w)
	for _, d := range evicted {
		d.Entry.Value.drop(d.Reason)
	}
	if no != nil {
		return nil, &ShedError{Pool: g.pool.name, Reason: no.Reason, RetryAfter: no.RetryAfter, Detail: no.Met()}
	}
	if first && !idle {
		g.dispatch() // those that wait are in other lanes or classes: whose turn it is, the queue says
	}
	return w, nil
}

// wait waits for the request's turn. The error is the context's: its client left before.
func (g *gate) wait(ctx context.Context, w *waiting) error {
	g.poke()
	if tell := w.req.Waiting; tell != nil {
		until, _ := w.entry.Expires()
		tell(max(0, until-w.entry.Arrival))
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if g.quit(w) {
			return ctx.Err()
		}
		<-w.done // it was its turn just now
	}
	return nil
}

// entryOf is what the queue is to know of a request.
func (g *gate) entryOf(a *attempt) queue.Request {
	h, best := &a.req.Hints, 0
	lowerFirst := a.eligible[0].Runs() == worker.VLLM
	for i := range a.candidates {
		best = max(best, a.candidates[i].CachedTokens)
	}
	uncached := max(a.chain.Tokens-best, 1)
	e := queue.Request{
		Class: g.queue.ClassOf(cmp.Or(h.PolicyClass, h.Objective), uncached), Lane: a.lane(), Tier: h.StrictPriority, Priority: h.Urgency(lowerFirst), Flow: a.flow(),
		PromptTokens: a.chain.Tokens, UncachedTokens: uncached, BodyBytes: int64(len(a.req.Body)), SLO: h.TTFT,
	}
	if h.Deadline > 0 {
		e.Deadline = a.started.Add(h.Deadline).Sub(g.start)
	}
	return e
}

// flow is whose share of a fair queue the request takes: what is said on whose account it runs, if that is believed, then who asks.
// A program counts only where nobody knows who asks: else a client could take one more share with every name that it thinks of.
func (a *attempt) flow() string {
	h := &a.req.Hints
	return cmp.Or(h.Flow, h.Tenant, a.req.Tenant, h.Program)
}

// lane is what requests that compete for the same workers have in common: those that must go to one, or to some of a subset, do
// not hold up the others.
func (a *attempt) lane() uint64 {
	s, h := &a.req.Subset, &a.req.Hints
	adapter := a.out[ExcludedModel] > 0
	if !s.Stated && h.Worker == "" && !h.Ranked && h.Required[0] == "" && a.only == slot.None && !adapter {
		return 0
	}
	var hash xxh3.Hasher
	for _, e := range s.Endpoints {
		_, _ = hash.WriteString(e.String()) // never fails
	}
	for _, e := range s.Hosts {
		_, _ = hash.WriteString(e.String())
	}
	_, _ = hash.WriteString("\x00" + h.Worker)
	for _, t := range h.Required {
		_, _ = hash.WriteString("\x00" + t)
	}
	if adapter {
		_, _ = hash.WriteString("\x00\x00" + a.screen.model)
	}
	rank := -1
	if h.Ranked {
		rank = h.Rank
	}
	_, _ = hash.Write([]byte{byte(rank), byte(rank >> 8), byte(a.only), byte(a.only >> 8), byte(a.only >> 16)})
	return max(hash.Sum64(), 1)
}

// quit takes a request out whose client has left; false: it was its turn already.
func (g *gate) quit(w *waiting) bool {
	g.mu.Lock()
	defer g.unlock()
	return g.queue.Remove(w.entry)
}

// poke says that there may be room.
func (g *gate) poke() {
	if g.length.Load() == 0 {
		return
	}
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// beat is how often the gate looks by itself while requests wait: the clock of predicted work makes room without telling.
const beat = 5 * time.Millisecond

// run lets waiting requests through until ctx ends; then it drops them, and none may wait any more.
func (g *gate) run(ctx context.Context) {
	next := time.NewTimer(beat)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			g.close()
			return
		case <-g.wake:
		case <-next.C:
		}
		if g.look() > 0 {
			next.Reset(beat)
		} else {
			next.Stop()
		}
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.unlock()
	g.closed = true
	for _, d := range g.queue.Drain(queue.RejectedShuttingDown) {
		d.Entry.Value.drop(d.Reason)
	}
}

// look dispatches, and returns how many still wait.
func (g *gate) look() int {
	g.mu.Lock()
	defer g.unlock()
	if g.queue.Len() > 0 {
		g.dispatch()
	}
	return g.queue.Len()
}

// dispatch drops what has waited too long, and places what there is room for. The lock must be held.
func (g *gate) dispatch() {
	now := g.now()
	for _, d := range g.queue.Expire(now, nil) {
		d.Entry.Value.drop(d.Reason)
	}
	g.queue.Dispatch(now, func(e *queue.Entry[*waiting]) queue.Placement {
		w := e.Value
		if w.err = w.refresh(); w.err != nil {
			close(w.done)
			return queue.Dropped
		}
		if !w.pick() {
			return queue.Blocked
		}
		g.placed = append(g.placed, w)
		return queue.Placed
	})
	for i, w := range g.placed {
		g.attained(&w.attempt)
		close(w.done)
		g.placed[i] = nil
	}
	g.placed = g.placed[:0]
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
func (g *gate) depth() int { return int(g.length.Load()) }

// attained tells the queue what a flow was given: the prompt of a request that is dispatched. The lock must be held.
func (g *gate) attained(a *attempt) {
	if g.fair.Load() {
		g.queue.Served(g.now(), a.flow(), a.chain.Tokens, 0)
	}
}

// served tells the queue what else a flow was given: once its answer is known, or by another replica.
func (g *gate) served(flow string, input, output int) {
	if !g.fair.Load() || input+output == 0 {
		return
	}
	g.mu.Lock()
	defer g.unlock()
	g.queue.Served(g.now(), flow, input, output)
}

// elsewhere takes in what waits at the other replicas: it counts against the limits of the whole queue.
func (g *gate) elsewhere(w replica.Waiting) {
	g.mu.Lock()
	defer g.unlock()
	g.queue.Elsewhere(w.Requests, w.PromptTokens, w.BodyBytes)
}

// waiting is what waits here.
func (g *gate) waiting() (w replica.Waiting) {
	g.mu.Lock()
	defer g.unlock()
	w.Requests, w.PromptTokens, w.BodyBytes = g.queue.Waiting()
	return w
}

// runGates lets waiting requests of all pools through until ctx ends.
func (r *Router) runGates(ctx context.Context) (wait func()) {
	var running sync.WaitGroup
	for _, p := range r.pools {
		running.Go(func() { p.gate.run(ctx) }) // also where nobody waits: that may be configured later
	}
	return running.Wait
}
