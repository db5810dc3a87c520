package runs

import (
	"math/bits"

	"attache/internal/block"
	"attache/internal/slot"
)

// Hit is how many leading blocks of a chain one slot holds, by tier, indexed by slot.Tier: the first Blocks[slot.Device]
// lie on the device, the Blocks[slot.Host] behind those in host memory, and so on. Each tier counts from where the tiers
// above it end; blocks that it holds before that, or behind a gap, are of no use and not counted.
type Hit struct {
	Slot   slot.Slot
	Blocks [tiers]int32
}

// Upto is how many leading blocks the slot holds on the given tier and those above it.
func (h Hit) Upto(t slot.Tier) int {
	n := 0
	for _, blocks := range h.Blocks[:min(int(t)+1, tiers)] {
		n += int(blocks)
	}
	return n
}

// Overlap is the answer to a query. The caller owns it and uses it again for the next one: a query allocates only when
// there are more holders than before. The zero value is ready. Not for concurrent use.
type Overlap struct {
	// Hits are the slots that hold at least the first block, each once, in no particular order. Slots cleared or removed
	// before the query are not among them.
	Hits []Hit

	alive []uint64 // bits of holders that hold all so far, for each slot one at most
	hitOf []int32  // by bit of a lower tier that is alive: its slot's place in Hits
}

// Of returns the hit of one slot; zero blocks when it has none. It looks at all hits.
func (o *Overlap) Of(s slot.Slot) Hit {
	for i := range o.Hits {
		if o.Hits[i].Slot == s {
			return o.Hits[i]
		}
	}
	return Hit{Slot: s}
}

// Overlap finds how many leading blocks of chain each slot holds and puts it into o. Any goroutine, at any time.
//
// The chain must really be one: each hash naming all before it. Blocks that are being stored or removed meanwhile may be
// seen or not, one run before and the next after an event; within a run all is of one moment.
func (x *Index) Overlap(chain []block.Hash, o *Overlap) {
	for {
		v := x.view.Load()
		x.walk(chain, v, o)
		// A bit may have passed from one holder to another on the way. That is rare: holders come and go with workers.
		if x.view.Load() == v {
			return
		}
	}
}

// walk follows the chain through the runs for as long as somebody holds all of it.
func (x *Index) walk(chain []block.Hash, v *view, o *Overlap) {
	o.Hits = o.Hits[:0]
	var s *set
	for i := 0; i < len(chain); {
		r := x.table.get(chain[i])
		if r == nil {
			o.finish(v, i)
			return
		}
		r.touch()
		n := matched(r.hashes, chain[i:])
		switch {
		case i == 0:
			if s = r.set; !o.start(v, s) {
				return
			}
		case r.set != s:
			if s = r.set; !o.narrow(v, s, i) {
				return
			}
		}
		if r.rest != nil {
			for _, p := range *r.rest {
				if int(p.from) >= n {
					break
				}
				if s = p.set; !o.narrow(v, s, i+int(p.from)) {
					return
				}
			}
		}
		i += n
	}
	o.finish(v, len(chain))
}

// start begins with the holders of the first block, of each slot the nearest tier. It says whether there are any.
func (o *Overlap) start(v *view, s *set) bool {
	o.alive = o.alive[:0]
	all := uint64(0)
	for i := range v.device {
		o.alive = append(o.alive, s.word(i)&v.device[i])
		all |= o.alive[i]
	}
	for i := range v.lower {
		for lower := s.word(i) & v.lower[i]; lower != 0; lower &= lower - 1 {
			bit := i<<6 + bits.TrailingZeros64(lower)
			if o.nearest(v, s, bit) {
				o.Hits = append(o.Hits, Hit{Slot: v.owners[bit].Slot})
				o.revive(v, bit, len(o.Hits)-1)
				all = 1
			}
		}
	}
	return all != 0
}

// nearest says whether no tier above that of the bit is in the set.
func (o *Overlap) nearest(v *view, s *set, bit int) bool {
	for up := v.owners[bit].above; up >= 0; up = v.owners[up].above {
		if s.has(int(up)) {
			return false
		}
	}
	return true
}

// revive makes a lower tier the one that its slot's overlap goes on with.
func (o *Overlap) revive(v *view, bit, hit int) {
	if len(o.hitOf) < len(v.owners) {
		o.hitOf = append(o.hitOf, make([]int32, len(v.owners)-len(o.hitOf))...)
	}
	o.hitOf[bit] = int32(hit)
	o.alive[bit>>6] |= 1 << (bit & 63)
}

// narrow goes on at a block with the holders that hold it, too. Slots whose tier ends here go on with the next tier that
// holds the block. It says whether any slot is left.
func (o *Overlap) narrow(v *view, s *set, at int) bool {
	left := uint64(0)
	for i, alive := range o.alive {
		have := s.word(i)
		gone := alive &^ have
		o.alive[i] = alive & have
		for ; gone != 0; gone &= gone - 1 {
			bit := i<<6 + bits.TrailingZeros64(gone)
			hit := o.end(v, bit, at)
			for down := v.owners[bit].below; down >= 0; down = v.owners[down].below {
				if s.has(int(down)) {
					o.revive(v, int(down), hit)
					left = 1
					break
				}
			}
		}
		left |= o.alive[i]
	}
	return left != 0
}

// end notes that a holder held all blocks before at, and returns its slot's place in Hits.
func (o *Overlap) end(v *view, bit, at int) int {
	by := &v.owners[bit]
	if by.Tier == slot.Device {
		o.Hits = append(o.Hits, Hit{Slot: by.Slot})
		h := &o.Hits[len(o.Hits)-1]
		h.Blocks[slot.Device] = int32(at)
		return len(o.Hits) - 1
	}
	hit := int(o.hitOf[bit])
	h := &o.Hits[hit]
	h.Blocks[by.Tier] = int32(at - h.Upto(by.Tier-1))
	return hit
}

// finish notes that the chain, or what is known of it, ends.
func (o *Overlap) finish(v *view, at int) {
	if at == 0 {
		return
	}
	for i, alive := range o.alive {
		for ; alive != 0; alive &= alive - 1 {
			o.end(v, i<<6+bits.TrailingZeros64(alive), at)
		}
	}
}
