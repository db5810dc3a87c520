package runs

import (
	"slices"

	"attache/internal/slot"
)

// orphan is an announcement whose parent the slot does not hold: the event that named it was lost, or comes later from
// another tier. Without its parent a block has no place, nor, unless the announcement was chained, a hash.
type orphan struct {
	Stored // its slices are the orphan's own

	worker     *worker
	tier       slot.Tier
	gone       []bool  // blocks that were removed while waiting; nil: none
	prev, next *orphan // older and younger ones of all slots
}

const (
	orphanBytes      = 192
	orphanBlockBytes = 16
)

func (o *orphan) bytes() int { return orphanBytes + orphanBlockBytes*len(o.Engine) + len(o.gone) }

// orphanList holds the orphans of all slots, in the order in which they came. The zero value is empty.
type orphanList struct {
	oldest, youngest *orphan
	blocks           int
}

// orphans are those of one slot.
type orphans struct {
	all      []*orphan // in the order in which they came
	byParent map[uint64][]*orphan
}

// keep lets an announcement wait for its parent.
func (x *Index) keep(w *worker, o *holder, s Stored) {
	s.Engine, s.Hashes = slices.Clone(s.Engine), slices.Clone(s.Hashes)
	x.counts.OrphanBlocks += uint64(len(s.Engine))
	x.link(&orphan{Stored: s, worker: w, tier: o.Tier})
}

// link puts an orphan at the end of all lists. When there are too many, the oldest go.
func (x *Index) link(o *orphan) {
	o.prev, o.next = x.waiting.youngest, nil
	if o.prev != nil {
		o.prev.next = o
	} else {
		x.waiting.oldest = o
	}
	x.waiting.youngest = o
	x.waiting.blocks += len(o.Engine)
	x.bytes += o.bytes()
	mine := &o.worker.orphans
	mine.all = append(mine.all, o)
	if mine.byParent == nil {
		mine.byParent = map[uint64][]*orphan{}
	}
	mine.byParent[o.Parent] = append(mine.byParent[o.Parent], o)
	for x.waiting.blocks > x.cfg.MaxOrphans || x.memory() > x.limit() && x.waiting.oldest != nil {
		x.dropOrphan(x.waiting.oldest)
	}
}

func (x *Index) dropOrphan(o *orphan) {
	x.counts.DroppedOrphanBlocks += uint64(len(o.Engine))
	x.takeOrphan(o)
}

// takeOrphan takes one from all lists.
func (x *Index) takeOrphan(o *orphan) {
	if o.prev != nil {
		o.prev.next = o.next
	} else {
		x.waiting.oldest = o.next
	}
	if o.next != nil {
		o.next.prev = o.prev
	} else {
		x.waiting.youngest = o.prev
	}
	x.waiting.blocks -= len(o.Engine)
	x.bytes -= o.bytes()
	mine := &o.worker.orphans
	same := func(other *orphan) bool { return other == o }
	mine.all = slices.DeleteFunc(mine.all, same)
	if left := slices.DeleteFunc(mine.byParent[o.Parent], same); len(left) > 0 {
		mine.byParent[o.Parent] = left
	} else {
		delete(mine.byParent, o.Parent)
	}
	if len(mine.all) == 0 {
		*mine = orphans{} // its arrays may be long
	}
}

// dropOrphans forgets those of one tier of a slot.
func (x *Index) dropOrphans(w *worker, tier int) {
	for _, o := range slices.Clone(w.orphans.all) {
		if int(o.tier) == tier {
			x.dropOrphan(o)
		}
	}
}

// adopt applies the orphans that waited for one of the blocks just stored, then those that waited for their blocks.
func (x *Index) adopt(w *worker, engine []uint64) {
	ready := x.ready(w, engine, nil)
	for len(ready) > 0 {
		o := ready[0]
		ready = ready[1:]
		if x.settle(w, o) {
			ready = x.ready(w, o.Engine, ready)
		}
	}
}

// ready takes the orphans whose parent is among the given blocks, and appends them.
func (x *Index) ready(w *worker, engine []uint64, ready []*orphan) []*orphan {
	for _, key := range engine {
		if len(w.orphans.all) == 0 {
			break
		}
		for _, o := range slices.Clone(w.orphans.byParent[key]) {
			x.takeOrphan(o)
			ready = append(ready, o)
		}
	}
	return ready
}

// settle applies an orphan as if it came now, and then takes away what was removed while it waited. When its parent is gone
// again, removed as well, it goes on waiting: without the parent it is of no use to anybody.
func (x *Index) settle(w *worker, o *orphan) (settled bool) {
	_, h := x.holder(Holder{w.slot, o.tier})
	var gone []uint64
	for i, g := range o.gone {
		// Where announcements are not counted, this one adds nothing to a block that was stored again since.
		if key := o.Engine[i]; g && (!w.sets && !o.Again || x.placeIn(h, key) == 0) {
			gone = append(gone, key)
		}
	}
	if x.store(w, h, o.Stored) == Waiting {
		x.link(o)
		return false
	}
	x.counts.AdoptedBlocks += uint64(len(o.Engine))
	x.remove(w, h, gone)
	return true
}

// removeWaiting takes blocks from a holder while its slot has orphans: what is not held may wait. It returns the hashes
// that were found in neither.
func (x *Index) removeWaiting(w *worker, tier slot.Tier, engine []uint64) (unknown []uint64) {
	for _, key := range engine {
		found := false
		if o := w.tiers[tier]; o != nil && o.engine.get(key) != 0 {
			x.one[0] = key
			x.remove(w, o, x.one[:])
			found = true
		}
		if (!found || w.sets) && x.markGone(w, tier, key) {
			x.counts.RemovedBlocks++
			found = true
		}
		if !found {
			unknown = append(unknown, key)
		}
	}
	return unknown
}

// markGone notes in the slot's orphans that a block was removed: in the oldest that has it, or in all where announcements
// are not counted.
func (x *Index) markGone(w *worker, tier slot.Tier, key uint64) (found bool) {
	for _, o := range w.orphans.all {
		if o.tier != tier {
			continue
		}
		for i, other := range o.Engine {
			if other != key || o.gone != nil && o.gone[i] {
				continue
			}
			if o.gone == nil {
				o.gone = make([]bool, len(o.Engine))
				x.bytes += len(o.gone)
			}
			o.gone[i] = true
			if found = true; !w.sets {
				return true
			}
		}
	}
	return found
}
