package indexer

import (
	"attache/internal/block"
	"attache/internal/slot"
)

// The structure of the approximate mode.
//
// A node is one block held by one slot. It lies in two lists at once: the holders of its hash, found through a map, and
// the blocks of its slot from the freshest to the oldest. With the prompts A-B-C and A-B-D sent to slot 1, then A-X to
// slot 2, then A-B-C to slot 1 again:
//
//	first    holders                 slot 1: A B C D     slot 2: A X
//	  A  ->  1, 2                            freshest ... oldest
//	  B  ->  1
//	  C  ->  1                       evicting from slot 1 takes D, then C, then B, then A
//	  D  ->  1
//	  X  ->  2
//
// Invariant. In every slot's list a parent stands before its children, and is at least as fresh. It holds because only
// whole prompts are remembered, from their first block on: their blocks move to the front as one row in the order of the
// prompt, and blocks leave only at the far end, by capacity, by age or by the global bound. So a slot that holds a block
// holds all before it, or: along any chain the holders of block i+1 are a subset of the holders of block i. That makes
// the leading count of a slot a matter of bisection instead of a walk along the chain.
//
// Rejected: a set of slots per hash, which finds holders faster but cannot say which of them forgets what first; and a
// clock instead of the list, which breaks the invariant.
//
// The bisection trusts that a hash names all before its block. Input that violates this (two chains that meet in a hash)
// can make overlaps wrong, but never the lists.

// owner is whoever holds blocks: a slot, or one that was cleared and whose nodes are being taken back.
type owner struct {
	slot     slot.Slot // slot.None when cleared: then its blocks count for nobody
	head     int32     // freshest node
	tail     int32     // oldest node
	held     int
	capacity int
}

// reason is why a block is believed gone.
type reason uint8

const (
	byCapacity reason = iota // the slot's own cache is full
	byTTL                    // not asked for in time
	byBound                  // the index is full
	byFeedback               // the engine was found to have lost them
	byClear                  // the worker restarted or is gone
	reasons
)

// table is the structure itself. It is not safe for concurrent use, except that overlap may run beside itself.
type table struct {
	slab

	first   heads        // by hash, one of its holders' nodes
	owners  []owner      // 0 is nobody
	taught  []experience // of the owner with the same number; apart, as overlaps look at owners
	bySlot  []uint32     // slot to owner; 0 none
	vacant  []uint32     // owners to use again
	held    int          // nodes in all lists
	births  uint32       // owners made so far
	evicted [reasons]uint64

	corrected [directions]uint64 // reports that were believed

	ttl             uint32 // seconds; 0 none
	defaultCapacity int
	bound           int    // most nodes
	now             uint32 // the latest second seen: never runs backwards
	sweep           int    // the owner whose old blocks are looked at next
	fetched         int32  // keeps what fetch reads from being optimised away
}

func newTable(cfg Config) *table {
	return &table{
		first: newHeads(), owners: make([]owner, 1), taught: make([]experience, 1), ttl: uint32(cfg.TTL.Seconds()),
		defaultCapacity: cfg.DefaultCapacity, bound: cfg.MaxBlocks,
	}
}

// bisected is a slot whose leading count is being looked for: it is at least dst[slot], at most high.
type bisected struct {
	slot slot.Slot
	high int32
}

// overlap sets dst[slot] to the leading blocks of chain that the slot holds at second now, for every slot known.
//
// Every holder of the first block starts with the interval [1, len(chain)]. A probe of one block halves the interval of
// the slot it was made for, and narrows those of the others for nothing, so that slots that hold equally much cost one
// bisection together: about log2(len(chain)) look-ups for each different count.
func (t *table) overlap(chain []block.Hash, now uint32, dst []int32) []int32 {
	dst = append(dst[:0], make([]int32, len(t.bySlot))...)
	if len(chain) == 0 {
		return dst
	}
	oldest := t.oldest(max(now, t.now))
	var buffer [64]bisected
	open := buffer[:0]
	for id := t.first.find(chain[0], &t.slab); id != 0; {
		l := t.links(id)
		if s := t.owners[l.owner].slot; s != slot.None && dst[s] == 0 && t.at(id).at >= oldest {
			dst[s] = 1
			open = append(open, bisected{s, int32(len(chain))})
		}
		id = l.next
	}
	for len(open) > 0 {
		b := open[len(open)-1]
		if dst[b.slot] >= b.high {
			open = open[:len(open)-1]
			continue
		}
		probe := (dst[b.slot] + b.high) / 2 // counts: above it if block probe is held, else at most it
		for id := t.first.find(chain[probe], &t.slab); id != 0; {
			l := t.links(id)
			if s := t.owners[l.owner].slot; s != slot.None && dst[s] > 0 && t.at(id).at >= oldest {
				dst[s] = max(dst[s], probe+1)
			}
			id = l.next
		}
		for i := range open {
			if dst[open[i].slot] <= probe {
				open[i].high = min(open[i].high, probe)
			}
		}
	}
	return dst
}

// oldest is the second from which on a touch still counts.
func (t *table) oldest(now uint32) uint32 {
	if t.ttl == 0 || now < t.ttl {
		return 0
	}
	return now - t.ttl
}

// remember moves chain to the front of the slot's list and adds what is missing, at most budget blocks of it; more says
// that blocks are still missing. A chain longer than the slot's capacity is cut: the rest would push out its own start.
// What was held before is written to m.
func (t *table) remember(s slot.Slot, chain []block.Hash, now uint32, budget int, m *Mark) (more bool) {
	t.now = max(t.now, now)
	id := t.ownerOf(s)
	o := &t.owners[id]
	whole := chain
	chain = chain[:min(len(chain), o.capacity, t.bound)]
	m.begin(s, o, &t.taught[id], t.now)
	held, last := t.touch(id, chain, 0, m)
	m.predict(&t.taught[id], whole, len(chain), held, t.oldest(t.now))
	missing := min(len(chain)-held, budget)
	t.fetch(o, chain[held:held+missing])
	t.makeRoom(id, held, missing)
	for _, h := range chain[held : held+missing] {
		last = t.add(id, h, last)
	}
	t.expireSome()
	return held+missing < len(chain)
}

// fetch reads ahead what adding these blocks, and evicting as many of the owner's, will look at.
func (t *table) fetch(o *owner, missing []block.Hash) {
	sum, tail := int32(0), o.tail
	for _, h := range missing {
		sum += t.first.fetch(h)
		if tail != 0 {
			sum += t.first.fetch(t.at(tail).hash)
			tail = t.links(tail).newer
		}
	}
	t.fetched = sum
}

// add makes a node for a block that the owner does not hold, behind its parent's node; 0: a first block, at the front.
func (t *table) add(id uint32, hash block.Hash, after int32) int32 {
	return t.enter(id, node{hash: hash, at: t.now}, after, after)
}

// enter takes a node of the owner into both of its lists: into the owner's behind the node after, 0: at the front.
func (t *table) enter(id uint32, n node, parent, after int32) int32 {
	o := &t.owners[id]
	at := t.get()
	*t.at(at), *t.links(at) = n, links{owner: id, parent: parent}
	if first := t.first.findOrPut(n.hash, at, &t.slab); first != at { // second place, so that the table need not be written
		n, f := t.links(at), t.links(first)
		n.prev, n.next = first, f.next
		if f.next != 0 {
			t.links(f.next).prev = at
		}
		f.next = at
	}
	t.insert(o, at, at, after)
	o.held++
	t.held++
	return at
}

// evict takes the owner's oldest block away; one that is too old anyway is counted as such.
func (t *table) evict(id uint32, why reason) {
	o := &t.owners[id]
	at := o.tail
	n, l := t.at(at), t.links(at)
	if why != byClear && n.at < t.oldest(t.now) {
		why = byTTL
	}
	t.evicted[why]++
	e := &t.taught[id]
	e.gone++
	if why == byCapacity || why == byFeedback {
		e.ghosts.put(n.hash, e.gone, o.capacity)
	}

	o.tail = l.newer
	if l.newer != 0 {
		t.at(l.newer).older = 0
	} else {
		o.head = 0
	}
	l.owner = 0
	if l.prev != 0 {
		t.links(l.prev).next = l.next
	} else {
		t.first.replace(n.hash, at, l.next)
	}
	if l.next != 0 {
		t.links(l.next).prev = l.prev
	}
	o.held--
	t.held--
	t.put(at)
}

// makeRoom evicts until the owner, whose freshest keep blocks stay, may take missing blocks more.
func (t *table) makeRoom(id uint32, keep, missing int) {
	for o := &t.owners[id]; o.held+missing > o.capacity; {
		t.evict(id, byCapacity)
	}
	for t.held+missing > t.bound {
		victim, has := t.stalest(id, keep)
		if victim == 0 {
			return
		}
		for range min(t.held+missing-t.bound, has, boundBatch) {
			t.evict(victim, byBound)
		}
	}
}

// boundBatch is how many blocks one owner gives up at a time for the global bound: the search for it looks at all.
const boundBatch = 256

// stalest finds the owner whose oldest block was touched longest ago, cleared ones before all others, and how many blocks
// it can give; id keeps its freshest keep blocks.
func (t *table) stalest(id uint32, keep int) (victim uint32, has int) {
	oldest := ^uint32(0)
	for i := range t.owners {
		o := &t.owners[i]
		spare := o.held
		if uint32(i) == id {
			spare -= keep
		}
		if spare <= 0 {
			continue
		}
		if o.slot == slot.None {
			return uint32(i), spare
		}
		if at := t.at(o.tail).at; at < oldest {
			oldest, victim, has = at, uint32(i), spare
		}
	}
	return victim, has
}

// expireSome frees blocks past their time of one owner after another, a few with every decision: nobody sees them any
// more, so there is no haste.
func (t *table) expireSome() {
	if t.sweep++; t.sweep >= len(t.owners) {
		t.sweep = 1
	}
	oldest := t.oldest(t.now)
	o := &t.owners[t.sweep]
	for range 64 {
		if o.tail == 0 || t.at(o.tail).at >= oldest {
			return
		}
		t.evict(uint32(t.sweep), byTTL)
	}
}

// owner returns the slot's owner, 0 when there is none.
func (t *table) owner(s slot.Slot) uint32 {
	if int(s) >= len(t.bySlot) { // slot.None, too
		return 0
	}
	return t.bySlot[s]
}

// ownerOf returns the slot's owner and makes one where there is none.
func (t *table) ownerOf(s slot.Slot) uint32 {
	if id := t.owner(s); id != 0 {
		return id
	}
	for int(s) >= len(t.bySlot) {
		t.bySlot = append(t.bySlot, 0)
	}
	var id uint32
	if last := len(t.vacant) - 1; last >= 0 {
		id, t.vacant = t.vacant[last], t.vacant[:last]
	} else {
		id = uint32(len(t.owners))
		t.owners = append(t.owners, owner{})
		t.taught = append(t.taught, experience{})
	}
	t.births++
	t.owners[id] = owner{slot: s, capacity: t.defaultCapacity}
	t.taught[id] = experience{birth: t.births}
	t.bySlot[s] = id
	return id
}

// setCapacity takes in the engine's figure, 0 when it tells none, and evicts what the slot holds above it, at most budget
// blocks; more says that there are more. What was learnt from reports stays as long as the figure does.
func (t *table) setCapacity(s slot.Slot, figure, budget int) (more bool) {
	id := t.ownerOf(s)
	o := &t.owners[id]
	if e := &t.taught[id]; e.figure != figure {
		e.figure, e.learnt, e.run = figure, false, 0
		o.capacity = t.told(e)
		e.ghosts.fit(o.capacity)
	}
	for range min(o.held-o.capacity, budget) {
		t.evict(id, byCapacity)
	}
	return o.held > o.capacity
}

// detach makes a slot hold nothing, at once; what it held counts for nobody until drain takes it back. It returns the
// former owner, 0 when there was none.
func (t *table) detach(s slot.Slot) uint32 {
	id := t.owner(s)
	if id == 0 {
		return 0
	}
	t.bySlot[s] = 0
	t.owners[id].slot = slot.None
	return id
}

// drain takes back at most budget blocks of a detached owner; more says that there are more. The caller that gets false
// must not use the owner any further.
func (t *table) drain(id uint32, budget int) (more bool) {
	o := &t.owners[id]
	for range min(o.held, budget) {
		t.evict(id, byClear)
	}
	if o.held > 0 {
		return true
	}
	t.vacant = append(t.vacant, id)
	return false
}

// heldBy is how many blocks a slot holds.
func (t *table) heldBy(s slot.Slot) int { return t.owners[t.owner(s)].held }
