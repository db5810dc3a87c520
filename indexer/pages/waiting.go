package pages

import "slices"

// trees are lines without a known parent, with all that goes on from them. Their first lines are listed from the oldest
// to the youngest, and by the key of the page that they wait for.
type trees struct {
	oldest, youngest uint32
	byParent         map[uint64][]uint32
}

const treeBytes = 64 // about what the map takes for one

// newTree returns the empty first line of a tree that waits for a page.
func (j *Joiner) newTree(parent uint64) uint32 {
	l := j.newLine()
	h := j.line(l)
	h.waits, h.seed = true, parent
	h.older = j.trees.youngest
	if h.older != 0 {
		j.line(h.older).younger = l
	} else {
		j.trees.oldest = l
	}
	j.trees.youngest = l
	if j.trees.byParent == nil {
		j.trees.byParent = map[uint64][]uint32{}
	}
	j.trees.byParent[parent] = append(j.trees.byParent[parent], l)
	j.bytes += treeBytes
	return l
}

// unlinkTree takes a tree from both lists.
func (j *Joiner) unlinkTree(l uint32) {
	j.unlinkAge(l)
	parent := j.line(l).seed
	same := j.trees.byParent[parent]
	if i := slices.Index(same, l); len(same) > 1 {
		j.trees.byParent[parent] = slices.Delete(same, i, i+1)
	} else {
		delete(j.trees.byParent, parent)
	}
}

// unlinkAge takes a tree from the list by age.
func (j *Joiner) unlinkAge(l uint32) {
	h := j.line(l)
	if h.older != 0 {
		j.line(h.older).younger = h.younger
	} else {
		j.trees.oldest = h.younger
	}
	if h.younger != 0 {
		j.line(h.younger).older = h.older
	} else {
		j.trees.youngest = h.older
	}
	j.bytes -= treeBytes
}

// makeRoom forgets trees, the oldest first, until n more pages fit in, or no tree is left.
func (j *Joiner) makeRoom(n int) {
	for j.pages+n > j.cfg.Limit && j.trees.oldest != 0 {
		j.dropTree(j.trees.oldest)
	}
}

// makeRoomToWait returns how many of n pages may wait behind at, noPlace for those of a new tree. It forgets trees, the
// oldest first, but not the one that goes on: what is left of that would wait for ever.
func (j *Joiner) makeRoomToWait(n int, at place) int {
	n = min(n, j.cfg.Waiting)
	if j.waiting+n > j.cfg.Waiting {
		keep := uint32(0)
		if at != noPlace {
			keep = j.treeOf(at.line())
		}
		for l := j.trees.oldest; l != 0 && j.waiting+n > j.cfg.Waiting; {
			drop := l
			if l = j.line(l).younger; drop != keep {
				j.dropTree(drop)
			}
		}
	}
	return min(n, j.cfg.Waiting-j.waiting)
}

// dropTree forgets all pages of a tree.
func (j *Joiner) dropTree(l uint32) {
	j.unlinkTree(l)
	stack := j.stack[:0]
	stack = append(stack, move{l, noPlace})
	for len(stack) > 0 {
		l := stack[len(stack)-1].line
		stack = stack[:len(stack)-1]
		h := j.line(l)
		for i := int(h.from); i < int(h.n); i++ {
			p, slot, _ := j.find(j.keyAt(placeOf(l, i)))
			p.remove(slot)
		}
		n := int(h.n - h.from)
		j.pages -= n
		j.waiting -= n
		j.counts.Dropped += uint64(n)
		for _, first := range [...]uint32{h.branches, h.nexts} {
			for c := first; c != 0; c = j.line(c).younger {
				stack = append(stack, move{c, noPlace})
			}
		}
		j.clearExtra(l)
		j.freeLine(l)
	}
	j.stack = stack
}

// clearExtra forgets the copies that a line's pages have.
func (j *Joiner) clearExtra(l uint32) {
	if c := j.chunks[l>>chunkBits]; c.extra != nil {
		clear(c.extra[int(l%chunkLines)*j.width*tiers:][:j.width*tiers])
	}
}

// move is a line of a tree, and the place behind which its pages belong.
type move struct {
	line uint32
	to   place
}

// settle moves the trees that wait for a page to where it is now.
func (j *Joiner) settle(parent uint64) {
	waiting := j.trees.byParent[parent]
	if len(waiting) == 0 {
		return
	}
	delete(j.trees.byParent, parent)
	to := j.lookup(parent)
	for _, l := range waiting {
		if j.line(to.line()).waits && j.treeOf(to.line()) == l {
			// The page would be before itself: the keys make no sense.
			j.trees.byParent[parent] = append(j.trees.byParent[parent], l)
			continue
		}
		j.unlinkAge(l)
		j.settleTree(l, to)
	}
}

// treeOf returns the first line of the tree that a line is in.
func (j *Joiner) treeOf(l uint32) uint32 {
	for j.line(l).base != 0 {
		l = j.line(l).base
	}
	return l
}

// settleTree moves a tree, page by page, behind a place: there it is cut into blocks in another way.
func (j *Joiner) settleTree(l uint32, to place) {
	stack := j.stack[:0]
	stack = append(stack, move{l, to})
	for len(stack) > 0 {
		m := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		h := j.line(m.line)
		var places [maxPages]place
		at := m.to
		for i := int(h.from); i < int(h.n); i++ {
			at = j.movePage(placeOf(m.line, i), at)
			places[i] = at
		}
		for b := h.branches; b != 0; b = j.line(b).younger {
			stack = append(stack, move{b, places[j.line(b).from-1]})
		}
		for n := h.nexts; n != 0; n = j.line(n).younger {
			stack = append(stack, move{n, at})
		}
		j.freeLine(m.line)
	}
	j.stack = stack
}

// movePage moves one page of a tree behind another page, and returns its new place. Its old line is not kept in order.
func (j *Joiner) movePage(old, after place) place {
	from := j.line(old.line())
	l := j.lineAfter(after)
	h := j.line(l)
	at := placeOf(l, int(h.n))
	key := j.keyAt(old)
	p, i, _ := j.find(key)
	p.slots[i] = entryOf(p.slots[i].mark(), at)
	j.keysOf(l)[h.n] = key
	size := 4 * j.cfg.Page
	copy(j.tokensOf(l)[size*int(h.n):][:size], j.tokensOf(old.line())[size*old.offset():])
	h.n++
	if !h.waits {
		j.waiting--
	}
	for t := range tiers {
		if from.held[t]>>old.offset()&1 == 0 {
			continue
		}
		if e := j.extraOf(old, tierOf(t), false); e != nil && *e > 0 {
			*j.extraOf(at, tierOf(t), true) = *e
			*e = 0
		}
		h.held[t] |= 1 << at.offset()
	}
	if int(h.n) == j.width {
		j.giveAll(l, j.completeOn(h))
	}
	return at
}
