package router

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"attache/internal/prompt"
	"attache/internal/worker"
	"attache/scoring"
)

// Outcome is what became of a request, as Envoy tells after its end. Zero values mean "not known".
type Outcome struct {
	Status     int            // HTTP status that the client saw; 0 when none was sent
	Served     netip.AddrPort // who answered; invalid when nobody did
	Attempts   int            // upstream attempts
	TTFT       time.Duration  // from the request's first byte to the answer's first body byte, queue and retries included
	EngineTTFT time.Duration  // of the serving attempt alone: from the end of the upload to the first body byte
	Duration   time.Duration
	// Aborted: the client left before the answer was complete.
	Aborted bool
	// Broken: the worker died after it had begun to answer; the client saw a broken stream.
	Broken bool
	// Unreached: the last worker tried could not be reached or reset before it answered.
	Unreached bool

	Usage           bool // the next three are known
	PromptTokens    int
	CompletedTokens int
	CachedTokens    int // of the prompt, as the engine reports: "delivered"
	CachedKnown     bool
}

// Report takes in what became of a decision, by the id that it carries through Envoy. Those of other replicas' decisions are passed
// on to them, where that is possible; reports of decisions that nobody knows only mark the workers. It works at most once per decision.
func (r *Router) Report(id string, o Outcome) {
	replica, number, ok := parseID(id)
	if !ok {
		r.metrics.reported("malformed")
		return
	}
	if served := r.workers.Set().ByAddr(o.Served); served != nil && (o.Status > 0 && o.Status < 500) && !o.Broken {
		r.workers.Report(served.Slot, worker.Outcome{OK: true})
	}
	if replica != r.replica {
		if !r.passOn(replica, number, &o) {
			r.metrics.reported("other_replica")
		}
		return
	}
	if rec := r.report(number, o); rec != nil {
		rec.answered(&o)
	}
}

// report is Report for a decision of this replica; it returns nil when that is not known any more.
func (r *Router) report(number uint64, o Outcome) *record {
	rec := r.table.take(number)
	if rec == nil {
		r.metrics.reported("unknown")
		return nil
	}
	rec.end()
	rec.mu.Lock()
	rec.out = &o
	if rec.timed(&o) {
		rec.phases.FirstToken = o.TTFT
	}
	room := rec.room
	rec.chain, rec.room = nil, nil
	rec.mu.Unlock()

	r.markFailures(rec, &o)
	served := r.workers.Set().ByAddr(o.Served)
	if served != nil && served != rec.named[0] && served.Addr != rec.named[0].Addr {
		rec.pool.index.Remember(served.Slot, *room)
	}
	r.ended.put(room)
	if served != nil && served.Addr == rec.named[0].Addr && o.Status == 200 && !o.Broken {
		rec.learn(&o)
	}
	if o.Status == 200 {
		seen := scoring.Outcome{OutputTokens: o.CompletedTokens}
		if rec.stream && o.Attempts == 1 {
			seen.EngineTTFT = o.EngineTTFT
		}
		rec.pool.scorer.Observe(&rec.booking, seen)
	}
	if o.Usage && o.Status == 200 {
		rec.pool.keyer.Compare(rec.count, o.PromptTokens, rec.id())
	}
	if o.Failed() || served != nil && served.Addr != rec.named[0].Addr {
		rec.pool.sessions.unbind(rec.session, rec.slot) // where to go on, the next request finds out
	}
	rec.pool.gate.served(rec.flow, 0, o.CompletedTokens)
	name := rec.named[0].Name
	if served != nil {
		name = served.Name
	}
	rec.pool.tallies.finished(name, rec, &o)
	rec.watch(&o)
	r.metrics.finished(rec, &o)
	r.quality.finished(rec, &o)
	r.tell(rec)
	return rec
}

// learn compares what was predicted of the worker that answered with what it did.
func (rec *record) learn(o *Outcome) {
	p := rec.pool
	if rec.fresh {
		p.ledger.Expect(rec.slot, rec.at)
	}
	if !o.CachedKnown || o.PromptTokens == 0 || rec.blocks == 0 || rec.promptTokens == 0 {
		return
	}
	delivered := rec.delivered(o)
	p.fidelities.add(rec.slot, rec.rung, rec.captured, delivered)
	p.index.Correct(rec.mark, delivered/p.keyer.BlockTokens())
}

// delivered is what the engine took from its cache. Lengths of prompts may be estimates: it is brought to their measure.
func (rec *record) delivered(o *Outcome) int {
	if rec.promptTokens == o.PromptTokens {
		return o.CachedTokens
	}
	return int(float64(o.CachedTokens) * float64(rec.promptTokens) / float64(o.PromptTokens))
}

// timed reports whether the outcome's TTFT is one: only a stream's first byte is its first token.
func (rec *record) timed(o *Outcome) bool { return rec.stream && o.Status == 200 && o.TTFT > 0 }

// watch passes the outcome to whoever watches the pool.
func (rec *record) watch(o *Outcome) {
	w := rec.pool.watcher
	if w == nil {
		return
	}
	if o.Failed() {
		w.Failed()
	}
	if rec.timed(o) {
		w.FirstToken(o.TTFT)
	}
	if o.CachedKnown {
		w.Delivered(o.PromptTokens, o.CachedTokens)
	}
}

// Failed reports whether the client got an error of ours or the worker's, or a broken answer.
func (o *Outcome) Failed() bool {
	v := o.Verdict()
	return v == "server_error" || v == "broken"
}

// Verdict is the outcome as one word: ok, client_error, server_error, aborted (the client left) or broken (the worker
// died mid-answer).
func (o *Outcome) Verdict() string {
	switch {
	case o.Broken:
		return "broken"
	case o.Aborted:
		return "aborted"
	case o.Status >= 500 || o.Status == 0:
		return "server_error"
	case o.Status >= 400:
		return "client_error"
	default:
		return "ok"
	}
}

// markFailures tells the registry which of the named workers failed: every one before the one that served, and the
// last one tried when nobody did or when its answer broke off.
func (r *Router) markFailures(rec *record, o *Outcome) {
	for i, w := range rec.named {
		if i >= o.Attempts {
			return
		}
		if w.Addr == o.Served && !o.Unreached {
			if o.Broken {
				r.workers.Report(w.Slot, worker.Outcome{Kind: worker.Reset})
			}
			return
		}
		r.workers.Report(w.Slot, worker.Outcome{Kind: worker.Connect})
	}
}

// Observe follows the workers: what a worker held is forgotten when its process was seen gone or restarted, and what is
// booked on one that is down moves to the alternative that Envoy's retry takes. It is called by the registry's loop,
// one set after another.
func (r *Router) Observe(set *worker.Set) {
	before := r.seen
	r.seen = set
	for _, p := range r.pools {
		p.ledger.Observe(set)
		r.remindOf(p, set)
		p.gate.poke()
	}
	if before == nil {
		return
	}
	for _, was := range before.All() {
		p := r.byName[was.Pool]
		if p == nil {
			continue
		}
		is := set.BySlot(was.Slot)
		gone := is == nil || is.Addr != was.Addr
		if was.Eligible() && (gone || is.State == worker.Unhealthy || is.State == worker.Suspect) {
			r.table.each(func(rec *record) {
				if rec.pool == p && rec.carrier().Addr == was.Addr {
					rec.fallBack(set)
				}
			})
		}
		for _, s := range was.Slots() {
			if gone || is.Epoch != was.Epoch {
				p.index.Clear(s)
			}
			if gone {
				p.scorer.Forget(s)
				p.fidelities.forget(s)
				p.heat.forget(s)
			}
		}
	}
}

// upkeep is how often capacities are refreshed and decisions without a report are dropped.
const upkeep = 2 * time.Second

// Run reads the pools' models, then keeps the router's memory in bounds until ctx ends. It returns early with an error when
// a model cannot be read.
func (r *Router) Run(ctx context.Context) error {
	following, stop := context.WithCancel(ctx)
	r.restoreAll(ctx)
	defer r.runLedgers(following)()
	defer r.runGates(following)()
	defer r.runSnapshots(following)()
	defer stop()
	if err := r.Load(ctx); err != nil {
		return err
	}
	r.remind()
	defer r.note()
	tick, noted := time.NewTicker(upkeep), r.now()
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if r.now().Sub(noted) >= learntEvery {
				r.note()
				noted = r.now()
			}
			r.expire()
			r.metrics.forgotten(r.table.forget(r.now().Add(-r.settings.Load().FeedbackTTL), r.tell))
			r.refreshCapacities()
			r.hold()
			for _, p := range r.pools {
				p.remote.upkeep(r.now(), r.settings.Load().FeedbackTTL)
			}
			r.probe(ctx)
		}
	}
}

// expire gives up bookings whose ends must have been lost.
func (r *Router) expire() {
	ttl := r.settings.Load().BookingTTL
	for _, p := range r.pools {
		if n := p.scorer.Expire(ttl); n > 0 {
			r.metrics.expired.WithLabelValues(p.name).Add(float64(n))
			r.log.Warn("requests have run too long and are not counted as load any more", "pool", p.name, "requests", n, "booking_ttl", ttl)
		}
	}
}

// Load reads the model folders of all pools, side by side. Until a pool's is read its prompts are cut by length.
func (r *Router) Load(ctx context.Context) error {
	errs := make([]error, len(r.pools))
	var loading sync.WaitGroup
	for i, p := range r.pools {
		loading.Go(func() {
			if err := p.keyer.Load(ctx); err != nil {
				errs[i] = fmt.Errorf("pools[%d].prompt.model_dir: %w", i, err)
			}
		})
	}
	loading.Wait()
	return errors.Join(errs...)
}

// hold keeps the blocks of requests that run from being taken for evicted, and works out what memory is worth.
func (r *Router) hold() {
	r.table.each((*record).hold)
	if r.settings.Load().Auto {
		for _, p := range r.pools {
			p.refreshTrust()
		}
	}
}

// probe lets every pool compare its tokens with those of an engine that has not been asked yet.
func (r *Router) probe(ctx context.Context) {
	set := r.workers.Set()
	for _, p := range r.pools {
		var engines []prompt.Probed
		for _, w := range set.Eligible(p.name) {
			engines = append(engines, prompt.Probed{Address: w.Endpoint, Epoch: w.Epoch, Dialect: dialectOf(w)})
		}
		p.keyer.Probe(ctx, engines, r.now())
	}
}

// dialectOf is how the worker's engine prepares chats.
func dialectOf(w *worker.Worker) prompt.Dialect {
	if w.Runs() == worker.SGLang {
		return prompt.SGLang
	}
	return prompt.VLLM
}

// refreshCapacities tells every index how much each worker can hold, as its engine says.
func (r *Router) refreshCapacities() {
	for _, w := range r.workers.Set().All() {
		stats := w.Stats()
		if p := r.byName[w.Pool]; p != nil && stats.Blocks > 0 && stats.BlockTokens > 0 {
			for _, s := range w.Slots() {
				p.index.SetCapacity(s, stats.Blocks*stats.BlockTokens/p.keyer.BlockTokens()/len(w.Slots()))
			}
		}
	}
}
