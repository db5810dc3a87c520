package pages

import (
	"encoding/binary"
	"math/bits"

	"attache/internal/slot"
)

const tiers = int(slot.Remote) + 1

// line is the part of one block that no earlier line has: its pages from to n-1 of the block. What the pages are is in the
// arrays of its chunk. A line has at least one page, except while it is made.
type line struct {
	held [tiers]uint64 // a bit for each page that is held
	// seed is that of the block's local hash. Of the first line of a tree that waits it is the key of the page that it waits for.
	seed uint64
	// base is the line that this one goes on from: a branch from the page before from, else from the last page of a block. 0 for
	// the first line of a prompt, and of a tree that waits.
	base     uint32
	branches uint32 // the first of the lines that branch off inside the block
	nexts    uint32 // the first of the lines that go on behind the block
	// older and younger link the lines of one list: branches or nexts of the base, trees that wait, or lines that are free.
	older, younger uint32
	from, n        uint8
	waits          bool // the tree has no known parent, so offsets count from its first page
}

const (
	lineBytes  = 64
	chunkBits  = 8
	chunkLines = 1 << chunkBits
)

// chunk has the lines of 256 numbers: they never move, and growing copies nothing.
type chunk struct {
	lines  [chunkLines]line
	keys   []uint64 // width of each line
	tokens []byte   // 4*Block of each line: little-endian, as they are hashed
	extra  []uint8  // tiers*width of each line: copies beyond the first; nil when there was never one
}

func (j *Joiner) line(l uint32) *line { return &j.chunks[l>>chunkBits].lines[l%chunkLines] }

func (j *Joiner) keyAt(at place) uint64 {
	l := at.line()
	return j.chunks[l>>chunkBits].keys[int(l%chunkLines)*j.width+at.offset()]
}

// keysOf are the keys of a line's pages by offset. Only those from from to n-1 mean anything.
func (j *Joiner) keysOf(l uint32) []uint64 {
	return j.chunks[l>>chunkBits].keys[int(l%chunkLines)*j.width:][:j.width]
}

// tokensOf are the tokens of a line's block as bytes, those before from included.
func (j *Joiner) tokensOf(l uint32) []byte {
	return j.chunks[l>>chunkBits].tokens[int(l%chunkLines)*j.tokenBytes:][:j.tokenBytes]
}

// extraOf returns where the copies of a page beyond the first are counted, nil if there are none.
func (j *Joiner) extraOf(at place, t slot.Tier, wanted bool) *uint8 {
	l := at.line()
	c := j.chunks[l>>chunkBits]
	if c.extra == nil {
		if !wanted {
			return nil
		}
		c.extra = make([]uint8, chunkLines*j.width*tiers)
		j.bytes += len(c.extra)
	}
	return &c.extra[(int(l%chunkLines)*j.width+at.offset())*tiers+int(t)]
}

// flip changes whether a page is held, on each of some tiers.
func (h *line) flip(offset int, changed tierSet) {
	for ; changed != 0; changed &= changed - 1 {
		h.held[bits.TrailingZeros8(uint8(changed))] ^= 1 << offset
	}
}

// newLine returns an empty line.
func (j *Joiner) newLine() uint32 {
	if j.free == 0 {
		c := &chunk{keys: make([]uint64, chunkLines*j.width), tokens: make([]byte, chunkLines*j.tokenBytes)}
		j.bytes += chunkLines*lineBytes + 8*len(c.keys) + len(c.tokens)
		first := uint32(len(j.chunks)) << chunkBits
		j.chunks = append(j.chunks, c)
		for i := uint32(chunkLines); i > 0; i-- {
			if l := first + i - 1; l != 0 { // 0 is nobody's
				c.lines[i-1].younger = j.free
				j.free = l
			}
		}
	}
	l := j.free
	h := j.line(l)
	j.free = h.younger
	*h = line{}
	j.lines++
	return l
}

func (j *Joiner) freeLine(l uint32) {
	h := j.line(l)
	*h = line{younger: j.free}
	j.free = l
	j.lines--
}

// head is the list that a line with a base is in.
func (j *Joiner) head(h *line) *uint32 {
	if h.from > 0 {
		return &j.line(h.base).branches
	}
	return &j.line(h.base).nexts
}

// attach links a line to its base.
func (j *Joiner) attach(l uint32) {
	h := j.line(l)
	head := j.head(h)
	if h.older = 0; *head != 0 {
		j.line(*head).older = l
	}
	h.younger = *head
	*head = l
}

func (j *Joiner) detach(l uint32) {
	h := j.line(l)
	if h.older != 0 {
		j.line(h.older).younger = h.younger
	} else {
		*j.head(h) = h.younger
	}
	if h.younger != 0 {
		j.line(h.younger).older = h.older
	}
}

// lineAfter returns the line where the page behind at comes to stand: the same line if it ends there, else a new one.
func (j *Joiner) lineAfter(at place) uint32 {
	base := at.line()
	b := j.line(base)
	from := at.offset() + 1
	if from == int(b.n) && from < j.width {
		return base
	}
	l := j.newLine()
	h := j.line(l)
	h.base, h.waits, h.seed = base, b.waits, plainSeed
	if from < j.width {
		h.from, h.n = uint8(from), uint8(from)
		copy(j.tokensOf(l), j.tokensOf(base)[:4*j.cfg.Page*from])
		if !b.waits {
			h.seed = b.seed
		}
	}
	j.attach(l)
	return l
}

// fill appends new pages to a line, as many of the first ones as are new, have room in the block, and are at most room. It
// returns how many they are.
func (j *Joiner) fill(l uint32, t slot.Tier, keys []uint64, tokens []uint32, room int) (n int) {
	h := j.line(l)
	from := int(h.n)
	mine := j.keysOf(l)[from:]
	room = min(room, len(mine), len(keys))
	for n < room {
		key := keys[n]
		p, i, hit := j.find(key)
		if hit != noPlace {
			break
		}
		mine[n] = key
		j.bytes += j.table.put(p, i, key, placeOf(l, from+n))
		n++
	}
	size := j.cfg.Page
	to := j.tokensOf(l)[4*size*from:]
	for i, token := range tokens[:n*size] {
		binary.LittleEndian.PutUint32(to[4*i:], token)
	}
	h.n = uint8(from + n)
	h.held[t] |= span(from, from+n)
	j.pages += n
	if h.waits {
		j.waiting += n
	}
	return n
}

// span has the bits from to to-1.
func span(from, to int) uint64 { return 1<<to - 1<<from }

// trim forgets the pages at the end of a line that nobody holds and nothing needs, the line itself when none is left, and then
// those that only it needed.
func (j *Joiner) trim(l uint32) {
	for {
		h := j.line(l)
		held := h.held[0] | h.held[1] | h.held[2] | h.held[3]
		if h.nexts != 0 || held>>(h.n-1) != 0 {
			return
		}
		needed := h.from
		for b := h.branches; b != 0 && needed < h.n; {
			branch := j.line(b)
			needed = max(needed, branch.from)
			b = branch.younger
		}
		n := h.n
		for n > needed && held>>(n-1) == 0 {
			n--
			p, i, _ := j.find(j.keyAt(placeOf(l, int(n))))
			p.remove(i)
		}
		j.pages -= int(h.n - n)
		if h.waits {
			j.waiting -= int(h.n - n)
		}
		h.n = n
		if n > h.from {
			return
		}
		base := h.base
		if base != 0 {
			j.detach(l)
		} else if h.waits {
			j.unlinkTree(l)
		}
		j.freeLine(l)
		if base == 0 {
			return
		}
		l = base
	}
}
