package pages

import (
	"attache/internal/block"
	"attache/internal/slot"
)

// Blocks are consecutive blocks of one prompt that became complete on a tier. The slices are valid during the call only.
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

// complete says whether a line's block is held on a tier, with what it has from the lines that it branched off.
func (j *Joiner) complete(h *line, t slot.Tier) bool {
	if h.waits {
		return false
	}
	for to := j.width; ; {
		need := span(int(h.from), to)
		if h.held[t]&need != need {
			return false
		}
		if h.from == 0 {
			return true
		}
		to = int(h.from)
		h = j.line(h.base)
	}
}

// gained notes that a page, already marked as held, was not: it may complete the line's block and those of its branches.
func (j *Joiner) gained(at place, t slot.Tier) {
	h := j.line(at.line())
	if h.waits {
		return
	}
	if j.complete(h, t) {
		j.give(at.line(), t)
	}
	j.eachBranch(h, at.offset(), t, j.giveFunc)
}

// lost notes that a page, still marked as held, will not be.
func (j *Joiner) lost(at place, t slot.Tier) {
	h := j.line(at.line())
	if h.waits {
		return
	}
	if j.complete(h, t) {
		j.take(at.line(), t)
	}
	j.eachBranch(h, at.offset(), t, j.takeFunc)
}

// eachBranch calls f for the complete blocks on a tier that branched off h behind a page. It is as deep as branches inside
// one block are.
func (j *Joiner) eachBranch(h *line, offset int, t slot.Tier, f func(l uint32, t slot.Tier)) {
	for b := h.branches; b != 0; {
		branch := j.line(b)
		if int(branch.from) > offset {
			if j.complete(branch, t) {
				f(b, t)
			}
			j.eachBranch(branch, offset, t, f)
		}
		b = branch.younger
	}
}

// blockBefore returns the line of which the last page is the one before a line's block; 0 for the first of a prompt.
func (j *Joiner) blockBefore(h *line) uint32 {
	for h.from > 0 {
		h = j.line(h.base)
	}
	return h.base
}

// give adds a block to those that are given on: to the stretch at hand if it continues that.
func (j *Joiner) give(l uint32, t slot.Tier) {
	h := j.line(l)
	before := j.blockBefore(h)
	o := &j.out
	if len(o.Keys) == 0 || before == 0 || before != j.outLast || t != o.Tier {
		j.flush()
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

// flush gives on the stretch at hand.
func (j *Joiner) flush() {
	if o := &j.out; len(o.Keys) > 0 {
		j.emit(*o)
		o.Keys, o.Locals = o.Keys[:0], o.Locals[:0]
	}
}

// take notes that a block is no longer complete.
func (j *Joiner) take(l uint32, t slot.Tier) {
	j.gone[t] = append(j.gone[t], j.lastKey(l))
	j.blocks[t]--
}
