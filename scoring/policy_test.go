package scoring

import (
	"math"
	"slices"
	"testing"

	"github.com/goccy/go-yaml"
	"pgregory.net/rapid"

	"attache/internal/field"
)

// qwen is the default profile.
var qwen = DefaultSpeed()

// TestPrefill has the terms of T(u, c) worked out by hand for Qwen3-32B.
func TestPrefill(t *testing.T) {
	s := qwen
	for _, c := range []struct {
		uncached, cached int
		want             float64
	}{
		{8192, 0, 2.2e-3 + 8192*55e-6 + 1.75e-9*8192*4096},                       // one chunk: 16,016 tokens/s
		{100, 0, 2.2e-3 + 13e-3 + 1.75e-9*100*50},                                // reading the weights takes longer
		{8193, 1000, 2*2.2e-3 + 8192*55e-6 + 13e-3 + 1.75e-9*8193*(1000+4096.5)}, // two chunks, the second reads the weights
		{0, 4096, 2.2e-3 + 13e-3 + 1.75e-9*1*(4096+.5)},                          // all cached: one token at least
		{-16, -1, 2.2e-3 + 13e-3 + 1.75e-9*.5},                                   // nonsense is no worse than nothing
		{100_000, 0, 13*2.2e-3 + 100_000*55e-6 + 1.75e-9*100_000*50_000},         // attention dominates
		{1000, 99_000, 2.2e-3 + 1000*55e-6 + 1.75e-9*1000*(99_000+500)},          // an agent's next turn
		{300, 0, 2.2e-3 + 300*55e-6 + 1.75e-9*300*150},                           // 16.5 ms of computing: just above the weights
		{236, 0, 2.2e-3 + 13e-3 + 1.75e-9*236*118},                               // 12.98 ms: just below
		{16384, 16384, 2*2.2e-3 + 16384*55e-6 + 1.75e-9*16384*(16384+16384/2)},   // half of a long prompt
	} {
		if got := s.Prefill(c.uncached, c.cached); !near(got, c.want, 1e-12) {
			t.Errorf("Prefill(%d, %d) = %v, want %v", c.uncached, c.cached, got, c.want)
		}
	}
}

// TestTimeCost has one row per term of the formula; u = 1000 computes in 2.2 + 55 ms plus attention.
func TestTimeCost(t *testing.T) {
	const (
		cold = 2.2e-3 + 1000*55e-6 + 1.75e-9*1000*500 // all 1000 tokens: 58.075 ms
		warm = 2.2e-3 + 13e-3 + 1.75e-9*200*(800+100) // 800 of them cached: 15.515 ms
		one  = 2.2e-3 + 13e-3 + 1.75e-9*.5            // a prompt that is not known
		kv   = 76e-9                                  // per token in flight
	)
	for _, c := range []struct {
		name                   string
		d                      *Demand
		c                      Candidate
		l                      Load
		k                      float64
		queue, prefill, decode float64
		n                      int
	}{
		{"idle and cold", ask(1000), Candidate{}, Load{}, 1, 0, cold, 0, 0},
		{"idle and warm", ask(1000), Candidate{CachedTokens: 800}, Load{}, 1, 0, warm, 0, 0},
		{"backlog", ask(1000), Candidate{}, Load{QueueSeconds: .5}, 1, .5, cold, 0, 0},
		{"n in flight", ask(1000), Candidate{}, Load{InFlight: 10}, 1, 0, cold * 1.3, 0, 10},
		{"n seen in the engine", ask(1000), Candidate{EngineRunning: 11, EngineWaiting: 3}, Load{InFlight: 4}, 1, 0, cold * 1.42, 0, 14},
		{"the engine's figures are old", ask(1000), Candidate{EngineRunning: 1}, Load{InFlight: 10}, 1, 0, cold * 1.3, 0, 10},
		{"answers running", ask(1000), Candidate{}, Load{ContextTokens: 100_000}, 1, 0, cold, 100_000 * kv, 0},
		{"more than fits", ask(1000), Candidate{KVCapacityTokens: 60_000}, Load{ContextTokens: 100_000}, 1, 0, cold, 60_000 * kv, 0},
		{"learnt to be slow", ask(1000), Candidate{}, Load{QueueSeconds: .5, ContextTokens: 1000}, 2, .5, 2 * cold, 2 * 1000 * kv, 0},
		{"prompt not known", ask(0), Candidate{}, Load{}, 1, 0, one, 0, 0},
	} {
		p := timePolicy{speed: qwen, alpha: .03}
		c.l.SpeedFactor = c.k
		got := cost(&p, c.d, c.c, c.l)
		if !near(got.Queue, c.queue, 1e-12) || !near(got.Prefill, c.prefill, 1e-12) || !near(got.Decode, c.decode, 1e-12) ||
			!near(got.Total, c.queue+c.prefill+c.decode, 1e-12) || got.InFlight != c.n || got.Tie != float64(c.n) ||
			got.CachedTokens != c.c.CachedTokens || got.Unit != Seconds {
			t.Errorf("%s: got %+v, want %v + %v + %v with %d in flight", c.name, got, c.queue, c.prefill, c.decode, c.n)
		}
	}
}

// cost is what one candidate costs.
func cost(p Policy, d *Demand, c Candidate, l Load) Terms {
	x := Contest{Demand: d, Candidates: []Candidate{c}, Loads: []*Load{&l}, Terms: make([]Terms, 1)}
	p.Score(&x)
	return x.Terms[0]
}

// TestEveryPolicy: whatever the contest, there is a cost for everybody, somebody is not passed over, the parts add up, the
// contest stays as it is, and nothing is allocated.
func TestEveryPolicy(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Dynamo.SharedCacheMultiplier, cfg.Dynamo.OverlapScoreCreditDecay, cfg.Dynamo.TieBreak = .5, .5, tieTreeSize
	all := cfg.policies(qwen)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "candidates")
		x := drawContest(t, n)
		candidates, loads := slices.Clone(x.Candidates), make([]Load, n)
		for i, l := range x.Loads {
			loads[i] = *l
		}
		for _, name := range policies {
			clear(x.Terms)
			all[name].Score(x)
			left := 0
			for i, terms := range x.Terms {
				if !terms.Passed {
					left++
				}
				sum := 0.0
				for _, p := range terms.Parts() {
					sum += p.Value
				}
				if math.IsNaN(terms.Total+terms.Tie) || math.IsInf(terms.Total, 0) || terms.Total < 0 ||
					terms.Parts() != nil && !near(sum, terms.Total, 1e-9*max(1, terms.Total)) {
					t.Fatalf("%s: candidate %d costs %+v, its parts add up to %v", name, i, terms, sum)
				}
			}
			if left == 0 {
				t.Fatalf("%s passes all over", name)
			}
			if !slices.Equal(x.Candidates, candidates) || !slices.EqualFunc(x.Loads, loads, func(a *Load, b Load) bool { return *a == b }) {
				t.Fatalf("%s changes the contest", name)
			}
		}
	})
}

// drawContest is any contest, with numbers that do not always fit each other.
func drawContest(t *rapid.T, n int) *Contest {
	prompt := rapid.SampledFrom([]int{0, 1, 15, 16, 1000, 100_000}).Draw(t, "prompt")
	d := &Demand{PromptTokens: prompt, BlockTokens: rapid.SampledFrom([]int{0, 1, 16, 64}).Draw(t, "block"), Key: rapid.Uint64().Draw(t, "key")}
	tokens := rapid.IntRange(0, 2*prompt)
	blocks := rapid.Int32Range(0, int32(prompt))
	count := rapid.IntRange(0, 100)
	longest := rapid.SampledFrom([]float64{.1, 1, 100}).Draw(t, "longest queue")
	size := rapid.SampledFrom([]float64{0, 1, 80e9})
	workers, loads := candidates(n), make([]Load, n)
	for i := range workers {
		c, l := &workers[i], &loads[i]
		c.CachedTokens, c.SharedTokens, c.KVHeldTokens = tokens.Draw(t, "cached"), tokens.Draw(t, "pool"), tokens.Draw(t, "held")
		c.Doubt = rapid.Float64Range(-.1, 1.1).Draw(t, "doubt")
		if rapid.Bool().Draw(t, "tiers") {
			c.Tiers = [...]int32{blocks.Draw(t, "device"), blocks.Draw(t, "host"), blocks.Draw(t, "disk"), blocks.Draw(t, "remote")}
		}
		c.EngineRunning, c.EngineWaiting = count.Draw(t, "running"), count.Draw(t, "waiting")
		c.EngineKVUse = rapid.Float64Range(0, 1).Draw(t, "use")
		c.Stale, c.Bound, c.Decode = rapid.Bool().Draw(t, "stale"), rapid.Bool().Draw(t, "bound"), rapid.Bool().Draw(t, "decode")
		c.Preference = rapid.Float64Range(-2, 2).Draw(t, "preference")
		c.BatchTokens, c.Memory, c.Distance = count.Draw(t, "batch"), size.Draw(t, "memory"), size.Draw(t, "distance")
		l.InFlight, l.PrefillTokens, l.ActiveBlocks = count.Draw(t, "in flight"), tokens.Draw(t, "queue"), count.Draw(t, "active")
		l.SharedBlocks, l.QueueSeconds = count.Draw(t, "shared"), longest*rapid.Float64Range(0, 1).Draw(t, "seconds")
	}
	x := contest(d, workers, loads)
	for i := range x.Draws {
		x.Draws[i] = rapid.Float64Range(0, .9999999999).Draw(t, "draw")
	}
	return x
}

func TestScoreAllocatesNothing(t *testing.T) {
	x := contest(ask(1000), candidates(32), make([]Load, 32))
	for name, p := range DefaultConfig().policies(qwen) {
		if n := testing.AllocsPerRun(10, func() { p.Score(x) }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func TestTermsExplained(t *testing.T) {
	for want, terms := range map[string]Terms{
		"0.400 s (queue 0.210, prefill 0.150, decode 0.030, evict 0.004, room 0.006)": {Queue: .21, Prefill: .15, Decode: .03, Evict: .004, Room: .006, Total: .4, Unit: Seconds},
		"0.120 s (queue 0.100, prefill 0.000, decode 0.000, requests 0.020)":          {Queue: .1, Requests: .02, Total: .12, Unit: Seconds},
		"3 in flight":                   {Requests: 3, Total: 3, Unit: Requests},
		"4 in flight, passed over":      {Requests: 4, Total: 4, Unit: Requests, Passed: true},
		"last turn 17":                  {Total: 17, Unit: Turns},
		"nothing":                       {},
		"70 tokens held":                {Total: 70, Unit: HeldTokens},
		"0.250 in hash order":           {Total: .25, Unit: Order},
		"9 tokens (queue 4, prefill 5)": {Queue: 4, Prefill: 5, Total: 9, Unit: Tokens},
		"18 tokens x requests (queue 8, prefill 10)":             {Queue: 8, Prefill: 10, Total: 18, Unit: TokenRequests},
		"0.600 of 1 (uncached 0.300, queue 0.100, load 0.200)":   {Prefill: .3, Queue: .1, Requests: .2, Total: .6, Unit: Shares},
		"0.500 of 1 (uncached 0.300, queue 0.100, memory 0.100)": {Prefill: .3, Queue: .1, Room: .1, Total: .5, Unit: Shares},
	} {
		if got := terms.String(); got != want {
			t.Errorf("%+v is explained as %q, want %q", terms, got, want)
		}
		sum := 0.0
		for _, p := range terms.Parts() {
			sum += p.Value
		}
		if terms.Parts() != nil && !near(sum, terms.Total, 1e-12) {
			t.Errorf("the parts of %+v add up to %v", terms, sum)
		}
	}
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for _, name := range policies {
		cfg := DefaultConfig()
		cfg.Policy = name
		if s, _ := newScorer(t, cfg); s.Policy() != name {
			t.Errorf("policy %q makes %q", name, s.Policy())
		}
	}
	bad := Config{
		Weighted: WeightedConfig{Cache: 1, Distance: 1}, Sticky: StickyConfig{Threshold: 1}, CHWBL: CHWBLConfig{LoadFactor: 1},
		Policy: "best", Temperature: -1, Alpha: 11,
		Speed:  SpeedConfig{Profile: "abacus", PerTokenUS: -1, ChunkTokens: -1},
		Dynamo: DynamoConfig{PrefillLoadScale: -1, HostCacheHitWeight: 2, TieBreak: "first"},
	}
	got := make([]string, 0, 9)
	for _, e := range field.All(bad.Validate()) {
		got = append(got, e.Path)
	}
	want := []string{"policy", "temperature", "alpha", "speed.profile", "speed.per_token_us", "dynamo.prefill_load_scale",
		"dynamo.host_cache_hit_weight", "dynamo.tie_break", "speed.chunk_tokens"}
	if !slices.Equal(got, want) {
		t.Errorf("fields with errors:\n%v\nwant\n%v", got, want)
	}
}

// TestConfigYAML reads a section over what is set, and one that stands alone over the defaults.
func TestConfigYAML(t *testing.T) {
	type file struct {
		Scoring Config  `yaml:"scoring"`
		Pool    *Config `yaml:"pool"`
	}
	f := file{Scoring: DefaultConfig()}
	f.Scoring.Alpha = .1
	text := "scoring:\n  temperature: 0.2\n  speed: {per_pair_ns: 1.1, weights_ms: 20}\npool:\n  policy: dynamo\n  dynamo: {prefill_load_scale: 16}\n"
	if err := yaml.UnmarshalWithOptions([]byte(text), &f, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	want := DefaultConfig()
	want.Alpha, want.Temperature, want.Speed.PerPairNS, want.Speed.WeightsMS = .1, .2, 1.1, 20
	if f.Scoring != want {
		t.Errorf("read over what is set: %+v, want %+v", f.Scoring, want)
	}
	s, ok := f.Scoring.Speed.speed()
	if !ok || s.Weights != .02 || !near(s.PerPair, 1.1e-9, 1e-18) || s.PerToken != 55e-6 || s.ChunkTokens != 8192 {
		t.Errorf("speed %+v", s)
	}
	want = DefaultConfig()
	want.Policy, want.Dynamo.PrefillLoadScale = "dynamo", 16
	if f.Pool == nil || *f.Pool != want {
		t.Errorf("read alone: %+v, want %+v", f.Pool, want)
	}
	if err := yaml.UnmarshalWithOptions([]byte("pool:\n  polcy: time\n"), &f, yaml.Strict()); err == nil {
		t.Error("an unknown key is accepted")
	}
}
