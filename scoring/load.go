package scoring

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/block"
	"attache/internal/slot"
)

// Scorer is a policy with the loads that it decides by, for one pool. Safe for concurrent use.
type Scorer struct {
	tuning  atomic.Pointer[tuning] // changes with mu held only
	now     func() time.Time
	start   time.Time
	metrics *metrics

	mu          sync.Mutex // guards everything below, and the fields of bookings that say so
	rnd         *rand.Rand
	loads       []*slotLoad // by slot; nil: nothing booked since it was forgotten
	list        bookings
	active      active
	reuse       reuse
	turns       uint64 // decisions made
	inFlight    int    // bookings that have not ended
	calibration calibration
	own         mean // raw seconds of a request's own prefill
	output      mean // tokens of an answer
	residence   mean // seconds from decision to end
	contest     Contest
	evictions   Evictions // nil: as the scorer's own mirrors of the caches say
}

// Evictions says how many blocks that will be asked for again a slot would lose if so many new ones came, where again is the
// probability of that for a block that was released so many seconds ago. It is for whoever sees into the engines' caches, such
// as a simulation, and is called with the scorer's lock held.
type Evictions func(s slot.Slot, fresh int, again func(age float64) float64) (lost float64)

// SetEvictions replaces the scorer's own mirrors of the engines' caches. Call it before the first Pick.
func (s *Scorer) SetEvictions(e Evictions) { s.evictions = e }

// mean is a mean that follows what it is the mean of.
type mean float64

// following is the weight of one observation.
const following = .02

func (m *mean) add(v float64) { *m += following * (mean(v) - *m) }

// What is assumed before anything was observed.
const (
	assumedOutput    = 300 // tokens
	assumedResidence = 4   // seconds
	assumedPrefill   = .1  // seconds
)

// New makes a scorer without load. rnd belongs to the scorer from then on. The error names a configuration that Validate
// refuses, or a metric that is registered already.
func New(cfg Config, now func() time.Time, rnd *rand.Rand, reg prometheus.Registerer) (*Scorer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if rnd == nil {
		return nil, errors.New("scoring: needs a source of randomness")
	}
	s := &Scorer{now: now, start: now(), rnd: rnd, own: assumedPrefill, output: assumedOutput, residence: assumedResidence}
	s.tuning.Store(cfg.tuning())
	var err error
	if s.metrics, err = newMetrics(reg, s); err != nil {
		return nil, err
	}
	return s, nil
}

// Policy is the name of the policy of requests that ask for none.
func (s *Scorer) Policy() string { return s.tuning.Load().policy.Name() }

// SpeedFactor is k: how much slower engines are than the speed model, as learnt. 1 before anything was observed.
func (s *Scorer) SpeedFactor() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calibration.factor()
}

// Best is how many of the candidates Pick puts in order.
const Best = 8

// Pick scores all candidates, books the request on the chosen one in b, and appends the best of them to dst, at most Best: the
// chosen one first, the others in the order of their cost. Without candidates, or when all are beyond the demand's limits, it
// returns dst as it is and books nothing.
func (s *Scorer) Pick(d *Demand, candidates []Candidate, dst []Ranked, b *Booking) []Ranked {
	if len(candidates) == 0 {
		return dst
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	terms, now := s.score(d, candidates)
	first := len(dst)
	dst = s.choose(d, candidates, terms, dst, Best)
	if dst[first].Terms.Saturated {
		return dst[:first]
	}
	s.book(b, d, &dst[first], now)
	return dst
}

// Explain is Pick without booking, and puts all candidates in order.
func (s *Scorer) Explain(d *Demand, candidates []Candidate, dst []Ranked) []Ranked {
	if len(candidates) == 0 {
		return dst
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	terms, _ := s.score(d, candidates)
	return s.choose(d, candidates, terms, dst, len(candidates))
}

// score brings the candidates' loads up to date and lets the policy judge them. The lock must be held; the result is valid
// until it is released.
func (s *Scorer) score(d *Demand, candidates []Candidate) (terms []Terms, now float64) {
	now = s.instant()
	x := &s.contest
	x.Demand, x.Candidates, x.Loads = d, candidates, x.Loads[:0]
	k, own := s.calibration.factor(), float64(s.own)
	for i := range candidates {
		l := s.loadOf(candidates[i].Slot)
		l.advance(now, l.factor(k, own))
		l.SharedBlocks = 0
		x.Loads = append(x.Loads, &l.Load)
	}
	s.active.shared(d.Chain, func(users []users, held int) {
		for _, u := range users {
			if int(u.slot) < len(s.loads) && s.loads[u.slot] != nil {
				s.loads[u.slot].SharedBlocks = held
			}
		}
	})
	tuning := s.tuning.Load()
	policy := tuning.policyOf(d.Policy)
	if _, priced := policy.(*timePolicy); priced {
		need := s.needOf(d)
		for i := range candidates {
			s.price(&need, &candidates[i], now)
		}
	}
	x.Terms = slices.Grow(x.Terms[:0], len(candidates))[:len(candidates)]
	clear(x.Terms)
	x.Draws = [2]float64{s.rnd.Float64(), s.rnd.Float64()}
	policy.Score(x)
	for i, l := range x.Loads {
		c := &candidates[i]
		if d.Limits == nil {
			x.Terms[i].Saturated = c.full(l)
		} else {
			own := l.SpeedFactor * tuning.speed.Prefill(d.PromptTokens-c.CachedTokens, c.CachedTokens)
			x.Terms[i].Saturated = d.Limits.saturated(d, c, l, own)
		}
	}
	x.Demand, x.Candidates = nil, nil
	return x.Terms, now
}

// need is what a request takes of a KV cache.
type need struct {
	size   int // tokens per block
	blocks int // of the prompt
	answer int // tokens
}

func (s *Scorer) needOf(d *Demand) need {
	return need{max(d.BlockTokens, 1), d.blocks(), s.expected(d)}
}

// price fills in what the request would do to a candidate's KV cache.
func (s *Scorer) price(d *need, c *Candidate, now float64) {
	l, size := s.loads[c.Slot], d.size
	l.EvictionBlocks, l.RoomSeconds, l.CrowdSeconds = 0, 0, 0
	capacity := c.KVCapacityTokens / size
	if capacity == 0 {
		return
	}
	answers := (l.OutputTokens + d.answer) / size
	l.idle.fit(capacity - l.ActiveBlocks)
	held := l.ActiveBlocks + l.idle.blocks
	if c.KVHeldTokens > 0 {
		held = c.KVHeldTokens / size
	}
	fresh := d.blocks - c.CachedTokens/size
	if s.evictions != nil {
		l.EvictionBlocks = s.evictions(c.Slot, fresh, s.reuse.again)
	} else if out := fresh - max(0, capacity-held); out > 0 {
		l.EvictionBlocks = l.idle.loss(out, now, &s.reuse)
	}
	fill := float64(l.ActiveBlocks+d.blocks-l.SharedBlocks+answers+l.InFlight+1) / float64(capacity)
	l.RoomSeconds = float64(s.residence) * max(0, fill-fullest)
	over := max(0, fill-easy)
	l.CrowdSeconds = float64(s.residence) * over * over
}

const (
	fullest = .95 // share of a KV cache that requests fill without waiting
	easy    = .3  // share that they fill without ever being in each other's way
)

// expected is how long an answer is expected to be, in tokens.
func (s *Scorer) expected(d *Demand) int {
	if d.OutputTokens > 0 {
		return d.OutputTokens
	}
	return int(s.output)
}

// book puts a request on the slot that was chosen. The lock must be held and the slot's backlog up to date.
func (s *Scorer) book(b *Booking, d *Demand, r *Ranked, now float64) {
	l, k, tuning := s.loads[r.Slot], s.loads[r.Slot].SpeedFactor, s.tuning.Load()
	s.turns++
	s.inFlight++
	l.LastTurn = s.turns
	*b = Booking{
		scorer: s, tuning: tuning, load: l, prompt: d.PromptTokens, blocks: d.blocks(), blockTokens: d.BlockTokens, output: s.expected(d),
		cached: r.CachedTokens, uncached: max(d.PromptTokens-r.CachedTokens, 0), ahead: l.left, followed: r.followed,
		live: r.followed && holds(tuning.policyOf(d.Policy)), began: now,
	}
	b.own = tuning.speed.Prefill(b.uncached, r.CachedTokens)
	b.prefill = b.own
	b.PredictedTTFT = time.Duration(k * (b.ahead + b.own) * float64(time.Second))
	s.own.add(b.own)
	s.list.add(b)
	l.enter(b)
	l.join(b)
	places := s.reuse.sample(d.Chain)
	s.reclaim(l, d.Chain, places, r.CachedTokens/max(d.BlockTokens, 1))
	s.hold(b, d.Chain)
	s.reuse.ask(d.Chain, places, now)
}

// holds reports whether a policy counts a prefill until somebody says that it is over, where somebody will. Policies in seconds do
// better with the clock, and are then not misled by events that come late: saying so only ends what the clock has left.
func holds(p Policy) bool {
	switch p.(type) {
	case *timePolicy, *preble:
		return false
	}
	return true
}

// reclaim takes the blocks that a request finds in its slot's cache, and that no other request there holds, out of what lies
// idle: for every block that is looked at, as many as it stands for.
func (s *Scorer) reclaim(l *slotLoad, chain []block.Hash, places []int32, cached int) {
	since, n := 0.0, 0 // blocks in a row that were released at the same time
	for _, i := range places {
		if int(i) < l.SharedBlocks || int(i) >= cached {
			continue
		}
		at, ok := s.reuse.released(chain[i])
		if !ok {
			continue
		}
		if at != since {
			l.idle.take(since, n)
			since, n = at, 0
		}
		n += sampling
	}
	l.idle.take(since, n)
}

// Outcome is what became of a request.
type Outcome struct {
	EngineTTFT   time.Duration // from the end of the upload to the first byte of the answer; 0 not known
	OutputTokens int           // of the answer; 0 not known
}

// Observe learns from an outcome. It counts once per booking, also after End, and speed never from one that moved: then nobody
// knows what the time was spent on.
func (s *Scorer) Observe(b *Booking, o Outcome) {
	if s.learn(b, o) {
		s.metrics.ratio.Observe(float64(o.EngineTTFT) / float64(max(b.PredictedTTFT, 1)))
	}
}

// learn takes an outcome in; timed is false unless its time to first token can be compared with the predicted one.
func (s *Scorer) learn(b *Booking, o Outcome) (timed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.told {
		return false
	}
	b.told = true
	if o.OutputTokens > 0 {
		s.output.add(float64(o.OutputTokens))
	}
	took := o.EngineTTFT.Seconds()
	if took <= 0 {
		took = b.computed // as its events told
	}
	if b.scorer == nil || b.moved || took <= 0 {
		return false
	}
	if !b.observed && !b.live {
		s.calibrate(b.load, took, s.raw(b, b.ahead+b.own), s.inFlight)
	}
	b.observed = true
	return o.EngineTTFT > 0
}

// calibrate takes in how long something took that was estimated at so many raw seconds. late is how many requests are in
// flight, if it is learnt when they end.
func (s *Scorer) calibrate(l *slotLoad, observed, estimated float64, late int) {
	s.calibration.add(observed, estimated, late)
	l.own.add(observed, estimated, late)
}

// Load is what is booked on a slot.
func (s *Scorer) Load(sl slot.Slot) Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(sl) >= len(s.loads) || s.loads[sl] == nil {
		return Load{SpeedFactor: s.calibration.factor()}
	}
	s.update(s.loads[sl])
	load := s.loads[sl].Load
	load.SharedBlocks, load.EvictionBlocks, load.RoomSeconds = 0, 0, 0 // of a request, and there is none
	return load
}

// Forget frees a slot: what is booked there stays with the bookings, and whoever gets the slot next starts empty.
func (s *Scorer) Forget(sl slot.Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(sl) >= len(s.loads) || s.loads[sl] == nil {
		return
	}
	gone := s.loads[sl]
	s.loads[sl] = nil
	for b := s.list.oldest; b != nil; b = b.newer {
		if b.load == gone && b.chain != nil {
			s.active.leave(sl, b.chain, nil)
			b.chain = nil
		}
	}
}

// Expire ends bookings that are older than an age, whose ends must have been lost, and returns how many.
func (s *Scorer) Expire(age time.Duration) (expired int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.instant()
	for before := now - age.Seconds(); s.list.oldest != nil && s.list.oldest.began < before; expired++ {
		s.end(s.list.oldest, now)
	}
	return expired
}

// loadOf returns a slot's load and makes one where there is none. The lock must be held.
func (s *Scorer) loadOf(sl slot.Slot) *slotLoad {
	if int(sl) < len(s.loads) && s.loads[sl] != nil {
		return s.loads[sl]
	}
	return s.makeLoad(sl)
}

func (s *Scorer) makeLoad(sl slot.Slot) *slotLoad {
	for int(sl) >= len(s.loads) {
		s.loads = append(s.loads, nil)
	}
	s.loads[sl] = &slotLoad{slot: sl, at: s.instant()}
	return s.loads[sl]
}

// update works a slot's backlog off up to now. The lock must be held.
func (s *Scorer) update(l *slotLoad) (now float64) {
	now = s.instant()
	s.updateTo(l, now)
	return now
}

func (s *Scorer) updateTo(l *slotLoad, now float64) {
	l.advance(now, l.factor(s.calibration.factor(), float64(s.own)))
}

// instant is the time since the scorer's start in seconds.
func (s *Scorer) instant() float64 { return s.since(s.now()) }

func (s *Scorer) since(at time.Time) float64 { return at.Sub(s.start).Seconds() }
