package runs

import "attache/internal/slot"

// Holder is a memory that holds blocks: one tier of one slot.
type Holder struct {
	Slot slot.Slot
	Tier slot.Tier
}

// tiers is how many there are.
const tiers = int(slot.Remote) + 1

// holder is what the writer knows of one Holder. Emptying a holder is giving it up: its bit is retired, so that readers
// see nothing of it any more, and the next store makes a new one with a new bit.
type holder struct {
	Holder

	bit       int
	engine    engineMap
	held      int // blocks of runs: each has exactly one key
	stale     int // keys of engine whose run was evicted
	announced int // sum of the counts of all keys
	parked    bool
}

const holderBytes = 64 // without engine

// worker is what the writer knows of one slot.
type worker struct {
	slot     slot.Slot
	tiers    [tiers]*holder
	expected [tiers]int // blocks that the engine can hold; 0: not known
	sets     bool       // announcements are not counted
	orphans  orphans
}

const workerBytes = 192

// view is what readers know of the holders: an immutable table by bit.
type view struct {
	owners []owner
	device []uint64 // bits of device tiers
	lower  []uint64 // bits of the other tiers
}

// owner is whom a bit stands for. A slot's tiers are linked, nearest first.
type owner struct {
	Holder

	above, below int32 // bits of the slot's next tiers in use; -1: none
}

const ownerBytes = 16

// worker returns what is known of a slot, nothing at first.
func (x *Index) worker(s slot.Slot) *worker {
	if int(s) >= len(x.workers) {
		before := cap(x.workers)
		for int(s) >= len(x.workers) {
			x.workers = append(x.workers, nil)
		}
		x.bytes += 8 * (cap(x.workers) - before)
	}
	if x.workers[s] == nil {
		x.workers[s] = &worker{slot: s}
		x.bytes += workerBytes
	}
	return x.workers[s]
}

// known returns a slot's worker, nil when there was never one.
func (x *Index) known(s slot.Slot) *worker {
	if uint64(s) >= uint64(len(x.workers)) {
		return nil
	}
	return x.workers[s]
}

// holder returns what is known of a holder; a new one gets a bit that nobody else has.
func (x *Index) holder(h Holder) (*worker, *holder) {
	w := x.worker(h.Slot)
	if w.tiers[h.Tier] == nil {
		o := &holder{Holder: h}
		if n := len(x.freeBits); n > 0 {
			o.bit, x.freeBits = x.freeBits[n-1], x.freeBits[:n-1]
			x.owners[o.bit] = o
		} else {
			o.bit = len(x.owners)
			x.owners = append(x.owners, o)
		}
		o.engine.secret = x.secret
		if n := w.expected[h.Tier]; n > 0 {
			o.engine.presize(n)
		}
		x.bytes += holderBytes + o.engine.bytes()
		w.tiers[h.Tier] = o
		x.publishView()
	}
	return w, w.tiers[h.Tier]
}

// retire gives a holder up. Its blocks are gone for readers at once, and nothing leads to them any more; the runs are
// tidied later.
func (x *Index) retire(h *holder) {
	x.bytes -= holderBytes + h.engine.bytes()
	x.held -= h.held
	x.stale -= h.stale
	x.owners[h.bit] = nil
	if w := x.workerOf(h); w != nil {
		w.tiers[h.Tier] = nil
	}
	for len(x.retired) <= h.bit>>6 {
		x.retired = append(x.retired, 0)
	}
	x.retired[h.bit>>6] |= 1 << (h.bit & 63)
	x.pendingBits++
	x.publishView()
}

// publishView shows readers who stands behind each bit now.
func (x *Index) publishView() {
	words := (len(x.owners) + 63) / 64
	v := &view{owners: make([]owner, len(x.owners)), device: make([]uint64, words), lower: make([]uint64, words)}
	for bit, h := range x.owners {
		v.owners[bit] = owner{above: -1, below: -1}
		if h == nil || h.parked {
			continue
		}
		o := &v.owners[bit]
		o.Holder = h.Holder
		for t, other := range x.workers[h.Slot].tiers {
			switch {
			case other == nil:
			case t < int(h.Tier):
				o.above = int32(other.bit)
			case t > int(h.Tier) && o.below < 0:
				o.below = int32(other.bit)
			}
		}
		if h.Tier == slot.Device {
			v.device[bit>>6] |= 1 << (bit & 63)
		} else {
			v.lower[bit>>6] |= 1 << (bit & 63)
		}
	}
	x.bytes += v.bytes()
	if before := x.view.Load(); before != nil {
		x.bytes -= before.bytes()
	}
	x.view.Store(v)
}

func (v *view) bytes() int { return 72 + ownerBytes*len(v.owners) + 16*len(v.device) }

// Clear forgets all that a holder holds, its orphans included. Readers see nothing of it from now on, and it may store
// again at once; it takes microseconds, whatever the holder held. The runs keep their memory until Tidy has passed.
func (x *Index) Clear(h Holder) {
	w := x.known(h.Slot)
	if w == nil || int(h.Tier) >= tiers {
		return
	}
	x.dropOrphans(w, int(h.Tier))
	if o := w.tiers[h.Tier]; o != nil {
		x.retire(o)
	}
}

// RemoveSlot forgets all that a slot holds on any tier, and what Configure said of it. As with Clear the effect is
// immediate and the memory comes back with Tidy.
func (x *Index) RemoveSlot(s slot.Slot) {
	w := x.known(s)
	if w == nil {
		return
	}
	for t := range tiers {
		x.Clear(Holder{s, slot.Tier(t)})
	}
	x.workers[s] = nil
	x.bytes -= workerBytes
}

// Tidy frees memory of what Clear and RemoveSlot forgot: it looks at up to n runs and says whether there are more to look
// at. A thousand take 0.1 to 1 ms. Call it between events until it says no; nothing is wrong if that takes long.
func (x *Index) Tidy(n int) (more bool) {
	for x.pendingBits > 0 || x.tidying != nil {
		if x.tidying == nil {
			// A new round, for the bits retired until now. Those retired later wait for the next.
			x.tidying, x.retired, x.tidyHand, x.pendingBits = x.retired, nil, 0, 0
		}
		for ; x.tidyHand < len(x.runs); x.tidyHand++ {
			if n--; n < 0 {
				return true
			}
			if r := x.runs[x.tidyHand].run; r != nil {
				x.replace(r, x.scrub(r, x.tidying))
			}
		}
		x.sets.sweep()
		for bit := range len(x.tidying) * 64 {
			if x.tidying[bit>>6]>>(bit&63)&1 != 0 {
				x.freeBits = append(x.freeBits, bit)
			}
		}
		x.tidying = nil
	}
	return false
}

// scrub returns r without the holders of mask; r itself when it has none of them.
func (x *Index) scrub(r *run, mask []uint64) *run {
	p := &x.painter
	p.pieces = p.pieces[:0]
	changed := false
	r.each(func(from, _ int, s *set) {
		for i := range min(len(mask), len(s.words)) {
			if s.words[i]&mask[i] != 0 {
				changed = true
				s = x.sets.without(s, mask)
				break
			}
		}
		p.put(from, s)
	})
	if !changed {
		return r
	}
	used := r.used.Load()
	next := x.finish(r, r.hashes)
	next.used.Store(used)
	return next
}
