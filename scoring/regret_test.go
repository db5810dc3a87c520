package scoring

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRegret has regrets worked out by hand. Computing a token takes 1 ms, engines are twice as slow (k = 2), every request in
// flight adds a tenth (alpha = 0.1). The prompt has 1000 tokens; the chosen slot was believed to hold 800 of them and has one request
// in flight and a queue of 0.1 s, so that a first token was expected after 0.1 + 2*0.2 = 0.5 s and
//
//	cost = 0.1 + 2*0.2*1.1 + 0.06 = 0.60        queue, prefill, decode
func TestRegret(t *testing.T) {
	chosen := Terms{Queue: .1, Prefill: .44, Decode: .06, Total: .6, InFlight: 1, CachedTokens: 800, Unit: Seconds}
	other := func(total float64) Terms { return Terms{Prefill: total, Total: total, Unit: Seconds} }
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		chosen Terms
		others []Terms
		ttft   time.Duration
		cached int // delivered; -1 not known
		want   float64
	}{
		{"all as predicted", chosen, []Terms{other(.7), other(.9)}, 500 * ms, 800, 0},
		{"alone", chosen, nil, 500 * ms, 0, 0},
		{"nothing but the time is known", chosen, []Terms{other(.7)}, 500 * ms, -1, 0},
		{"nothing but the reuse is known", chosen, []Terms{other(.7)}, 0, 800, 0},
		// 0.1 + 2*1*1.1 + 0.06 = 2.36 against 0.7; expected after 0.1 + 2 = 2.1 s, and so it was.
		{"the cache was empty", chosen, []Terms{other(.9), other(.7)}, 2100 * ms, 0, 1.66},
		{"the cache was empty, and time is not known", chosen, []Terms{other(.7)}, 0, 0, 1.66},
		// 0.1 + 2*0.5*1.1 + 0.06 = 1.26 against 0.7; expected after 0.1 + 2*0.5 = 1.1 s, twice as slow.
		{"the cache held half, and all were twice as slow", chosen, []Terms{other(.7)}, 2200 * ms, 500, 2 * .56},
		{"the cache held half, and all were twice as fast", chosen, []Terms{other(.7)}, 550 * ms, 500, .28},
		{"the cache held more than believed", chosen, []Terms{other(.55)}, 300 * ms, 900, 0},
		// A session's worker, taken at 0.6 although another would have cost 0.4.
		{"given up on purpose", chosen, []Terms{other(.4)}, 500 * ms, 800, .2},
		{"given up on purpose, three times as slow", chosen, []Terms{other(.4)}, 1500 * ms, 800, .6},
		// Standing still for a minute says nothing of speed: ten times as slow at most.
		{"beyond the slowest", chosen, []Terms{other(.4)}, time.Minute, 800, 2},
		{"beyond the fastest", chosen, []Terms{other(.4)}, 1, 800, .02},
		{"the wait for memory does not depend on speed", chosen, []Terms{{Prefill: .1, Room: .35, Total: .45, Unit: Seconds}}, 1000 * ms, 800, 1.2 - .55},
		{"a saturated one could not be chosen", chosen, []Terms{{Prefill: .1, Total: .1, Unit: Seconds, Saturated: true}}, 500 * ms, 800, 0},
		{"one that a rule passed over could not be chosen", chosen, []Terms{{Prefill: .1, Total: .1, Unit: Seconds, Passed: true}}, 500 * ms, 800, 0},
		{"more delivered than the prompt has", chosen, []Terms{other(.05)}, 0, 5000, .1 + 2*.001*1.1 + .06 - .05},
	} {
		s, _ := newScorer(t, DefaultConfig())
		speed := Speed{PerToken: 1e-3, ChunkTokens: 8192}
		b := &Booking{scorer: s, tuning: &tuning{speed: speed, policy: &timePolicy{speed: speed, alpha: .1}}, PredictedTTFT: 500 * ms, prompt: 1000, cached: 800, own: .2, ahead: .05}
		ranked := []Ranked{{Terms: c.chosen, CachedTokens: 800}}
		for _, o := range c.others {
			ranked = append(ranked, Ranked{Terms: o})
		}
		got, ok := s.Regret(b, ranked, Hindsight{EngineTTFT: c.ttft, CachedTokens: max(c.cached, 0), CachedKnown: c.cached >= 0})
		if !ok || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, %v; want %v", c.name, got, ok, c.want)
		}
	}
}

func TestRegretHasNothingToSay(t *testing.T) {
	s, _ := newScorer(t, DefaultConfig())
	ranked, b := pick(s, ask(1000), candidates(2))
	known := Hindsight{EngineTTFT: time.Second, CachedKnown: true}
	if _, ok := s.Regret(b, ranked, known); !ok {
		t.Error("nothing is said of a decision by policy time")
	}
	if _, ok := s.Regret(b, ranked, Hindsight{}); ok {
		t.Error("something is said although nothing is known")
	}
	if _, ok := s.Regret(b, nil, known); ok {
		t.Error("something is said without candidates")
	}
	if _, ok := s.Regret(new(Booking), ranked, known); ok {
		t.Error("something is said of what was never booked")
	}
	byLoad := ask(1000)
	byLoad.Policy = nameLeastLoad
	others, other := pick(s, byLoad, candidates(2))
	if _, ok := s.Regret(other, others, Hindsight{Policy: nameLeastLoad, EngineTTFT: time.Second, CachedKnown: true}); ok {
		t.Error("something is said of another policy, whose costs are others")
	}
	b.Move(1 - ranked[0].Slot)
	if _, ok := s.Regret(b, ranked, known); ok {
		t.Error("something is said of a request that moved")
	}
}

// TestRegretPricesAsThePolicyDoes: where all was as predicted, the chosen one costs in hindsight what it cost at the decision, and the
// others, made cheaper by a second, are a second better.
func TestRegretPricesAsThePolicyDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := DefaultConfig()
		cfg.Alpha, cfg.Again = rapid.Float64Range(0, 1).Draw(t, "alpha"), rapid.Float64Range(0, 1).Draw(t, "again")
		s, _ := newScorer(t, cfg)
		for range rapid.IntRange(0, 5).Draw(t, "booked before") {
			pick(s, ask(rapid.IntRange(1, 5000).Draw(t, "other prompt")), candidates(2))
		}
		both := candidates(2)
		prompt := rapid.IntRange(1, 20_000).Draw(t, "prompt")
		for i := range both {
			both[i].CachedTokens = rapid.IntRange(0, prompt-1).Draw(t, "cached")
		}
		ranked, b := pick(s, ask(prompt), both)
		ranked[1].Terms = ranked[0].Terms
		ranked[1].Terms.Queue--
		got, ok := s.Regret(b, ranked, Hindsight{CachedTokens: ranked[0].CachedTokens, CachedKnown: true})
		if !ok || math.Abs(got-1) > 1e-6 {
			t.Fatalf("regret %v, %v; want 1", got, ok)
		}
	})
}
