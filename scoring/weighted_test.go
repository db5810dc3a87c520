package scoring

import "testing"

// TestWeighted has the scores worked out by hand; 1000 tokens are asked for.
func TestWeighted(t *testing.T) {
	def := DefaultConfig().Weighted
	for _, c := range []struct {
		name    string
		weights WeightedConfig
		workers []Candidate
		loads   []Load
		want    []Terms // parts
	}{
		{"idle", def, make([]Candidate, 2), make([]Load, 2), []Terms{{Prefill: .6, Tie: -1}, {Prefill: .6, Tie: -1}}},
		{
			"cache", def, []Candidate{{CachedTokens: 750}, {CachedTokens: 1000, Doubt: .5}, {CachedTokens: 2000}}, make([]Load, 3),
			[]Terms{{Prefill: .15, Tie: -1}, {Prefill: .3, Tie: -1}, {Tie: -1}},
		},
		{ // 3 + 1 seen in the engine, 2, 0
			"load", def, []Candidate{{EngineRunning: 4}, {}, {}}, []Load{{InFlight: 3}, {InFlight: 2}, {}},
			[]Terms{{Prefill: .6, Requests: .3, Tie: -1}, {Prefill: .6, Requests: .15, Tie: -1}, {Prefill: .6, Tie: -1}},
		},
		{
			"latency", def, make([]Candidate, 2), []Load{{QueueSeconds: 2}, {QueueSeconds: .5}},
			[]Terms{{Prefill: .6, Queue: .1, Tie: -1}, {Prefill: .6, Queue: .025, Tie: -1}},
		},
		{ // sizes 1, .5*.5 + .3*.25 + .2*.5 = .425; loads 2 and 1/.425 = 2.353
			"size", def, []Candidate{{BatchTokens: 8192, Memory: 80e9}, {BatchTokens: 4096, Memory: 20e9, Distance: 5}, {Distance: 10}},
			[]Load{{InFlight: 2}, {InFlight: 1}, {}},
			[]Terms{{Prefill: .6, Requests: .3 * 2 * .425, Tie: -1}, {Prefill: .6, Requests: .3, Tie: -.425}, {Prefill: .6, Tie: -.8}},
		},
		{ // the farthest would have no size at all
			"only distance", WeightedConfig{Load: 7, Distance: 3}, []Candidate{{}, {Distance: 2}}, []Load{{InFlight: 10}, {InFlight: 1}},
			[]Terms{{Requests: .5, Tie: -1}, {Requests: 1, Tie: -.05}},
		},
		{
			"only cache", WeightedConfig{Cache: 5, Batch: 1}, []Candidate{{CachedTokens: 900}}, []Load{{InFlight: 9, QueueSeconds: 3}},
			[]Terms{{Prefill: .1, Tie: -1}},
		},
	} {
		got := judge(&weighted{c.weights}, ask(1000), c.workers, c.loads)
		for i, want := range c.want {
			want.Total = want.Prefill + want.Queue + want.Requests
			same(t, c.name, i, got[i], want, Shares)
		}
	}
	if got := judge(&weighted{def}, ask(0), []Candidate{{CachedTokens: 16}}, []Load{{}}); !near(got[0].Total, .6, 1e-12) {
		t.Errorf("a prompt that is not known: %v", got[0])
	}
}

// same compares all but what the terms were made from.
func same(t *testing.T, name string, worker int, got, want Terms, unit Unit) {
	t.Helper()
	for _, v := range [][2]float64{
		{got.Queue, want.Queue}, {got.Prefill, want.Prefill}, {got.Decode, want.Decode}, {got.Room, want.Room},
		{got.Requests, want.Requests}, {got.Total, want.Total}, {got.Tie, want.Tie},
	} {
		if !near(v[0], v[1], 1e-9) || got.Passed != want.Passed || got.Unit != unit {
			want.Unit = unit
			t.Errorf("%s: worker %d: got %+v, want %+v", name, worker, got, want)
			return
		}
	}
}
