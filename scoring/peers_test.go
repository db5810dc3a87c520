package scoring

import "testing"

// inFlight are loads with these numbers of requests.
func inFlight(n ...int) []Load {
	l := make([]Load, len(n))
	for i := range l {
		l[i].InFlight = n[i]
	}
	return l
}

// TestPeers has the branches of the restated rules; 1000 tokens are asked for, in blocks of 16.
func TestPeers(t *testing.T) {
	full := qwen.Prefill(1000, 0)
	held := func(cached, held int) Candidate { return Candidate{CachedTokens: cached, KVHeldTokens: held} }
	requests := func(n float64) Terms { return Terms{Requests: n, Total: n} }
	tokens := func(p, tie float64, passed bool) Terms { return Terms{Prefill: p, Total: p, Tie: tie, Passed: passed} }
	e2 := func(queue, n, prefill float64, passed bool) Terms {
		return Terms{Queue: queue, Requests: .02 * n, Prefill: prefill, Total: queue + .02*n + prefill, Passed: passed}
	}
	for _, c := range []struct {
		name    string
		policy  Policy
		workers []Candidate
		loads   []Load
		want    []Terms
		unit    Unit
	}{
		{
			"sglang: longest match", sglangCacheAware{}, []Candidate{held(301, 9), held(500, 9), held(500, 1)}, inFlight(0, 64, 3),
			[]Terms{tokens(699, 0, true), tokens(500, 0, false), tokens(500, 0, false)}, Tokens,
		},
		{
			"sglang: match too short", sglangCacheAware{}, []Candidate{held(300, 9), held(0, 4)}, inFlight(0, 9),
			[]Terms{{Total: 9}, {Total: 4}}, HeldTokens,
		},
		{
			"sglang: far apart", sglangCacheAware{}, []Candidate{held(0, 9), held(900, 4)}, inFlight(0, 65),
			[]Terms{requests(0), requests(65)}, Requests,
		},
		{
			"sglang: apart, but not in proportion", sglangCacheAware{}, []Candidate{held(0, 9), held(900, 4)}, inFlight(200, 300),
			[]Terms{tokens(1000, 0, true), tokens(100, 0, false)}, Tokens,
		},
		{ // mean 3, deviation sqrt(14/3) = 2.16: 5.16 is the limit
			"aibrix: longest match that is not too busy", aibrixPrefix{}, []Candidate{held(900, 0), held(500, 0), held(500, 0)}, inFlight(6, 1, 2),
			[]Terms{tokens(100, 6, true), tokens(500, 1, false), tokens(500, 2, false)}, Tokens,
		},
		{
			"aibrix: at the limit", aibrixPrefix{}, []Candidate{held(900, 0), held(500, 0)}, inFlight(4, 2), // mean 3, deviation 1
			[]Terms{tokens(100, 4, false), tokens(500, 2, false)}, Tokens,
		},
		{
			"aibrix: only the busy have something", aibrixPrefix{}, []Candidate{held(900, 0), {}, {}}, inFlight(6, 1, 2),
			[]Terms{requests(6), requests(1), requests(2)}, Requests,
		},
		{
			"aibrix: far apart", aibrixPrefix{}, []Candidate{held(0, 0), held(900, 0)}, inFlight(9, 0),
			[]Terms{requests(9), requests(0)}, Requests,
		},
		{"aibrix: nobody has anything", aibrixPrefix{}, make([]Candidate, 2), inFlight(1, 3), []Terms{requests(1), requests(3)}, Requests},
		{ // 62 full blocks; 31 cached; waiting 4, 3, 0 and not known
			"blend", blend{}, []Candidate{
				{CachedTokens: 496, EngineWaiting: 4, EngineKVUse: .5}, {EngineWaiting: 3}, {EngineKVUse: 1},
				{CachedTokens: 1000, EngineWaiting: 9, EngineKVUse: 1, Stale: true},
			}, make([]Load, 4),
			[]Terms{
				{Prefill: 1.5 / 7, Queue: 2. / 7, Room: 1. / 7, Total: 4.5 / 7}, {Prefill: 3. / 7, Queue: 1.5 / 7, Total: 4.5 / 7},
				{Prefill: 3. / 7, Room: 2. / 7, Total: 5. / 7}, {},
			}, Shares,
		},
		{
			"blend: all wait alike", blend{}, []Candidate{{EngineWaiting: 4}, {EngineWaiting: 4}}, make([]Load, 2),
			[]Terms{{Prefill: 3. / 7, Total: 3. / 7}, {Prefill: 3. / 7, Total: 3. / 7}}, Shares,
		},
		{
			"preble: explore", &preble{qwen}, []Candidate{held(500, 0), {}}, []Load{{QueueSeconds: .1, InFlight: 2}, {}},
			[]Terms{e2(.1, 2, qwen.Prefill(500, 500), false), e2(0, 0, full, false)}, Seconds,
		},
		{ // .05 <= 2*0 + .058
			"preble: exploit", &preble{qwen}, []Candidate{held(501, 0), held(501, 0), {}}, []Load{{QueueSeconds: .05}, {QueueSeconds: .5}, {}},
			[]Terms{e2(.05, 0, 0, false), e2(.5, 0, 0, false), e2(0, 0, 0, true)}, Seconds,
		},
		{ // .06 > 2*0 + .058
			"preble: too busy", &preble{qwen}, []Candidate{held(501, 0), {}}, []Load{{QueueSeconds: .06}, {}},
			[]Terms{e2(.06, 0, 0, false), e2(0, 0, 0, false)}, Seconds,
		},
		{ // .06 <= .116 when engines are known to be half as fast
			"preble: slow engines", &preble{qwen}, []Candidate{held(501, 0), {}}, []Load{{QueueSeconds: .06, SpeedFactor: 2}, {SpeedFactor: 2}},
			[]Terms{e2(.06, 0, 0, false), e2(0, 0, 0, true)}, Seconds,
		},
	} {
		got := judge(c.policy, ask(1000), c.workers, c.loads)
		for i := range c.want {
			same(t, c.name, i, got[i], c.want[i], c.unit)
		}
	}
}
