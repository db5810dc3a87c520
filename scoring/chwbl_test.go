package scoring

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"attache/internal/block"
	"attache/internal/slot"
)

// home is where a key goes among idle workers.
func home(key uint64, workers []Candidate) slot.Slot {
	d := &Demand{Key: key}
	return workers[first(judge(&chwbl{1.25}, d, workers, make([]Load, len(workers))))].Slot
}

// TestOnlyOwnKeysMove: when a worker leaves, its keys go elsewhere and all others stay; when it comes back, so do they.
func TestOnlyOwnKeysMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := candidates(rapid.IntRange(2, 20).Draw(t, "workers"))
		named := rapid.Bool().Draw(t, "named")
		for i := range before {
			if named {
				before[i].ID = rapid.Uint64Min(1).Draw(t, "id")
			}
		}
		gone := rapid.IntRange(0, len(before)-1).Draw(t, "gone")
		after := slices.Delete(slices.Clone(before), gone, gone+1)
		for _, key := range rapid.SliceOfN(rapid.Uint64Min(1), 1, 50).Draw(t, "keys") {
			was, is := home(key, before), home(key, after)
			if was != before[gone].Slot && is != was {
				t.Fatalf("key %d moves from %d to %d when %d leaves", key, was, is, before[gone].Slot)
			}
		}
	})
}

// TestKeysSpread: keys that follow each other, as hashes of a bad function might, spread evenly over slots that do.
func TestKeysSpread(t *testing.T) {
	const workers, keys = 16, 64_000
	count := make([]float64, workers)
	cands := candidates(workers)
	for key := range uint64(keys) {
		count[home(key+1, cands)]++
	}
	chi := 0.0
	for _, n := range count {
		chi += (n - keys/workers) * (n - keys/workers) / (keys / workers)
	}
	if chi > 60 { // 15 degrees of freedom: by chance one time in 4 million, and the keys are always the same
		t.Errorf("keys per worker %v, chi square %v", count, chi)
	}
}

// TestBoundedLoad has the bound worked out by hand: the order of the key, less who is full.
func TestBoundedLoad(t *testing.T) {
	for _, c := range []struct {
		name     string
		factor   float64
		inFlight []int
		full     []bool
	}{
		{"idle: ceil(1.25*1/4) = 1", 1.25, []int{0, 0, 0, 0}, []bool{false, false, false, false}},
		{"one each: ceil(1.25*5/4) = 2", 1.25, []int{1, 1, 1, 1}, []bool{false, false, false, false}},
		{"ceil(1.25*8/4) = 3", 1.25, []int{3, 2, 1, 1}, []bool{true, false, false, false}},
		{"ceil(1.1*10/11) = 1, not 2", 1.1, []int{9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, append([]bool{true}, make([]bool, 10)...)},
		{"factor 1: ceil(1*9/4) = 3", 1, []int{2, 2, 3, 1}, []bool{false, false, true, false}},
		{"alone", 1.25, []int{77}, []bool{false}},
	} {
		loads := make([]Load, len(c.inFlight))
		for i, n := range c.inFlight {
			loads[i].InFlight = n
		}
		for i, terms := range judge(&chwbl{c.factor}, &Demand{Key: 5}, candidates(len(loads)), loads) {
			if terms.Passed != c.full[i] || terms.Total < 0 || terms.Total > 1 || terms.Unit != Order {
				t.Errorf("%s: worker %d: %+v, full %v", c.name, i, terms, c.full[i])
			}
		}
	}
}

// TestSomebodyIsNotFull: whatever the loads, as the policy promises.
func TestSomebodyIsNotFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loads := make([]Load, rapid.IntRange(1, 300).Draw(t, "workers"))
		for i := range loads {
			loads[i].InFlight = rapid.IntRange(0, 1000).Draw(t, "in flight")
		}
		factor := rapid.Float64Range(1, 3).Draw(t, "factor")
		terms := judge(&chwbl{factor}, &Demand{Key: 1}, candidates(len(loads)), loads)
		if !slices.ContainsFunc(terms, func(t Terms) bool { return !t.Passed }) {
			t.Fatal("all are passed over")
		}
	})
}

func TestKeyOf(t *testing.T) {
	for _, c := range []struct {
		name string
		d    Demand
		want uint64
	}{
		{"given", Demand{Key: 7, Chain: []block.Hash{1, 2}}, 7},
		{"two blocks", Demand{Chain: []block.Hash{1, 2, 3}}, 2},
		{"one block", Demand{Chain: []block.Hash{1}}, 1},
		{"nothing known", Demand{}, math.Float64bits(.25)},
	} {
		if got := keyOf(&Contest{Demand: &c.d, Draws: [2]float64{.25, .5}}); got != c.want {
			t.Errorf("%s: key %d, want %d", c.name, got, c.want)
		}
	}
	// The first of SplitMix64 from 1234567, as its authors' program prints it.
	if got := mix(1234567); got != 6457827717110365317 {
		t.Errorf("mix(1234567) = %d", got)
	}
}
