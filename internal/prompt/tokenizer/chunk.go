package tokenizer

// Prompts repeat in stretches much longer than words: the documents, the code and the turns before. So a workspace remembers
// pieces of some seventy bytes, too, and text that was met lately costs one look-up for a dozen words. Pieces are cut where no
// pattern ever sees both sides: that their words are those of the whole is what FuzzChunk holds them to.

const (
	chunkSlots = 1 << 13 // chunks remembered, in pairs of two: 2.5 MB
	chunkLeast = 64      // a chunk ends at the first place behind so many bytes where it may
	chunkText  = 128     // longest remembered chunk
	chunkIDs   = 44      // most ids of a remembered chunk
)

// chunkSlot holds one chunk and its ids. An unused one has length 0, which no chunk has.
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
	if !t.chunked || w.chunks == nil {
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
	pair := (*[2]chunkSlot)(w.chunks[hash%(chunkSlots/2)*2:])
	for i := range pair {
		if s := &pair[i]; int(s.length) == len(text) && string(s.text[:len(text)]) == string(text) {
			w.dst = append(w.dst, s.ids[:s.count]...)
			return
		}
	}
	slot := &pair[hash>>63] // any of the two, so that no order of texts always misses
	if pair[0].length == 0 {
		slot = &pair[0]
	}
	start := len(w.dst)
	w.split(t, t.stages, text, false)
	if ids := w.dst[start:]; len(ids) <= chunkIDs {
		slot.length = uint8(len(text))
		slot.count = uint8(copy(slot.ids[:], ids))
		copy(slot.text[:], text)
	}
}
