package scoring

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
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
