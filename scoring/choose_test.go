package scoring

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"attache/internal/slot"
)

// TestChoose compares with plain sorting of all candidates, of which the first is neither passed over nor saturated.
func TestChoose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := make([]Terms, rapid.IntRange(1, 200).Draw(t, "candidates"))
		given := candidates(len(terms))
		for i := range terms {
			terms[i] = Terms{Total: float64(rapid.IntRange(0, 9).Draw(t, "total")), Tie: float64(rapid.IntRange(0, 3).Draw(t, "tie"))}
			terms[i].Passed = i > 0 && rapid.IntRange(0, 2).Draw(t, "passed") == 0
			terms[i].Saturated = i > 0 && rapid.IntRange(0, 2).Draw(t, "saturated") == 0
		}
		most := rapid.IntRange(1, 210).Draw(t, "most")
		temperature := rapid.SampledFrom([]float64{0, 1}).Draw(t, "temperature")
		s := &Scorer{rnd: rand.New(rand.NewPCG(1, 2))}
		s.tuning.Store(&tuning{temperature: temperature})
		got := s.choose(&Demand{}, given, terms, nil, most)
		want := slices.Clone(terms)
		if i := slices.Index(want, got[0].Terms); temperature > 0 {
			want = slices.Insert(slices.Delete(want, i, i+1), 0, got[0].Terms)
			slices.SortFunc(want[1:], order)
		} else {
			slices.SortFunc(want, order)
		}
		want = want[:min(most, len(want))]
		if got[0].Terms.Passed || got[0].Terms.Saturated {
			t.Fatalf("%v is chosen, but passed over or saturated", got[0])
		}
		seen := map[slot.Slot]bool{}
		for i, r := range got {
			if len(got) != len(want) || r.Terms != want[i] || r.Terms != terms[r.Slot] || seen[r.Slot] {
				t.Fatalf("got %v, want %v", got, want)
			}
			seen[r.Slot] = true
		}
	})
}

func order(a, b Terms) int {
	switch {
	case before(&a, &b):
		return -1
	case before(&b, &a):
		return 1
	}
	return 0
}
