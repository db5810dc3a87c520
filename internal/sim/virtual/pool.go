package virtual

import "time"

// pool is the KV memory of one worker: copies of blocks, some held by requests, the others kept for reuse until their room is
// needed, the one released longest ago first.
//
// A copy is private until it is named; then requests find it by its name, a small number. Several copies may have one name:
// a table leads to the first, and they form a ring in the order in which they were named.
//
//	at[id] ─► copy ─► copy ─► copy      named alike
//	            ▲               │
//	            └───────────────┘
//	c[0] ◄─► oldest ◄─► … ◄─► newest    idle, in order of release; c[0] is the end of both
//
// The invariant: used = held + idle copies + reserved <= capacity. No method allocates once all copies exist.
type pool struct {
	capacity int
	c        []block // c[0] is no block
	free     []int32
	at       []int32 // by name: the first copy, 0 none, negative a copy that is still being computed
	used     int     // copies that exist, and reserved ones
	reserved int     // blocks without a name for ever, only counted
	idle     int
	prompts  int32 // names below are of prompts, others of outputs
	now      time.Duration
	// version grows whenever a request that did not fit might fit.
	version uint64
	evicted int
	// gone are names of prompt blocks whose last copy was evicted, outputGone counts those of outputs, since they were told.
	gone       []int32
	outputGone int
}

// block is one copy.
type block struct {
	id           int32 // -1: private
	refs         int32 // requests that hold it
	prev, next   int32 // idle list
	ahead, after int32 // ring of copies of one name
	released     time.Duration
}

func newPool(capacity, ids, prompts int) *pool {
	return &pool{capacity: capacity, c: make([]block, 1), at: make([]int32, ids), prompts: int32(prompts)}
}

// held counts the blocks that requests hold.
func (p *pool) held() int { return p.used - p.idle }

// take gives a private copy, held once; 0 if all are held.
func (p *pool) take() int32 {
	if p.used >= p.capacity && !p.evict() {
		return 0
	}
	p.used++
	var i int32
	if n := len(p.free); n > 0 {
		i = p.free[n-1]
		p.free = p.free[:n-1]
	} else {
		i = int32(len(p.c))
		p.c = append(p.c, block{})
	}
	p.c[i] = block{id: -1, refs: 1}
	return i
}

// reserve counts n more blocks as held; false if there is no room.
func (p *pool) reserve(n int) bool {
	for p.used+n > p.capacity {
		if !p.evict() {
			return false
		}
	}
	p.used += n
	p.reserved += n
	return true
}

// unreserve gives them back.
func (p *pool) unreserve(n int) {
	p.used -= n
	p.reserved -= n
	p.version++
}

// evict makes room by what was released longest ago.
func (p *pool) evict() bool {
	i := p.c[0].next
	if i == 0 {
		return false
	}
	p.unlink(i)
	p.evicted++
	id := p.c[i].id
	if p.drop(i); p.at[id] != 0 {
		p.version++ // the copy that is first now may be held, and needs no room then
	} else if id < p.prompts {
		p.gone = append(p.gone, id)
	} else {
		p.outputGone++
	}
	return true
}

// drop ends a copy.
func (p *pool) drop(i int32) {
	if b := &p.c[i]; b.id >= 0 {
		switch first := p.at[b.id]; {
		case b.after == i || first < 0:
			p.at[b.id] = 0
		case first == i:
			p.at[b.id] = b.after
		}
		p.c[b.ahead].after, p.c[b.after].ahead = b.after, b.ahead
	}
	p.used--
	p.free = append(p.free, i)
}

// name lets others find a private copy.
func (p *pool) name(i, id int32) {
	p.version++
	b := &p.c[i]
	b.id = id
	first := p.at[id]
	if first == 0 {
		p.at[id] = i
		b.ahead, b.after = i, i
		return
	}
	last := p.c[first].ahead
	b.ahead, b.after = last, first
	p.c[last].after, p.c[first].ahead = i, i
}

// announce gives a private copy the name that it will have, once it is computed. Nobody else has that name.
func (p *pool) announce(i, id int32) {
	p.c[i].id, p.c[i].ahead, p.c[i].after = id, i, i
	p.at[id] = -i
}

// computed lets others find an announced copy.
func (p *pool) computed(id int32) {
	if i := p.at[id]; i < 0 {
		p.at[id] = -i
	}
}

// hold adds a holder.
func (p *pool) hold(i int32) {
	b := &p.c[i]
	if b.refs == 0 {
		p.unlink(i)
	}
	b.refs++
}

// release takes a holder away. What has a name stays for reuse.
func (p *pool) release(i int32) {
	b := &p.c[i]
	if b.refs--; b.refs > 0 {
		return
	}
	p.version++
	if b.id < 0 || p.at[b.id] < 0 {
		p.drop(i)
		return
	}
	b.released = p.now
	last := p.c[0].prev
	b.prev, b.next = last, 0
	p.c[last].next, p.c[0].prev = i, i
	p.idle++
}

// releaseAll releases a request's blocks, the last first, so that the ends of prompts are evicted before their beginnings.
func (p *pool) releaseAll(blocks []int32) {
	for i := len(blocks) - 1; i >= 0; i-- {
		p.release(blocks[i])
	}
}

func (p *pool) unlink(i int32) {
	b := &p.c[i]
	p.c[b.prev].next, p.c[b.next].prev = b.next, b.prev
	p.idle--
}

// match counts the leading names that can be found.
func (p *pool) match(ids []int32) int {
	for i, id := range ids {
		if p.at[id] <= 0 {
			return i
		}
	}
	return len(ids)
}
