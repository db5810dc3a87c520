package scoring

import (
	"attache/internal/block"
	"attache/internal/slot"
)

// active is what the prompts in flight share, per slot: a tree of chains in which every branch is one stretch of blocks.
//
//	a b c d e      of a request on slot 1          stretch      slots      blocks on 1    on 2
//	a b c x        of one on slot 2                a b c        1, 2       3              3
//	                                               d e          1          2
//	                                               x            2                         1
//
// A sequence hash names its block and all before it, so that the first hash of a stretch is enough to find it, wherever it
// hangs, and where a chain leaves a stretch is found by bisection: a prompt costs as many look-ups as it has branches, not
// blocks. The zero active is empty. Not safe for concurrent use.
type active struct {
	byFirst map[block.Hash]*stretch
	spare   []*stretch
	room    int // blocks for which spare has memory
}

// stretch is a part of chains in flight without a branch.
type stretch struct {
	blocks []block.Hash // its own memory
	parent *stretch
	users  []users // slots with requests that go through it, in no order
}

// users are how many requests of a slot go through a stretch.
type users struct {
	slot slot.Slot
	n    int32
}

// shared calls visit for every stretch of chain that requests in flight hold, with the slots that have such requests, from the
// beginning on: held is how many leading blocks of chain that makes for those slots.
func (a *active) shared(chain []block.Hash, visit func(users []users, held int)) {
	for at := 0; at < len(chain); {
		s := a.byFirst[chain[at]]
		if s == nil {
			return
		}
		n := block.Common(s.blocks, chain[at:])
		at += n
		visit(s.users, at)
		if n < len(s.blocks) {
			return
		}
	}
}

// enter adds a request's chain, and returns its last stretch, to leave by, and how many blocks of it no other request of its
// slot has; nil for an empty chain.
func (a *active) enter(s slot.Slot, chain []block.Hash) (last *stretch, fresh int) {
	if a.byFirst == nil {
		a.byFirst = map[block.Hash]*stretch{}
	}
	for at := 0; at < len(chain); {
		next := a.byFirst[chain[at]]
		if next == nil {
			next = a.make(chain[at:], last)
		} else if n := block.Common(next.blocks, chain[at:]); n < len(next.blocks) {
			next = a.split(next, n)
		}
		if next.add(s, 1) == 1 {
			fresh += len(next.blocks)
		}
		at += len(next.blocks)
		last = next
	}
	return last, fresh
}

// leave takes a request of a slot out again, and returns how many of its blocks no other request of the slot has. visit, unless
// it is nil, sees the stretches of its chain, the last one first.
func (a *active) leave(s slot.Slot, last *stretch, visit func(blocks []block.Hash)) (freed int) {
	for last != nil {
		if visit != nil {
			visit(last.blocks)
		}
		parent := last.parent
		if last.add(s, -1) == 0 {
			freed += len(last.blocks)
		}
		if len(last.users) == 0 {
			delete(a.byFirst, last.blocks[0])
			last.parent = nil
			if room := a.room + cap(last.blocks); len(a.spare) < maxSpare && room <= maxRoom {
				a.spare, a.room = append(a.spare, last), room
			}
		}
		last = parent
	}
	return freed
}

// How much memory is kept for stretches to come.
const (
	maxSpare = 256
	maxRoom  = 1 << 18 // blocks: 2 MiB
)

// make makes a stretch of blocks behind a parent.
func (a *active) make(blocks []block.Hash, parent *stretch) *stretch {
	var s *stretch
	if n := len(a.spare); n > 0 {
		s, a.spare = a.spare[n-1], a.spare[:n-1]
		a.room -= cap(s.blocks)
	} else {
		s = new(stretch)
	}
	s.blocks, s.parent, s.users = append(s.blocks[:0], blocks...), parent, s.users[:0]
	a.byFirst[blocks[0]] = s
	return s
}

// split cuts a stretch before its n-th block and returns the first part, which is new: what hangs at its end, requests and
// further stretches, stays where it is.
func (a *active) split(s *stretch, n int) *stretch {
	first := a.make(s.blocks[:n], s.parent)
	first.users = append(first.users, s.users...)
	s.blocks, s.parent = s.blocks[n:], first
	a.byFirst[s.blocks[0]] = s
	return first
}

// add changes how many requests of a slot go through the stretch, and returns how many those are now.
func (s *stretch) add(of slot.Slot, by int32) int32 {
	for i := range s.users {
		u := &s.users[i]
		if u.slot != of {
			continue
		}
		if u.n += by; u.n == 0 {
			last := len(s.users) - 1
			s.users[i] = s.users[last]
			s.users = s.users[:last]
			return 0
		}
		return u.n
	}
	s.users = append(s.users, users{of, by})
	return by
}

// whole is the chain that ends with this stretch; nil when there is none.
func (s *stretch) whole() []block.Hash {
	if s == nil {
		return nil
	}
	return append(s.parent.whole(), s.blocks...)
}
