package scoring

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/slot"
)

// clock is a time that only moves when told to.
type clock struct{ time.Time }

func (c *clock) wait(seconds float64) { c.Time = c.Add(time.Duration(seconds * float64(time.Second))) }

// fataler is a test, or a case that was drawn.
type fataler interface {
	Helper()
	Fatal(...any)
}

func newScorer(tb fataler, cfg Config) (*Scorer, *clock) {
	tb.Helper()
	c := &clock{time.Unix(1_000_000, 0)}
	s, err := New(cfg, func() time.Time { return c.Time }, rand.New(rand.NewPCG(1, 2)), prometheus.NewRegistry())
	if err != nil {
		tb.Fatal(err)
	}
	return s, c
}

// ask is a demand in blocks of 16.
func ask(prompt int) *Demand { return &Demand{PromptTokens: prompt, BlockTokens: 16} }

// pick is Pick with a booking of its own.
func pick(s *Scorer, d *Demand, candidates []Candidate) ([]Ranked, *Booking) {
	b := new(Booking)
	return s.Pick(d, candidates, nil, b), b
}

// holding is the default but for a policy that holds what is booked until it is told that it is computed.
func holding() Config {
	cfg := DefaultConfig()
	cfg.Policy = nameTokenLoad
	return cfg
}

func candidates(n int) []Candidate {
	c := make([]Candidate, n)
	for i := range c {
		c[i].Slot = slot.Slot(i)
	}
	return c
}

func TestNew(t *testing.T) {
	reg := prometheus.NewRegistry()
	rnd := rand.New(rand.NewPCG(1, 2))
	if _, err := New(DefaultConfig(), time.Now, rnd, reg); err != nil {
		t.Error(err)
	}
	if _, err := New(DefaultConfig(), time.Now, rnd, reg); err == nil {
		t.Error("a second scorer on one registry is not refused")
	}
	if _, err := New(DefaultConfig(), time.Now, nil, prometheus.NewRegistry()); err == nil {
		t.Error("a scorer without randomness is not refused")
	}
	if _, err := New(Config{}, time.Now, rnd, prometheus.NewRegistry()); err == nil {
		t.Error("a configuration without a policy is not refused")
	}
}

func TestNoCandidates(t *testing.T) {
	s, _ := newScorer(t, DefaultConfig())
	var b Booking
	if ranked := s.Pick(&Demand{}, nil, nil, &b); len(ranked) != 0 || b != (Booking{}) {
		t.Errorf("without candidates: %v, %v", ranked, b)
	}
	b.Prefilled()
	b.Progress(1)
	b.Move(1)
	b.End()
}

// TestPickAppends keeps what dst holds, and uses its memory.
func TestPickAppends(t *testing.T) {
	s, _ := newScorer(t, DefaultConfig())
	dst := append(make([]Ranked, 0, 8), Ranked{Slot: 77})
	got := s.Pick(ask(100), candidates(5), dst, new(Booking))
	if len(got) != 6 || got[0].Slot != 77 || &got[0] != &dst[0] {
		t.Errorf("got %v", got)
	}
}

// TestSpread sends many requests to equal workers: every policy must spread them as it promises.
func TestSpread(t *testing.T) {
	const workers, requests = 4, 4000
	var spreading []string
	for _, c := range []struct {
		policy string
		spread int // largest difference allowed between the counts of two workers
	}{
		{"time", 1}, {"dynamo", 1}, {"weighted", 1}, {"lmetric", 1}, {"token-load", 1}, {"sticky", 1}, {"least-load", 1}, {"power-of-two", 8},
		{"chwbl", 250}, {"session", 1}, {"round-robin", 1}, {"random", 250}, {"sglang-cache-aware", 250}, {"aibrix-prefix", 1},
		{"blend-3-2-2", 250}, {"preble", 1},
	} {
		spreading = append(spreading, c.policy)
		cfg := DefaultConfig()
		cfg.Policy = c.policy
		s, _ := newScorer(t, cfg)
		count := make([]int, workers)
		for range requests {
			ranked, _ := pick(s, ask(1000), candidates(workers))
			count[ranked[0].Slot]++
		}
		if spread := slices.Max(count) - slices.Min(count); spread > c.spread {
			t.Errorf("%s: requests per worker %v, differing by more than %d", c.policy, count, c.spread)
		}
	}
	if !slices.Equal(spreading, policies) {
		t.Errorf("tried are %v, not all of %v", spreading, policies)
	}
}

// TestTiesByChance checks that equals come first equally often, and in every order.
func TestTiesByChance(t *testing.T) {
	orders := map[string]int{}
	s, _ := newScorer(t, DefaultConfig())
	for range 6000 {
		ranked, b := pick(s, ask(1000), candidates(3))
		b.End()
		orders[fmt.Sprint(ranked[0].Slot, ranked[1].Slot, ranked[2].Slot)]++
	}
	if len(orders) != 6 {
		t.Fatalf("orders of three equals: %v, want all six", orders)
	}
	for order, n := range orders {
		if n < 850 || n > 1150 {
			t.Errorf("order %s comes %d times of 6000, want about 1000", order, n)
		}
	}
}

// TestTemperature: with it the dearer candidate is drawn as often as the formula says; the rest stays in order.
func TestTemperature(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Temperature = .5
	s, _ := newScorer(t, cfg)
	c := candidates(2)
	c[1].CachedTokens = 4096
	dear := 0
	const n = 20_000
	for range n {
		ranked, b := pick(s, ask(8192), c)
		b.End()
		if ranked[0].Slot == 0 {
			dear++
		}
	}
	if want := 1 / (1 + math.Exp(2)); !near(float64(dear)/n, want, .01) {
		t.Errorf("the dearer one is drawn in %v of all cases, want %v", float64(dear)/n, want)
	}
}

func TestForgottenSlot(t *testing.T) {
	s, _ := newScorer(t, DefaultConfig())
	_, old := pick(s, ask(1000), candidates(1))
	s.Forget(0)
	s.Forget(99)
	if got := s.Load(0); got != (Load{SpeedFactor: 1}) {
		t.Errorf("a forgotten slot has load %+v", got)
	}
	_, young := pick(s, ask(500), candidates(1))
	old.Prefilled()
	old.End()
	if got := s.Load(0); got.InFlight != 1 || got.ContextTokens != 500 {
		t.Errorf("the end of a request of the slot's former worker changed the load to %+v", got)
	}
	young.End()
	young.Move(3)
	young.Move(slot.None)
	if got := s.Load(0); got.InFlight != 0 || got.QueueSeconds != 0 || s.Load(3).InFlight != 0 {
		t.Errorf("after the end: %+v, and %+v where it was moved to afterwards", got, s.Load(3))
	}
}

// TestConcurrent lets everything happen at once, under the race detector when that is on; when all requests are over
// nothing is left.
func TestConcurrent(t *testing.T) {
	s, err := New(DefaultConfig(), time.Now, rand.New(rand.NewPCG(1, 2)), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 7))
			var dst []Ranked
			for range 300 {
				b := new(Booking)
				dst = s.Pick(ask(r.IntN(10_000)), candidates(1+r.IntN(6)), dst[:0], b)
				var one sync.WaitGroup
				for _, f := range []func(){
					b.Prefilled, b.End, b.End, func() { b.Move(slot.Slot(g % 6)) },
					func() { s.Observe(b, Outcome{EngineTTFT: time.Duration(1+g) * time.Millisecond}) },
				} {
					one.Go(f)
				}
				s.Load(slot.Slot(g))
				s.SpeedFactor()
				one.Wait()
			}
		})
	}
	all.Wait()
	for i := range slot.Slot(6) {
		got := s.Load(i)
		got.LastTurn = 0
		if got != (Load{SpeedFactor: got.SpeedFactor}) {
			t.Errorf("all requests are over, slot %d has load %+v", i, got)
		}
	}
}

// BenchmarkPick is one decision over 16 or 256 candidates and its end, with 8 requests booked on each.
func BenchmarkPick(b *testing.B) {
	for _, policy := range policies {
		for _, n := range []int{16, 256} {
			b.Run(fmt.Sprintf("%s/candidates=%d", policy, n), func(b *testing.B) {
				cfg := DefaultConfig()
				cfg.Policy = policy
				s, err := New(cfg, time.Now, rand.New(rand.NewPCG(1, 2)), prometheus.NewRegistry())
				if err != nil {
					b.Fatal(err)
				}
				cands := candidates(n)
				for i := range cands {
					cands[i].CachedTokens = i * 97 % 2000
					cands[i].KVCapacityTokens = 300_000
					for range 8 {
						pick(s, ask(100_000), cands[i:i+1])
					}
				}
				var dst []Ranked
				d := ask(2048)
				for i := range uint64(128) {
					d.Chain = append(d.Chain, i*0x9e3779b97f4a7c15)
				}
				b.ReportAllocs()
				for b.Loop() {
					var booking Booking
					dst = s.Pick(d, cands, dst[:0], &booking)
					booking.End()
				}
			})
		}
	}
}
