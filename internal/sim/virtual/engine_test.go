package virtual

import (
	"math"
	"testing"
	"time"

	"attache/internal/sim/trace"
)

// answers gives a workload's requests these outputs.
func answers(w *trace.Workload, tokens ...int) *trace.Workload {
	for i, n := range tokens {
		w.All[i].Output = n
	}
	return w
}

// The passes of a hardware profile are as long as its model says, by hand: two chunks of a prompt, then a token each. What
// is over leaves nothing behind that makes the next slower.
func TestReservingAlone(t *testing.T) {
	const over, weights, b, q, c = 2.2e-3, 13e-3, 55e-6, 1.75e-9, 76e-9
	first := over + b*8192 + q*8192*4096 + over + b*1808 + q*1808*(8192+904)
	all := first + over + weights + c*10001 + over + weights + c*10002
	w := one(10000, 10000)
	w.All[1].Arrival = time.Minute
	r := mustRun(t, Config{Workers: 1, Profile: "qwen3-32b-2xh100"}, w, RoundRobin())
	for i := range r.Records {
		x := &r.Records[i]
		if math.Abs(x.TTFT().Seconds()-first) > 1e-8 || math.Abs(x.E2E().Seconds()-all) > 1e-8 {
			t.Errorf("request %d: first token after %v, last after %v, want %v and %v s", i, x.TTFT(), x.E2E(), first, all)
		}
	}
}

// Answers grow until there is no block left: the newest gives its own up and keeps its place before those that wait, though
// there would be room for them.
//
//	10 blocks:  A 4, B 4        C waits for 4
//	            A 5, B 5        64 tokens later
//	            A 6   B gone    C would fit, but B, which needs 6, is first
func TestPreemption(t *testing.T) {
	r := mustRun(t, Config{Workers: 1, KVTokens: 640}, answers(one(256, 256, 256), 100, 100, 1), RoundRobin())
	a, b, c := r.Records[0], r.Records[1], r.Records[2]
	if r.Preemptions != 1 {
		t.Errorf("%d preemptions", r.Preemptions)
	}
	if c.Admitted < a.End || b.End < a.End {
		t.Errorf("A ends at %v, B at %v, C begins at %v", a.End, b.End, c.Admitted)
	}
	if b.Reused != 0 || r.Asked != 3*256 {
		t.Errorf("%d tokens asked for, %d reused by B: only its first admission counts", r.Asked, b.Reused)
	}
}

// What others hold already needs no room.
func TestSharedBlocksFit(t *testing.T) {
	for _, profile := range Profiles()[:2] {
		w := answers(one(6*64, 7*64), 50, 2)
		copy(w.All[1].IDs, w.All[0].IDs)
		w.All[1].Arrival = time.Second / 2
		r := mustRun(t, Config{Workers: 1, Profile: profile, KVTokens: 12 * 64, Speeds: []float64{.1}}, w, RoundRobin())
		if a, b := r.Records[0], r.Records[1]; b.Admitted >= a.End || b.Reused != 6*64 {
			t.Errorf("%s: A ends at %v, B begins at %v and reuses %d tokens", profile, a.End, b.Admitted, b.Reused)
		}
	}
}

// An answer that grows beyond the memory is refused in the end; who waits behind it is served.
func TestTooLongAnAnswer(t *testing.T) {
	r := mustRun(t, Config{Workers: 1, KVTokens: 384}, answers(one(256, 256), 400, 5), RoundRobin())
	if a, b := r.Records[0], r.Records[1]; a.Status != Refused || b.Status != Answered {
		t.Errorf("%v, then %v", a.Status, b.Status)
	}
}

// If a whole prompt is cached its last block is computed again: two copies, of which routers hear as of one.
func TestLastBlockTwice(t *testing.T) {
	w := one(640, 640)
	w.All[1].IDs, w.IDs = w.All[0].IDs, 10
	w.All[1].Arrival = time.Minute
	c, err := New(Config{Workers: 1}, w)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Run(RoundRobin())
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Records[1].Reused; got != 9*64 {
		t.Errorf("%d tokens reused", got)
	}
	if free := c.Capacity(0) - c.Free(0); free != 11 {
		t.Errorf("%d blocks in the cache, want 10 and a copy", free)
	}
	var last []int32
	for b := range c.IdleBlocks(0) {
		if last = append(last, b.ID); len(last) == 2 {
			break
		}
	}
	if last[0] != 9 || last[1] != 9 {
		t.Errorf("the next to go are blocks %d, want both copies of the last", last)
	}
}

// Passes allocate nothing: ten times as many passes make the lists of blocks longer, no more.
func TestPassesDoNotAllocate(t *testing.T) {
	for _, profile := range Profiles()[:2] {
		allocs := func(output int) float64 {
			w := answers(one(640, 640, 640, 640), output, output, output, output)
			return testing.AllocsPerRun(3, func() { mustRun(t, Config{Workers: 2, Profile: profile}, w, RoundRobin()) })
		}
		if few, many := allocs(1000), allocs(10000); many > few+100 {
			t.Errorf("%s: %v allocations for 2,000 passes, %v for 20,000", profile, few, many)
		} else {
			t.Logf("%s: %v and %v allocations", profile, few, many)
		}
	}
}
