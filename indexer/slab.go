package indexer

import "attache/internal/block"

// node is one block held by one slot: 32 bytes, two to a cache line.
type node struct {
	hash  block.Hash
	at    uint32 // second of the last touch
	owner uint32 // who holds it: index into table.owners

	newer, older int32 // neighbours in the owner's list, by freshness; in the free list only older
	prev, next   int32 // neighbours among the holders of the same hash
}

// Nodes lie in pages, so that growing never copies what is there while a lock is held.
const (
	pageBits = 12
	pageSize = 1 << pageBits // nodes: 128 KiB
)

// slab hands out nodes by number. Number 0 is no node: it is never handed out, and zero links mean "none".
type slab struct {
	pages []*[pageSize]node
	used  int32 // numbers handed out at least once, 0 included
	free  int32 // first of the freed ones, linked through older
}

// at returns the node with this number, valid until it is freed.
func (s *slab) at(id int32) *node { return &s.pages[id>>pageBits][id&(pageSize-1)] }

// get hands out a node with whatever it held before. Freed ones come first, the last freed before the others: a list
// freed from its far end is handed out again from its near end, so that its nodes stay neighbours in memory.
func (s *slab) get() (int32, *node) {
	if id := s.free; id != 0 {
		n := s.at(id)
		s.free = n.older
		return id, n
	}
	if int(s.used)+1 >= len(s.pages)*pageSize {
		s.pages = append(s.pages, new([pageSize]node))
	}
	s.used++
	return s.used, s.at(s.used)
}

// put takes a node back.
func (s *slab) put(id int32, n *node) {
	n.older = s.free
	s.free = id
}
