package scoring

import "testing"

// TestTokens has the costs of the policies that count tokens, worked out by hand; 1000 tokens, that is 62 full blocks of 16.
func TestTokens(t *testing.T) {
	warm := []Candidate{{CachedTokens: 800}, {CachedTokens: 768}, {}} // 50, 48 and 0 blocks; 50 of 62 is .806
	loads := func(q ...int) []Load {
		l := make([]Load, len(q))
		for i := range l {
			l[i] = Load{PrefillTokens: q[i], InFlight: 2 * i}
		}
		return l
	}
	def := DefaultConfig().Sticky
	short := StickyConfig{Threshold: .5, TauTokens: 300}
	for _, c := range []struct {
		name    string
		policy  Policy
		d       *Demand
		workers []Candidate
		loads   []Load
		want    []Terms
	}{
		{
			"lmetric", lmetric{}, ask(1000), warm, loads(500, 10, 100),
			[]Terms{{Queue: 500, Prefill: 200}, {Queue: 30, Prefill: 696}, {Queue: 500, Prefill: 5000}},
		},
		{
			"lmetric: all cached, in doubt, not known", lmetric{}, ask(1000), []Candidate{{CachedTokens: 1000}, {CachedTokens: 1000, Doubt: .25}},
			loads(0, 0), []Terms{{Prefill: 1}, {Prefill: 750}},
		},
		{"lmetric: a prompt that is not known", lmetric{}, ask(0), warm[:1], loads(7), []Terms{{Queue: 7, Prefill: 1}}},
		{
			"token-load", tokenLoad{}, ask(1000), warm, loads(500, 10, 100),
			[]Terms{{Queue: 500, Prefill: 200}, {Queue: 10, Prefill: 232, Tie: 2}, {Queue: 100, Prefill: 1000, Tie: 4}},
		},
		{
			"sticky: one is warm enough", &stickyPolicy{def}, ask(1000), warm, loads(5000, 0, 0),
			[]Terms{{Queue: 5000, Prefill: 200}, {Prefill: 232, Passed: true}, {Prefill: 1000, Passed: true}},
		},
		{
			"sticky: exactly at the threshold", &stickyPolicy{def}, ask(960), []Candidate{{CachedTokens: 768}, {}}, loads(1000, 0),
			[]Terms{{Queue: 1000, Prefill: 192}, {Prefill: 960, Passed: true}},
		},
		{
			"sticky: exactly at one that is no binary fraction", &stickyPolicy{StickyConfig{.55, 0}}, ask(320), []Candidate{{CachedTokens: 176}, {}}, loads(0, 0),
			[]Terms{{Prefill: 144}, {Prefill: 320, Passed: true}},
		},
		{
			"sticky: none is", &stickyPolicy{def}, ask(2000), warm, loads(0, 0, 0),
			[]Terms{{Prefill: 1200}, {Prefill: 1232}, {Prefill: 2000}},
		},
		{
			"sticky: just not saturated", &stickyPolicy{def}, ask(1000), warm, loads(286_804, 100, 200),
			[]Terms{{Queue: 286_804, Prefill: 200}, {Queue: 100, Prefill: 232, Passed: true}, {Queue: 200, Prefill: 1000, Passed: true}},
		},
		{
			"sticky: saturated", &stickyPolicy{def}, ask(1000), warm, loads(286_805, 100, 200),
			[]Terms{{Queue: 286_805, Prefill: 200}, {Queue: 100, Prefill: 232}, {Queue: 200, Prefill: 1000}},
		},
		{
			"sticky: the least busy warm one counts", &stickyPolicy{short}, ask(1000), warm, loads(900, 300, 0),
			[]Terms{{Queue: 900, Prefill: 200}, {Queue: 300, Prefill: 232}, {Prefill: 1000, Passed: true}},
		},
		{"sticky: all are warm", &stickyPolicy{short}, ask(1000), warm[:2], loads(9e6, 9e6), []Terms{{Queue: 9e6, Prefill: 200}, {Queue: 9e6, Prefill: 232}}},
		{"sticky: no full block", &stickyPolicy{short}, ask(15), []Candidate{{CachedTokens: 15}, {}}, loads(0, 0), []Terms{{Prefill: 1}, {Prefill: 15}}},
	} {
		got := judge(c.policy, c.d, c.workers, c.loads)
		for i, want := range c.want {
			want.Total = want.Prefill + want.Queue
			unit := Tokens
			if c.policy == (lmetric{}) {
				want.Tie, unit = 0, TokenRequests
			}
			same(t, c.name, i, got[i], want, unit)
		}
	}
}

// TestPowerOfTwo covers the draws: always two different ones.
func TestPowerOfTwo(t *testing.T) {
	for _, c := range []struct {
		n     int
		draws [2]float64
		want  []int // not passed over
	}{
		{1, [2]float64{.9, .9}, []int{0}},
		{2, [2]float64{0, 0}, []int{0, 1}},
		{2, [2]float64{.999999, .999999}, []int{0, 1}},
		{4, [2]float64{0, 0}, []int{0, 1}},
		{4, [2]float64{.3, .3}, []int{0, 1}},
		{4, [2]float64{.3, .4}, []int{1, 2}},
		{4, [2]float64{.9, .9}, []int{2, 3}},
		{4, [2]float64{0, .9999999}, []int{0, 3}},
	} {
		loads := make([]Load, c.n)
		for i := range loads {
			loads[i].InFlight = 10 - i
		}
		x := contest(ask(100), candidates(c.n), loads)
		x.Draws = c.draws
		powerOfTwo{}.Score(x)
		var got []int
		for i, terms := range x.Terms {
			same(t, "power-of-two", i, terms, Terms{Requests: float64(10 - i), Total: float64(10 - i), Passed: terms.Passed}, Requests)
			if !terms.Passed {
				got = append(got, i)
			}
		}
		if len(got) != len(c.want) || got[0] != c.want[0] || got[len(got)-1] != c.want[len(c.want)-1] {
			t.Errorf("of %d the draws %v are %v, want %v", c.n, c.draws, got, c.want)
		}
	}
}

// TestSession: where it was bound to, however busy; a new one as least-load.
func TestSession(t *testing.T) {
	loads := []Load{{InFlight: 9, PrefillTokens: 5}, {InFlight: 1, PrefillTokens: 70}, {InFlight: 1, PrefillTokens: 60}}
	for _, c := range []struct {
		name  string
		bound []bool
		want  int
	}{
		{"new", []bool{false, false, false}, 2},
		{"bound", []bool{true, false, false}, 0},
		{"bound to a worker with several ranks", []bool{true, true, false}, 1},
	} {
		workers := make([]Candidate, 3)
		for i := range workers {
			workers[i].Bound = c.bound[i]
		}
		if got := first(judge(session{}, ask(100), workers, loads)); got != c.want {
			t.Errorf("%s: worker %d, want %d", c.name, got, c.want)
		}
	}
}
