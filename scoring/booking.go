package scoring

import (
	"time"

	"attache/internal/block"
	"attache/internal/slot"
)

// Booking is the load of one request on the slot that was chosen for it. Its methods are safe for concurrent use, and
// harmless when they come twice, late or in another order, or on one that was never booked. End must be called when the
// request is over. A Booking must not be copied or used again.
type Booking struct {
	// PredictedTTFT is the time to first token that was expected: backlog and own prefill.
	PredictedTTFT time.Duration

	scorer      *Scorer // nil: never booked
	tuning      *tuning // by which it was decided; raw seconds are of its speed model
	prompt      int     // prompt tokens
	uncached    int     // of them, those that are not computed
	cached      int
	blocks      int // of the prompt
	blockTokens int
	output      int     // expected tokens of the answer
	own         float64 // raw seconds of its own prefill
	ahead       float64 // raw seconds of the backlog that it found
	began       float64

	// Guarded by Scorer.mu.
	load         *slotLoad // where it is booked: its own, so that a slot that was forgotten is no matter
	chain        *stretch  // the last one of its chain; nil: not known
	named        int       // blocks of its chain
	prev, next   *Booking  // in the backlog
	older, newer *Booking  // among all
	prefill      float64   // raw seconds of prefill by the speed model of now, less what is known to be computed
	left         float64   // of them, those that the clock has not worked off
	followed     bool      // the end of its prefill will be told
	live         bool      // and its prefill stays booked until then
	computed     float64   // seconds from the decision until it was told; 0 not yet
	queued       bool      // is in the backlog
	prefilled    bool      // said to be computed
	moved        bool
	ended        bool
	observed     bool // its prefill has taught the speed
	told         bool // its outcome has been learnt from
}

// Prefilled says that the worker has computed the prompt: what is left of its prefill is released.
func (b *Booking) Prefilled() {
	s := b.scorer
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.ended || b.prefilled {
		return
	}
	b.prefilled = true
	l, now := b.load, s.update(b.load)
	if b.followed && !b.moved {
		b.computed = now - b.began
	}
	if b.live && !b.moved && l.head == b {
		b.observed = true
		s.calibrate(l, now-l.turn, s.raw(b, b.own), 0)
	}
	l.leave(b)
}

// Progress says that the worker has computed all but the last so many tokens of the prompt.
func (b *Booking) Progress(uncached int) {
	s := b.scorer
	if s == nil || uncached <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.queued && uncached < b.uncached {
		s.update(b.load)
		b.load.progress(b, s.tuning.Load().speed.Prefill(uncached, b.prompt-uncached), uncached)
	}
}

// End says that the request is over: everything is released.
func (b *Booking) End() {
	if b.scorer != nil {
		b.EndAt(b.scorer.now())
	}
}

// EndAt is End for callers that have just read the scorer's clock.
func (b *Booking) EndAt(at time.Time) {
	if s := b.scorer; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if now := s.since(at); !b.ended {
			s.end(b, now)
			s.residence.add(now - b.began)
		}
	}
}

// end releases everything of a booking that has not ended. The lock must be held.
func (s *Scorer) end(b *Booking, now float64) {
	b.ended = true
	s.inFlight--
	s.updateTo(b.load, now)
	s.list.remove(b)
	b.load.leave(b)
	b.load.exit(b)
	s.giveBack(b, now)
}

// giveBack leaves the blocks of a request that no other one needs to its slot's cache.
func (s *Scorer) giveBack(b *Booking, now float64) {
	freed := b.blocks - b.named
	if b.chain != nil {
		freed += s.active.leave(b.load.slot, b.chain, func(blocks []block.Hash) { s.reuse.release(blocks, now) })
		b.chain = nil
	}
	b.load.ActiveBlocks -= freed
	b.load.idle.add(now, freed+b.output/max(b.blockTokens, 1))
}

// Move books the request on another slot instead, whose worker takes over: its prefill starts anew there and is taken to
// be as long; nobody tells when it is over. It does nothing after End, or when the request is there already.
func (b *Booking) Move(to slot.Slot) {
	s := b.scorer
	if s == nil || to == slot.None {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.ended {
		return
	}
	target := s.loadOf(to)
	if target == b.load {
		return
	}
	now := s.update(b.load)
	b.load.leave(b)
	b.load.exit(b)
	chain := b.chain.whole()
	s.giveBack(b, now)
	s.update(target)
	b.load, b.moved, b.live = target, true, false
	b.prefill, b.uncached = s.raw(b, b.own), max(b.prompt-b.cached, 0)
	target.enter(b)
	s.hold(b, chain)
	if !b.prefilled {
		target.join(b)
	}
}

// hold makes the blocks of a request active on its slot.
func (s *Scorer) hold(b *Booking, chain []block.Hash) {
	last, fresh := s.active.enter(b.load.slot, chain)
	b.chain, b.named = last, len(chain)
	b.load.ActiveBlocks += b.blocks - b.named + fresh
}

// bookings is a list of all bookings, oldest first.
type bookings struct{ oldest, newest *Booking }

func (l *bookings) add(b *Booking) {
	b.older, b.newer = l.newest, nil
	if l.newest != nil {
		l.newest.newer = b
	} else {
		l.oldest = b
	}
	l.newest = b
}

func (l *bookings) remove(b *Booking) {
	if b.older != nil {
		b.older.newer = b.newer
	} else {
		l.oldest = b.newer
	}
	if b.newer != nil {
		b.newer.older = b.older
	} else {
		l.newest = b.older
	}
	b.older, b.newer = nil, nil
}
