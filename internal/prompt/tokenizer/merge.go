package tokenizer

import "slices"

// longWord is the number of symbols above which a heap is faster than looking at all pairs for each merge. Below it the
// time is quadratic, but the square of a small number.
const longWord = 96

// merger holds the symbols of the word that is being merged. Its slices are kept from word to word.
type merger struct {
	// looked counts the pairs looked at and the moves in the heap: what a test of hostile texts bounds.
	looked int

	ids   []uint32 // the symbols
	pairs []merged // what symbol i and the next one become

	// For long words only: neighbours, -1 and len(ids) at the ends, and candidates, the rank above the position in each, so
	// that the smallest number is the pair to join first.
	next, prev []int32
	heap       []uint64
}

func (m *merger) trim() {
	if cap(m.ids) > keepWork {
		*m = merger{}
	}
}

// start looks all pairs of m.ids up.
func (m *merger) start(b *bpe) {
	n := len(m.ids)
	m.pairs = slices.Grow(m.pairs[:0], n)[:n]
	for i := range n - 1 {
		m.pairs[i] = b.pairs.get(m.ids[i], m.ids[i+1])
	}
	m.pairs[n-1].rank = none
}

// mergeShort joins pairs in place and appends what is left.
func (m *merger) mergeShort(dst []uint32, b *bpe) []uint32 {
	if len(m.ids) < 2 {
		return append(dst, m.ids...)
	}
	m.start(b)
	ids, pairs := m.ids, m.pairs
	for {
		m.looked += len(pairs)
		best, at := uint32(none), 0
		for i := range pairs {
			if pairs[i].rank < best {
				best, at = pairs[i].rank, i
			}
		}
		if best == none {
			return append(dst, ids...)
		}
		ids[at] = pairs[at].id
		last := len(ids) - 1
		copy(ids[at+1:], ids[at+2:])
		copy(pairs[at+1:], pairs[at+2:])
		ids, pairs = ids[:last], pairs[:last]
		pairs[at].rank = none
		if at+1 < last {
			pairs[at] = b.pairs.get(ids[at], ids[at+1])
		}
		if at > 0 {
			pairs[at-1] = b.pairs.get(ids[at-1], ids[at])
		}
	}
}

// mergeLong keeps the symbols as a linked list and the pairs in a heap. A candidate whose rank is no longer that of the pair
// at its position is stale.
func (m *merger) mergeLong(dst []uint32, b *bpe) []uint32 {
	m.start(b)
	n := len(m.ids)
	m.next = slices.Grow(m.next[:0], n)[:n]
	m.prev = slices.Grow(m.prev[:0], n)[:n]
	m.heap = m.heap[:0]
	for i := range n {
		m.next[i], m.prev[i] = int32(i+1), int32(i-1)
		if m.pairs[i].rank != none {
			m.heap = append(m.heap, candidate(m.pairs[i].rank, i))
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	for len(m.heap) > 0 {
		at := int(uint32(m.heap[0]))
		rank := uint32(m.heap[0] >> 32)
		m.pop()
		if m.pairs[at].rank == rank {
			m.join(b, at)
		}
	}
	for i := 0; i < n; i = int(m.next[i]) {
		dst = append(dst, m.ids[i])
	}
	return dst
}

// join makes one symbol of the one at position at and the next.
func (m *merger) join(b *bpe, at int) {
	gone := m.next[at]
	m.ids[at] = m.pairs[at].id
	m.pairs[at].rank, m.pairs[gone].rank = none, none
	after := m.next[gone]
	m.next[at] = after
	if int(after) < len(m.ids) {
		m.prev[after] = int32(at)
		m.offer(b, at, int(after))
	}
	if before := m.prev[at]; before >= 0 {
		m.offer(b, int(before), at)
	}
}

// offer makes the pair of two neighbours a candidate if it can be joined.
func (m *merger) offer(b *bpe, left, right int) {
	m.pairs[left] = b.pairs.get(m.ids[left], m.ids[right])
	if m.pairs[left].rank == none {
		return
	}
	m.heap = append(m.heap, candidate(m.pairs[left].rank, left))
	i := len(m.heap) - 1
	for i > 0 {
		m.looked++
		up := (i - 1) / 2
		if m.heap[up] <= m.heap[i] {
			break
		}
		m.heap[up], m.heap[i] = m.heap[i], m.heap[up]
		i = up
	}
}

func candidate(rank uint32, at int) uint64 { return uint64(rank)<<32 | uint64(uint32(at)) }

// pop removes the first candidate.
func (m *merger) pop() {
	last := len(m.heap) - 1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	m.sink(0)
}

func (m *merger) sink(i int) {
	for {
		m.looked++
		child := 2*i + 1
		if child >= len(m.heap) {
			return
		}
		if child+1 < len(m.heap) && m.heap[child+1] < m.heap[child] {
			child++
		}
		if m.heap[i] <= m.heap[child] {
			return
		}
		m.heap[i], m.heap[child] = m.heap[child], m.heap[i]
		i = child
	}
}
