// Package router is the use case: it decides which worker answers a request, and learns from how it went.
//
// Route is called once per request, before the first byte goes to a worker. It makes the prompt's chain, asks the index
// who holds how much of it, lets the scoring pick and book the worker with the lowest cost, and returns a Decision: an
// ordered list of workers and the way back (Done). What Envoy tells afterwards comes in through Report. The package knows
// no Envoy, no Redis and no wiring framework; time is an argument of New.
package router

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/indexer"
	"attache/indexer/events"
	"attache/internal/block"
	"attache/internal/hints"
	"attache/internal/openai"
	"attache/internal/prompt"
	"attache/internal/replica"
	"attache/internal/slot"
	"attache/internal/worker"
	"attache/scoring"
)

// Request is what routing needs to know of a request. Body and Scan are only read during Route.
type Request struct {
	ID     string // the client's request id: shown, never trusted
	Path   string
	Kind   openai.Kind
	Body   []byte
	Scan   *openai.Request // of Body; nil when the body is absent or not understood: then only load counts
	Subset Subset
	Tenant string // who asks, as authentication in front of us says; "" unknown
	// Waiting is told, once, when the request has to wait for a worker, for how long that may be at most; 0: without bound. It is
	// called by the goroutine that called Route. nil: nobody is told.
	Waiting func(most time.Duration)
	Hints   hints.Hints // what else the client said, as far as it is believed
	Timing  Timing
}

// Registry is the router's view of the workers.
type Registry interface {
	Set() *worker.Set
	Report(s slot.Slot, o worker.Outcome)
}

// Router decides. Safe for concurrent use.
type Router struct {
	settings atomic.Pointer[settings]
	replica  string
	now      func() time.Time
	log      *slog.Logger
	workers  Registry
	pools    []*pool
	byName   map[string]*pool
	metrics  *metrics
	quality  *quality
	table    table
	recent   recent
	ids      atomic.Uint64
	scratch  sync.Pool // of *scratch
	chains   chainPool // of requests that run
	ended    chainPool // of those that wait for their reports
	observer Observer
	keeper   Keeper
	keeps    Keeps
	kept     []shelf // where snapshots are
	begun    time.Time
	seen     *worker.Set // the set that Observe saw last; only the registry's loop touches it
}

// scratch is what one Route needs in between; reused so that a decision allocates nothing per block or per worker.
type scratch struct {
	chain      prompt.Chain
	held       held
	eligible   []*worker.Worker
	candidates []scoring.Candidate
	demand     scoring.Demand
	delta      replica.Delta
	attempt    attempt
}

// Params are the collaborators of a Router.
type Params struct {
	Config  Config
	Pools   []PoolConfig
	Replica string // names this process among several; appears in decision ids
	Workers Registry
	Now     func() time.Time
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Watch   func(pool string) Watcher // who is told what happens in each pool; nil: nobody
	// Observer is told of every request that is over; nil: nobody is.
	Observer Observer
	// Keeper is given the prompts that clients will come back to, as far as Keeps says; nil: what they say of that is for affinity
	// alone.
	Keeper Keeper
	Keeps  Keeps
	// Blobs is the store that replicas share; nil: there is none.
	Blobs Blobs
}

// New makes a router for at least one pool. The configuration must have been validated.
func New(p Params) (*Router, error) {
	r := &Router{
		replica: p.Replica, now: p.Now, log: p.Log, workers: p.Workers, observer: p.Observer, keeper: p.Keeper, keeps: p.Keeps, begun: p.Now(),
		byName: map[string]*pool{}, scratch: sync.Pool{New: func() any { return new(scratch) }},
	}
	r.table.init()
	r.recent.init(p.Config.Recent)
	for i, pc := range p.Pools {
		labelled := prometheus.WrapRegistererWith(prometheus.Labels{"pool": pc.Name}, p.Metrics)
		index, err := indexer.New(p.Config.Index, p.Now, labelled)
		if err != nil {
			return nil, err
		}
		scorer, err := scoring.New(p.Config.scoringOf(&pc), p.Now, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), labelled)
		if err != nil {
			return nil, err
		}
		keyer, err := prompt.New(prompt.Params{
			Config: p.Config.Prompt, Model: pc.Prompt, Log: p.Log.With("pool", pc.Name), Metrics: labelled,
		})
		if err != nil {
			return nil, fmt.Errorf("pools[%d].prompt.model_dir: %w", i, err)
		}
		made := &pool{name: pc.Name, index: index, scorer: scorer, keyer: keyer}
		made.ledger, err = events.New(events.Params{
			Config: p.Config.Events, Source: pc.Events, Pool: pc.Name, BlockTokens: keyer.BlockTokens(), Auto: p.Config.Auto, Now: p.Now,
			Log: p.Log.With("pool", pc.Name), Metrics: labelled, Stored: func(s slot.Slot) { made.flights.told(made.ledger, s) },
		})
		if err != nil {
			return nil, err
		}
		if p.Watch != nil {
			made.watcher = p.Watch(pc.Name)
		}
		made.gate, made.sessions.most, made.remote = newGate(r, made, p.Config.Queue), p.Config.Affinity.Sessions, newRemote(r, made)
		made.tenants.most.Store(int64(p.Config.Tenants))
		r.pools = append(r.pools, made)
		r.byName[pc.Name] = made
	}
	r.kept = r.shelves(p)
	r.settings.Store(&settings{Config: p.Config, models: newModels(p.Pools, r.pools)})
	r.metrics = newMetrics(p.Metrics, r)
	r.quality = newQuality(p.Metrics, r)
	return r, nil
}

// Route chooses a worker for the request and books its load there, after a wait if that is configured. The caller must call
// Decision.Done.End exactly when the request is over. Errors are *NoWorkerError, *TooLongError, *ShedError,
// *UnknownModelError or the context's.
func (r *Router) Route(ctx context.Context, req *Request) (*Decision, error) {
	s := r.scratch.Get().(*scratch) //nolint:forcetypeassert // New makes the pool
	defer r.scratch.Put(s)
	a := &s.attempt
	*a = attempt{scratch: s}
	defer func() { *a = attempt{} }() // it is used again, and must keep nothing
	if err := r.prepare(ctx, req, a); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a.rec = &record{router: r, pool: a.pool, number: r.ids.Add(1), at: a.started}
	if err := a.pool.gate.pass(ctx, a); err != nil {
		r.metrics.notPassed(a.pool.name, err)
		return nil, err
	}
	a.mark(&a.phases.Picked)
	return r.decide(a), nil
}

// chain makes the prompt's chain; without a prompt it is empty, and only load decides. model is the name that the worker is
// sent: what goes by two names has one cache.
func (r *Router) chain(ctx context.Context, p *pool, s *scratch, req *Request, model string) {
	q := prompt.Query{Body: req.Body, Scan: req.Scan, Model: model}
	if req.Scan != nil {
		q.Seed = block.Seed(namespace(model, s.eligible[0]), string(req.Scan.CacheSalt.In(req.Body)))
		q.Engine, q.Dialect = s.eligible[0].Endpoint, dialectOf(s.eligible[0])
	}
	p.keyer.Chain(ctx, &s.chain, &q)
}

// decide turns the ranking into a decision and remembers it for the way back.
func (r *Router) decide(a *attempt) *Decision {
	rec, p, req, s, set := a.rec, a.pool, a.req, a.scratch, a.set
	rec.ranked, rec.waited = a.ranked, a.waited
	rec.began, rec.clocked, rec.phases, rec.parent = a.began, a.clocked, a.phases, req.Timing.Parent
	rec.model, rec.requestID, rec.path, rec.tenant = a.names.asked, req.ID, req.Path, req.Tenant
	rec.promptTokens, rec.rung, rec.why, rec.blocks = s.chain.Tokens, s.chain.Rung, s.chain.Why, len(s.chain.Hashes)
	rec.blockTokens, rec.outputTokens, rec.session, rec.flies = s.chain.BlockTokens, req.Hints.OutputTokens, a.session, flies(&s.chain)
	rec.flow = a.flow()
	rec.captured, rec.candidates, rec.excluded = rec.ranked[0].CachedTokens, len(s.candidates), a.out.total()
	rec.hints, rec.policy = req.Hints.Said(), p.scorer.Deciding(s.demand.Policy)
	if rec.room == nil {
		rec.remember(&r.chains, s.chain.Hashes)
	}
	rec.stream = req.Scan != nil && req.Scan.Stream
	if s.chain.Ours {
		rec.count = s.chain.Count
	}
	rec.named = rec.namedSpace[:0]
	strict, engine := false, set.BySlot(rec.ranked[0].Slot).Runs()
	var space [256]byte
	list := rec.appendID(space[:0]) // the id and the list are one string, of which each is a part
	endOfID := len(list)
	for i := 0; i < len(rec.ranked) && len(rec.named) < a.settings.Alternatives; i++ {
		w := set.BySlot(rec.ranked[i].Slot)
		if slices.Contains(rec.named, w) {
			continue // another rank of it
		}
		if len(rec.named) > 0 {
			list = append(list, ',')
		}
		rec.named = append(rec.named, w)
		list = append(list, w.Endpoint...)
		strict = strict || w.Runs() == worker.TRTLLM
		if w.Runs() != engine {
			engine = worker.Auto
		}
	}
	for _, c := range s.candidates {
		rec.available = max(rec.available, c.CachedTokens)
	}
	rec.slot = rec.ranked[0].Slot
	rec.mark = p.index.Remember(rec.slot, rec.chain)
	if p.follows(&s.chain, rec.slot) {
		p.flights.follow(rec.flight, rec)
	}
	rec.fresh = s.chain.Tokens-rec.captured >= freshBlocks*s.chain.BlockTokens
	a.remember()
	a.keep()
	r.table.put(rec)
	if p.sharer != nil {
		rec.mu.Lock() // it may move from now on, which must be told after this
		rec.booked(&s.delta, s.chain.Hashes)
		p.sharer.Share(&s.delta)
		rec.mu.Unlock()
	}
	r.recent.add(rec)
	now := r.now()
	rec.decided(now)
	r.metrics.decided(rec, now.Sub(rec.at))
	r.quality.decided(rec, now)
	if p.watcher != nil {
		p.watcher.Decided(rec.promptTokens, rec.available, rec.captured)
	}
	text := string(list)
	return &Decision{
		Rank: rankOf(rec.named[0], rec.slot), Worker: rec.named[0].Name, Waited: rec.waited,
		ID: text[:endOfID], Replica: r.replica, Pool: p.name, Model: a.names.sent, Destinations: text[endOfID:],
		PredictedCached: rec.captured, Strict: strict, Engine: engine, Keep: rec.keeping != nil,
		Ahead: rec.keeping != nil && rec.keeping.ahead, Done: Done{rec},
	}
}

// freshBlocks is how many blocks of a prompt must be new before events of them are expected: lengths may be estimates.
const freshBlocks = 4

// rankOf is the data-parallel rank that a slot stands for, as engines are told; "" when there is only one.
func rankOf(w *worker.Worker, s slot.Slot) string {
	if len(w.Slots()) < 2 {
		return ""
	}
	return strconv.Itoa(w.Rank(s))
}

// modelNames are what the client asked for and what the worker is sent instead, "" when that is the same.
type modelNames struct{ asked, sent string }

// Models lists the model names that are served, sorted: what the configuration names, and for a pool that takes every
// name what its engines say they serve.
func (r *Router) Models() []string {
	models := &r.settings.Load().models
	names := models.names()
	if !models.any {
		return names
	}
	for _, w := range r.workers.Set().Pool(models.first.name) {
		if served := w.Stats().Model; served != "" && !slices.Contains(names, served) {
			names = append(names, served)
		}
	}
	slices.Sort(names)
	return names
}
