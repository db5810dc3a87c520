package scoring

import (
	"math"
	"testing"
)

// dynamoDefaults are Dynamo's.
var dynamoDefaults = dynamoWeights{credit: 1, scale: 1, host: .75, disk: .25}

// with changes the defaults.
func with(change func(*dynamoWeights)) dynamoWeights {
	w := dynamoDefaults
	change(&w)
	return w
}

func near(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance }

// TestDynamoVectors are the values that Dynamo's unit tests assert or imply, by number.
func TestDynamoVectors(t *testing.T) {
	for _, c := range []struct {
		name    string
		weights dynamoWeights
		inputs  []dynamoInput // one per worker
		want    []float64
		winner  int
	}{
		{
			"1: cached exceeds the prompt", with(func(w *dynamoWeights) { w.scale = 2 }),
			[]dynamoInput{{block: 16, prompt: 64, cached: 96, device: 6, active: 16, least: 16, activeBlocks: 2, newBlocks: 3}},
			[]float64{7}, 0,
		},
		{
			"1: prefill not tracked", with(func(w *dynamoWeights) { w.scale = 2 }),
			[]dynamoInput{{block: 16, prompt: 64, cached: 96, device: 6, active: 16, activeBlocks: 2, newBlocks: 3, noTracking: true}},
			[]float64{5}, 0,
		},
		{"2: r=0", dynamoDefaults, []dynamoInput{{block: 16, activeBlocks: 100, activeRequests: 4}}, []float64{100}, 0},
		{
			"2: r=32", with(func(w *dynamoWeights) { w.request = 32 }),
			[]dynamoInput{{block: 16, activeBlocks: 100, activeRequests: 4}}, []float64{228}, 0,
		},
		{
			"3: decode pool", dynamoDefaults,
			[]dynamoInput{{block: 16, prompt: 64, device: 3, activeBlocks: 10, noTracking: true, decodePool: true}}, []float64{7}, 0,
		},
		{
			"4: c=1", dynamoDefaults,
			[]dynamoInput{{block: 16, prompt: 128, device: 4, cached: 64, activeBlocks: 5}, {block: 16, prompt: 128}}, []float64{9, 8}, 1,
		},
		{
			"4: c=1.5", with(func(w *dynamoWeights) { w.credit = 1.5 }),
			[]dynamoInput{{block: 16, prompt: 128, device: 4, cached: 64, activeBlocks: 5}, {block: 16, prompt: 128}}, []float64{7, 8}, 0,
		},
		{
			"5: d=0", dynamoDefaults,
			[]dynamoInput{{block: 16, prompt: 64, device: 4, cached: 64, active: 48}, {block: 16, prompt: 64}}, []float64{3, 4}, 0,
		},
		{
			"5: d=1", with(func(w *dynamoWeights) { w.decay = 1 }),
			[]dynamoInput{{block: 16, prompt: 64, device: 4, cached: 64, active: 48}, {block: 16, prompt: 64}},
			[]float64{7 - 4*4./7, 4}, 1,
		},
		{
			"6: s=2", with(func(w *dynamoWeights) { w.scale = 2 }),
			[]dynamoInput{{block: 16, prompt: 64, device: 2, cached: 32, activeBlocks: 3}, {block: 16, prompt: 64}}, []float64{7, 8}, 0,
		},
		{
			"7: shared pool", with(func(w *dynamoWeights) { w.shared = .5 }),
			[]dynamoInput{{block: 1, prompt: 4, device: 2, cached: 2, shared: 2}, {block: 1, prompt: 4, shared: 4}}, []float64{1, 2}, 0,
		},
		{
			"8: preferred taint", dynamoDefaults,
			[]dynamoInput{{block: 16, prompt: 16, activeBlocks: 100, preferred: .85}, {block: 16, prompt: 16, activeBlocks: 90}},
			[]float64{50.6, 91}, 0,
		},
		{
			"9: avoided taint", dynamoDefaults,
			[]dynamoInput{{block: 16, prompt: 16, activeBlocks: 90, preferred: -.25}, {block: 16, prompt: 16, activeBlocks: 100}},
			[]float64{116.3, 101}, 1,
		},
		{
			"11: effective overlap", dynamoDefaults,
			[]dynamoInput{{block: 16, prompt: 64, device: 4, cached: 64, activeBlocks: 1}, {block: 16, prompt: 64}}, []float64{1, 4}, 0,
		},
		{
			"12: default", dynamoDefaults,
			[]dynamoInput{{block: 1, prompt: 4, device: 2, cached: 2, shared: 2, activeBlocks: 1}, {block: 1, prompt: 4, shared: 4}},
			[]float64{3, 4}, 0,
		},
		{
			"12: c=0", with(func(w *dynamoWeights) { w.credit = 0 }),
			[]dynamoInput{{block: 1, prompt: 4, device: 2, cached: 2, shared: 2, activeBlocks: 1}, {block: 1, prompt: 4, shared: 4}},
			[]float64{5, 4}, 1,
		},
		{
			"12: s=0", with(func(w *dynamoWeights) { w.scale = 0 }),
			[]dynamoInput{{block: 1, prompt: 4, device: 2, cached: 2, shared: 2, activeBlocks: 1}, {block: 1, prompt: 4, shared: 4}},
			[]float64{1, 0}, 1,
		},
		{
			"12: m=1", with(func(w *dynamoWeights) { w.shared = 1 }),
			[]dynamoInput{{block: 1, prompt: 4, device: 2, cached: 2, shared: 2, activeBlocks: 1}, {block: 1, prompt: 4, shared: 4}},
			[]float64{1, 0}, 1,
		},
		{
			"no load entry", dynamoDefaults,
			[]dynamoInput{{block: 16, prompt: 64, device: 1, cached: 96, active: 1000, unknown: true}}, []float64{3}, 0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			best := 0
			for i, in := range c.inputs {
				got, _, _, _ := c.weights.cost(&in)
				if !near(got, c.want[i], .05) {
					t.Errorf("worker %d costs %v, want %v", i, got, c.want[i])
				}
				if c.want[i] < c.want[best] {
					best = i
				}
			}
			if best != c.winner {
				t.Errorf("worker %d wins, want %d", best, c.winner)
			}
		})
	}
	in := dynamoInput{device: 2, host: 3, disk: 4 + 5}
	half := with(func(w *dynamoWeights) { w.host = .5 })
	if got := half.effectiveBlocks(&in); got != 5.75 || math.Round(16*got) != 92 {
		t.Errorf("10: %v effective blocks, %v cached tokens; want 5.75 and 92", got, math.Round(16*got))
	}
}

// TestDynamoPolicy is what the policy makes of the numbers that we have.
func TestDynamoPolicy(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Policy = "dynamo"
	cfg.Dynamo = DynamoConfig{OverlapScoreCredit: 1, OverlapScoreCreditDecay: 1, PrefillLoadScale: 2, DecodeActiveRequestWeight: 3}
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
	if got := softmax(costs(4), 1, .7); got != 0 {
		t.Errorf("the only candidate is not drawn but %d", got)
	}
}
