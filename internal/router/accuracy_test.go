package router

import (
	"math"
	"testing"

	"attache/internal/prompt"
)

func TestAccuracy(t *testing.T) {
	type pair struct{ predicted, delivered int }
	for _, c := range []struct {
		name                   string
		pairs                  []pair
		agreed, kept, foreseen float64
		trust                  float64
	}{
		{"nothing seen", nil, 1, 1, 1, 1},
		{"always right", []pair{{100, 100}}, 1, 1, 1, 1},
		{"half is gone", []pair{{100, 50}}, .5, .5, 1, .5},
		{"all is gone", []pair{{100, 0}}, 0, 0, 1, .2},
		{"twice as much is there", []pair{{50, 100}}, .5, 1, .5, 1},
		{"sometimes more, sometimes less", []pair{{100, 0}, {0, 100}}, 0, 0, 0, .2},
		{"nothing cached, nothing predicted", []pair{{0, 0}}, 1, 1, 1, 1},
	} {
		var f fidelities
		for range enough * 2 {
			for _, p := range c.pairs {
				f.add(3, prompt.Exact, p.predicted, p.delivered)
			}
		}
		a := f.of(3)
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
		if !near(a.Agreed, c.agreed) || !near(a.Kept, c.kept) || !near(a.Foreseen, c.foreseen) || !near(a.trust(), c.trust) {
			t.Errorf("%s: %+v, trust %v; want %v, %v, %v, %v", c.name, a, a.trust(), c.agreed, c.kept, c.foreseen, c.trust)
		}
		if on := f.on(prompt.Exact); on != a {
			t.Errorf("%s: on the rung %+v, on the slot %+v", c.name, on, a)
		}
		f.forget(3)
		if a := f.of(3); a.Requests != 0 {
			t.Errorf("%s: forgotten, and yet %+v", c.name, a)
		}
	}
}

func TestAFewReportsSayNothing(t *testing.T) {
	var f fidelity
	for range enough - 5 {
		f.add(100, 0)
	}
	if got := f.accuracy().trust(); got != 1 {
		t.Errorf("after %d reports the trust is %v, want 1", enough-5, got)
	}
}

func TestMemoryFadesSlowly(t *testing.T) {
	var f fidelity
	for range 1000 {
		f.add(100, 100)
	}
	for range memory {
		f.add(100, 0)
	}
	if kept := f.accuracy().Kept; kept < .3 || kept > .45 { // 1/e is left
		t.Errorf("after as many bad reports as are remembered %.2f count as kept, want about 0.37", kept)
	}
}
