package router

import (
	"cmp"
	"context"
	"slices"
	"time"

	"attache/internal/hints"
	"attache/internal/slot"
	"attache/internal/worker"
	"attache/scoring"
)

// attempt is a request on its way to a decision.
type attempt struct {
	*scratch

	router   *Router
	settings *settings // from begin to end
	req      *Request
	pool     *pool
	names    modelNames
	set      *worker.Set
	rec      *record
	ranked   []scoring.Ranked // once it is booked
	started  time.Time
	waited   time.Duration // at the gate
	session  uint64        // that it belongs to; 0 none
	limits   scoring.Limits
	weights  scoring.DynamoOverride
	only     slot.Slot // that its session must go to; slot.None: it may go to others
	screen   screen
	out      excluded // who may not serve
	dry      bool     // it is only explained: nothing may remember it

	began   time.Time // what phases count from
	clocked bool      // every phase is timed
	phases  Phases
}

// prepare finds the pool, the candidates and what they hold, and counts what was found.
func (r *Router) prepare(ctx context.Context, req *Request, a *attempt) error {
	err := r.examine(ctx, req, a)
	if a.pool == nil {
		r.metrics.turnedAway("", "unknown_model")
		return err
	}
	a.pool.counters.exclude(&a.out)
	if err != nil {
		r.metrics.turnedAway(a.pool.name, reasonOf(err))
	}
	return err
}

// examine is prepare without the counting.
func (r *Router) examine(ctx context.Context, req *Request, a *attempt) error {
	model := ""
	if req.Scan != nil {
		model = cmp.Or(req.Hints.Model, req.Scan.ModelText(req.Body))
	}
	a.settings = r.settings.Load()
	p, rewrite, ok := a.settings.models.find(model)
	if !ok {
		return &UnknownModelError{Model: model, Known: r.Models()}
	}
	if rewrite == "" && req.Hints.Model != "" {
		rewrite = model
	}
	a.router, a.req, a.pool, a.names = r, req, p, modelNames{asked: model, sent: rewrite}
	a.set, a.started = r.workers.Set(), r.now()
	a.clock(&req.Timing)
	a.session = sessionKey(req.Tenant, req.Hints.Session)
	a.screen = screen{subset: &req.Subset, hints: &req.Hints, model: cmp.Or(rewrite, model)}
	if err := a.screened(); err != nil {
		return err
	}
	r.chain(ctx, p, a.scratch, req, a.screen.model)
	if !a.dry {
		r.metrics.chain(p, &a.chain)
	}
	a.mark(&a.phases.Chained)
	a.measure()
	a.demand = scoring.Demand{
		PromptTokens: a.chain.Tokens, BlockTokens: a.chain.BlockTokens, OutputTokens: req.Hints.OutputTokens, Chain: a.chain.Hashes,
		Key: a.session, Policy: p.scorer.Deciding(req.Hints.Policy),
	}
	a.limit()
	a.weigh()
	if a.screen.prompt > 0 && slices.ContainsFunc(a.eligible, a.screen.short) {
		if err := a.screened(); err != nil {
			return err
		}
	}
	a.survey(a.started)
	a.mark(&a.phases.Looked)
	return nil
}

// weigh puts the weights that the request asks for into its demand.
func (a *attempt) weigh() {
	w := &a.req.Hints.Weights
	set := func(to **float64, n *hints.Number) {
		if n.Said {
			*to = &n.Value
			a.demand.Dynamo = &a.weights
		}
	}
	set(&a.weights.OverlapScoreCredit, &w.OverlapScoreCredit)
	set(&a.weights.PrefillLoadScale, &w.PrefillLoadScale)
	set(&a.weights.Temperature, &w.RouterTemperature)
}

// look works out who may serve and what they hold, as of now.
func (a *attempt) look(now time.Time) error {
	if err := a.screened(); err != nil {
		return err
	}
	a.survey(now)
	return nil
}

// survey works out what those who may serve hold.
func (a *attempt) survey(now time.Time) {
	a.held.look(a.pool, &a.chain)
	a.compete(now)
	a.bind(now)
}

// bind marks the candidate that the request's session is bound to, and leaves only that one where affinity is hard.
func (a *attempt) bind(now time.Time) {
	a.only, a.demand.Sticky = slot.None, false
	find := a.pool.sessions.find
	if a.dry {
		find = a.pool.sessions.peek
	}
	to, kept, bound := find(a.session, a.set, now)
	if !bound {
		return
	}
	a.demand.Sticky = kept || a.settings.Affinity.Mode == affinitySoft
	for i := range a.candidates {
		if c := &a.candidates[i]; c.Slot == to {
			c.Bound = true
			if a.settings.Affinity.Mode == affinityHard {
				a.candidates[0], a.only = *c, to
				a.candidates = a.candidates[:1]
			}
			return
		}
	}
}

// pick books the request on the best candidate, and notes that its prompt is on its way there; false: all are saturated.
func (a *attempt) pick() bool {
	p := a.pool
	if !flies(&a.chain) {
		return a.book()
	}
	p.flights.picking.Lock()
	defer p.flights.picking.Unlock()
	a.catchUp(a.router.now())
	if !a.book() {
		return false
	}
	a.rec.remember(&a.router.chains, a.chain.Hashes)
	if s := a.ranked[0].Slot; p.ledger.Follows(s) {
		a.rec.flight = p.flights.add(s, a.rec.chain)
	}
	return true
}

// book is pick without the flight.
func (a *attempt) book() bool {
	a.ranked = a.pool.scorer.Pick(&a.demand, a.candidates, a.rec.rankedSpace[:0], &a.rec.booking)
	return len(a.ranked) > 0
}

// remember binds the request's session to the rank that was chosen.
func (a *attempt) remember() {
	cfg, ttl := &a.settings.Affinity, a.req.Hints.CacheTTL
	kept := ttl > 0
	if cfg.Mode != affinityOff || a.rec.policy == scoring.PolicySession {
		ttl = max(ttl, cfg.TTL)
	}
	rec := a.rec
	switch {
	case a.session == 0:
	case a.req.Hints.SessionFinal:
		rec.sessionOver = true
		a.pool.sessions.drop(a.session)
	default:
		rec.sessionTTL, rec.sessionKept = ttl, kept
		a.pool.sessions.bind(session{key: a.session, slot: rec.slot, addr: rec.named[0].Addr, kept: kept, own: true}, a.started.Add(a.waited), ttl)
	}
}
