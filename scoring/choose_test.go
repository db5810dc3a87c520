package scoring

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"attache/internal/slot"
)

// TestRank compares with plain sorting of whole candidates.
func TestRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		got := make([]Ranked, rapid.IntRange(1, 200).Draw(t, "candidates"))
		for i := range got {
			got[i].Slot = slot.Slot(i)
			got[i].Terms.Total = float64(rapid.IntRange(0, 9).Draw(t, "total"))
			got[i].Terms.Tie = float64(rapid.IntRange(0, 3).Draw(t, "tie"))
			got[i].draw = rapid.Float64Range(0, 1).Draw(t, "draw") + float64(i)*1e-9 // never equal
		}
		chosen := rapid.IntRange(0, len(got)-1).Draw(t, "chosen")
		if rapid.Bool().Draw(t, "cheapest") {
			chosen = cheapest(got)
		}
		want := slices.Clone(got)
		first := want[chosen]
		want = slices.Delete(want, chosen, chosen+1)
		slices.SortFunc(want, func(a, b Ranked) int {
			if before(&a, &b) {
				return -1
			}
			return 1
		})
		want = slices.Insert(want, 0, first)
		rank(got, chosen)
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}
