package indexer

import (
	"cmp"
	"slices"
	"time"

	"attache/internal/block"
	"attache/internal/slot"
)

// Prefix is a prompt's beginning that a slot is believed to hold, and that it holds no longer one of.
type Prefix struct {
	Hash   block.Hash    // of its last block: stands for all of them
	Blocks int           // how many they are
	Age    time.Duration // since the last block was touched, in whole seconds
}

// walk is a pass over a slot's list from its far end to the front, in pieces. What is touched while it goes on moves to the
// front, so that it comes by again: nothing is missed, and of a node that was seen twice the later sight counts.
type walk struct {
	slot   slot.Slot
	owner  uint32
	birth  uint32
	now    uint32
	oldest uint32 // what was touched before this second has passed its time to live
	seen   []sight
}

// sight is a node as it was when the walk came by.
type sight struct {
	hash       block.Hash
	id, parent int32
	at         uint32
}

// walkOn takes the walk on by at most budget nodes, for which w.seen must have room; more says that there are more.
func (t *table) walkOn(w *walk, now uint32, budget int) (more bool) {
	id := t.owner(w.slot)
	o, birth := &t.owners[id], t.taught[id].birth
	if w.owner == 0 {
		w.owner, w.birth, w.now = id, birth, max(now, t.now)
		w.oldest = t.oldest(w.now)
	}
	// Were others to move blocks faster than this passes them, it must still end; what it has not seen whole is left out.
	if id == 0 || birth != w.birth || len(w.seen) > 2*o.held+budget {
		return false
	}
	next := t.resume(w, o, budget)
	for range budget {
		if next == 0 {
			return false
		}
		n, l := t.at(next), t.links(next)
		w.seen = append(w.seen, sight{n.hash, next, l.parent, n.at})
		next = l.newer
	}
	return next != 0
}

// resume finds where the walk goes on: before the last node seen that has stayed in its place since.
func (t *table) resume(w *walk, o *owner, budget int) int32 {
	for i := len(w.seen) - 1; i >= max(len(w.seen)-budget, 0); i-- {
		s := &w.seen[i]
		if l := t.links(s.id); l.owner == w.owner && t.at(s.id).hash == s.hash && t.at(s.id).at == s.at {
			return l.newer
		}
	}
	return o.tail
}

// top returns the n freshest of the prefixes seen, without those that others go on from.
func (w *walk) top(n int) []Prefix {
	type leaf struct {
		sight

		depth int
		inner bool // others go on from it: no leaf
	}
	leaves := make([]leaf, 1, len(w.seen)+1) // the first stands before every first block
	place := make(map[int32]int32, len(w.seen))
	parent := int32(0)                          // place of the node before, which mostly is the parent
	for _, s := range slices.Backward(w.seen) { // from the front: parents first, and the latest sight of a node
		if s.parent != leaves[parent].id {
			parent = place[s.parent]
		}
		if s.at < w.oldest || place[s.id] != 0 || (parent == 0 && s.parent != 0) {
			continue
		}
		leaves[parent].inner = true
		leaves = append(leaves, leaf{sight: s, depth: leaves[parent].depth + 1})
		parent = int32(len(leaves) - 1)
		place[s.id] = parent
	}
	leaves = slices.DeleteFunc(leaves[1:], func(l leaf) bool { return l.inner })
	slices.SortFunc(leaves, func(a, b leaf) int {
		return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.depth, a.depth), cmp.Compare(a.hash, b.hash))
	})
	top := make([]Prefix, min(n, len(leaves)))
	for i, l := range leaves[:len(top)] {
		top[i] = Prefix{Hash: l.hash, Blocks: l.depth, Age: time.Duration(max(w.now, l.at)-l.at) * time.Second}
	}
	return top
}
