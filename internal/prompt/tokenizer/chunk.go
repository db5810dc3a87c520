package tokenizer

// Prompts repeat in stretches much longer than words: the documents, the code and the turns before. So a workspace remembers
// pieces of some seventy bytes, too, and text that was met lately costs one look-up for a dozen words. Pieces are cut where no
// pattern ever sees both sides: that their words are those of the whole is what FuzzChunk holds them to.

const (
	chunkSlots = 1 << 13 // chunks remembered: 2.5 MB
	chunkWays  = 8       // places that a chunk may have
	chunkLeast = 64      // a chunk ends at the first place behind so many bytes where it may
	chunkText  = 128     // longest remembered chunk
	chunkIDs   = 44      // most ids of a remembered chunk
)

// chunkTable remembers chunks. A chunk has its place in one of chunkWays slots that stand together; tags, which all lie in a
// cache line, tell which of them to look at. With fewer ways chunks of one long text drive each other out long before the table
// is full.
type chunkTable struct {
	tags  []uint32 // of the hash of the chunk in the slot; 0 for none
	slots []chunkSlot
}

func newChunkTable() chunkTable {
	return chunkTable{tags: make([]uint32, chunkSlots), slots: make([]chunkSlot, chunkSlots)}
}

// find returns the slot of a chunk, or the one where it may be put, and whether it is there.
func (c *chunkTable) find(text []byte, hash uint64) (slot *chunkSlot, tag *uint32, found bool) {
	base := int(hash % (chunkSlots / chunkWays) * chunkWays)
	tags := c.tags[base : base+chunkWays : base+chunkWays]
	want := tagOf(hash)
	free := int(hash >> 61) // any of them, so that no order of texts always misses
	for i, t := range tags {
		if t == want {
			if s := &c.slots[base+i]; int(s.length) == len(text) && string(s.text[:len(text)]) == string(text) {
				return s, &tags[i], true
			}
		}
		if t == 0 {
			free = i
		}
	}
	return &c.slots[base+free], &tags[free], false
}

// tagOf is never 0.
func tagOf(hash uint64) uint32 { return uint32(hash>>29) | 1 }

// chunkSlot holds one chunk and its ids.
type chunkSlot struct {
	length, count uint8
	text          [chunkText]byte
	ids           [chunkIDs]uint32
}

// role is what a splitter is to its neighbours.
type role uint8

const (
	other role = iota
	// separates: it cuts out runs of digits or of CJK characters, and nothing else matters to it.
	separates
	// splitsLines: it makes words, and nextChunk's places are always borders of words for it.
	splitsLines
)

// chunks tells whether text may be cut by nextChunk before it goes through the stages.
func chunks(stages []stage) bool {
	for i, s := range stages {
		want := separates
		if i == len(stages)-1 {
			want = splitsLines
		}
		if s.rewrite != nil || s.role != want {
			return false
		}
	}
	return len(stages) > 0
}

// nextChunk returns the length of the first chunk of text: up to the first place, from least on, where all patterns that
// splitsLines marks have a border of words, and where neither side matters to the other:
//
//   - between a visible ASCII character and a blank or tab: no alternative goes on from one to the other, and none looks ahead
//     from the one or back from the other;
//   - behind a line feed, if what follows is a visible ASCII character, perhaps behind blanks and tabs: the alternatives for
//     white space end at its last line end, those that take line ends along stop at the first other character. Only the slash
//     may be taken along with them.
func nextChunk(text []byte, least int) int {
	for i := least; i < len(text); i++ {
		switch text[i] {
		case ' ', '\t':
			if isVisible(text[i-1]) {
				return i
			}
		case '\n':
			k := i + 1
			for k < len(text) && (text[k] == ' ' || text[k] == '\t') {
				k++
			}
			if k < len(text) && isVisible(text[k]) && text[k] != '/' {
				return i + 1
			}
			i = k - 1 // nothing before k is such a place
		}
	}
	return len(text)
}

func isVisible(c byte) bool { return '!' <= c && c <= '~' }

// piece appends the ids of a piece of normalized text between two added tokens.
func (w *workspace) piece(t *Tokenizer, text []byte, atStart bool) {
	if !t.chunked || w.chunks.slots == nil {
		w.split(t, t.stages, text, atStart)
		return
	}
	for len(text) > 0 {
		n := nextChunk(text, chunkLeast)
		w.chunk(t, text[:n])
		text = text[n:]
	}
}

// chunk appends the ids of one chunk, from the table of chunks if it was met before.
func (w *workspace) chunk(t *Tokenizer, text []byte) {
	if len(text) > chunkText {
		w.split(t, t.stages, text, false)
		return
	}
	hash := w.hash(text)
	slot, tag, found := w.chunks.find(text, hash)
	if found {
		w.dst = append(w.dst, slot.ids[:slot.count]...)
		return
	}
	start := len(w.dst)
	w.split(t, t.stages, text, false)
	if ids := w.dst[start:]; len(ids) <= chunkIDs {
		*tag = tagOf(hash)
		slot.length = uint8(len(text))
		slot.count = uint8(copy(slot.ids[:], ids))
		copy(slot.text[:], text)
	}
}
