package router

import (
	"slices"
	"sync"
	"time"

	"attache/indexer"
	"attache/indexer/events"
	"attache/indexer/runs"
	"attache/internal/slot"
	"attache/scoring"
)

// What operators are shown. Everything here is a copy; nothing is computed until somebody looks.

// Watcher is told what happens in a pool, as it happens; a window of recent figures is one. Its methods must return at
// once: Decided is called on the request path.
type Watcher interface {
	Decided(promptTokens, available, captured int)
	Failed()
	FirstToken(ttft time.Duration)
	Delivered(promptTokens, cachedTokens int)
}

// PoolView is one pool as it is configured, and what was learnt about it.
type PoolView struct {
	Name, Policy string
	Models       []string
	Rung, Why    string        // how prompts are cut at best, and what keeps them from a better way
	SpeedFactor  float64       // observed prefill time as a multiple of the estimated
	Accuracy     Accuracy      // of predictions on that rung
	Verify       time.Duration // recommended interval for asking silent engines; 0: they are not asked
}

// WorkerView is one worker's figures since the start.
type WorkerView struct {
	InFlight           int
	Backlog            time.Duration // predicted time to work off the booked prefill
	HeldBlocks         int           // what it is believed to hold
	Mode               events.Mode   // how that is known
	Capacity           int           // blocks that our own memory takes it to have room for; 0 not known yet
	Learnt             bool          // from what it reported, not from its metrics or the configuration
	Accuracy           Accuracy      // of what was predicted of it
	Trust              float64       // recommended worth of a block that it is believed to hold, of one that is known; 0 to 1
	Requests, Failures uint64
	PromptTokens       uint64 // of requests whose engine reported what it reused
	Delivered          uint64 // cached tokens that the engine reported
	TTFTP50            time.Duration
}

// IndexView is what is remembered of the caches of one pool's workers, and the bounds of that.
type IndexView struct {
	Pool      string
	Told      runs.Stats // by engines
	MaxBytes  int        // of Told
	Sent      indexer.Stats
	MaxBlocks int // of Sent
}

// RankPrefixes are the most recently used prefixes of one rank of a worker, going by our own decisions.
type RankPrefixes struct {
	Pool        string
	Rank        int
	BlockTokens int
	Prefixes    []indexer.Prefix
}

// Explained is one decision with what every candidate would have cost.
type Explained struct {
	ID, RequestID, Path, Model, Pool, Tenant, Rung, Why string
	At                                                  time.Time
	PromptTokens, Available, Captured                   int
	Named                                               []string // worker names, best first
	Candidates                                          []ExplainedCandidate
	CandidatesTotal                                     int
	PredictedTTFT                                       time.Duration
	Policy                                              string        // that decided
	Hints                                               []string      // that were said and believed
	Waited                                              time.Duration // for a worker with room
	Excluded                                            int           // workers that could not serve it
	// Regret is how much more the chosen candidate cost than the cheapest, in the unit of their terms; where the policy compares
	// no costs it is not Compared.
	Regret   float64
	Compared bool
	Ended    bool
	Outcome  *Outcome // nil until Envoy reported
	Served   string   // worker name; "" unknown
}

// ExplainedCandidate is one worker as the decision saw it.
type ExplainedCandidate struct {
	Worker       string
	CachedTokens int
	Terms        scoring.Terms
}

// tallies count what finished, per worker of a pool.
type tallies struct {
	mu      sync.Mutex        // guards workers and what it points to
	workers map[string]*tally // by worker name, which survives a change of slot
}

type tally struct {
	requests, failures  uint64
	measured, delivered uint64
	ttft                lastTimes
}

// lastTimes keeps the last figures for a median.
type lastTimes struct {
	ring [128]time.Duration
	n    int
}

func (l *lastTimes) add(d time.Duration) {
	l.ring[l.n%len(l.ring)] = d
	l.n++
}

func (l *lastTimes) median() time.Duration {
	n := min(l.n, len(l.ring))
	if n == 0 {
		return 0
	}
	sorted := slices.Clone(l.ring[:n])
	slices.Sort(sorted)
	return sorted[n/2]
}

// maxTallies bounds the table when workers come and go under ever new names.
const maxTallies = 4096

func (t *tallies) finished(worker string, rec *record, o *Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.workers[worker]
	if w == nil {
		if t.workers == nil || len(t.workers) >= maxTallies {
			t.workers = map[string]*tally{}
		}
		w = &tally{}
		t.workers[worker] = w
	}
	w.requests++
	if o.Failed() {
		w.failures++
	}
	if o.CachedKnown {
		w.measured += uint64(max(o.PromptTokens, 0))
		w.delivered += uint64(max(o.CachedTokens, 0))
	}
	if rec.timed(o) {
		w.ttft.add(o.TTFT)
	}
}

// Pools shows every pool in the order of the configuration.
func (r *Router) Pools() []PoolView {
	views := make([]PoolView, len(r.pools))
	for i, p := range r.pools {
		rung, why := p.keyer.State()
		views[i] = PoolView{Rung: rung.String(), Why: string(why), Name: p.name, Policy: p.scorer.Policy(), Models: r.modelsOf(p), SpeedFactor: p.scorer.SpeedFactor(),
			Accuracy: p.fidelities.on(rung), Verify: p.ledger.Verify()}
	}
	return views
}

func (r *Router) modelsOf(p *pool) []string {
	models := &r.settings.Load().models
	if models.any {
		return r.Models()
	}
	return models.of(p)
}

// Worker shows one worker of a pool; the zero view when the pool is not known.
func (r *Router) Worker(pool, name string, s slot.Slot) WorkerView {
	p := r.byName[pool]
	if p == nil {
		return WorkerView{}
	}
	load := p.scorer.Load(s)
	v := WorkerView{InFlight: load.InFlight, Backlog: seconds(load.QueueSeconds), HeldBlocks: p.index.Held(s), Mode: p.modeOf(s), Accuracy: p.fidelities.of(s)}
	v.Trust = v.Accuracy.trust()
	v.Capacity, v.Learnt = p.index.Capacity(s)
	if v.Mode != events.Approximate {
		v.HeldBlocks = p.ledger.Held(s)
	}
	p.tallies.mu.Lock()
	defer p.tallies.mu.Unlock()
	if t := p.tallies.workers[name]; t != nil {
		v.Requests, v.Failures, v.PromptTokens, v.Delivered = t.requests, t.failures, t.measured, t.delivered
		v.TTFTP50 = t.ttft.median()
	}
	return v
}

// Indexes shows what is remembered of every pool, in the order of the configuration.
func (r *Router) Indexes() []IndexView {
	cfg, views := r.settings.Load(), make([]IndexView, len(r.pools))
	for i, p := range r.pools {
		views[i] = IndexView{Pool: p.name, Told: p.ledger.Stats(), MaxBytes: int(cfg.Events.Index.MaxBytes), Sent: p.index.Stats(),
			MaxBlocks: cfg.Index.MaxBlocks}
	}
	return views
}

// Prefixes lists the n most recently used prefixes of every rank of the workers of that name, each pool's; none when there is
// none.
func (r *Router) Prefixes(name string, n int) []RankPrefixes {
	var all []RankPrefixes
	for _, w := range r.workers.Set().All() {
		p := r.byName[w.Pool]
		if w.Name != name || p == nil {
			continue
		}
		for rank, s := range w.Slots() {
			all = append(all, RankPrefixes{Pool: w.Pool, Rank: w.Events.FirstRank + rank, BlockTokens: p.keyer.BlockTokens(), Prefixes: p.index.Top(s, n)})
		}
	}
	return all
}

// InFlight is how many requests are booked on the worker of a slot, in whatever pool it belongs to.
func (r *Router) InFlight(s slot.Slot) int {
	w := r.workers.Set().BySlot(s)
	if w == nil {
		return 0
	}
	p := r.byName[w.Pool]
	if p == nil {
		return 0
	}
	n := 0
	for _, rank := range w.Slots() {
		n += p.scorer.Load(rank).InFlight
	}
	return n
}

// Decisions explains the last decisions, newest first.
func (r *Router) Decisions(limit int) []Explained {
	recs := r.recent.last(limit)
	set := r.workers.Set()
	views := make([]Explained, len(recs))
	for i, rec := range recs {
		v := Explained{
			ID: rec.id(), RequestID: rec.requestID, Path: rec.path, Model: rec.model, Pool: rec.pool.name, Tenant: rec.tenant,
			Rung: rec.rung.String(), Why: string(rec.why), At: rec.at, PromptTokens: rec.promptTokens, Available: rec.available,
			Captured: rec.captured, CandidatesTotal: rec.candidates, PredictedTTFT: rec.booking.PredictedTTFT,
			Policy: rec.policy, Hints: rec.hints.Names(), Waited: rec.waited, Excluded: rec.excluded,
		}
		for _, w := range rec.named {
			v.Named = append(v.Named, w.Name)
		}
		for _, c := range rec.ranked {
			name := "(removed)"
			if w := set.BySlot(c.Slot); w != nil {
				name = w.Name
			}
			v.Candidates = append(v.Candidates, ExplainedCandidate{Worker: name, CachedTokens: c.CachedTokens, Terms: c.Terms})
		}
		v.Regret, v.Compared = regret(rec.ranked)
		rec.mu.Lock()
		v.Ended, v.Outcome = !rec.ended.IsZero(), rec.out
		rec.mu.Unlock()
		if v.Outcome != nil {
			if w := set.ByAddr(v.Outcome.Served); w != nil {
				v.Served = w.Name
			}
		}
		views[i] = v
	}
	return views
}

// regret is how much more the first candidate cost than the cheapest one with room that the policy's rule did not pass over.
func regret(ranked []scoring.Ranked) (more float64, compared bool) {
	first := &ranked[0].Terms
	if first.Unit == scoring.None || first.Unit == scoring.Turns {
		return 0, false
	}
	for i := range ranked {
		if t := &ranked[i].Terms; !t.Saturated && !t.Passed {
			more = max(more, first.Total-t.Total)
		}
	}
	return more, true
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
