package virtual

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// naive is a pool as a list of copies, in the order in which they were named, searched from end to end.
type naive struct {
	capacity, reserved int
	copies             []*naiveCopy
	clock              int
	gone               []int32
}

type naiveCopy struct {
	id       int32
	refs     int
	released int // order of release
}

func (n *naive) first(id int32) *naiveCopy {
	for _, c := range n.copies {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (n *naive) evict() bool {
	var oldest *naiveCopy
	for _, c := range n.copies {
		if c.refs == 0 && (oldest == nil || c.released < oldest.released) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	n.remove(oldest)
	if n.first(oldest.id) == nil {
		n.gone = append(n.gone, oldest.id)
	}
	return true
}

func (n *naive) remove(c *naiveCopy) {
	n.copies = slices.DeleteFunc(n.copies, func(o *naiveCopy) bool { return o == c })
}

func (n *naive) take() *naiveCopy {
	if len(n.copies)+n.reserved >= n.capacity && !n.evict() {
		return nil
	}
	c := &naiveCopy{id: -1, refs: 1}
	n.copies = append(n.copies, c)
	return c
}

func (n *naive) name(c *naiveCopy, id int32) {
	c.id = id
	n.remove(c)
	n.copies = append(n.copies, c)
}

func (n *naive) release(c *naiveCopy) {
	if c.refs--; c.refs == 0 {
		n.clock++
		if c.released = n.clock; c.id < 0 {
			n.remove(c)
		}
	}
}

func (n *naive) held() int {
	held := n.reserved
	for _, c := range n.copies {
		held += min(1, c.refs)
	}
	return held
}

// The pool does what a list of copies does.
func TestPoolAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const names = 6
		capacity := rapid.IntRange(1, 12).Draw(t, "capacity")
		p, n := newPool(capacity, names, names), &naive{capacity: capacity}
		type held struct {
			i int32
			c *naiveCopy
		}
		var holds []held
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			p.now++
			switch id := int32(rapid.IntRange(0, names-1).Draw(t, "id")); rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				i, c := p.take(), n.take()
				if (i == 0) != (c == nil) {
					t.Fatalf("take: %d, naive %v", i, c)
				}
				if c != nil {
					holds = append(holds, held{i, c})
				}
			case 2:
				if c := n.first(id); c != nil {
					c.refs++
					p.hold(p.at[id])
					holds = append(holds, held{p.at[id], c})
				}
			case 3:
				for _, h := range holds {
					if h.c.id < 0 {
						p.name(h.i, id)
						n.name(h.c, id)
						break
					}
				}
			case 4:
				if len(holds) > 0 {
					k := rapid.IntRange(0, len(holds)-1).Draw(t, "which")
					p.release(holds[k].i)
					n.release(holds[k].c)
					holds = slices.Delete(holds, k, k+1)
				}
			default:
				k := rapid.IntRange(0, 2).Draw(t, "reserved")
				if n.held()+k <= capacity {
					for len(n.copies)+n.reserved+k > capacity {
						n.evict()
					}
					n.reserved += k
					if !p.reserve(k) {
						t.Fatal("no room to reserve")
					}
				} else if n.reserved > 0 {
					n.reserved--
					p.unreserve(1)
				}
			}
			checkPool(t, p)
			if p.held() != n.held() || p.used != len(n.copies)+n.reserved {
				t.Fatalf("held %d of %d, naive %d of %d", p.held(), p.used, n.held(), len(n.copies)+n.reserved)
			}
			for id := range int32(names) {
				if (p.at[id] > 0) != (n.first(id) != nil) {
					t.Fatalf("block %d: copy %d, naive %v", id, p.at[id], n.first(id))
				}
			}
			if !slices.Equal(p.gone, n.gone) {
				t.Fatalf("evicted %v, naive %v", p.gone, n.gone)
			}
		}
	})
}

// fataler is a test, drawn or not.
type fataler interface {
	Fatalf(format string, args ...any)
}

// checkPool checks what must hold between any two steps.
func checkPool(t fataler, p *pool) {
	if p.used > p.capacity || p.idle < 0 || p.held() < p.reserved {
		t.Fatalf("%d blocks used, %d idle, %d reserved, of %d", p.used, p.idle, p.reserved, p.capacity)
	}
	exists := make([]bool, len(p.c))
	for i := range exists {
		exists[i] = i > 0
	}
	for _, i := range p.free {
		if !exists[i] {
			t.Fatalf("copy %d was given back twice", i)
		}
		exists[i] = false
	}
	idle, last := 0, time.Duration(0)
	for i := p.c[0].next; i != 0; i = p.c[i].next {
		idle++
		if b := p.c[i]; !exists[i] || b.refs != 0 || b.id < 0 || b.released < last || idle > p.idle {
			t.Fatalf("copy %d is idle, it exists: %v: %+v", i, exists[i], b)
		}
		last = p.c[i].released
	}
	copies := p.reserved
	for i := range p.c {
		if exists[i] {
			copies++
		}
		if b := p.c[i]; exists[i] && (b.refs < 0 || b.id >= 0 && (p.at[b.id] == 0 || p.c[b.after].ahead != int32(i))) {
			t.Fatalf("copy %d: %+v", i, b)
		}
	}
	if idle != p.idle || copies != p.used {
		t.Fatalf("%d idle and %d copies, counted %d and %d", p.idle, p.used, idle, copies)
	}
}
