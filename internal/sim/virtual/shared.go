package virtual

// shared is the cache that all workers read if Config.SharedCache is set: names of prompts' blocks in the order in which they
// were used. The nil cache holds nothing.
//
//	list[0] ─► oldest ◄─► … ◄─► newest ◄─ list[0]     list[id+1] is the block id
type shared struct {
	capacity, n int // blocks
	list        []neighbours
	in          []bool // by id
}

type neighbours struct{ prev, next int32 }

func newShared(capacity, ids int) *shared {
	return &shared{capacity: capacity, list: make([]neighbours, ids+1), in: make([]bool, ids)}
}

// match counts the leading blocks that are there.
func (s *shared) match(ids []int32) int {
	for i, id := range ids {
		if !s.in[id] {
			return i
		}
	}
	return len(ids)
}

// touch makes blocks the newest, the first of them the very newest, and evicts the oldest for them.
func (s *shared) touch(ids []int32) {
	if s == nil {
		return
	}
	for i := len(ids) - 1; i >= 0; i-- {
		id := ids[i]
		if s.in[id] {
			s.unlink(id + 1)
		} else {
			s.in[id] = true
			s.n++
		}
		last := s.list[0].prev
		s.list[id+1] = neighbours{last, 0}
		s.list[last].next, s.list[0].prev = id+1, id+1
	}
	for ; s.n > s.capacity; s.n-- {
		oldest := s.list[0].next
		s.unlink(oldest)
		s.in[oldest-1] = false
	}
}

func (s *shared) unlink(at int32) {
	b := s.list[at]
	s.list[b.prev].next, s.list[b.next].prev = b.next, b.prev
}
