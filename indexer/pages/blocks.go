package pages

import (
	"math/bits"

	"attache/internal/block"
	"attache/internal/slot"
)

// Blocks are consecutive blocks of one prompt that became complete on a tier (see the package's comment for what that is). The slices are valid during the call only.
type Blocks struct {
	Tier slot.Tier
	// Root says that the first block begins a prompt. Otherwise Parent is the key of the block before it, which may not be
	// held, or not have been given on.
	Root   bool
	Parent uint64
	// Keys are the engine's keys of the blocks: those of their last pages. Locals are their local hashes (block.Local), as
	// many; the first block of a prompt is hashed with the seed of its namespace, all others with the plain one.
	Keys   []uint64
	Locals []uint64
}

// plainSeed is that of every block but the first of a prompt.
var plainSeed = block.Seed("", "")

// tierSet has a bit for each of some tiers.
type tierSet uint8

// completeOn returns the tiers on which a line's block is complete, with what it has from the lines that it branched off:
// those that hold all its pages, and that of its slowest page when each is taken from the highest tier that holds it.
func (j *Joiner) completeOn(h *line) tierSet {
	if h.waits {
		return 0
	}
	if j.lowest == slot.Device {
		return j.completeOnDevice(h)
	}
	there := tierSet(1)<<(j.lowest+1) - 1 // tiers that hold all pages
	upto := there                         // tiers that do with those above
	slowest := tierSet(0)                 // tiers that hold a page which those above do not
	for to := j.width; ; {
		need := span(int(h.from), to)
		above := uint64(0)
		for t := range j.lowest + 1 {
			held := h.held[t] & need
			if held != need {
				there &^= 1 << t
			}
			if held&^above != 0 {
				slowest |= 1 << t
			}
			if above |= held; above != need {
				upto &^= 1 << t
			}
		}
		if above != need {
			return 0
		}
		if h.from == 0 {
			return there | upto&slowest
		}
		to = int(h.from)
		h = j.line(h.base)
	}
}

// completeOnDevice is completeOn for a worker that has only ever used the device: then there is one tier to look at.
func (j *Joiner) completeOnDevice(h *line) tierSet {
	for to := j.width; ; {
		need := span(int(h.from), to)
		if h.held[slot.Device]&need != need {
			return 0
		}
		if h.from == 0 {
			return 1 << slot.Device
		}
		to = int(h.from)
		h = j.line(h.base)
	}
}

// flip changes whether a page is held, on each of some tiers, and gives and takes the blocks for which that makes a
// difference: the line's own and those of its branches.
func (j *Joiner) flip(at place, changed tierSet) {
	h := j.line(at.line())
	switch held := h.held[slot.Device]>>at.offset()&1 != 0; {
	case h.waits:
		h.flip(at.offset(), changed)
	case j.lowest == slot.Device && held: // none will be complete
		j.eachBlock(at.line(), at.offset(), j.takeFunc)
		h.flip(at.offset(), changed)
	case j.lowest == slot.Device: // none was
		h.flip(at.offset(), changed)
		j.eachBlock(at.line(), at.offset(), j.giveFunc)
	default:
		j.before = j.before[:0]
		j.eachBlock(at.line(), at.offset(), j.noteFunc)
		h.flip(at.offset(), changed)
		j.compared = 0
		j.eachBlock(at.line(), at.offset(), j.compareFunc)
	}
}

// eachBlock calls f for the blocks with a page, and the tiers on which they are complete: a line's own and those that
// branched off behind the page. It is as deep as branches inside one block are.
func (j *Joiner) eachBlock(l uint32, offset int, f func(l uint32, on tierSet)) {
	h := j.line(l)
	f(l, j.completeOn(h))
	for b := h.branches; b != 0; {
		branch := j.line(b)
		if int(branch.from) > offset {
			j.eachBlock(b, offset, f)
		}
		b = branch.younger
	}
}

// note keeps on which tiers a block is complete before a change, for compare.
func (j *Joiner) note(_ uint32, on tierSet) { j.before = append(j.before, on) }

// compare is called after the change, for the same blocks in the same order.
func (j *Joiner) compare(l uint32, on tierSet) {
	before := j.before[j.compared]
	j.compared++
	j.giveAll(l, on&^before)
	j.takeAll(l, before&^on)
}

// blockBefore returns the line of which the last page is the one before a line's block; 0 for the first of a prompt.
func (j *Joiner) blockBefore(h *line) uint32 {
	for h.from > 0 {
		h = j.line(h.base)
	}
	return h.base
}

// giveAll gives a block on each of some tiers.
func (j *Joiner) giveAll(l uint32, on tierSet) {
	for ; on != 0; on &= on - 1 {
		j.give(l, tierOf(bits.TrailingZeros8(uint8(on))))
	}
}

// takeAll takes a block from each of some tiers.
func (j *Joiner) takeAll(l uint32, on tierSet) {
	for ; on != 0; on &= on - 1 {
		j.take(l, tierOf(bits.TrailingZeros8(uint8(on))))
	}
}

// give adds a block to those that are given on: to the stretch at hand if it continues that.
func (j *Joiner) give(l uint32, t slot.Tier) {
	if len(j.gone[t]) > 0 {
		j.flush() // the block may be among those
	}
	h := j.line(l)
	before := j.blockBefore(h)
	o := &j.out
	if len(o.Keys) == 0 || before == 0 || before != j.outLast || t != o.Tier {
		j.flushStored()
		o.Tier, o.Root, o.Parent = t, before == 0, 0
		if before != 0 {
			o.Parent = j.lastKey(before)
		}
	}
	o.Keys = append(o.Keys, j.lastKey(l))
	o.Locals = append(o.Locals, block.Local(j.tokensOf(l), h.seed))
	j.outLast = l
	j.blocks[t]++
}

func (j *Joiner) lastKey(l uint32) uint64 { return j.keyAt(placeOf(l, j.width-1)) }

// flush gives on all that is at hand. What was given comes before what was taken: where a call does both with one block on
// one tier in the other order, give flushes in between.
func (j *Joiner) flush() {
	j.flushStored()
	for t := range j.gone {
		if len(j.gone[t]) > 0 {
			j.removed(tierOf(t), j.gone[t])
			j.gone[t] = j.gone[t][:0]
		}
	}
}

// flushStored gives on the stretch at hand.
func (j *Joiner) flushStored() {
	if o := &j.out; len(o.Keys) > 0 {
		j.stored(*o)
		o.Keys, o.Locals = o.Keys[:0], o.Locals[:0]
	}
}

// take notes that a block is no longer complete.
func (j *Joiner) take(l uint32, t slot.Tier) {
	j.gone[t] = append(j.gone[t], j.lastKey(l))
	j.blocks[t]--
}
