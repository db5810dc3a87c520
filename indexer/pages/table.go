package pages

// place is where a page is: line<<6 | offset in the block. Line 0 is nobody's, so no page has place 0.
type place uint32

const noPlace place = 0

func placeOf(line uint32, offset int) place { return place(line<<6 | uint32(offset)) }
func (p place) line() uint32                { return uint32(p >> 6) }
func (p place) offset() int                 { return int(p & 63) }

// table finds the place of a page by its key.
//
// It is open addressing with linear probing and backward-shift deletion. A slot has the place and 32 bits of the key's
// hash, the mark: what it says is confirmed by the key itself, which stands in the line. The mark alone tells where a slot
// belongs, scaled to the number of slots; so a part grows in small steps, by copying in order and without looking at lines.
// Each part grows by itself: none is large enough to hold other events up.
type table struct {
	secret uint64
	first  int // slots that a part starts with
	parts  [1 << partBits]part
	sink   uint64 // keeps what warm read alive
}

const (
	partBits   = 4
	minSlots   = 8
	slotBytes  = 8
	tableBytes = 24 + 32<<partBits
)

type part struct {
	slots []entry
	n     int
}

// entry is mark<<32 | place, 0 when it is free.
type entry uint64

func entryOf(mark uint32, at place) entry { return entry(mark)<<32 | entry(at) }
func (e entry) mark() uint32              { return uint32(e >> 32) }
func (e entry) place() place              { return place(e) }

// locate returns the part of a key and its mark.
func (t *table) locate(key uint64) (*part, uint32) {
	h := key * t.secret
	return &t.parts[h>>(64-partBits)], uint32(h >> (32 - partBits))
}

// home is the slot where a mark belongs.
func (p *part) home(mark uint32) int {
	return int(uint64(mark) * uint64(len(p.slots)) >> 32)
}

func (p *part) full() bool { return (p.n+1)*4 > len(p.slots)*3 }

// warm reads where the keys belong. No branch depends on what it reads, so the processor waits for all of them at once. At
// most 64 keys are worth it.
func (t *table) warm(keys []uint64) {
	var x uint64
	for _, key := range keys {
		if p, mark := t.locate(key); len(p.slots) > 0 {
			x |= uint64(p.slots[p.home(mark)])
		}
	}
	t.sink = x
}

// put enters a key that is not there at slot i of its part, as find said, and returns by how many bytes the table grew.
func (t *table) put(p *part, i int, key uint64, at place) (grown int) {
	h := key * t.secret
	e := entryOf(uint32(h>>(32-partBits)), at)
	if p.full() {
		grown = p.grow(t.first, int(h>>(64-partBits)))
		p.insert(e)
		return grown
	}
	p.slots[i] = e
	p.n++
	return 0
}

// slotsFor is how many slots a part should start with for the table to hold n pages, with some more for chance.
func slotsFor(n int) int {
	n >>= partBits
	return n + n/3 + n/32 + minSlots
}

// insert enters a key that is not there. There is a free slot.
func (p *part) insert(e entry) {
	slots := p.slots
	i := p.home(e.mark())
	for slots[i] != 0 {
		if i++; i == len(slots) {
			i = 0
		}
	}
	slots[i] = e
	p.n++
}

// grow makes room: first slots for a part that has none. Steps differ from part to part, so that they do not all grow at
// once.
func (p *part) grow(first, number int) (bytes int) {
	before := p.slots
	n := len(before)
	step := n / 2
	switch {
	case n == 0:
		step = first
	case n < 1024:
		step = n
	}
	p.slots = make([]entry, n+step+number*n/128)
	p.n = 0
	for _, e := range before {
		if e != 0 {
			p.insert(e)
		}
	}
	return (len(p.slots) - n) * slotBytes
}

// remove frees slot i. What stands behind moves up, unless it would come to stand before its home.
func (p *part) remove(i int) {
	slots := p.slots
	p.n--
	for k := i; ; {
		if k++; k == len(slots) {
			k = 0
		}
		if slots[k] == 0 {
			break
		}
		home := p.home(slots[k].mark())
		if ahead(home, k, len(slots)) >= ahead(i, k, len(slots)) {
			slots[i] = slots[k]
			i = k
		}
	}
	slots[i] = 0
}

// ahead is how far b lies behind a, round a table of n.
func ahead(a, b, n int) int {
	if b < a {
		return b + n - a
	}
	return b - a
}

// find returns the place of a key, and the part and slot where it stands; noPlace when it is not known.
func (j *Joiner) find(key uint64) (p *part, i int, at place) {
	p, mark := j.table.locate(key)
	slots := p.slots
	if len(slots) == 0 {
		return p, 0, noPlace
	}
	for i = p.home(mark); ; {
		e := slots[i]
		if e == 0 {
			return p, i, noPlace
		}
		if e.mark() == mark && j.keyAt(e.place()) == key {
			return p, i, e.place()
		}
		if i++; i == len(slots) {
			i = 0
		}
	}
}

// lookup returns the place of a key, noPlace when it is not known.
func (j *Joiner) lookup(key uint64) place {
	_, _, at := j.find(key)
	return at
}
