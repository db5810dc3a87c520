package runs

import "math/bits"

// engineMap knows where the blocks lie that one holder announced: the engine's hash leads to a place in a run, and to how
// often the block was announced. It belongs to the writer alone.
//
// It is open addressing with linear probing and backward-shift deletion. A key's slot is its hash times a secret, scaled
// to the number of slots: any number will do, so a part can start at the size of the engine's cache, and grows in small
// steps by copying in order. Each part grows by itself: none is large enough to hold other events up.
type engineMap struct {
	secret uint64
	parts  [1 << engineBits]enginePart
	first  int    // slots that a part starts with
	n      int    // keys
	sink   uint64 // keeps what warm read alive; a field, as a global would be shared by all indexes
}

const (
	engineBits  = 4
	entryBytes  = 16
	minEntries  = 8
	smallStep   = 4096 // entries that a part grows by when memory is short
	engineBytes = 16 + 32<<engineBits + 24
)

type enginePart struct {
	slots []entry
	n     int
}

// entry is free when its place is 0.
type entry struct {
	key   uint64 // the engine's hash
	place place
}

// place is where a block lies and how often it was announced: count<<48 | run<<16 | offset. The count of an entry is 1 to
// maxCount, so that no place in use is 0.
type place uint64

const (
	onePlace place = 1 << 48
	maxCount       = 1<<16 - 1
)

func placeOf(run uint32, offset int) place { return onePlace | place(run)<<16 | place(offset) }

func (p place) count() int         { return int(p >> 48) }
func (p place) run() uint32        { return uint32(p >> 16) }
func (p place) offset() int        { return int(p & 0xFFFF) }
func (p place) same(q place) bool  { return (p^q)<<16 == 0 }
func entriesFor(blocks int) int    { return blocks + blocks/3 + minEntries } // three quarters full
func (p *enginePart) full() bool   { return (p.n+1)*4 > len(p.slots)*3 }
func (m *engineMap) presize(n int) { m.first = entriesFor(n>>engineBits + n>>(engineBits+5)) }

// locate returns the part of a key and the slot at which it belongs there.
func (m *engineMap) locate(key uint64) (p *enginePart, home int) {
	at := key * m.secret
	p = &m.parts[at>>(64-engineBits)]
	return p, p.home(at)
}

func (p *enginePart) home(at uint64) int {
	hi, _ := bits.Mul64(at<<engineBits, uint64(len(p.slots)))
	return int(hi)
}

// seek returns the slot of a key, or the free one where it would stand. There is a free one.
func (p *enginePart) seek(key uint64, home int) int {
	slots := p.slots
	for i := home; ; {
		if e := &slots[i]; e.place == 0 || e.key == key {
			return i
		}
		if i++; i == len(slots) {
			i = 0
		}
	}
}

// get returns the place of a key, 0 when there is none.
func (m *engineMap) get(key uint64) place {
	p, home := m.locate(key)
	if p.n == 0 {
		return 0
	}
	return p.slots[p.seek(key, home)].place
}

// warm reads where the keys belong. No branch depends on what it reads, so the processor waits for all of them at once;
// without it storing takes twice as long. At most 64 keys are worth it.
func (m *engineMap) warm(keys []uint64) {
	if m.n < 1<<12 {
		return
	}
	var x uint64
	for _, key := range keys {
		if p, home := m.locate(key); home < len(p.slots) {
			x |= p.slots[home].key
		}
	}
	m.sink = x
}

// ref returns where the place of a key stands, 0 there when the key is new: the caller must set it then. It returns nil
// when a new key needs the part to grow first.
func (m *engineMap) ref(key uint64) *place {
	p, home := m.locate(key)
	if len(p.slots) == 0 {
		return nil
	}
	e := &p.slots[p.seek(key, home)]
	if e.place == 0 {
		if p.full() {
			return nil
		}
		e.key = key
		p.n++
		m.n++
	}
	return &e.place
}

// find returns the part and the slot of a key; ok says whether it is there.
func (m *engineMap) find(key uint64) (p *enginePart, i int, ok bool) {
	p, home := m.locate(key)
	if p.n == 0 {
		return p, 0, false
	}
	i = p.seek(key, home)
	return p, i, p.slots[i].place != 0
}

// remove frees a slot in use.
func (m *engineMap) remove(p *enginePart, i int) {
	slots := p.slots
	p.n--
	m.n--
	// What stands behind moves up, unless it would come to stand before its home.
	for k := i; ; {
		if k++; k == len(slots) {
			k = 0
		}
		if slots[k].place == 0 {
			break
		}
		home := p.home(slots[k].key * m.secret)
		if ahead(home, k, len(slots)) >= ahead(i, k, len(slots)) {
			slots[i] = slots[k]
			i = k
		}
	}
	slots[i] = entry{}
}

// ahead is how far b lies behind a, round a table of n.
func ahead(a, b, n int) int {
	if b < a {
		return b + n - a
	}
	return b - a
}

// rebuild copies the part into size slots, without the entries that keep refuses; nil keeps all. It returns by how many
// bytes the part grew.
func (m *engineMap) rebuild(p *enginePart, size int, keep func(place) bool) (grown int) {
	before := p.slots
	grown = (size - len(before)) * entryBytes
	p.slots = make([]entry, size)
	m.n -= p.n
	p.n = 0
	for _, e := range before {
		if e.place == 0 || keep != nil && !keep(e.place) {
			continue
		}
		p.slots[p.seek(e.key, p.home(e.key*m.secret))] = e
		p.n++
	}
	m.n += p.n
	return grown
}

// larger is the size that the part of a key should grow to. Steps differ a little from part to part, so that they do not
// all grow at once.
func (m *engineMap) larger(p *enginePart, key uint64) int {
	if len(p.slots) == 0 {
		return max(m.first, minEntries)
	}
	n := len(p.slots)
	step := n / 2
	if n < 1024 {
		step = n
	}
	return n + step + int(key*m.secret>>(64-engineBits)&7)*n/64
}

func (m *engineMap) bytes() int {
	n := engineBytes
	for i := range m.parts {
		n += len(m.parts[i].slots) * entryBytes
	}
	return n
}
