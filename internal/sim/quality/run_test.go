package quality

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// few is a plan of small simulations.
func few(t testing.TB) *Plan {
	t.Helper()
	specs, err := ParseSpecs("round-robin,random,dynamo,time;time:first_tokens=events,lag=100ms;time:reuse=false;shared-cache")
	if err != nil {
		t.Fatal(err)
	}
	cluster := virtual.Config{Workers: 3, KVTokens: 400_000}
	return &Plan{Policies: specs, Seeds: 2, Scenarios: []Scenario{
		{Name: "a", Group: "x", Cluster: cluster, Workload: Recorded("synthetic", trace.Options{Rows: 120, Jitter: time.Second})},
		{Name: "b", Group: "x", Cluster: cluster, Workload: Recorded("synthetic", trace.Options{Rows: 120, Speedup: 2}), Warmup: .5},
		{Name: "c", Group: "y", Cluster: cluster, Workload: Sessions(trace.SessionOptions{Rate: .1, Horizon: 120, MaxPrompt: 100_000}), Warmup: .1},
		{Name: "d", Group: "y", Cluster: cluster, Workload: Customers(trace.B2BOptions{
			BlockTokens: 64, Groups: 4, Users: 2, System: 1000, Question: 100, Output: 20, Rate: 5, Horizon: 60}, 100)},
	}}
}

// Rows do not depend on how many simulations run at a time.
func TestParallelIsTheSame(t *testing.T) {
	var first []Row
	for _, parallel := range []int{1, 4} {
		p := few(t)
		p.Parallel = parallel
		calls := 0
		p.Progress = func(done, all int) {
			if calls++; done != calls || all != 4*7*2 {
				t.Errorf("call %d: %d of %d done", calls, done, all)
			}
		}
		rows, err := p.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		for s := range p.Scenarios {
			for k := range p.Policies {
				for seed := 1; seed <= p.Seeds; seed++ {
					if r := &rows[i]; r.Scenario != p.Scenarios[s].Name || r.Policy != p.Policies[k].Name || r.Seed != seed {
						t.Fatalf("row %d is %s, %s, %d", i, r.Scenario, r.Policy, r.Seed)
					}
					rows[i].WallS = 0
					i++
				}
			}
		}
		if first == nil {
			first = rows
		} else if !slices.Equal(first, rows) {
			t.Error("rows differ with the number of simulations at a time")
		}
	}
	r := NewResults(few(t), first)
	for _, s := range []string{"a", "b", "c", "d"} {
		for _, policy := range r.Policies {
			for _, row := range r.at[[2]string{s, policy}] {
				if row.Completed == 0 || row.TTFTMean <= 0 || row.Captured > row.Available || row.Delivered > row.Asked {
					t.Errorf("%+v", row)
				}
				if (row.Delivered == 0) != (policy == "time:reuse=false") {
					t.Errorf("%s, %s: %d tokens reused", s, policy, row.Delivered)
				}
			}
		}
		if own, reference := r.Mean(s, "round-robin", hit), r.Mean(s, SharedCache, hit); own > reference {
			t.Errorf("%s: round robin reuses %v, the shared cache %v", s, own, reference)
		}
	}
	if n := first[len(first)-1].Completed; n != 100 {
		t.Errorf("%d customers, want 100", n)
	}
}

// What goes wrong names the simulation, and others are not waited for.
func TestWhatFails(t *testing.T) {
	p := few(t)
	p.Scenarios[1].Workload = Recorded("nowhere", trace.Options{})
	if _, err := p.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "b, policy ") || !strings.Contains(err.Error(), "neither a file nor one of") {
		t.Errorf("no such trace: %v", err)
	}
	p = few(t)
	p.Scenarios[0].Cluster.Workers = 0
	p.Parallel = 1
	if _, err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "a, policy round-robin, seed 1: 0 workers") {
		t.Errorf("no workers: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := few(t).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
