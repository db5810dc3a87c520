package runs

import (
	"math/bits"
	"sync/atomic"

	"attache/internal/block"
)

// table finds a run by its first hash: a hash table with open addressing and linear probing that readers walk while the
// writer changes it.
//
// The table is cut into parts by the highest bits of a place, and each part is replaced by itself when it is full, so that
// no change holds the writer up for long. Places follow from the hash times a secret odd number: prompts are chosen by
// clients, and one who could choose places could make every look-up long.
//
// A key that was put into a part stays there, with no run when its run is gone, until the part is replaced: moving keys up
// would let a reader miss one that is there.
type table struct {
	secret uint64
	parts  [1 << tableBits]atomic.Pointer[tablePart]
}

const (
	tableBits    = 6
	minTablePart = 16 // heads
	headBytes    = 16
	partHeader   = 48 // bytes of a tablePart
)

// tablePart is one generation of one part. Its heads are the only fields that change while readers see it.
type tablePart struct {
	heads []head
	shift uint8 // of a place without the bits that chose the part: what remains is an index
	used  int   // keys, dead ones too; the writer's
	live  int   // keys with a run; the writer's
}

type head struct {
	key atomic.Uint64 // a hash; 0: free
	run atomic.Pointer[run]
}

func newTablePart(size int) *tablePart {
	return &tablePart{heads: make([]head, size), shift: uint8(64 - bits.TrailingZeros(uint(size)))}
}

func (p *tablePart) bytes() int { return partHeader + headBytes*len(p.heads) }

// init fills the table with empty parts and returns their bytes.
func (t *table) init(secret uint64) (bytes int) {
	t.secret = secret
	for i := range t.parts {
		p := newTablePart(minTablePart)
		t.parts[i].Store(p)
		bytes += p.bytes()
	}
	return bytes
}

// get returns the run that begins with the hash; nil when there is none. Any goroutine.
func (t *table) get(hash block.Hash) *run {
	place := hash * t.secret
	p := t.parts[place>>(64-tableBits)].Load()
	heads := p.heads
	mask := uint64(len(heads) - 1)
	for i := place << tableBits >> p.shift; ; i++ {
		h := &heads[i&mask]
		switch h.key.Load() {
		case hash:
			return h.run.Load()
		case 0:
			return nil
		}
	}
}

// put makes r the run that begins with the hash; nil takes the hash away. It returns by how many bytes the table grew.
func (t *table) put(hash block.Hash, r *run) (grown int) {
	place := hash * t.secret
	at := &t.parts[place>>(64-tableBits)]
	p := at.Load()
	mask := uint64(len(p.heads) - 1)
	i := place << tableBits >> p.shift & mask
	for ; ; i = (i + 1) & mask {
		key := p.heads[i].key.Load()
		if key == hash {
			break
		}
		if key == 0 {
			if r == nil {
				return 0
			}
			p.used++
			break
		}
	}
	h := &p.heads[i]
	switch before := h.run.Load(); {
	case before == nil && r != nil:
		p.live++
	case before != nil && r == nil:
		p.live--
	}
	h.run.Store(r)
	if r != nil {
		h.key.Store(hash) // after the run: a reader that sees the key finds it
	}
	full, sparse := p.used*5 > len(p.heads)*3, len(p.heads) > minTablePart && p.live*10 < len(p.heads)
	if !full && !sparse {
		return 0
	}
	next := t.copyPart(p)
	at.Store(next)
	return next.bytes() - p.bytes()
}

// copyPart returns the part without its dead keys, a quarter to a half full.
func (t *table) copyPart(p *tablePart) *tablePart {
	size := minTablePart
	for p.live*5 > size*2 {
		size *= 2
	}
	next := newTablePart(size)
	mask := uint64(size - 1)
	for i := range p.heads {
		r := p.heads[i].run.Load()
		if r == nil {
			continue
		}
		key := p.heads[i].key.Load()
		k := key * t.secret << tableBits >> next.shift & mask
		for next.heads[k].key.Load() != 0 {
			k = (k + 1) & mask
		}
		next.heads[k].key.Store(key)
		next.heads[k].run.Store(r)
	}
	next.used, next.live = p.live, p.live
	return next
}

// each calls f with every run. Any goroutine; runs that come or go meanwhile may be met or not.
func (t *table) each(f func(*run)) {
	for i := range t.parts {
		p := t.parts[i].Load()
		for k := range p.heads {
			if r := p.heads[k].run.Load(); r != nil {
				f(r)
			}
		}
	}
}
