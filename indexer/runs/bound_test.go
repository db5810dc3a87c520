package runs

import (
	"math/rand/v2"
	"testing"

	"attache/internal/block"
	"attache/internal/field"
	"attache/internal/slot"
)

// flood stores and removes on many slots, more than fits, and calls each between events. The twin may be nil.
func flood(x *Index, w *twin, seed uint64, slots, events, length int, each func(event int)) {
	r := rand.New(rand.NewPCG(seed, 1))
	var chains [][]block.Hash
	for e := range events {
		if len(chains) < 40 || r.IntN(3) == 0 {
			_, fresh := forest(r, 1, length)
			chains = append(chains, fresh[0])
		}
		if len(chains) > 400 {
			chains = chains[100:]
		}
		chain := chains[r.IntN(len(chains))]
		h := Holder{Slot: slot.Slot(r.IntN(slots))}
		engine := engineOf(chain, uint64(h.Slot)+7)
		if r.IntN(4) == 0 {
			from := r.IntN(len(chain))
			x.Remove(h, engine[from:])
			if w != nil {
				w.remove(h, chain[from:])
			}
		} else {
			x.Store(h, Stored{Root: true, Engine: engine, Hashes: chain, Chained: true})
			if w != nil {
				w.store(h, 0, chain, false)
			}
		}
		each(e)
	}
}

func TestBound(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		slots, length int
		max           field.Bytes
		events        int
		presize       int
	}{
		{"long prompts", 16, 500, field.MiB, 3000, 0},
		{"short prompts", 16, 6, field.MiB, 60_000, 0},
		{"one slot", 1, 500, field.MiB, 2000, 0},
		{"more memory", 40, 300, 4 * field.MiB, 9000, 0},
		{"presized beyond the bound", 8, 100, field.MiB, 5000, 1 << 30},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			x := New(Config{MaxBytes: tc.max, MaxOrphans: 1000, MaxSlots: 64})
			for s := range tc.slots {
				x.Configure(slot.Slot(s), Settings{Blocks: [tiers]int{tc.presize}})
			}
			most := 0
			var o Overlap
			hot := chainOf([]uint64{1, 2, 3, 4, 5})
			x.Store(Holder{Slot: 2}, Stored{Root: true, Engine: hot, Hashes: hot, Chained: true})
			flood(x, nil, 1, tc.slots, tc.events, tc.length, func(event int) {
				most = max(most, x.Stats().Bytes)
				x.Overlap(hot, &o)
				if event%(tc.events/10) == 0 {
					check(t, x)
				}
			})
			if limit := int(tc.max + Overrun); most > limit {
				t.Errorf("%d bytes at most, more than %d", most, limit)
			}
			st := x.Stats()
			if st.EvictedBlocks == 0 || st.Bytes < int(tc.max)/2 || st.Held == 0 {
				t.Errorf("the bound was not used: %+v", st)
			}
			x.Overlap(hot, &o)
			if got := o.Of(2).Blocks[slot.Device]; got != 5 {
				t.Errorf("of a prompt that is always asked for %d blocks are left, want 5", got)
			}
			if st.RefusedBlocks*20 > st.StoredBlocks {
				t.Errorf("%d blocks refused of %d", st.RefusedBlocks, st.StoredBlocks+st.RefusedBlocks)
			}
			t.Logf("%d of %d bytes at most, %.1f bytes a held block, %d refused, %d evicted",
				most, tc.max, float64(st.Bytes)/float64(st.Held), st.RefusedBlocks, st.EvictedBlocks)
		})
	}
}

// TestBoundNeverExaggerates compares with the twin: what is forgotten makes overlaps shorter, never longer.
func TestBoundNeverExaggerates(t *testing.T) {
	x, w := New(Config{MaxBytes: field.MiB, MaxSlots: 64}), newTwin()
	r := rand.New(rand.NewPCG(5, 5))
	const slots = 6
	recent := []block.Hash{1}
	var o Overlap
	full := 0
	flood(x, w, 2, slots, 2500, 300, func(int) {
		if r.IntN(8) == 0 {
			_, c := forest(rand.New(rand.NewPCG(r.Uint64(), 1)), 1, 200)
			recent = c[0]
			h := Holder{Slot: slot.Slot(r.IntN(slots))}
			x.Store(h, Stored{Root: true, Engine: engineOf(recent, uint64(h.Slot)+7), Hashes: recent, Chained: true})
			w.store(h, 0, recent, false)
		}
		x.Overlap(recent, &o)
		for s := range slot.Slot(slots) {
			got, want := o.Of(s).Upto(slot.Remote), w.overlap(s, recent)
			if got > want.Upto(slot.Remote) {
				t.Errorf("slot %d holds %d blocks, at most %d were announced", s, got, want.Upto(slot.Remote))
			}
			if got == len(recent) {
				full++
			}
		}
	})
	check(t, x)
	if full < 1000 {
		t.Errorf("what was just stored was found only %d times", full)
	}
}

// TestOrphansBounded drops the oldest, and never lets orphans push memory over the bound.
func TestOrphansBounded(t *testing.T) {
	x := New(Config{MaxBytes: field.MiB, MaxOrphans: 10, MaxSlots: 4})
	chain := chainOf([]uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13})
	store := func(from, to int) Outcome {
		s := Stored{Root: from == 0, Engine: chain[from:to], Hashes: chain[from:to], Chained: true}
		if from > 0 {
			s.Parent = chain[from-1]
		}
		return x.Store(Holder{Slot: 1}, s)
	}
	for _, from := range []int{10, 7, 4, 1} { // three blocks each: the first one does not fit any more
		if got := store(from, from+3); got != Waiting {
			t.Fatalf("blocks from %d: outcome %d, want waiting", from, got)
		}
	}
	if st := x.Stats(); st.Waiting != 9 || st.DroppedOrphanBlocks != 3 {
		t.Errorf("%+v, want 9 blocks waiting and 3 dropped", st)
	}
	check(t, x)
	if got := store(0, 1); got != Applied {
		t.Errorf("outcome %d, want applied", got)
	}
	var o Overlap
	x.Overlap(chain, &o)
	if got := o.Of(1).Blocks[slot.Device]; got != 10 {
		t.Errorf("%d blocks, want the 10 whose parents came", got)
	}
	if st := x.Stats(); st.AdoptedBlocks != 9 || st.Waiting != 0 {
		t.Errorf("%+v, want 9 adopted and none waiting", st)
	}
	store(12, 13)
	store(12, 13)
	x.Clear(Holder{Slot: 1})
	if st := x.Stats(); st.Waiting != 0 || st.DroppedOrphanBlocks != 5 {
		t.Errorf("%+v, want none waiting and 5 dropped", st)
	}
	check(t, x)
}
