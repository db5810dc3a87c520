package virtual

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"attache/internal/sim/trace"
)

// loaded keeps workloads that several tests use; they never change.
var loaded = map[string]*trace.Workload{}

// open reads a recorded workload once.
func open(t testing.TB, name string, rows int, speedup float64) *trace.Workload {
	t.Helper()
	key := fmt.Sprint(name, rows, speedup)
	if loaded[key] == nil {
		w, err := trace.Open(name, trace.Options{Rows: rows, Speedup: speedup})
		if err != nil {
			t.Fatal(err)
		}
		loaded[key] = w
	}
	return loaded[key]
}

// play runs a workload on 8 engines of the default profile.
func play(t testing.TB, w *trace.Workload, router func(*Cluster) Router) (*Result, Summary) {
	t.Helper()
	c, err := New(Config{Workers: 8}, w)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Run(router(c))
	if err != nil {
		t.Fatal(err)
	}
	return r, r.Summary(0, Limits{})
}

// The engines are right if work that no policy touches takes as long as in the original: each figure to its last digit.
func TestRoundRobinAsMeasured(t *testing.T) {
	// Measured by ai-dynamo 1.4.2's offline replay on the same workloads: 8 workers with 16,384 blocks of 64 tokens.
	t.Logf("%-26s %-9s %7s %7s %7s %7s %7s %7s %7s %7s", "", "", "hit", "mean", "p50", "p90", "p99", "tpot", "p99", "e2e")
	for _, m := range []struct {
		trace   string
		rows    int
		speedup float64
		want    [8]float64 // hit, TTFT mean, p50, p90, p99, TPOT mean, p99, E2E mean; ms
		unit    [8]float64 // of the last digit
	}{
		{"conversation", 4000, 1, [8]float64{.0800, 340.0, 206.5, 731, 2174, 7.96, 19.9, 2993}, [8]float64{1e-4, .1, .1, 1, 1, .01, .1, 1}},
		{"conversation", 4000, 2, [8]float64{.0799, 366.3, 221.6, 802, 2314, 10.73, 29.3, 3981}, [8]float64{1e-4, .1, .1, 1, 1, .01, .1, 1}},
		{"conversation", 4000, 4, [8]float64{.0797, 498.1, 290, 1247, 2823, 26.3, 85, 9302}, [8]float64{1e-4, .1, 1, 1, 1, .1, 1, 1}},
		{"conversation-jittered", 0, 2, [8]float64{.0732, 309.7, 162, 699, 2160, 10.2, 24, 3901}, [8]float64{1e-4, .1, 1, 1, 1, .1, 1, 1}},
		{"conversation", 0, 2, [8]float64{.0817, 350.0, 208, 772, 2179, 10.7, 32, 3840}, [8]float64{1e-4, .1, 1, 1, 1, .1, 1, 1}},
		{"synthetic", 0, 1, [8]float64{.1117, 307.1, 142, 797, 1444, 7.31, 15.8, 1303}, [8]float64{1e-4, .1, 1, 1, 1, .01, .1, 1}},
	} {
		_, s := play(t, open(t, m.trace, m.rows, m.speedup), func(*Cluster) Router { return RoundRobin() })
		got := [8]float64{s.Hit, inMS(s.TTFT.Mean), inMS(s.TTFT.P50), inMS(s.TTFT.P90), inMS(s.TTFT.P99), inMS(s.TPOT.Mean), inMS(s.TPOT.P99), inMS(s.E2E.Mean)}
		name := []string{"hit", "TTFT mean", "TTFT p50", "TTFT p90", "TTFT p99", "TPOT mean", "TPOT p99", "E2E mean"}
		for i, v := range [][8]float64{m.want, got} {
			t.Logf("%-21s x%-3v %-9s %7.4f %7.1f %7.1f %7.1f %7.1f %7.2f %7.2f %7.1f", m.trace, m.speedup, []string{"measured", "here"}[i],
				v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7])
		}
		for i, want := range m.want {
			if math.Abs(got[i]-want) > m.unit[i]*.5001 {
				t.Errorf("%s x%v: %s %.4f, measured %v", m.trace, m.speedup, name[i], got[i], want)
			}
		}
		t.Logf("%d answered, %d refused, %d preemptions, imbalance %.2f, utilisation %.2f", s.Completed, s.Refused, s.Preemptions, s.Imbalance, s.Utilisation)
	}
}

// A request alone takes the prefill of its chunks and one decode step.
func TestAloneAsMeasured(t *testing.T) {
	for _, m := range []struct {
		prompt int
		want   float64 // ms
		unit   float64
	}{{512, 30.15, .01}, {1024, 38.28, .01}, {4096, 91.71, .01}, {8192, 175.30, .01}, {16384, 344.85, .01}, {65536, 1362.1, .1}} {
		ids := make([]int32, m.prompt/64)
		for i := range ids {
			ids[i] = int32(i)
		}
		r := &trace.Request{Prompt: m.prompt, Output: 10, IDs: ids}
		w := &trace.Workload{All: []*trace.Request{r}, Heads: []*trace.Request{r}, BlockTokens: 64, IDs: len(ids)}
		_, s := play(t, w, func(*Cluster) Router { return RoundRobin() })
		if got := inMS(s.TTFT.Mean); math.Abs(got-m.want) > m.unit*.5001 {
			t.Errorf("%d tokens: first token after %.3f ms, measured %v", m.prompt, got, m.want)
		}
	}
}

// dynamo is the linear cost of Dynamo's router as its replay applies it, at temperature 0:
//
//	scale*(prompt tokens without a first token, this prompt's included, in blocks - overlap) + distinct active blocks
type dynamo struct {
	Blind

	scale  float64
	c      *Cluster
	rand   *rand.Rand
	views  []view
	booked []int // by request: uncached tokens
	worker []int
}

type view struct {
	active  []uint16 // by block: requests in flight with it
	blocks  int      // of these, not 0
	pending int      // tokens booked without a first token
}

func newDynamo(c *Cluster, scale float64, seed uint64) *dynamo {
	d := &dynamo{
		scale: scale, c: c, rand: rand.New(rand.NewPCG(seed, 0)), views: make([]view, c.Workers()),
		booked: make([]int, len(c.workload.All)), worker: make([]int, len(c.workload.All)),
	}
	for i := range d.views {
		d.views[i].active = make([]uint16, c.workload.IDs)
	}
	return d
}

func (d *dynamo) Route(_ time.Duration, r *trace.Request) (worker int, ok bool) {
	least, equal, overlap := 0.0, 0, 0
	for i := range d.views {
		v := &d.views[i]
		k := d.c.Held(i, r.IDs)
		cost := d.scale*max(0, float64(v.pending+r.Prompt)/64-float64(k)) + float64(v.blocks)
		for _, id := range r.IDs {
			if v.active[id] == 0 {
				cost++
			}
		}
		switch {
		case i == 0 || cost < least:
			worker, least, equal, overlap = i, cost, 1, k
		case cost == least:
			if equal++; d.rand.IntN(equal) == 0 {
				worker, overlap = i, k
			}
		}
	}
	v := &d.views[worker]
	d.worker[r.Index], d.booked[r.Index] = worker, max(0, r.Prompt-overlap*64)
	v.pending += d.booked[r.Index]
	for _, id := range r.IDs {
		if v.active[id]++; v.active[id] == 1 {
			v.blocks++
		}
	}
	return worker, true
}

func (d *dynamo) FirstToken(_ time.Duration, r *trace.Request) {
	d.views[d.worker[r.Index]].pending -= d.booked[r.Index]
	d.booked[r.Index] = 0
}

func (d *dynamo) End(now time.Duration, r *trace.Request, _ Outcome) {
	d.FirstToken(now, r)
	v := &d.views[d.worker[r.Index]]
	for _, id := range r.IDs {
		if v.active[id]--; v.active[id] == 0 {
			v.blocks--
		}
	}
}

// What routers learn from the engines is right if Dynamo's own cost gives what it gives in the original: the mean TTFT within
// 1 % of what was measured, ties being random in both. At x4 the spread of single runs is larger than that (over 100 seeds here:
// mean 436.4, standard deviation 3.0, 431.9 to 443.5), and a single one was measured; 3 of the 100 give its very figure.
func TestDynamoCostAsMeasured(t *testing.T) {
	for _, m := range []struct {
		trace     string
		rows      int
		speedup   float64
		scale     float64
		low, high float64 // mean TTFT over the runs, ms
		within    float64
	}{
		{"conversation", 4000, 1, 1, 298, 300, .01},
		{"conversation", 4000, 2, 1, 349, 357, .01},
		{"conversation", 4000, 2, 4, 302.3, 302.3, .01},
		{"conversation", 4000, 2, 16, 281.8, 281.8, .01},
		{"conversation", 4000, 4, 1, 441.1, 441.1, .015},
		{"conversation-jittered", 0, 2, 1, 260.8, 260.8, .01},
		{"conversation-jittered", 0, 2, 4, 241.7, 241.7, .01},
		{"conversation-jittered", 0, 2, 16, 235.0, 235.0, .01},
		{"conversation", 0, 2, 1, 331.6, 331.6, .01},
		{"synthetic", 0, 1, 1, 178.0, 178.0, .01},
		{"synthetic", 0, 1, 4, 171.6, 171.6, .01},
		{"synthetic", 0, 1, 16, 169.8, 169.8, .01},
	} {
		w := open(t, m.trace, m.rows, m.speedup)
		const seeds = 3
		sum, hit := 0.0, 0.0
		for seed := range uint64(seeds) {
			_, s := play(t, w, func(c *Cluster) Router { return newDynamo(c, m.scale, seed+1) })
			sum += inMS(s.TTFT.Mean) / seeds
			hit += s.Hit / seeds
		}
		t.Logf("%-21s x%-3v scale %-3v hit %.4f, mean TTFT %.1f, measured %v to %v", m.trace, m.speedup, m.scale, hit, sum, m.low, m.high)
		if sum < (1-m.within)*m.low || sum > (1+m.within)*m.high {
			t.Errorf("%s x%v, scale %v: mean TTFT %.1f ms, measured %v to %v", m.trace, m.speedup, m.scale, sum, m.low, m.high)
		}
	}
}

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Simulated against real time, on one core, for the hour of the conversation trace and 8 workers. At least 2,000 is wanted.
func BenchmarkConversation(b *testing.B) {
	w := open(b, "conversation", 0, 1)
	for _, bench := range []struct {
		name, profile string
		router        func(*Cluster) Router
	}{
		{"round-robin", DynamoMocker, func(*Cluster) Router { return RoundRobin() }},
		{"dynamo", DynamoMocker, func(c *Cluster) Router { return newDynamo(c, 1, 1) }},
		{"round-robin", "qwen3-32b-2xh100", func(*Cluster) Router { return RoundRobin() }},
	} {
		b.Run(bench.name+"/"+bench.profile, func(b *testing.B) {
			var span time.Duration
			for b.Loop() {
				c, err := New(Config{Workers: 8, Profile: bench.profile}, w)
				if err != nil {
					b.Fatal(err)
				}
				r, err := c.Run(bench.router(c))
				if err != nil {
					b.Fatal(err)
				}
				span += r.Span
			}
			b.ReportMetric(span.Seconds()/b.Elapsed().Seconds(), "simulated/real")
		})
	}
}
