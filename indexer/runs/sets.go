package runs

import (
	"math/bits"
	"slices"
)

// set is an immutable set of holders, by their bits. Equal sets are one: a run's readers and the painting of pieces compare
// pointers. A reader that still looks at a set which the writer has forgotten keeps it alive.
type set struct {
	words []uint64 // no zero at the end
	next  *set     // neighbour in the bucket; the writer's
	hash  uint64
	refs  int // pieces that use it; the writer's
	id    uint32
}

// inlineWords are kept beside the set itself, in the cache lines that reading it touches anyway.
const (
	inlineWords = 4
	setBytes    = 64
)

type inlineSet struct {
	set

	words [inlineWords]uint64
}

func (s *set) word(i int) uint64 {
	if i < len(s.words) {
		return s.words[i]
	}
	return 0
}

func (s *set) has(bit int) bool { return s.word(bit>>6)>>(bit&63)&1 != 0 }

func (s *set) bytes() int { return setBytes + 8*max(inlineWords, len(s.words)) }

// each calls f with every bit, ascending.
func (s *set) each(f func(bit int)) {
	for i, w := range s.words {
		for ; w != 0; w &= w - 1 {
			f(i<<6 + bits.TrailingZeros64(w))
		}
	}
}

// sets finds the one set with given members. The writer's.
type sets struct {
	buckets []*set
	n       int
	unused  int // sets with no refs
	nextID  uint32
	empty   *set
	bytes   int
	scratch []uint64
	// memo remembers what adding or taking away one holder leads to: most painting repeats what was just done.
	memo [1 << memoBits]transition
}

type transition struct {
	from, to *set
	key      uint32 // bit<<1 | add
}

const (
	memoBits  = 10
	memoBytes = 24 << memoBits
	minSweep  = 256 // unused sets that are not worth a sweep
)

func (s *sets) init() {
	s.buckets = make([]*set, 64)
	s.bytes = memoBytes + 8*len(s.buckets)
	s.empty = s.intern(nil)
	s.retain(s.empty) // never swept
}

// intern returns the set with these words. It keeps no reference to them.
func (s *sets) intern(words []uint64) *set {
	for len(words) > 0 && words[len(words)-1] == 0 {
		words = words[:len(words)-1]
	}
	hash := uint64(len(words))
	for _, w := range words {
		hash = (hash ^ w) * 0x9E3779B97F4A7C15
		hash ^= hash >> 29
	}
	at := &s.buckets[hash&uint64(len(s.buckets)-1)]
	for h := *at; h != nil; h = h.next {
		if h.hash == hash && slices.Equal(h.words, words) {
			return h
		}
	}
	h := newSet(words)
	h.hash, h.id, h.next = hash, s.nextID, *at
	*at = h
	s.nextID++
	s.n++
	s.unused++
	s.bytes += h.bytes()
	if s.n > len(s.buckets) {
		s.rehash(2 * len(s.buckets))
	}
	return h
}

func newSet(words []uint64) *set {
	if len(words) > inlineWords {
		return &set{words: slices.Clone(words)}
	}
	h := &inlineSet{}
	h.set.words = h.words[:copy(h.words[:], words)]
	return &h.set
}

func (s *sets) rehash(size int) {
	before := s.buckets
	s.bytes += 8 * (size - len(before))
	s.buckets = make([]*set, size)
	for _, h := range before {
		for h != nil {
			next := h.next
			at := &s.buckets[h.hash&uint64(size-1)]
			h.next, *at = *at, h
			h = next
		}
	}
}

func (s *sets) retain(h *set) {
	if h.refs++; h.refs == 1 {
		s.unused--
	}
}

func (s *sets) release(h *set) {
	if h.refs--; h.refs == 0 {
		s.unused++
	}
}

// with returns the set with one holder added or taken away.
func (s *sets) with(h *set, bit int, add bool) *set {
	if h.has(bit) == add {
		return h
	}
	key := uint32(bit) << 1
	if add {
		key |= 1
	}
	m := &s.memo[(h.id*0x9E3779B1^key*0x85EBCA6B)>>(32-memoBits)]
	if m.from == h && m.key == key {
		return m.to
	}
	s.scratch = append(s.scratch[:0], h.words...)
	words := s.scratch
	for len(words) <= bit>>6 {
		words = append(words, 0)
	}
	words[bit>>6] ^= 1 << (bit & 63)
	s.scratch = words
	*m = transition{from: h, to: s.intern(words), key: key}
	return m.to
}

// without returns the set without the holders of mask.
func (s *sets) without(h *set, mask []uint64) *set {
	s.scratch = append(s.scratch[:0], h.words...)
	words := s.scratch
	for i := range min(len(words), len(mask)) {
		words[i] &^= mask[i]
	}
	s.scratch = words
	return s.intern(words)
}

// sweep forgets the unused sets, once they are the greater part.
func (s *sets) sweep() {
	if s.unused < minSweep || s.unused*2 < s.n {
		return
	}
	clear(s.memo[:]) // it would keep them alive, and lead back to them
	for i := range s.buckets {
		at := &s.buckets[i]
		for h := *at; h != nil; h = h.next {
			if h.refs > 0 {
				at = &h.next
				continue
			}
			*at = h.next
			s.n--
			s.unused--
			s.bytes -= h.bytes()
		}
	}
	size := 64
	for size < s.n {
		size *= 2
	}
	if size < len(s.buckets) {
		s.rehash(size)
	}
}
