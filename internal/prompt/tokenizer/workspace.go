package tokenizer

import (
	"hash/maphash"
	"runtime"
	"sync"
)

// Sizes of a workspace. A word in the table takes one cache line.
const (
	wordSlots = 1 << 15 // words remembered: 2 MB
	slotText  = 38      // longest remembered word in bytes
	slotIDs   = 6       // most ids of a remembered word
	keepWork  = 1 << 16 // symbols or bytes above which a buffer is given back to the collector
)

// workspace is what one call works with. It belongs to one goroutine at a time.
type workspace struct {
	// words and chunks are empty in workspaces beyond those that are kept.
	words  []wordSlot
	chunks chunkTable
	seed   maphash.Seed
	dst    []uint32
	work   scratch
	norm   [2][]byte // normalizers write to one while they read the other
	runes  runeBuffer
	cut    []byte // a piece that a pre-tokenizer had to rewrite
}

// wordSlot holds one word and its ids. An unused one has length 0, which no word has.
type wordSlot struct {
	length, count uint8
	text          [slotText]byte
	ids           [slotIDs]uint32
}

// word appends the ids of one word, from the table of words if it was met before.
func (w *workspace) word(m model, text []byte) {
	if len(text) > slotText || w.words == nil {
		w.dst = m.append(w.dst, text, &w.work)
		return
	}
	slot := &w.words[w.hash(text)%wordSlots]
	if int(slot.length) == len(text) && string(slot.text[:len(text)]) == string(text) {
		w.dst = append(w.dst, slot.ids[:slot.count]...)
		return
	}
	start := len(w.dst)
	w.dst = m.append(w.dst, text, &w.work)
	if ids := w.dst[start:]; len(ids) <= slotIDs {
		slot.length = uint8(len(text))
		slot.count = uint8(copy(slot.ids[:], ids))
		copy(slot.text[:], text)
	}
}

// trim gives back buffers that an uncommonly large text has grown.
func (w *workspace) trim() {
	w.dst = nil
	w.work.trim()
	w.runes.trim()
	for _, b := range []*[]byte{&w.norm[0], &w.norm[1], &w.cut} {
		if cap(*b) > keepWork {
			*b = nil
		}
	}
}

func (w *workspace) hash(text []byte) uint64 { return maphash.Bytes(w.seed, text) }

// maxWorkspaces bounds the memory of the tables, 4.5 MB each, on machines with many processors.
const maxWorkspaces = 16

// workspaces are those that no call uses at present. Unlike in a sync.Pool they outlive garbage collections, for their worth
// is what they remember.
type workspaces struct {
	mu   sync.Mutex
	free []*workspace // guarded by mu
	made int          // guarded by mu; free ones and those in use, but for those without tables
}

// get returns a free workspace. When as many as are kept are in use it returns one without tables.
func (p *workspaces) get() *workspace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		w := p.free[n-1]
		p.free = p.free[:n-1]
		return w
	}
	if p.made >= min(runtime.GOMAXPROCS(0), maxWorkspaces) {
		return new(workspace)
	}
	p.made++
	return &workspace{words: make([]wordSlot, wordSlots), chunks: newChunkTable(), seed: maphash.MakeSeed()}
}

func (p *workspaces) put(w *workspace) {
	if w.words == nil {
		return
	}
	w.trim()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, w)
}
