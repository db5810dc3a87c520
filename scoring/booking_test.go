package scoring

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"attache/internal/block"
	"attache/internal/slot"
)

// twin is the dumb second implementation of everything that is booked: one list per slot, worked off from the first on, and
// counted anew for each question.
type twin struct {
	now       float64 // seconds
	slots     [3]*twinLoad
	forgotten []*twinLoad
	booked    map[*Booking]*twinEntry
	pool      calibration
	own       mean
	residence mean
}

type twinLoad struct {
	entries []*twinEntry // in flight, in the order in which they came to the slot
	own     calibration
	idle    int // blocks
}

type twinEntry struct {
	load              *twinLoad
	live, moved       bool
	prompt, uncached  int
	needs             int // uncached tokens at first
	own, ahead        float64
	prefill, left     float64
	began, turn       float64 // turn is below 0 before it came
	chain             []block.Hash
	prefilled, done   bool // done: no longer in the backlog
	ended             bool
	observed, learned bool
}

func newTwin() *twin {
	w := &twin{booked: map[*Booking]*twinEntry{}, own: assumedPrefill, residence: assumedResidence}
	for i := range w.slots {
		w.slots[i] = &twinLoad{}
	}
	return w
}

func (w *twin) factor(l *twinLoad) float64 {
	return (&speed{own: l.own}).factor(w.pool.factor(), float64(w.own))
}

// wait lets every slot work.
func (w *twin) wait(seconds float64) {
	until := w.now + seconds
	for _, l := range slices.Concat(w.slots[:], w.forgotten) {
		k, at := w.factor(l), w.now
		for e := l.first(); e != nil; e = l.first() {
			if e.turn < 0 {
				e.turn = at
			}
			least := 0.0
			if e.live {
				least = min(e.left, .1*e.prefill)
			}
			work := min((until-at)/k, e.left-least)
			e.left -= work
			at += work * k
			if e.live || e.left > 0 {
				break
			}
			e.done = true
		}
	}
	w.now = until
}

// first is the one that the slot works on.
func (l *twinLoad) first() *twinEntry {
	for _, e := range l.entries {
		if !e.done {
			return e
		}
	}
	return nil
}

// join gives a request to a slot.
func (l *twinLoad) join(e *twinEntry) {
	e.load, e.left, e.prefill, e.uncached, e.turn = l, e.own, e.own, e.needs, -1
	e.done = e.prefilled
	l.entries = append(l.entries, e)
}

// quit takes a request off its slot.
func (e *twinEntry) quit() {
	held := e.load.active()
	e.load.entries = slices.DeleteFunc(e.load.entries, func(other *twinEntry) bool { return other == e })
	e.load.idle += held - e.load.active() + assumedOutput/16
}

// active is how many blocks requests hold, those that are known to be the same once.
func (l *twinLoad) active() (blocks int) {
	once := map[block.Hash]bool{}
	for _, e := range l.entries {
		blocks += e.prompt/16 - len(e.chain)
		for _, h := range e.chain {
			once[h] = true
		}
	}
	return blocks + len(once)
}

func (w *twin) load(i int) Load {
	l, tokens, left := w.slots[i], 0.0, 0.0
	sum := Load{InFlight: len(l.entries), OutputTokens: len(l.entries) * assumedOutput, ActiveBlocks: l.active(), SpeedFactor: w.factor(l)}
	for _, e := range l.entries {
		sum.ContextTokens += e.prompt
		sum.ContextBlocks += e.prompt / 16
		switch {
		case e.done:
		case e.live:
			left += e.left
			tokens += float64(e.uncached)
		default:
			left += e.left
			tokens += float64(e.uncached) * e.left / e.prefill
		}
	}
	sum.QueueSeconds, sum.PrefillTokens = left*sum.SpeedFactor, int(tokens)
	return sum
}

// turns notes whose turn has come.
func (w *twin) turns() {
	for _, l := range slices.Concat(w.slots[:], w.forgotten) {
		if e := l.first(); e != nil && e.turn < 0 {
			e.turn = w.now
		}
	}
}

// TestBookings runs random scripts of requests against the twin: with and without somebody who tells of progress and of the end
// of prefills, with prompts that begin alike, on slots that are forgotten. At the end, when all are over, nothing is left.
func TestBookings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, c := newScorer(t, holding())
		dumb := newTwin()
		var bookings []*Booking
		anyBooking := func(t *rapid.T) (*Booking, *twinEntry) {
			if len(bookings) == 0 {
				t.Skip("no request yet")
			}
			b := rapid.SampledFrom(bookings).Draw(t, "booking")
			return b, dumb.booked[b]
		}
		t.Repeat(map[string]func(*rapid.T){
			"pick": func(t *rapid.T) {
				cands := candidates(rapid.IntRange(1, 3).Draw(t, "candidates"))
				d := ask(0)
				d.Chain = anyBranch(t, 8)
				d.PromptTokens = 16*len(d.Chain) + rapid.IntRange(0, 20_000).Draw(t, "more")
				for i := range cands {
					cands[i].CachedTokens = rapid.IntRange(0, d.PromptTokens).Draw(t, "cached")
					cands[i].Live = rapid.Bool().Draw(t, "live")
				}
				ranked, b := pick(s, d, cands)
				for i := 1; i < len(ranked); i++ {
					if ranked[i].Terms.Total < ranked[i-1].Terms.Total {
						t.Fatalf("candidate %d is dearer than the next: %v, %v", i-1, ranked[i-1].Terms, ranked[i].Terms)
					}
				}
				w, cached := ranked[0].Slot, ranked[0].CachedTokens
				before := dumb.load(int(w))
				e := &twinEntry{
					live: cands[w].Live, prompt: d.PromptTokens, needs: d.PromptTokens - cached, chain: d.Chain, began: dumb.now,
					own: qwen.Prefill(d.PromptTokens-cached, cached), ahead: before.QueueSeconds / before.SpeedFactor,
				}
				if want := before.QueueSeconds + before.SpeedFactor*e.own; !near(b.PredictedTTFT.Seconds(), want, 1e-6) {
					t.Fatalf("predicted %v s, want %v", b.PredictedTTFT.Seconds(), want)
				}
				dumb.own.add(e.own)
				dumb.slots[w].join(e)
				dumb.booked[b] = e
				bookings = append(bookings, b)
			},
			"prefilled": func(t *rapid.T) {
				b, e := anyBooking(t)
				b.Prefilled()
				if e.ended || e.prefilled {
					return
				}
				if e.live && !e.moved && e.load.first() == e {
					e.observed = true
					dumb.pool.add(dumb.now-e.turn, e.own, 0)
					e.load.own.add(dumb.now-e.turn, e.own, 0)
				}
				e.prefilled, e.done = true, true
			},
			"progress": func(t *rapid.T) {
				b, e := anyBooking(t)
				tokens := rapid.IntRange(-1, e.prompt).Draw(t, "tokens left")
				b.Progress(tokens)
				if !e.ended && !e.done && tokens > 0 && tokens < e.uncached {
					e.uncached, e.prefill = tokens, qwen.Prefill(tokens, e.prompt-tokens)
					e.left = min(e.left, e.prefill)
				}
			},
			"observe": func(t *rapid.T) {
				b, e := anyBooking(t)
				ttft := rapid.IntRange(0, 20_000).Draw(t, "ttft ms")
				s.Observe(b, Outcome{EngineTTFT: time.Duration(ttft) * time.Millisecond})
				if ttft > 0 && !e.learned && !e.moved && !e.live && !e.observed {
					inFlight := 0
					for _, other := range dumb.booked {
						if !other.ended {
							inFlight++
						}
					}
					dumb.pool.add(float64(ttft)/1000, e.ahead+e.own, inFlight)
					e.load.own.add(float64(ttft)/1000, e.ahead+e.own, inFlight)
				}
				e.learned = true
			},
			"end": func(t *rapid.T) {
				b, e := anyBooking(t)
				b.End()
				if !e.ended {
					e.ended = true
					e.quit()
					dumb.residence.add(dumb.now - e.began)
				}
			},
			"move": func(t *rapid.T) {
				b, e := anyBooking(t)
				to := rapid.IntRange(0, 2).Draw(t, "to")
				b.Move(slot.Slot(to))
				if !e.ended && e.load != dumb.slots[to] {
					e.quit()
					e.moved, e.live = true, false
					dumb.slots[to].join(e)
				}
			},
			"forget": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "one in four") > 0 {
					t.Skip("not this time")
				}
				i := rapid.IntRange(0, 2).Draw(t, "slot")
				s.Forget(slot.Slot(i))
				dumb.forgotten = append(dumb.forgotten, dumb.slots[i])
				for _, e := range dumb.slots[i].entries {
					e.chain = nil
				}
				dumb.slots[i] = &twinLoad{}
			},
			"expire": func(t *rapid.T) {
				age := float64(rapid.IntRange(1, 200).Draw(t, "age"))/10 + .05 // never just as old
				want := 0
				for _, e := range dumb.booked {
					if !e.ended && e.began < dumb.now-age {
						want++
						e.ended = true
						e.quit()
					}
				}
				if got := s.Expire(time.Duration(age * float64(time.Second))); got != want {
					t.Fatalf("%d requests are older than %v s, want %d", got, age, want)
				}
			},
			"wait": func(t *rapid.T) {
				seconds := float64(rapid.IntRange(0, 15).Draw(t, "tenths")) / 10
				c.wait(seconds)
				dumb.wait(seconds)
			},
			"": func(t *rapid.T) {
				dumb.turns()
				for b := s.list.oldest; b != nil; b = b.newer { // also where the slot was forgotten
					s.update(b.load)
				}
				for i := range dumb.slots {
					got, want := s.Load(slot.Slot(i)), dumb.load(i)
					ok := near(got.QueueSeconds, want.QueueSeconds, 1e-6) && near(got.SpeedFactor, want.SpeedFactor, 1e-6) &&
						near(float64(got.PrefillTokens), float64(want.PrefillTokens), 1.5)
					got.QueueSeconds, got.SpeedFactor, got.PrefillTokens, got.LastTurn =
						want.QueueSeconds, want.SpeedFactor, want.PrefillTokens, 0
					if !ok || got != want {
						t.Fatalf("slot %d: load %+v, want %+v", i, s.Load(slot.Slot(i)), want)
					}
					if l := s.loads; i < len(l) && l[i] != nil && l[i].idle.blocks != dumb.slots[i].idle {
						t.Fatalf("slot %d: %d blocks lie idle, want %d", i, l[i].idle.blocks, dumb.slots[i].idle)
					}
				}
				if !near(float64(s.residence), float64(dumb.residence), 1e-6) {
					t.Fatalf("requests stay %v s, want %v", s.residence, dumb.residence)
				}
			},
		})
		for _, b := range bookings {
			b.End()
		}
		for i := range dumb.slots {
			got := s.Load(slot.Slot(i))
			got.LastTurn = 0
			if got != (Load{SpeedFactor: got.SpeedFactor}) {
				t.Fatalf("all requests are over, slot %d has load %+v", i, got)
			}
		}
		if len(s.active.byFirst) != 0 || s.list.oldest != nil || s.list.newest != nil || s.inFlight != 0 {
			t.Fatalf("all requests are over, and left are %d stretches and %d in flight", len(s.active.byFirst), s.inFlight)
		}
	})
}

// TestSecondsGoByTheClock: for policies in seconds the clock releases a prefill whose end will be told, telling ends it sooner, and
// teaches where nothing else tells how long it took.
func TestSecondsGoByTheClock(t *testing.T) {
	s, c := newScorer(t, DefaultConfig())
	one := candidates(1)
	one[0].Live = true
	_, a := pick(s, ask(8192), one)
	c.wait(a.own / 2)
	if got := s.Load(0); !near(got.QueueSeconds, a.own/2, 1e-6) {
		t.Errorf("half of the prefill's time later %v s are left of %v", got.QueueSeconds, a.own)
	}
	a.Prefilled()
	if got := s.Load(0); got.QueueSeconds != 0 || got.PrefillTokens != 0 {
		t.Errorf("it is told to be computed: %+v", got)
	}
	_, b := pick(s, ask(8192), one)
	c.wait(3 * b.own)
	if got := s.Load(0); got.QueueSeconds != 0 || s.SpeedFactor() != 1 {
		t.Errorf("nobody tells of the end: %+v, k is %v", got, s.SpeedFactor())
	}
	b.Prefilled()
	s.Observe(b, Outcome{OutputTokens: 7})
	if got := s.SpeedFactor(); !near(got, 3, 1e-6) {
		t.Errorf("k is %v after a prefill that was told to have taken three times as long, and no time to first token", got)
	}
	s.Observe(a, Outcome{EngineTTFT: time.Duration(a.own * float64(time.Second))})
	if got := s.SpeedFactor(); got < 1.9 || got > 2.1 {
		t.Errorf("k is %v after one more that took as long as expected: a time to first token counts before what was told", got)
	}
}

// TestTurn: a prefill's time begins when the one before it is over, be that told or believed, and the clock was asked late.
func TestTurn(t *testing.T) {
	for _, told := range []bool{true, false} {
		s, c := newScorer(t, holding())
		one := candidates(1)
		one[0].Live = told
		_, first := pick(s, ask(8192), one)
		one[0].Live = true
		_, second := pick(s, ask(8192), one)
		if told {
			c.wait(first.own)
			first.Prefilled()
		} else {
			c.wait(first.own)
		}
		c.wait(2 * second.own)
		second.Prefilled()
		want := calibration{2 * second.own, second.own}
		if told {
			want = calibration{}
			want.add(first.own, first.own, 0)
			want.add(2*second.own, second.own, 0)
		}
		if got := s.SpeedFactor(); !near(got, want.factor(), 1e-6) {
			t.Errorf("the first one's end is told: %v. k = %v, want %v", told, got, want.factor())
		}
	}
}
