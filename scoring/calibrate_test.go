package scoring

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"attache/internal/slot"
)

func TestCalibration(t *testing.T) {
	var c calibration
	if got := c.factor(); got != 1 {
		t.Errorf("before the first observation k is %v, want 1", got)
	}
	c.add(3, 2, 0)
	if got := c.factor(); got != 1.5 {
		t.Errorf("after one observation k is %v, want 1.5", got)
	}
	c.add(1, 4, 0) // (0.98*3 + 1) / (0.98*2 + 4)
	if got := c.factor(); !near(got, 3.94/5.96, 1e-12) {
		t.Errorf("after two observations k is %v, want %v", got, 3.94/5.96)
	}
	c.add(1e6, 4, 0) // counts as 40
	if got := c.factor(); !near(got, (.98*3.94+40)/(.98*5.96+4), 1e-12) {
		t.Errorf("after an observation beyond all bounds k is %v, want %v", got, (.98*3.94+40)/(.98*5.96+4))
	}
	c = calibration{3, 2}
	c.add(1, 4, 100) // remembers 850
	if got := c.factor(); !near(got, (3*849./850+1)/(2*849./850+4), 1e-12) {
		t.Errorf("with 100 requests in flight k is %v, want %v", got, (3*849./850+1)/(2*849./850+4))
	}
	var slow, fast calibration
	slow.add(1e9, 1, 0)
	fast.add(0, 1, 0)
	if slow.factor() != 10 || fast.factor() != .1 {
		t.Errorf("k is bounded by %v and %v, want 0.1 and 10", fast.factor(), slow.factor())
	}
}

// TestCalibrationFindsTheSpeed closes the loop: engines that work first come first served and are some factor slower or
// faster than the model, with chance in it; what is learnt at the ends of requests must come near that factor, at low and
// high load, and however late the ends come.
func TestCalibrationFindsTheSpeed(t *testing.T) {
	for _, truth := range []float64{.3, 1, 3} {
		for _, utilisation := range []float64{.2, .6, .9} {
			for _, answer := range []float64{1, 20} {
				low, high := learnt(t, truth, utilisation, answer)
				t.Logf("true factor %v, utilisation %v, answers of %v s: k from %.2f to %.2f of it", truth, utilisation, answer, low, high)
				if low < .7 || high > 1.5 {
					t.Errorf("true factor %v, utilisation %v, answers of %v s: k from %.2f to %.2f of it", truth, utilisation, answer, low, high)
				}
			}
		}
	}
}

// learnt returns the range of k, as a multiple of the truth, over the second half of 20,000 requests to four engines.
func learnt(t *testing.T, truth, utilisation, answer float64) (low, high float64) {
	t.Helper()
	const engines, requests = 4, 20_000
	s, c := newScorer(t, DefaultConfig())
	r := rand.New(rand.NewPCG(3, 4))
	type end struct {
		at, ttft float64
		b        *Booking
	}
	var (
		start = c.Time
		free  [engines]float64 // when each has computed all it was given
		ends  []end            // of requests under way, in order
		now   float64
		pause = truth * qwen.Prefill(4000, 0) / engines / utilisation
	)
	at := func(seconds float64) { c.Time = start.Add(time.Duration(seconds * float64(time.Second))) }
	low, high = math.Inf(1), 0
	for i := range requests {
		now += r.ExpFloat64() * pause
		for ; len(ends) > 0 && ends[0].at <= now; ends = ends[1:] {
			at(ends[0].at)
			ends[0].b.End()
			s.Observe(ends[0].b, Outcome{EngineTTFT: time.Duration(ends[0].ttft * float64(time.Second))})
		}
		at(now)
		prompt := 500 + r.IntN(7000)
		ranked, b := pick(s, ask(prompt), candidates(engines))
		w := ranked[0].Slot
		free[w] = max(free[w], now) + truth*qwen.Prefill(prompt, 0)*(.5+r.Float64())
		e := end{free[w] + r.ExpFloat64()*answer, free[w] - now, b}
		place, _ := slices.BinarySearchFunc(ends, e, func(a, b end) int { return cmp.Compare(a.at, b.at) })
		ends = slices.Insert(ends, place, e)
		if i > requests/2 {
			low, high = min(low, s.SpeedFactor()/truth), max(high, s.SpeedFactor()/truth)
		}
	}
	return low, high
}

// floor are engines that work first come first served, and say at once when a prefill is over.
type floor struct {
	scorer *Scorer
	clock  *clock
	truth  []float64 // by slot: how much slower than the model
	rnd    *rand.Rand
	start  time.Time
	now    float64
	queues [][]*Booking
	until  []float64 // when the first of each queue is done
	served []int     // prefills, by slot
}

func newFloor(t *testing.T, truth ...float64) *floor {
	t.Helper()
	s, c := newScorer(t, holding())
	n := len(truth)
	return &floor{
		scorer: s, clock: c, truth: truth, rnd: rand.New(rand.NewPCG(8, 9)), start: c.Time,
		queues: make([][]*Booking, n), until: make([]float64, n), served: make([]int, n),
	}
}

// begin lets an engine compute the first of its queue, which takes extra seconds more than it should.
func (f *floor) begin(w int, extra float64) {
	if len(f.queues[w]) > 0 {
		f.until[w] = f.now + f.truth[w]*f.queues[w][0].own*(.5+f.rnd.Float64()) + extra
	}
}

// work lets time pass, and all prefills end that do.
func (f *floor) work(until float64) {
	for {
		next := -1
		for w := range f.queues {
			if len(f.queues[w]) > 0 && f.until[w] <= until && (next < 0 || f.until[w] < f.until[next]) {
				next = w
			}
		}
		if next < 0 {
			break
		}
		f.now = f.until[next]
		f.clock.Time = f.start.Add(time.Duration(f.now * float64(time.Second)))
		b := f.queues[next][0]
		f.queues[next] = f.queues[next][1:]
		b.Prefilled()
		b.End()
		f.served[next]++
		f.begin(next, 0)
	}
	f.now = until
	f.clock.Time = f.start.Add(time.Duration(f.now * float64(time.Second)))
}

// request sends a prompt to the best of the slots, or to the only one that it may have.
func (f *floor) request(only int, extra float64) {
	given := candidates(len(f.truth))
	for i := range given {
		given[i].Live = true
	}
	if only >= 0 {
		given = given[only : only+1]
	}
	ranked, b := pick(f.scorer, ask(2000+f.rnd.IntN(4000)), given)
	w := int(ranked[0].Slot)
	f.queues[w] = append(f.queues[w], b)
	if len(f.queues[w]) == 1 {
		f.begin(w, extra)
	}
}

// requests sends many of them, as many as keep the engines so busy: to the best slots, or to all in turn.
func (f *floor) requests(n int, utilisation float64, inTurn bool) {
	speed := 0.0
	for _, k := range f.truth {
		speed += 1 / k
	}
	if inTurn {
		speed = float64(len(f.truth)) / slices.Max(f.truth)
	}
	pause := qwen.Prefill(4000, 0) / speed / utilisation
	for i := range n {
		f.work(f.now + f.rnd.ExpFloat64()*pause)
		only := -1
		if inTurn {
			only = i % len(f.truth)
		}
		f.request(only, 0)
	}
}

func (f *floor) factors() (pool float64, slots []float64) {
	for w := range f.truth {
		slots = append(slots, f.scorer.Load(slot.Slot(w)).SpeedFactor)
	}
	return f.scorer.SpeedFactor(), slots
}

// TestCalibrationOfLiveHeads: where the ends of prefills are told, the factor of every slot is found within 15 % once it has
// worked off enough prompts, whatever the others' are, and theirs are not disturbed. A slot that is avoided because it is slow
// is believed to have the pool's factor in part for as long as it has shown little, so that less is asked of it. For good, a
// sixth of what is believed is the pool's factor (10 mean prefills, against a memory of 50): where one slot differs from the others as
// much as sixfold, all are off by more than 15 %.
func TestCalibrationOfLiveHeads(t *testing.T) {
	const enough = 60
	for _, c := range []struct {
		truth  []float64
		within float64
	}{
		{[]float64{1}, .15}, {[]float64{3, 3, 3, 3}, .15}, {[]float64{.4, .4, .4, .4}, .15}, {[]float64{2, 1, 1, 1}, .15},
		{[]float64{1, 1, 1, 6}, .3},
	} {
		for _, utilisation := range []float64{.3, .7, .9} {
			for _, inTurn := range []bool{true, false} {
				f := newFloor(t, c.truth...)
				f.requests(200*len(c.truth), utilisation, inTurn)
				_, slots := f.factors()
				for w, got := range slots {
					low, high := c.truth[w]*(1-c.within), c.truth[w]*(1+c.within)
					if f.served[w] < enough {
						low = slices.Min(c.truth) * (1 - c.within)
					}
					if got < low || got > high || inTurn && f.served[w] < enough {
						t.Errorf("%v, utilisation %v, in turn %v: k of slot %d is %.2f after %d prefills, want %.2f to %.2f",
							c.truth, utilisation, inTurn, w, got, f.served[w], low, high)
					}
				}
			}
		}
	}
}

// TestCalibrationOutlives one request that stood still for a minute: it counts as ten times as long as estimated, whatever it
// was, which is 9 of some 50 mean prefills more than it should, or 9/60 for its slot, and half as much again for a long prompt.
// Other slots hardly notice, and it is forgotten.
func TestCalibrationOutlives(t *testing.T) {
	for _, stood := range []float64{60, 6000} {
		f := newFloor(t, 1, 1, 1, 1)
		f.requests(800, .5, true)
		f.work(f.now + 60)
		pool, slots := f.factors()
		f.request(2, stood)
		f.work(f.now + 2*stood)
		pool2, slots2 := f.factors()
		if moved := pool2 - pool; moved <= 0 || moved > .28 {
			t.Errorf("standing still for %v s moves k of the pool from %.3f to %.3f", stood, pool, pool2)
		}
		for w := range slots {
			least, most := -.01, .05
			if w == 2 {
				least, most = .05, .28
			}
			if moved := slots2[w] - slots[w]; moved < least || moved > most {
				t.Errorf("standing still on slot 2 for %v s moves k of slot %d from %.3f to %.3f", stood, w, slots[w], slots2[w])
			}
		}
		f.requests(800, .5, true)
		if _, slots := f.factors(); !near(slots[2], 1, .1) {
			t.Errorf("200 requests later k of the slot is %.3f", slots[2])
		}
	}
}
