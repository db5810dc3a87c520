package indexer

import (
	"math/bits"
	"math/rand/v2"

	"attache/internal/block"
)

// heads finds, by hash, the first node of those that hold it. It is a hash table of node numbers with open addressing and
// linear probing: a look-up touches one cache line here and then the node, which knows its hash; a map would touch two
// and keep the hash a second time.
//
// The table is cut into parts by the highest bits, and each grows by itself, so that no change holds the index up for
// long. Places follow from the hash times a secret odd number: prompts are chosen by clients, and one who could choose
// places could make every look-up walk over all of his blocks.
type heads struct {
	secret uint64
	parts  [1 << partBits]part
}

const (
	partBits = 8
	minPart  = 8 // entries
)

// part is 2^width entries, of which at most three quarters are used.
type part struct {
	entries []head
	width   int
	used    int
}

// head is one entry. The tag are the 32 bits of the place behind those that choose the part; its highest bits are where
// the entry belongs, so that entries move without a look at their nodes.
type head struct {
	tag uint32
	id  int32 // 0: the entry is free
}

func newHeads() heads { return heads{secret: rand.Uint64() | 1} }

// part returns the part that a hash belongs to, and its tag there.
func (h *heads) part(hash block.Hash) (p *part, tag uint32) {
	place := hash * h.secret
	return &h.parts[place>>(64-partBits)], uint32(place >> (32 - partBits))
}

// home is the entry at which a tag belongs.
func (p *part) home(tag uint32) int { return int(tag >> (32 - p.width)) }

// next is the entry behind another; behind the last comes the first.
func (p *part) next(i int) int { return (i + 1) & (len(p.entries) - 1) }

// fetch reads where a hash belongs and returns something that depends on it. The places of different hashes are far apart
// in memory: reading many of them in a row lets the processor wait for all of them at once.
func (h *heads) fetch(hash block.Hash) int32 {
	p, tag := h.part(hash)
	if p.used == 0 {
		return 0
	}
	return p.entries[p.home(tag)].id
}

// find returns the node that stands for a hash; 0 when there is none.
func (h *heads) find(hash block.Hash, nodes *slab) int32 {
	p, tag := h.part(hash)
	if p.used == 0 {
		return 0
	}
	for i := p.home(tag); p.entries[i].id != 0; i = p.next(i) {
		if e := p.entries[i]; e.tag == tag && nodes.at(e.id).hash == hash {
			return e.id
		}
	}
	return 0
}

// findOrPut returns the node that stands for a hash, which is id when there was none before.
func (h *heads) findOrPut(hash block.Hash, id int32, nodes *slab) int32 {
	p, tag := h.part(hash)
	if (p.used+1)*4 > len(p.entries)*3 {
		p.grow()
	}
	i := p.home(tag)
	for ; p.entries[i].id != 0; i = p.next(i) {
		if e := p.entries[i]; e.tag == tag && nodes.at(e.id).hash == hash {
			return e.id
		}
	}
	p.entries[i] = head{tag, id}
	p.used++
	return id
}

// replace puts another node in the place of the one that stands for a hash; 0 takes the hash away.
func (h *heads) replace(hash block.Hash, id, by int32) {
	p, tag := h.part(hash)
	i := p.home(tag)
	for p.entries[i].id != id {
		i = p.next(i)
	}
	if by != 0 {
		p.entries[i].id = by
		return
	}
	p.used--
	// What stands behind moves up, unless it would come to stand before its home.
	mask := len(p.entries) - 1
	for k := p.next(i); p.entries[k].id != 0; k = p.next(k) {
		if (k-p.home(p.entries[k].tag))&mask >= (k-i)&mask {
			p.entries[i] = p.entries[k]
			i = k
		}
	}
	p.entries[i] = head{}
}

// grow doubles the part.
func (p *part) grow() {
	before := p.entries
	p.entries = make([]head, max(2*len(before), minPart))
	p.width = bits.TrailingZeros(uint(len(p.entries)))
	for _, e := range before {
		if e.id == 0 {
			continue
		}
		i := p.home(e.tag)
		for p.entries[i].id != 0 {
			i = p.next(i)
		}
		p.entries[i] = e
	}
}

// used is how many hashes there are.
func (h *heads) used() int {
	n := 0
	for i := range h.parts {
		n += h.parts[i].used
	}
	return n
}

// each calls f with every hash's first node.
func (h *heads) each(f func(id int32)) {
	for i := range h.parts {
		for _, e := range h.parts[i].entries {
			if e.id != 0 {
				f(e.id)
			}
		}
	}
}
