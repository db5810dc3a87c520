package scoring

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/slot"
)

// Scorer is a policy with the loads that it decides by, for one pool. Safe for concurrent use.
type Scorer struct {
	policy      Policy
	speed       Speed
	temperature float64
	now         func() time.Time
	start       time.Time
	metrics     *metrics

	mu          sync.Mutex // guards everything below, and the fields of bookings that say so
	rnd         *rand.Rand
	loads       []*slotLoad // by slot; nil: nothing booked since it was forgotten
	turns       uint64      // decisions made
	inFlight    int         // bookings that have not ended
	calibration calibration
}

// New makes a scorer without load. rnd belongs to the scorer from then on. The error names a configuration that Validate
// refuses, or a metric that is registered already.
func New(cfg Config, now func() time.Time, rnd *rand.Rand, reg prometheus.Registerer) (*Scorer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if rnd == nil {
		return nil, errors.New("scoring: needs a source of randomness")
	}
	speed, _ := cfg.Speed.speed()
	s := &Scorer{
		policy: cfg.policy(speed), speed: speed, temperature: cfg.Temperature, now: now, start: now(), rnd: rnd,
	}
	var err error
	if s.metrics, err = newMetrics(reg, s); err != nil {
		return nil, err
	}
	return s, nil
}

// Policy is the name of the policy.
func (s *Scorer) Policy() string { return s.policy.Name() }

// SpeedFactor is k: how much slower engines are than the speed model, as learnt. 1 before anything was observed.
func (s *Scorer) SpeedFactor() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calibration.factor()
}

// Booking is the load of one request on the slot that was chosen for it. Its methods are safe for concurrent use, and
// harmless when they come twice, late or in another order. End must be called when the request is over.
type Booking struct {
	// PredictedTTFT is the time to first token that was expected: backlog and own prefill.
	PredictedTTFT time.Duration

	scorer   *Scorer
	prompt   int     // prompt tokens
	uncached int     // of them
	blocks   int     // of the prompt
	prefill  float64 // raw seconds of its own
	ahead    float64 // raw seconds of the backlog that it found

	// Guarded by Scorer.mu.
	load       *slotLoad // where it is booked: its own, so that a slot that was forgotten is no matter
	prev, next *Booking  // in the backlog
	left       float64   // raw seconds of prefill that the clock has not worked off
	queued     bool      // is in the backlog
	prefilled  bool      // said to be computed
	moved      bool
	ended      bool
	observed   bool
}

// Pick scores all candidates, books the request on the chosen one and appends all to dst, the chosen one first, the
// others in the order of their cost. Without candidates it returns dst and no booking.
func (s *Scorer) Pick(d Demand, candidates []Candidate, dst []Ranked) ([]Ranked, *Booking) {
	if len(candidates) == 0 {
		return dst, nil
	}
	b := &Booking{scorer: s, prompt: d.PromptTokens, blocks: blocksOf(d)}
	first := len(dst)
	dst = slices.Grow(dst, len(candidates))[:first+len(candidates)]
	rank(dst[first:], s.decide(d, candidates, dst[first:], b))
	return dst, b
}

// decide is what must not be interrupted: it fills in ranked, in the order of the candidates, chooses and books.
func (s *Scorer) decide(d Demand, candidates []Candidate, ranked []Ranked, b *Booking) (chosen int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, k := s.instant(), s.calibration.factor()
	at := Situation{SpeedFactor: k, MinPrefillTokens: math.MaxInt}
	for i := range candidates {
		l := s.loadOf(candidates[i].Slot)
		l.advance(now, k)
		at.MinPrefillTokens = min(at.MinPrefillTokens, l.pending())
	}
	for i := range candidates {
		c, r := &candidates[i], &ranked[i]
		r.Slot, r.CachedTokens, r.draw = c.Slot, c.CachedTokens, s.rnd.Float64()
		r.Terms = s.policy.Cost(d, *c, s.loads[c.Slot].snapshot(k), at)
	}
	if s.temperature > 0 {
		chosen = softmax(ranked, s.temperature, s.rnd.Float64())
	} else {
		chosen = cheapest(ranked)
	}
	s.book(b, &ranked[chosen], k)
	return chosen
}

// book puts a request on the slot that was chosen. The lock must be held and the slot's backlog up to date.
func (s *Scorer) book(b *Booking, r *Ranked, k float64) {
	l := s.loads[r.Slot]
	s.turns++
	s.inFlight++
	l.lastTurn = s.turns
	b.load = l
	b.uncached = max(b.prompt-r.CachedTokens, 0)
	b.prefill = s.speed.Prefill(b.uncached, r.CachedTokens)
	b.ahead = l.left
	b.PredictedTTFT = time.Duration(k * (b.ahead + b.prefill) * float64(time.Second))
	l.enter(b)
	l.join(b)
}

// blocksOf is the prompt in blocks, rounded up.
func blocksOf(d Demand) int {
	size := max(d.BlockTokens, 1)
	return (d.PromptTokens + size - 1) / size
}

// Prefilled says that the worker has computed the prompt: what is left of its prefill is released.
func (b *Booking) Prefilled() {
	b.scorer.mu.Lock()
	defer b.scorer.mu.Unlock()
	if b.ended || b.prefilled {
		return
	}
	b.prefilled = true
	b.scorer.update(b.load)
	b.load.leave(b)
}

// End says that the request is over: everything is released.
func (b *Booking) End() {
	b.scorer.mu.Lock()
	defer b.scorer.mu.Unlock()
	if b.ended {
		return
	}
	b.ended = true
	b.scorer.inFlight--
	b.scorer.update(b.load)
	b.load.leave(b)
	b.load.exit(b)
}

// Move books the request on another slot instead, whose worker takes over: its prefill starts anew there and is taken to
// be as long. It does nothing after End, or when the request is there already.
func (b *Booking) Move(to slot.Slot) {
	s := b.scorer
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.ended || to == slot.None {
		return
	}
	target := s.loadOf(to)
	if target == b.load {
		return
	}
	s.update(b.load)
	b.load.leave(b)
	b.load.exit(b)
	s.update(target)
	b.load, b.moved = target, true
	target.enter(b)
	if !b.prefilled {
		target.join(b)
	}
}

// Observe learns from the engine's time to first token, from the end of the upload to the first byte of the answer. It
// counts once per booking, also after End, and never for one that moved: then nobody knows what the time was spent on.
func (s *Scorer) Observe(b *Booking, engineTTFT time.Duration) {
	if s.learn(b, engineTTFT) {
		s.metrics.ratio.Observe(float64(engineTTFT) / float64(max(b.PredictedTTFT, 1)))
	}
}

// learn takes an observation in, unless it does not count.
func (s *Scorer) learn(b *Booking, engineTTFT time.Duration) (counts bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.observed || b.moved || engineTTFT <= 0 {
		return false
	}
	b.observed = true
	s.calibration.add(engineTTFT.Seconds(), b.ahead+b.prefill, s.inFlight)
	return true
}

// Load is what is booked on a slot.
func (s *Scorer) Load(sl slot.Slot) Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(sl) >= len(s.loads) || s.loads[sl] == nil {
		return Load{}
	}
	s.update(s.loads[sl])
	return s.loads[sl].snapshot(s.calibration.factor())
}

// Forget frees a slot: what is booked there stays with the bookings, and whoever gets the slot next starts empty.
func (s *Scorer) Forget(sl slot.Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(sl) < len(s.loads) {
		s.loads[sl] = nil
	}
}

// loadOf returns a slot's load and makes one where there is none. The lock must be held.
func (s *Scorer) loadOf(sl slot.Slot) *slotLoad {
	for int(sl) >= len(s.loads) {
		s.loads = append(s.loads, nil)
	}
	if s.loads[sl] == nil {
		s.loads[sl] = &slotLoad{at: s.instant()}
	}
	return s.loads[sl]
}

// update works a slot's backlog off up to now. The lock must be held.
func (s *Scorer) update(l *slotLoad) { l.advance(s.instant(), s.calibration.factor()) }

// instant is the time since the scorer's start in seconds.
func (s *Scorer) instant() float64 { return s.now().Sub(s.start).Seconds() }
