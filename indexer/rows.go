package indexer

import (
	"attache/internal/block"
	"attache/internal/slot"
)

// How blocks move within a slot's list. A row is a stretch of neighbours; it moves as a whole, whatever its length, but
// every block in it keeps the second of its own last touch, as overlaps ask single blocks for their age.

// refresh makes what the slot holds of chain as fresh as now, at most budget blocks of it; more says that there are more.
//
// What was touched in this second already is a beginning of the chain, by the invariant: its end is found by bisection and
// it stays where it is, so that a prompt that is refreshed again, or whose beginning another one has just refreshed, costs
// a few look-ups. The rest goes behind it. Within one second the order may thereby differ from that of the touches, but
// never between a parent and its children.
func (t *table) refresh(s slot.Slot, chain []block.Hash, now uint32, budget int) (more bool) {
	t.now = max(t.now, now)
	id := t.owner(s)
	if id == 0 {
		return false
	}
	believed, _ := t.leading(id, chain, t.oldest(t.now))
	chain = chain[:believed]
	fresh, last := t.leading(id, chain, t.now)
	rest := chain[fresh:min(len(chain), fresh+budget)]
	var unused Mark
	held, _ := t.touch(id, rest, last, &unused)
	return held == len(rest) && fresh+held < len(chain)
}

// leading returns how many leading blocks of chain the owner holds that were touched in this second or later, and the last
// one's node.
func (t *table) leading(id uint32, chain []block.Hash, since uint32) (n int, last int32) {
	high := min(len(chain), t.owners[id].held)
	for probe := high - 1; n < high; probe = (n + high) / 2 { // the whole first: most often it is that or nothing
		if at := t.find(id, chain[probe]); at != 0 && t.at(at).at >= since {
			n, last = probe+1, at
		} else {
			high = probe
		}
	}
	return n, last
}

// touch moves the leading blocks of chain that the owner holds to the front of its list, in order; it returns how many
// they are and the last one's node. after is where they go: 0 at the front, or behind the parent of the first, when that
// was touched in this very second. When they had been touched before is noted in m.
//
// Blocks that were remembered together are neighbours, so a prompt seen before is one row, or a few where others branched
// off: only the first block of a row is looked up in the map, and a row is moved as a whole.
func (t *table) touch(id uint32, chain []block.Hash, after int32, m *Mark) (held int, last int32) {
	o := &t.owners[id]
	i, seen := 0, ^uint32(0)
	last = after
	for i < len(chain) {
		from := t.find(id, chain[i])
		if from == 0 {
			break
		}
		i++
		if from == last { // only when a chain repeats a hash
			continue
		}
		to, at := from, t.pages[from>>pageBits] // neighbours are mostly on one page, which saves looking for it
		n := &at.nodes[to&(pageSize-1)]
		if n.at != seen {
			seen = n.at
			m.note(i-1, seen)
		}
		n.at = t.now
		for i < len(chain) && n.older != 0 && n.older != last {
			if to>>pageBits != n.older>>pageBits {
				at = t.pages[n.older>>pageBits]
			}
			next := &at.nodes[n.older&(pageSize-1)]
			if next.hash != chain[i] {
				break
			}
			to, n = n.older, next
			if n.at != seen {
				seen = n.at
				m.note(i, seen)
			}
			n.at = t.now
			i++
		}
		t.move(o, from, to, last)
		last = to
	}
	return i, last
}

// find returns the owner's node of this hash, or 0.
func (t *table) find(id uint32, hash block.Hash) int32 {
	at := t.first.find(hash, &t.slab)
	for at != 0 {
		l := t.links(at)
		if l.owner == id {
			break
		}
		at = l.next
	}
	return at
}

// move puts the row from..to directly behind the node after; 0: at the front. The node after is not part of the row.
func (t *table) move(o *owner, from, to, after int32) {
	newer, older := t.links(from).newer, t.at(to).older
	if newer == after {
		return
	}
	if newer == 0 {
		o.head = older
	} else {
		t.at(newer).older = older
	}
	if older == 0 {
		o.tail = newer
	} else {
		t.links(older).newer = newer
	}
	t.insert(o, from, to, after)
}

// insert links a loose row behind the node after; 0: at the front.
func (t *table) insert(o *owner, from, to, after int32) {
	next := o.head
	if after != 0 {
		next = t.at(after).older
		t.at(after).older = from
	} else {
		o.head = from
	}
	t.links(from).newer = after
	t.at(to).older = next
	if next != 0 {
		t.links(next).newer = to
	} else {
		o.tail = to
	}
}
