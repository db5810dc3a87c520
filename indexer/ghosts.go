package indexer

import (
	"math/bits"

	"attache/internal/block"
)

// ghosts remember blocks that a slot was believed to have no room for, the latest of them at least, so that a report can
// tell that it has. Every hash has one place, and the last one that came there stays: of a prompt that goes from its end
// to its beginning that is most likely its first block gone, which is the one that is asked for.
//
// There are at most half as many places as the slot has blocks, of 8 bytes: 4 bytes per block of slots that are full.
type ghosts []ghost

type ghost struct {
	tag  uint32 // the hash's upper half; the lower one is the place
	gone uint32 // blocks that the slot had given up, this one included
}

// places is how many a capacity gets: a power of two.
func places(capacity int) int {
	return 1 << (bits.Len(uint(min(max(capacity/2, 64), 1<<16))) - 1)
}

// fit adapts the number of places to a capacity that changed; if it differs, what was remembered is lost.
func (g *ghosts) fit(capacity int) {
	if len(*g) != places(capacity) {
		*g = nil
	}
}

// put remembers a block when gone blocks were given up; capacity is the slot's.
func (g *ghosts) put(hash block.Hash, gone uint32, capacity int) {
	if *g == nil {
		*g = make(ghosts, places(capacity))
	}
	(*g)[hash&uint64(len(*g)-1)] = ghost{uint32(hash >> 32), gone}
}

// since is how many blocks were given up since this one, when gone were until now; -1 when it is not known to have been.
func (g *ghosts) since(hash block.Hash, gone uint32) int32 {
	if *g == nil {
		return -1
	}
	e := (*g)[hash&uint64(len(*g)-1)]
	if e.gone == 0 || e.tag != uint32(hash>>32) {
		return -1
	}
	return int32(min(gone-e.gone, 1<<30))
}
