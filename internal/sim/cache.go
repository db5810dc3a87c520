package sim

import (
	"attache/internal/block"
	"attache/internal/slot"
)

// none is no page.
const none = int32(-1)

// A cache is the KV memory of one engine: a fixed number of pages of one block each, as vLLM manages them.
//
//	take -> held, no name -> name -> held, named -> release -> idle, named -> take (evicts) -> held, no name
//	                    \-> release -> free             \<---- hold ----/
//
// A page is held by the requests that count in refs. It gets the name of its block once it is computed; from then on other
// requests find it by match and hold it with the first. When nobody holds it, it waits among the idle ones, oldest first,
// until its room is needed. A page without a name has nothing that anybody could use and is free at once.
//
// When two requests compute the same block at the same time both pages get its name: they are twins, and the first one
// named is the one that is found. vLLM does so, too, rather than copy block tables.
//
// A block whose last page is taken sinks into the tier below, if there is one, and is found there; see tier. What comes and
// goes is recorded in changes, if somebody wants to know.
//
// Not safe for concurrent use.
type cache struct {
	pages  []page
	free   []int32
	byName map[block.Hash]int32

	oldest, newest int32 // ends of the list of idle pages
	idle           int
	evicted        int

	lower   []*tier  // nearest first
	changes *changes // nil: nobody wants to know
}

type page struct {
	hash         block.Hash
	named        bool
	refs         int32
	older, newer int32  // neighbours among the idle pages
	twin         int32  // the next page of the same name
	block        *Block // what is told of it; nil when nobody wants to know
}

// newCache makes a cache of one tier, of which nothing is recorded.
func newCache(pages int) *cache {
	c := &cache{
		pages: make([]page, pages), free: make([]int32, pages), byName: make(map[block.Hash]int32),
		oldest: none, newest: none,
	}
	for i := range c.pages {
		c.pages[i] = page{older: none, newer: none, twin: none}
		c.free[pages-1-i] = int32(i)
	}
	return c
}

// room is how many pages take can give; held is how many it cannot.
func (c *cache) room() int { return len(c.free) + c.idle }
func (c *cache) held() int { return len(c.pages) - c.room() }

// match counts the leading blocks of a chain that are there, in whatever tier.
func (c *cache) match(chain []block.Hash) int {
	for i, h := range chain {
		if _, ok := c.byName[h]; !ok && c.below(h) == nil {
			return i
		}
	}
	return len(chain)
}

// below is the nearest lower tier that has a block; nil: none has it.
func (c *cache) below(h block.Hash) *tier {
	for _, t := range c.lower {
		if _, ok := t.at[h]; ok {
			return t
		}
	}
	return nil
}

// idleOf counts those pages of a chain that match that hold would take out of room.
func (c *cache) idleOf(chain []block.Hash) int {
	n := 0
	for _, h := range chain {
		if id, ok := c.byName[h]; ok && c.pages[id].refs == 0 {
			n++
		}
	}
	return n
}

// hold takes part in the pages of a chain that matches as a whole, and appends them to dst; for a block that is in a lower
// tier only it appends none.
func (c *cache) hold(chain []block.Hash, dst []int32) []int32 {
	for _, h := range chain {
		id, ok := c.byName[h]
		if !ok {
			dst = append(dst, none)
			continue
		}
		if c.pages[id].refs == 0 {
			c.unlink(id)
		}
		c.pages[id].refs++
		dst = append(dst, id)
	}
	return dst
}

// take appends n pages without a name to dst, evicting idle ones if need be. The caller has looked at room.
func (c *cache) take(n int, dst []int32) []int32 {
	for range n {
		if len(c.free) == 0 {
			c.evict(c.oldest)
		}
		id := c.free[len(c.free)-1]
		c.free = c.free[:len(c.free)-1]
		c.pages[id].refs = 1
		dst = append(dst, id)
	}
	return dst
}

// evict makes an idle page free. Its block sinks, if there is no other page of it.
func (c *cache) evict(id int32) {
	c.unlink(id)
	hash, b := c.pages[id].hash, c.pages[id].block
	if c.unname(id) {
		c.sink(slot.Device, c.lower, lowered{hash, b})
	} else if c.changes != nil && c.changes.copies {
		c.changes.removed(slot.Device, b)
	}
	c.free = append(c.free, id)
	c.evicted++
}

// sink lets a block go from a tier to the one below, if there is one; then it is gone only from the first. It is told that it
// came before it is told that it went, so that whoever listens never believes it lost.
func (c *cache) sink(from slot.Tier, below []*tier, l lowered) {
	if len(below) == 0 || l.block != nil && l.block.Partial {
		c.changes.removed(from, l.block)
		return
	}
	t := below[0]
	had := t.use(l.hash)
	if !had {
		if t.full() {
			c.sink(t.name, below[1:], t.dropOldest())
		}
		t.add(l)
	}
	switch {
	case c.changes != nil && c.changes.exclusive:
		c.changes.moved(from, t.name, l.block)
	case had:
		c.changes.removed(from, l.block)
	default:
		c.changes.stored(t.name, l.block, true)
		c.changes.removed(from, l.block)
	}
}

// name makes a page findable, unless it is already. b is what is told of it.
func (c *cache) name(id int32, h block.Hash, b *Block) {
	p := &c.pages[id]
	if p.named {
		return
	}
	p.named, p.hash, p.twin, p.block = true, h, none, b
	last, taken := c.byName[h]
	c.tellNamed(h, b, !taken)
	if !taken {
		c.byName[h] = id
		return
	}
	for c.pages[last].twin != none {
		last = c.pages[last].twin
	}
	c.pages[last].twin = id
}

// tellNamed records a block that came to the device, by computing or from below.
func (c *cache) tellNamed(h block.Hash, b *Block, first bool) {
	if c.changes == nil {
		return
	}
	if c.changes.exclusive {
		if t := c.below(h); t != nil {
			t.drop(h)
			c.changes.moved(t.name, slot.Device, b)
			return
		}
	}
	c.changes.stored(slot.Device, b, first)
}

// unname makes a page unfindable; a twin takes its place. It reports whether there was none.
func (c *cache) unname(id int32) (last bool) {
	p := &c.pages[id]
	switch first := c.byName[p.hash]; {
	case first != id:
		for c.pages[first].twin != id {
			first = c.pages[first].twin
		}
		c.pages[first].twin = p.twin
	case p.twin != none:
		c.byName[p.hash] = p.twin
	default:
		delete(c.byName, p.hash)
		last = true
	}
	p.named, p.twin, p.block = false, none, nil
	return last
}

// release gives up a request's pages, the deepest first: it is the first to be evicted, because it is of no use without
// those before it.
func (c *cache) release(ids []int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		p := &c.pages[ids[i]]
		p.refs--
		switch {
		case p.refs > 0:
		case p.named:
			c.push(ids[i])
		default:
			c.free = append(c.free, ids[i])
		}
	}
}

// reset forgets every block, in all tiers. Pages that are held stay with their holders, without a name.
func (c *cache) reset() {
	for c.oldest != none {
		id := c.oldest
		c.unlink(id)
		c.forget(id)
		c.free = append(c.free, id)
	}
	for id := range c.pages {
		if c.pages[id].named {
			c.forget(int32(id))
		}
	}
	for _, t := range c.lower {
		if c.changes != nil && c.changes.each {
			t.blocks(func(b *Block) { c.changes.removed(t.name, b) })
		}
		t.clear()
	}
	c.changes.cleared()
}

// forget unnames a page in the course of a reset.
func (c *cache) forget(id int32) {
	b := c.pages[id].block
	if c.unname(id) && c.changes != nil && c.changes.each {
		c.changes.removed(slot.Device, b)
	}
}

func (c *cache) push(id int32) {
	p := &c.pages[id]
	p.older, p.newer = c.newest, none
	if c.newest != none {
		c.pages[c.newest].newer = id
	} else {
		c.oldest = id
	}
	c.newest = id
	c.idle++
}

func (c *cache) unlink(id int32) {
	p := &c.pages[id]
	if p.older != none {
		c.pages[p.older].newer = p.newer
	} else {
		c.oldest = p.newer
	}
	if p.newer != none {
		c.pages[p.newer].older = p.older
	} else {
		c.newest = p.older
	}
	p.older, p.newer = none, none
	c.idle--
}

// contents calls yield for every block of every tier that is not partial, copies as often as there are; only while changes
// are recorded.
func (c *cache) contents(yield func(slot.Tier, *Block)) {
	for i := range c.pages {
		if p := &c.pages[i]; p.named && !p.block.Partial {
			yield(slot.Device, p.block)
		}
	}
	for _, t := range c.lower {
		t.blocks(func(b *Block) { yield(t.name, b) })
	}
}

// blocks is how many blocks each tier holds, copies on the device counted.
func (c *cache) blocks() (n [slot.Disk + 1]int) {
	for i := range c.pages {
		if p := &c.pages[i]; p.named && (p.block == nil || !p.block.Partial) {
			n[slot.Device]++
		}
	}
	for _, t := range c.lower {
		n[t.name] = t.order.Len()
	}
	return n
}
