package gateway

import (
	"math"
	"sync"
	"testing"
	"time"

	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
	"attache/scoring"
)

// TestDynamoAsMeasured: production's policy dynamo, deciding by production's index, reproduces the mean time to first token that
// Dynamo's own router was measured to reach in its own replay (ai-dynamo 1.4.2: 8 workers of 16,384 blocks of 64 tokens), to one
// percent. Two seeds of ties, where it was measured more than once any figure in between will do.
func TestDynamoAsMeasured(t *testing.T) {
	if testing.Short() {
		t.Skip("ten seconds of simulation")
	}
	const seeds, tolerance = 2, .01
	var rows sync.WaitGroup
	for _, c := range []struct {
		trace   string
		rows    int
		speedup float64
		scale   float64
		least   float64 // measured, ms
		most    float64
	}{
		{"conversation", 4000, 1, 1, 298, 300},
		{"conversation", 4000, 2, 1, 349, 357},
		{"conversation", 4000, 2, 4, 302.3, 302.3},
		{"conversation", 4000, 2, 16, 281.8, 281.8},
		{"conversation", 4000, 4, 1, 441.1, 441.1},
		{"conversation-jittered", 4000, 2, 1, 260.8, 260.8},
		{"conversation-jittered", 4000, 2, 4, 241.7, 241.7},
		{"conversation-jittered", 4000, 2, 16, 235.0, 235.0},
		{"conversation", 0, 2, 1, 331.6, 331.6},
		{"synthetic", 0, 1, 1, 178.0, 178.0},
		{"synthetic", 0, 1, 4, 171.6, 171.6},
		{"synthetic", 0, 1, 16, 169.8, 169.8},
	} {
		rows.Go(func() {
			w, err := trace.Open(c.trace, trace.Options{Rows: c.rows, Speedup: c.speedup})
			if err != nil {
				t.Error(err)
				return
			}
			mean := 0.0
			for seed := range uint64(seeds) {
				o := Options{Scoring: scoring.DefaultConfig(), Seed: seed}
				o.Scoring.Policy, o.Scoring.Dynamo.PrefillLoadScale = "dynamo", c.scale
				mean += played(t, w, virtual.Config{Workers: 8}, o).Summary(0, virtual.Limits{}).TTFT.Mean.Seconds() * 1e3 / seeds
			}
			off := math.Max(c.least-mean, mean-c.most) / c.most
			t.Logf("%-22s x%v scale %2v: %.1f ms, measured %.1f to %.1f", c.trace, c.speedup, c.scale, mean, c.least, c.most)
			if off > tolerance {
				t.Errorf("%s x%v scale %v: mean TTFT %.1f ms, measured %.1f to %.1f: %.1f %% off", c.trace, c.speedup, c.scale, mean, c.least, c.most, 100*off)
			}
		})
	}
	rows.Wait()
}

// played is what comes of a workload.
func played(t *testing.T, w *trace.Workload, cfg virtual.Config, o Options) *virtual.Result {
	t.Helper()
	c, err := virtual.New(cfg, w)
	if err != nil {
		t.Error(err)
		return &virtual.Result{Span: time.Second}
	}
	g, err := New(o, c, w)
	if err != nil {
		t.Error(err)
		return &virtual.Result{Span: time.Second}
	}
	result, err := c.Run(g)
	if err != nil {
		t.Error(err)
		return &virtual.Result{Span: time.Second}
	}
	return result
}
