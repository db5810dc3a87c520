package pages

import (
	"errors"
	"io"
	"math/bits"
	"slices"

	"attache/internal/packed"
)

// A snapshot is, in the form of package packed:
//
//	"attache pages" and the version, one byte
//	the configuration: Page, Block, Limit, Waiting, Sets; and the lowest tier that was ever used
//	lines: how many; each
//	    how far back the line is that it goes on from; 0: none
//	    if none: whether it waits, and its seed (8 bytes)
//	    its first page's offset, and how many pages; that number doubled, plus 1 if there are copies
//	    for each tier whether none, all or some of the pages are held, two bits each; for some: which (8 bytes)
//	    the keys (8 bytes each), the tokens (4 bytes each), and the copies beyond the first by page and tier (1 byte each)
//
// Lines stand behind those that they go on from. Those that wait come last, the oldest first.
const (
	snapshotMagic   = "attache pages"
	snapshotVersion = 1
)

// ErrSnapshot says that what was read is no snapshot of this version, or is damaged.
var ErrSnapshot = errors.New("not a sound snapshot of pages")

// Frozen is a Joiner at one moment, ready to be written while it goes on.
type Frozen struct{ Joiner }

// Freeze copies the lines: about 10 ms for a million pages.
func (j *Joiner) Freeze() *Frozen {
	f := &Frozen{Joiner{cfg: j.cfg, width: j.width, tokenBytes: j.tokenBytes, lines: j.lines, lowest: j.lowest}}
	f.trees.oldest = j.trees.oldest
	f.chunks = make([]*chunk, len(j.chunks))
	for i, c := range j.chunks {
		f.chunks[i] = &chunk{lines: c.lines, keys: slices.Clone(c.keys), tokens: slices.Clone(c.tokens), extra: slices.Clone(c.extra)}
	}
	return f
}

// eachLine calls do for every line, behind the one that it goes on from, those that wait last.
func (j *Joiner) eachLine(do func(l uint32)) {
	var stack []uint32
	walk := func(root uint32) {
		for stack = append(stack, root); len(stack) > 0; {
			l := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			do(l)
			for _, first := range [...]uint32{j.line(l).nexts, j.line(l).branches} {
				for c := first; c != 0; c = j.line(c).younger {
					stack = append(stack, c)
				}
			}
		}
	}
	for l := range uint32(len(j.chunks)) << chunkBits {
		if h := j.line(l); h.n > 0 && h.base == 0 && !h.waits {
			walk(l)
		}
	}
	for l := j.trees.oldest; l != 0; l = j.line(l).younger {
		walk(l)
	}
}

// How a line's pages are held on a tier.
const (
	heldNone = iota
	heldAll
	heldSome
)

// WriteTo writes the snapshot. Any goroutine may call it.
func (f *Frozen) WriteTo(to io.Writer) (int64, error) {
	w := packed.NewWriter(to)
	w.Raw([]byte(snapshotMagic))
	w.Raw([]byte{snapshotVersion})
	for _, n := range [...]int{f.cfg.Page, f.cfg.Block, f.cfg.Limit, f.cfg.Waiting} {
		w.Number(n)
	}
	w.Flag(f.cfg.Sets)
	w.Number(int(f.lowest))
	w.Number(f.lines)
	number := make([]int, len(f.chunks)<<chunkBits)
	n := 0
	f.eachLine(func(l uint32) {
		n++
		number[l] = n
		f.writeLine(w, l, number)
	})
	return w.Close()
}

func (f *Frozen) writeLine(w *packed.Writer, l uint32, number []int) {
	h := f.line(l)
	if h.base == 0 {
		w.Number(0)
		w.Flag(h.waits)
		w.Word(h.seed)
	} else {
		w.Number(number[l] - number[h.base])
	}
	from, to := int(h.from), int(h.n)
	var extra []byte
	if c := f.chunks[l>>chunkBits]; c.extra != nil {
		extra = c.extra[(int(l%chunkLines)*f.width+from)*tiers:][:(to-from)*tiers]
		if !slices.ContainsFunc(extra, func(n byte) bool { return n > 0 }) {
			extra = nil
		}
	}
	size := 2 * (to - from)
	if extra != nil {
		size++
	}
	w.Number(from)
	w.Number(size)
	all, ways := span(from, to), 0
	for t, held := range h.held {
		ways |= heldHow(held, all) << (2 * t)
	}
	w.Raw([]byte{byte(ways)})
	for _, held := range h.held {
		if heldHow(held, all) == heldSome {
			w.Word(held)
		}
	}
	for _, key := range f.keysOf(l)[from:to] {
		w.Word(key)
	}
	w.Raw(f.tokensOf(l)[4*f.cfg.Page*from : 4*f.cfg.Page*to])
	w.Raw(extra)
}

func heldHow(held, all uint64) int {
	switch held {
	case 0:
		return heldNone
	case all:
		return heldAll
	default:
		return heldSome
	}
}

// Load makes a Joiner from a snapshot. What is damaged, even on purpose, makes an error, never a broken Joiner; memory grows only
// with what was really read. Of a *bufio.Reader it reads no more than the snapshot. Tell gives its blocks.
func Load(from io.Reader) (*Joiner, error) {
	r := packed.NewReader(from, ErrSnapshot)
	var head [len(snapshotMagic) + 1]byte
	r.Raw(head[:])
	r.Check(string(head[:len(snapshotMagic)]) == snapshotMagic, "it begins otherwise")
	r.Check(head[len(snapshotMagic)] == snapshotVersion, "it is of another version")
	cfg := Config{Page: r.Number(maxBlock), Block: r.Number(maxBlock), Limit: r.Number(maxLimit), Waiting: r.Number(maxLimit), Sets: r.Flag()}
	lowest := r.Number(tiers - 1)
	if r.Err() != nil {
		return nil, r.Err()
	}
	j, err := New(cfg)
	if err != nil {
		return nil, errors.Join(ErrSnapshot, err)
	}
	j.lowest = tierOf(lowest)
	l := loader{Joiner: j, Reader: r, lines: []uint32{0}}
	for n := r.Number(maxLimit); n > 0 && r.Err() == nil; n-- {
		l.readLine()
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	l.finish()
	return j, nil
}

// loader reads lines in turn. After an error it does nothing more.
type loader struct {
	*Joiner
	*packed.Reader

	lines []uint32 // by number
}

func (l *loader) readLine() {
	base, waits, seed := uint32(0), false, plainSeed
	if back := l.Number(len(l.lines) - 1); back > 0 {
		base = l.lines[len(l.lines)-back]
	} else {
		waits, seed = l.Flag(), l.Word()
	}
	from, size := l.Number(l.width-1), l.Number(2*l.width+1)
	to := from + size/2
	l.Check(size > 1 && to <= l.width, "a line has too many pages or none")
	l.Check(l.pages+size/2 <= l.cfg.Limit, "it has more pages than its limit")
	if l.Err() != nil {
		return
	}
	if base == 0 {
		l.Check(from == 0, "the first line of a prompt begins in the middle")
	} else {
		b := l.line(base)
		waits = b.waits
		l.Check(from > 0 || int(b.n) == l.width, "a block follows one that is not whole")
		l.Check(from == 0 || int(b.from) < from && from <= int(b.n), "a line branches off where nothing is")
		if from > 0 && !waits {
			seed = b.seed
		}
	}
	l.Check(!waits || l.waiting+size/2 <= l.cfg.Waiting, "too many pages wait")
	if l.Err() != nil {
		return
	}
	l.add(base, waits, seed, from, to, size%2 == 1)
}

// add makes a line and reads its pages.
func (l *loader) add(base uint32, waits bool, seed uint64, from, to int, copies bool) {
	var id uint32
	if waits && base == 0 {
		id = l.newTree(seed)
	} else {
		id = l.newLine()
	}
	h := l.line(id)
	h.base, h.waits, h.seed, h.from, h.n = base, waits, seed, uint8(from), uint8(from)
	if from > 0 {
		copy(l.tokensOf(id), l.tokensOf(base)[:4*l.cfg.Page*from])
	}
	if base != 0 {
		l.attach(id)
	}
	l.lines = append(l.lines, id)
	var ways [1]byte
	l.Raw(ways[:])
	all := span(from, to)
	for t := range h.held {
		switch ways[0] >> (2 * t) & 3 {
		case heldNone:
		case heldAll:
			h.held[t] = all
		case heldSome:
			h.held[t] = l.Word()
		default:
			l.Check(false, "pages are held in no known way")
		}
		l.Check(h.held[t]&^all == 0, "pages are held that are not there")
		l.Check(h.held[t] == 0 || t <= int(l.lowest), "pages are held on a tier that was never used")
	}
	for i := from; i < to && l.Err() == nil; i++ {
		key := l.Word()
		p, slot, at := l.find(key)
		if l.Check(at == noPlace, "a page stands twice"); l.Err() != nil {
			return
		}
		l.keysOf(id)[i] = key
		l.bytes += l.table.put(p, slot, key, placeOf(id, i))
		h.n++
	}
	l.Raw(l.tokensOf(id)[4*l.cfg.Page*from : 4*l.cfg.Page*to])
	l.pages += to - from
	if waits {
		l.waiting += to - from
	}
	if copies {
		l.extraOf(placeOf(id, from), 0, true) // makes room
		extra := l.chunks[id>>chunkBits].extra[(int(id%chunkLines)*l.width+from)*tiers:][:(to-from)*tiers]
		l.Raw(extra)
		for i := range extra {
			l.Check(extra[i] == 0 || h.held[i%tiers]>>(from+i/tiers)&1 == 1, "there are copies of a page that is not held")
		}
	}
}

// finish counts blocks, and forgets what only a snapshot that was tampered with can contain: pages that nothing needs, and trees
// that wait for what is there.
func (l *loader) finish() {
	for _, id := range l.lines[1:] {
		if l.line(id).n > 0 {
			l.trim(id)
		}
	}
	for at := l.trees.oldest; at != 0; {
		drop := at
		at = l.line(at).younger
		if to := l.lookup(l.line(drop).seed); to != noPlace && l.treeOf(to.line()) != drop {
			l.dropTree(drop)
		}
	}
	l.eachBlockHeld(func(id uint32, on tierSet) {
		for ; on != 0; on &= on - 1 {
			l.blocks[bits.TrailingZeros8(uint8(on))]++
		}
	})
}

// eachBlockHeld calls do for every block that is complete on a tier, behind the one before it.
func (j *Joiner) eachBlockHeld(do func(l uint32, on tierSet)) {
	j.eachLine(func(l uint32) {
		if h := j.line(l); int(h.n) == j.width {
			if on := j.completeOn(h); on != 0 {
				do(l, on)
			}
		}
	})
}

// Tell gives all blocks that are complete to stored, as Store did when they became so: for whoever was not told then.
func (j *Joiner) Tell(stored func(Blocks)) {
	before := j.blocks
	j.stored = stored
	j.eachBlockHeld(j.giveAll)
	j.flush()
	j.stored, j.blocks = nil, before
}

// Sizes are how many tokens a page and a block have.
func (j *Joiner) Sizes() (page, block int) { return j.cfg.Page, j.cfg.Block }
