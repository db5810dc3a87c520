package runs

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"attache/internal/block"
	"attache/internal/field"
	"attache/internal/slot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReadersBesideWriter lets readers look while runs shrink and grow, holders come and go, and runs are evicted. Some of
// the answers never change, and must not.
func TestReadersBesideWriter(t *testing.T) {
	y := synthetic(true, false)
	x := New(Config{MaxBytes: 16 * field.MiB, MaxOrphans: 1000, MaxSlots: 100})
	// A slot that nothing happens to, with what the readers ask for.
	still := Holder{Slot: 77}
	chain := y.queries[0]
	x.Store(still, Stored{Root: true, Engine: chain, Hashes: chain, Chained: true})
	removed := slot.Slot(3)
	var gone atomic.Bool // slot 3 was removed and not yet stored to again
	var stop atomic.Bool
	var readers sync.WaitGroup
	for g := range 2 {
		readers.Go(func() {
			var o Overlap
			for q := g; !stop.Load(); q++ {
				c := y.queries[q%len(y.queries)]
				if q%4 == 0 {
					c = chain
				}
				was := gone.Load()
				x.Overlap(c, &o)
				after := gone.Load()
				seen := map[slot.Slot]bool{}
				for i := range o.Hits {
					h := &o.Hits[i]
					if n := h.Upto(slot.Remote); n < 1 || n > len(c) || seen[h.Slot] {
						t.Errorf("hit %+v of a chain of %d blocks", h, len(c))
					}
					if seen[h.Slot] = true; h.Slot == removed && was && after {
						t.Error("a removed slot is seen")
					}
				}
				if q%4 == 0 && int(o.Of(still.Slot).Blocks[slot.Device]) != len(chain) {
					t.Errorf("a slot that nothing happens to: %+v", o.Of(still.Slot))
				}
			}
		})
	}
	stores := y.stores[:12_000]
	for round := range 3 {
		for i := range stores {
			stores[i].apply(x)
		}
		for i := range y.removes {
			y.removes[i].apply(x)
		}
		for i := range stores { // from the end: runs shrink block by block
			e := &stores[len(stores)-1-i]
			if i%3 == round {
				back := slices.Clone(e.Engine)
				slices.Reverse(back)
				x.Remove(e.holder, back)
			}
		}
		x.RemoveSlot(removed)
		gone.Store(true)
		for x.Tidy(50) {
		}
		gone.Store(false)
	}
	stop.Store(true)
	readers.Wait()
	check(t, x)
}

// TestOldRunsStay holds on to a run while it is shortened and grows again: what a reader saw does not change.
func TestOldRunsStay(t *testing.T) {
	x := New(roomy())
	h := Holder{}
	a := chainOf([]uint64{1, 2, 3, 4, 5, 6, 7, 8})
	b := chainOf([]uint64{1, 2, 3, 4, 5, 60, 70, 80})
	store := func(c []block.Hash) {
		x.Store(h, Stored{Root: true, Engine: c, Hashes: c, Chained: true})
	}
	store(a)
	before := x.table.get(a[0])
	x.Remove(h, a[5:])
	store(b)
	if !slices.Equal(before.hashes, a) {
		t.Error("a run that a reader may hold was overwritten")
	}
	check(t, x)
}
