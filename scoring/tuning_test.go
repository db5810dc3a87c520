package scoring

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"attache/internal/slot"
)

// TestReconfigureKeepsPredictions draws what happens to a scorer, and then another speed model: backlogs take as long as before, what
// requests teach that were decided before counts in the new unit, and nothing is left when all is over.
func TestReconfigureKeepsPredictions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, c := newScorer(t, DefaultConfig())
		slow := rapid.Float64Range(.25, 4).Draw(t, "true speed factor")
		factor := rapid.SampledFrom([]float64{.5, 1, 2}).Draw(t, "the new model takes so many times as long")
		var running []*Booking
		_, first := pick(s, ask(1000), candidates(3))
		observe(s, first, slow) // with nothing learnt, models are believed as they are
		first.End()
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			_, b := pick(s, ask(rapid.IntRange(1, 20_000).Draw(t, "prompt")), candidates(3))
			running = append(running, b)
			c.wait(rapid.Float64Range(0, .5).Draw(t, "pause"))
			if rapid.Bool().Draw(t, "one ends") {
				observe(s, running[0], slow)
				running[0].End()
				running = running[1:]
			}
		}
		before, k := loads(s), s.SpeedFactor()
		next := DefaultConfig()
		next.Speed.Error = factor
		if err := s.Reconfigure(next); err != nil {
			t.Fatal(err)
		}
		if got := s.SpeedFactor() * factor; math.Abs(got-k) > 1e-9*k {
			t.Fatalf("k is %v in units of before, and was %v", got, k)
		}
		for i, l := range loads(s) {
			if math.Abs(l.QueueSeconds-before[i].QueueSeconds) > 1e-9*(1+l.QueueSeconds) || l.InFlight != before[i].InFlight ||
				l.PrefillTokens != before[i].PrefillTokens || l.ContextTokens != before[i].ContextTokens {
				t.Fatalf("slot %d: %+v, and before %+v", i, l, before[i])
			}
		}
		for _, b := range running { // what they tell agrees with all that was learnt, so that it changes little
			observe(s, b, k)
			b.End()
		}
		if got := s.SpeedFactor() * factor; len(running) > 0 && math.Abs(got-k) > 1e-6*k {
			t.Fatalf("k becomes %v in units of before, by requests of speed %v", got, k)
		}
		for i, l := range loads(s) {
			if l.InFlight != 0 || l.QueueSeconds != 0 || l.ContextTokens != 0 {
				t.Fatalf("slot %d keeps %+v", i, l)
			}
		}
	})
}

// observe tells that a request took so many times as long as its model says.
func observe(s *Scorer, b *Booking, slow float64) {
	s.Observe(b, Outcome{EngineTTFT: time.Duration(slow * (b.ahead + b.own) * float64(time.Second))})
}

func loads(s *Scorer) (all []Load) {
	for i := range 3 {
		all = append(all, s.Load(slot.Slot(i)))
	}
	return all
}

func TestReconfigure(t *testing.T) {
	s, _ := newScorer(t, DefaultConfig())
	_, b := pick(s, ask(1000), candidates(2))
	bad := DefaultConfig()
	bad.Policy = "fastest"
	if err := s.Reconfigure(bad); err == nil || s.Policy() != nameTime {
		t.Errorf("a bad configuration: %v; the policy is %s", err, s.Policy())
	}
	next := DefaultConfig()
	next.Policy = nameLeastLoad
	if err := s.Reconfigure(next); err != nil || s.Policy() != nameLeastLoad || s.Deciding("") != nameLeastLoad || s.Deciding(nameTime) != nameTime {
		t.Errorf("%v; the policy is %s", err, s.Policy())
	}
	ranked, _ := pick(s, ask(1000), candidates(2))
	if ranked[0].Slot == b.load.slot || ranked[0].Terms.Unit != Requests {
		t.Errorf("least-load chose %+v; the other slot has nothing to do", ranked[0])
	}
	if seconds, ok := s.Regret(b, []Ranked{{Terms: Terms{Unit: Seconds}}}, Hindsight{EngineTTFT: time.Second}); !ok || seconds != 0 {
		t.Errorf("what was decided by time is judged by time: %v, %v", seconds, ok)
	}
}
