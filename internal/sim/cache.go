package sim

import "attache/internal/block"

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
// Not safe for concurrent use.
type cache struct {
	pages  []page
	free   []int32
	byName map[block.Hash]int32

	oldest, newest int32 // ends of the list of idle pages
	idle           int
	evicted        int
}

type page struct {
	hash         block.Hash
	named        bool
	refs         int32
	older, newer int32 // neighbours among the idle pages
	twin         int32 // the next page of the same name
}

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

// match counts the leading blocks of a chain that are there.
func (c *cache) match(chain []block.Hash) int {
	for i, h := range chain {
		if _, ok := c.byName[h]; !ok {
			return i
		}
	}
	return len(chain)
}

// idleOf counts those pages of a chain that match that hold would take out of room.
func (c *cache) idleOf(chain []block.Hash) int {
	n := 0
	for _, h := range chain {
		if c.pages[c.byName[h]].refs == 0 {
			n++
		}
	}
	return n
}

// hold takes part in the pages of a chain that matches as a whole, and appends them to dst.
func (c *cache) hold(chain []block.Hash, dst []int32) []int32 {
	for _, h := range chain {
		id := c.byName[h]
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
			id := c.oldest
			c.unlink(id)
			c.unname(id)
			c.free = append(c.free, id)
			c.evicted++
		}
		id := c.free[len(c.free)-1]
		c.free = c.free[:len(c.free)-1]
		c.pages[id].refs = 1
		dst = append(dst, id)
	}
	return dst
}

// name makes a page findable, unless it is already.
func (c *cache) name(id int32, h block.Hash) {
	p := &c.pages[id]
	if p.named {
		return
	}
	p.named, p.hash, p.twin = true, h, none
	last, taken := c.byName[h]
	if !taken {
		c.byName[h] = id
		return
	}
	for c.pages[last].twin != none {
		last = c.pages[last].twin
	}
	c.pages[last].twin = id
}

// unname makes a page unfindable; a twin takes its place.
func (c *cache) unname(id int32) {
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
	}
	p.named, p.twin = false, none
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

// reset forgets every block. Pages that are held stay with their holders, without a name.
func (c *cache) reset() {
	for c.oldest != none {
		id := c.oldest
		c.unlink(id)
		c.unname(id)
		c.free = append(c.free, id)
	}
	for id := range c.pages {
		if c.pages[id].named {
			c.unname(int32(id))
		}
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
