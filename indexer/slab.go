package indexer

import "attache/internal/block"

// node is one block held by one slot, as far as walking along a prompt goes: four to a cache line.
type node struct {
	hash  block.Hash
	at    uint32 // second of the last touch
	older int32  // neighbour in the owner's list; in the free list the next free one
}

// links is the rest of a node.
type links struct {
	owner      uint32 // who holds it: index into table.owners
	newer      int32  // the other neighbour in the owner's list
	prev, next int32  // neighbours among the holders of the same hash
	parent     int32  // the owner's node of the block before; 0 for a first block. It outlives its children: see table
}

// Nodes lie in pages, so that growing never copies what is there while a lock is held.
const (
	pageBits = 12
	pageSize = 1 << pageBits // nodes: 128 KiB
)

// page holds the two halves of nodes apart: a prompt seen before is a walk over thousands of first halves.
type page struct {
	nodes [pageSize]node
	links [pageSize]links
}

// slab hands out nodes by number. Number 0 is no node: it is never handed out, and zero links mean "none".
type slab struct {
	pages []*page
	used  int32 // numbers handed out at least once, 0 included
	free  int32 // first of the freed ones, linked through older
}

// at returns the node with this number, valid until it is freed.
func (s *slab) at(id int32) *node { return &s.pages[id>>pageBits].nodes[id&(pageSize-1)] }

// links returns the other half of the node with this number.
func (s *slab) links(id int32) *links { return &s.pages[id>>pageBits].links[id&(pageSize-1)] }

// get hands out a node with whatever it held before. Freed ones come first, the last freed before the others: a list
// freed from its far end is handed out again from its near end, so that its nodes stay neighbours in memory.
func (s *slab) get() int32 {
	if id := s.free; id != 0 {
		s.free = s.at(id).older
		return id
	}
	if int(s.used)+1 >= len(s.pages)*pageSize {
		s.pages = append(s.pages, new(page))
	}
	s.used++
	return s.used
}

// put takes a node back.
func (s *slab) put(id int32) {
	s.at(id).older = s.free
	s.free = id
}
