package runs

import (
	"fmt"
	"io"

	"attache/internal/slot"
)

// Stats are the figures of an index.
type Stats struct {
	counters

	Bytes  int // memory in use: what Config.MaxBytes bounds
	Held   int // blocks over all holders; a block that two hold counts twice
	Blocks int // different blocks, and those in gaps of runs that nobody holds
	Runs   int
	Sets   int // different sets of holders
	Stale  int // engine hashes of evicted blocks that still take memory
	// Waiting are blocks whose parent is not known.
	Waiting int
	// Retired are holders that were cleared, and whose blocks Tidy has not yet passed.
	Retired int
}

// counters count since the index was made.
type counters struct {
	StoredBlocks        uint64 // announced and placed, repetitions included
	RemovedBlocks       uint64 // removals of blocks that were held or waiting
	UnknownBlocks       uint64 // removals and moves of blocks that were not held
	EvictedBlocks       uint64 // forgotten by the bound, per holder
	RefusedBlocks       uint64 // not stored, as no memory could be freed
	OrphanBlocks        uint64 // announced without a known parent
	AdoptedBlocks       uint64 // orphans whose parent appeared
	DroppedOrphanBlocks uint64 // orphans forgotten: too many, or their holder was cleared
	Moved               uint64 // engine hashes that came to name another block
	Shared              uint64 // engine hashes of blocks that have another one already: ignored
	Malformed           uint64 // events that make no sense: lengths that differ, slots or tiers out of range
}

// Stats returns the figures. The writer's.
func (x *Index) Stats() Stats {
	s := Stats{
		Bytes: x.memory(), Held: x.held, Blocks: x.blocks, Runs: x.live, Sets: x.sets.n, Stale: x.stale,
		Waiting: x.waiting.blocks, Retired: x.pendingBits, counters: x.counts,
	}
	for _, word := range x.tidying {
		for ; word != 0; word &= word - 1 {
			s.Retired++
		}
	}
	return s
}

// SlotStats are the figures of one slot.
type SlotStats struct {
	Held [tiers]int // blocks, by tier
	// Announced is Held with every count: more than the engine has blocks proves that removals were lost. Blocks evicted by
	// the bound count until their memory is given back.
	Announced [tiers]int
	Waiting   int // blocks whose parent is not known
}

// SlotStats returns the figures of one slot; all zero when nothing is known of it. The writer's.
func (x *Index) SlotStats(s slot.Slot) (stats SlotStats) {
	w := x.known(s)
	if w == nil {
		return stats
	}
	for t, h := range w.tiers {
		if h != nil {
			stats.Held[t], stats.Announced[t] = h.held, h.announced
		}
	}
	for _, o := range w.orphans.all {
		stats.Waiting += len(o.Engine)
	}
	return stats
}

// Dump writes a table for people: what each slot holds by tier, in how many runs, and what waits. It looks at all runs,
// about 10 ms for 100,000 of them. The writer's.
func (x *Index) Dump(to io.Writer) error {
	in := make([]int, len(x.owners)) // runs by bit
	seen := make([]uint32, len(x.owners))
	for id, state := range x.runs {
		if state.run == nil {
			continue
		}
		state.run.each(func(_, _ int, s *set) {
			s.each(func(bit int) {
				if seen[bit] != uint32(id)+1 {
					seen[bit] = uint32(id) + 1
					in[bit]++
				}
			})
		})
	}
	st := x.Stats()
	_, err := fmt.Fprintf(to, "%d blocks held, %d different, %d runs, %d sets, %d waiting, %d bytes\n",
		st.Held, st.Blocks, st.Runs, st.Sets, st.Waiting, st.Bytes)
	if err == nil {
		_, err = fmt.Fprintf(to, "%8s %-7s %10s %10s %8s %8s\n", "slot", "tier", "held", "announced", "runs", "waiting")
	}
	for s, w := range x.workers {
		if w == nil {
			continue
		}
		waiting := [tiers]int{}
		for _, o := range w.orphans.all {
			waiting[o.tier] += len(o.Engine)
		}
		for t, h := range w.tiers {
			if err == nil && h != nil {
				_, err = fmt.Fprintf(to, "%8d %-7s %10d %10d %8d %8d\n",
					s, h.Tier, h.held, h.announced, in[h.bit], waiting[t])
			}
		}
	}
	return err
}
