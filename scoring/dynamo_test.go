package scoring

import (
	"math"
	"testing"

	"attache/internal/slot"
)

func near(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance }

// dynamoCase is a decision between workers, with Dynamo's letters in the comments.
type dynamoCase struct {
	name     string
	change   func(*DynamoConfig) // of Dynamo's defaults
	override *DynamoOverride
	demand   Demand // L and B
	workers  []Candidate
	loads    []Load
	want     []float64
	winner   int
}

// on makes candidates with blocks on the device only.
func on(device ...int32) []Candidate {
	c := make([]Candidate, len(device))
	for i, d := range device {
		c[i].Tiers[slot.Device] = d
	}
	return c
}

func number64(v float64) *float64 { return &v }

// TestDynamoVectors are the values that Dynamo's unit tests assert or imply, by number, through the policy. Those tests leave
// out the blocks of the prompt that are new to a worker; here the worker has all of them active then (SharedBlocks).
func TestDynamoVectors(t *testing.T) {
	pool := func(tokens int, c []Candidate) []Candidate {
		for i := range c {
			c[i].SharedTokens = tokens
		}
		return c
	}
	twelve := func(name string, o *DynamoOverride, want []float64, winner int) dynamoCase {
		return dynamoCase{
			"12: " + name, nil, o, Demand{PromptTokens: 4, BlockTokens: 1}, pool(4, on(2, 0)),
			[]Load{{ActiveBlocks: 1, SharedBlocks: 4}, {SharedBlocks: 4}}, want, winner,
		}
	}
	no := false
	for _, c := range []dynamoCase{
		{
			"1: cached exceeds the prompt", func(c *DynamoConfig) { c.PrefillLoadScale = 2 }, nil, Demand{PromptTokens: 64, BlockTokens: 16},
			on(6), []Load{{PrefillTokens: 16, ActiveBlocks: 2, SharedBlocks: 1}}, []float64{7}, 0,
		},
		{
			"1: prefill not tracked", func(c *DynamoConfig) { c.PrefillLoadScale, c.TrackPrefillTokens = 2, false }, nil,
			Demand{PromptTokens: 64, BlockTokens: 16}, on(6), []Load{{PrefillTokens: 16, ActiveBlocks: 2, SharedBlocks: 1}}, []float64{5}, 0,
		},
		{
			"1: prefill not tracked for this request", nil, &DynamoOverride{TrackPrefillTokens: &no, PrefillLoadScale: number64(2)},
			Demand{PromptTokens: 64, BlockTokens: 16}, on(6), []Load{{PrefillTokens: 16, ActiveBlocks: 2, SharedBlocks: 1}}, []float64{5}, 0,
		},
		{"2: r=0", nil, nil, Demand{BlockTokens: 16}, on(0), []Load{{ActiveBlocks: 100, InFlight: 4}}, []float64{100}, 0},
		{
			"2: r=32", func(c *DynamoConfig) { c.DecodeActiveRequestWeight = 32 }, nil, Demand{BlockTokens: 16}, on(0),
			[]Load{{ActiveBlocks: 100, InFlight: 4}}, []float64{228}, 0,
		},
		{
			"3: decode pool", func(c *DynamoConfig) { c.TrackPrefillTokens = false }, nil, Demand{PromptTokens: 64, BlockTokens: 16},
			[]Candidate{{Decode: true, Tiers: on(3)[0].Tiers}}, []Load{{ActiveBlocks: 10, SharedBlocks: 4}}, []float64{7}, 0,
		},
		{
			"4: c=1", nil, nil, Demand{PromptTokens: 128, BlockTokens: 16}, on(4, 0),
			[]Load{{ActiveBlocks: 5, SharedBlocks: 8}, {SharedBlocks: 8}}, []float64{9, 8}, 1,
		},
		{
			"4: c=1.5", func(c *DynamoConfig) { c.OverlapScoreCredit = 1.5 }, nil, Demand{PromptTokens: 128, BlockTokens: 16}, on(4, 0),
			[]Load{{ActiveBlocks: 5, SharedBlocks: 8}, {SharedBlocks: 8}}, []float64{7, 8}, 0,
		},
		{
			"5: d=0", nil, nil, Demand{PromptTokens: 64, BlockTokens: 16}, on(4, 0),
			[]Load{{PrefillTokens: 48, SharedBlocks: 4}, {SharedBlocks: 4}}, []float64{3, 4}, 0,
		},
		{
			"5: d=1", func(c *DynamoConfig) { c.OverlapScoreCreditDecay = 1 }, nil, Demand{PromptTokens: 64, BlockTokens: 16}, on(4, 0),
			[]Load{{PrefillTokens: 48, SharedBlocks: 4}, {SharedBlocks: 4}}, []float64{7 - 4*4./7, 4}, 1,
		},
		{
			"6: s=2", func(c *DynamoConfig) { c.PrefillLoadScale = 2 }, nil, Demand{PromptTokens: 64, BlockTokens: 16}, on(2, 0),
			[]Load{{ActiveBlocks: 3, SharedBlocks: 4}, {SharedBlocks: 4}}, []float64{7, 8}, 0,
		},
		{
			"7: shared pool", func(c *DynamoConfig) { c.SharedCacheMultiplier = .5 }, nil, Demand{PromptTokens: 4, BlockTokens: 1},
			pool(4, on(2, 0)), []Load{{SharedBlocks: 4}, {SharedBlocks: 4}}, []float64{1, 2}, 0,
		},
		{
			"8: preferred taint", nil, nil, Demand{PromptTokens: 16, BlockTokens: 16}, []Candidate{{Preference: .85}, {}},
			[]Load{{ActiveBlocks: 100, SharedBlocks: 1}, {ActiveBlocks: 90, SharedBlocks: 1}}, []float64{50.6, 91}, 0,
		},
		{
			"9: avoided taint", nil, nil, Demand{PromptTokens: 16, BlockTokens: 16}, []Candidate{{Preference: -.25}, {}},
			[]Load{{ActiveBlocks: 90, SharedBlocks: 1}, {ActiveBlocks: 100, SharedBlocks: 1}}, []float64{116.3, 101}, 1,
		},
		{ // 5.75 effective blocks are 92 tokens, more than the empty prompt: raw = 5.75; credit = 0*2 + .5*3 + .25*9 = 3.75
			"10: effective blocks", func(c *DynamoConfig) { c.HostCacheHitWeight, c.OverlapScoreCredit = .5, 0 }, nil, Demand{BlockTokens: 16},
			[]Candidate{{Tiers: [...]int32{slot.Device: 2, slot.Host: 3, slot.Disk: 4, slot.Remote: 5}}}, []Load{{}}, []float64{2}, 0,
		},
		{
			"11: effective overlap", nil, nil, Demand{PromptTokens: 64, BlockTokens: 16}, []Candidate{{CachedTokens: 64}, {}},
			[]Load{{ActiveBlocks: 1, SharedBlocks: 4}, {SharedBlocks: 4}}, []float64{1, 4}, 0,
		},
		twelve("default", nil, []float64{3, 4}, 0),
		twelve("c=0", &DynamoOverride{OverlapScoreCredit: number64(0)}, []float64{5, 4}, 1),
		twelve("s=0", &DynamoOverride{PrefillLoadScale: number64(0)}, []float64{1, 0}, 1),
		twelve("m=1", &DynamoOverride{SharedCacheMultiplier: number64(1)}, []float64{1, 0}, 1),
		twelve("nonsense", &DynamoOverride{OverlapScoreCredit: number64(-1), PrefillLoadScale: number64(math.NaN())}, []float64{3, 4}, 0),
		{ // what was just computed is not among what events told: 2 + (4 - 2) blocks; not so when the source is doubted
			"more than the tiers tell", nil, nil, Demand{PromptTokens: 64, BlockTokens: 16},
			[]Candidate{{CachedTokens: 64, Tiers: on(2)[0].Tiers}, {CachedTokens: 64, Doubt: .5, Tiers: on(2)[0].Tiers}},
			[]Load{{SharedBlocks: 4}, {SharedBlocks: 4}}, []float64{0, 2}, 0,
		},
		{
			"host and disk", nil, nil, Demand{PromptTokens: 160, BlockTokens: 16},
			[]Candidate{{Tiers: [...]int32{slot.Host: 4, slot.Remote: 0}}, {Tiers: [...]int32{slot.Disk: 4, slot.Remote: 4}}},
			[]Load{{SharedBlocks: 10}, {SharedBlocks: 10}}, []float64{7, 8}, 0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := DefaultConfig().Dynamo
			if c.change != nil {
				c.change(&cfg)
			}
			c.demand.Dynamo = c.override
			got := judge(cfg.policy(), &c.demand, c.workers, c.loads)
			for i := range got {
				if !near(got[i].Total, c.want[i], .05) {
					t.Errorf("worker %d costs %v, want %v", i, got[i], c.want[i])
				}
				if sum := got[i].Prefill + got[i].Decode + got[i].Requests; !near(sum, got[i].Total, 1e-9) {
					t.Errorf("the parts of worker %d add up to %v, not to %v", i, sum, got[i].Total)
				}
			}
			if best := first(got); best != c.winner {
				t.Errorf("worker %d wins, want %d", best, c.winner)
			}
		})
	}
}

// judge is what a policy says of candidates with these loads.
func judge(p Policy, d *Demand, candidates []Candidate, loads []Load) []Terms {
	x := contest(d, candidates, loads)
	p.Score(x)
	return x.Terms
}

// contest has terms of the length of the candidates.
func contest(d *Demand, candidates []Candidate, loads []Load) *Contest {
	x := &Contest{Demand: d, Candidates: candidates, Terms: make([]Terms, len(candidates))}
	for i := range loads {
		if loads[i].SpeedFactor == 0 {
			loads[i].SpeedFactor = 1
		}
		x.Loads = append(x.Loads, &loads[i])
	}
	return x
}

// first is the one that comes first; of equals the one with the lowest index.
func first(terms []Terms) (best int) {
	for i := range terms {
		if before(&terms[i], &terms[best]) {
			best = i
		}
	}
	return best
}

// TestDynamoTies breaks ties by what workers hold, when told to.
func TestDynamoTies(t *testing.T) {
	workers := []Candidate{{KVHeldTokens: 160}, {KVHeldTokens: 31}, {KVHeldTokens: 16}} // 10, 1 and 1 blocks
	for tie, want := range map[string][]float64{"random": {0, 0, 0}, "tree-size": {10, 1, 1}} {
		cfg := DefaultConfig().Dynamo
		cfg.TieBreak = tie
		got := judge(cfg.policy(), ask(64), workers, make([]Load, 3))
		for i := range got {
			if got[i].Tie != want[i] {
				t.Errorf("%s: worker %d has %v, want %v", tie, i, got[i].Tie, want[i])
			}
		}
	}
}

// TestDynamoPolicy is what the policy makes of the numbers that we have.
func TestDynamoPolicy(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Policy = "dynamo"
	cfg.Dynamo = DynamoConfig{
		OverlapScoreCredit: 1, OverlapScoreCreditDecay: 1, PrefillLoadScale: 2, DecodeActiveRequestWeight: 3, TrackPrefillTokens: true,
	}
	x := Contest{
		Demand:     ask(64),
		Candidates: []Candidate{{CachedTokens: 50, EngineRunning: 7}, {}},
		Loads:      []*Load{{InFlight: 2, PrefillTokens: 48, ActiveBlocks: 21, SharedBlocks: 1}, {PrefillTokens: 16}},
		Terms:      make([]Terms, 2),
	}
	cfg.policies(qwen)["dynamo"].Score(&x)
	got := x.Terms[0]
	// R = 4, decay = 1/(1 + (48-16)/16/4) = 2/3, credit = 3*2/3 = 2, raw = (48+64)/16 = 7: 2*(7-2) + 21 + 4-1 + 3*2
	want := Terms{Prefill: 10, Decode: 24, Requests: 6, Total: 40, CachedTokens: 50, InFlight: 7, Unit: Blocks}
	if !near(got.Prefill, want.Prefill, 1e-12) || !near(got.Total, want.Total, 1e-12) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got.Prefill, got.Total = want.Prefill, want.Total
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if text := got.String(); text != "40.0 blocks (prefill 10.0, decode 24.0, requests 6.0)" {
		t.Errorf("explained as %q", text)
	}
}

// TestSoftmax checks the drawing against probabilities computed by hand.
func TestSoftmax(t *testing.T) {
	costs := func(values ...float64) []Terms {
		t := make([]Terms, len(values))
		for i, v := range values {
			t[i].Total = v
		}
		return t
	}
	// exp(-cost/((9-1)*0.5)) of 1, 5, 9 is proportional to 1, e^-1, e^-2: probabilities .6652, .2447, .0900
	three := costs(1, 5, 9)
	for _, c := range []struct {
		u    float64
		want int
	}{{0, 0}, {.665, 0}, {.666, 1}, {.909, 1}, {.911, 2}, {.9999999, 2}} {
		if got := softmax(three, .5, c.u); got != c.want {
			t.Errorf("u = %v draws %d, want %d", c.u, got, c.want)
		}
	}
	for i := range 4 { // all equal
		if got := softmax(costs(3, 3, 3, 3), .5, float64(i)/4+.01); got != i {
			t.Errorf("among equals u = %v draws %d, want %d", float64(i)/4+.01, got, i)
		}
	}
	if got := softmax(costs(1e300, 0, 1e300), 1e-9, .999999); got != 1 {
		t.Errorf("at a very low temperature %d is drawn, want the cheapest, 1", got)
	}
	passed := costs(0, 5, 5, -9)
	passed[0].Passed, passed[3].Passed = true, true
	for i, u := range []float64{.3, .7, .99999999999999989} {
		if got := softmax(passed, 1, u); got != []int{1, 2, 2}[i] {
			t.Errorf("u = %v draws %d, which is passed over or not its turn", u, got)
		}
	}
	if got := softmax(costs(4), 1, .7); got != 0 {
		t.Errorf("the only candidate is not drawn but %d", got)
	}
}
