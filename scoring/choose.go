package scoring

import (
	"math"
	"slices"

	"attache/internal/slot"
)

// Ranked is one candidate after scoring.
type Ranked struct {
	Slot         slot.Slot
	CachedTokens int
	Terms        Terms

	draw float64 // in [0, 1): decides between candidates that are equal otherwise
}

// before orders candidates: lowest total, then lowest tie, then by chance.
func before(a, b *Ranked) bool {
	if a.Terms.Total != b.Terms.Total {
		return a.Terms.Total < b.Terms.Total
	}
	if a.Terms.Tie != b.Terms.Tie {
		return a.Terms.Tie < b.Terms.Tie
	}
	return a.draw < b.draw
}

// cheapest returns the index of the first in order.
func cheapest(candidates []Ranked) int {
	best := 0
	for i := 1; i < len(candidates); i++ {
		if before(&candidates[i], &candidates[best]) {
			best = i
		}
	}
	return best
}

// softmax draws an index with probability proportional to exp(-cost / ((highest - lowest) * temperature)); all equal when
// the costs are. u in [0, 1) decides: the first index whose cumulated probability reaches it.
func softmax(candidates []Ranked, temperature, u float64) int {
	lowest, highest := math.Inf(1), math.Inf(-1)
	for i := range candidates {
		lowest = min(lowest, candidates[i].Terms.Total)
		highest = max(highest, candidates[i].Terms.Total)
	}
	if lowest == highest {
		return int(u * float64(len(candidates)))
	}
	weight := func(i int) float64 { // relative to the lowest cost: the quotient is the same, and nothing overflows
		return math.Exp((lowest - candidates[i].Terms.Total) / ((highest - lowest) * temperature))
	}
	sum := 0.0
	for i := range candidates {
		sum += weight(i)
	}
	cumulated := 0.0
	for i := range candidates {
		if cumulated += weight(i) / sum; u <= cumulated {
			return i
		}
	}
	return len(candidates) - 1
}

// rank moves the chosen candidate to the front and puts the others in order. Numbers are sorted instead of candidates,
// which are 100 bytes each.
func rank(candidates []Ranked, chosen int) {
	candidates[0], candidates[chosen] = candidates[chosen], candidates[0]
	var buffer [128]int32
	order := buffer[:0]
	for i := 1; i < len(candidates); i++ {
		order = append(order, int32(i))
	}
	slices.SortFunc(order, func(a, b int32) int {
		if before(&candidates[a], &candidates[b]) {
			return -1
		}
		return 1
	})
	for i, from := range order {
		for int(from) <= i { // moved on already by a swap
			from = order[from-1]
		}
		candidates[i+1], candidates[from] = candidates[from], candidates[i+1]
	}
}
