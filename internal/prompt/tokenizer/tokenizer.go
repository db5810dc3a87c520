package tokenizer

import (
	"slices"
	"sync/atomic"
)

// Tokenizer is one loaded vocabulary with all that surrounds it. But for a count it does not change after Parse, and it is safe
// for concurrent use.
type Tokenizer struct {
	// raw holds the added tokens that are looked for in the text as it is, normalized those looked for behind the normalizer.
	raw, normalized *matcher
	normalizer      []normalizer
	stages          []stage
	model           model
	added           map[string]uint32
	texts           texts
	decoding        decoding
	// before and after are what the post-processor puts around a text.
	before, after []uint32
	chars         *unicodeTables
	spaces        workspaces
	size          int
	notes         []string
	// startMatters tells that a text is tokenized otherwise at the beginning of a prompt than behind an added token.
	startMatters bool
	gaveUp       atomic.Uint64
	// chunked tells that the stages split chunks of a text as they split the whole.
	chunked bool
}

// Append appends the ids of text to dst. Added tokens in the text, special ones too, are recognised; nothing is put around
// it. Bytes that are not UTF-8 are kept as they are and count as characters that are neither letter, number nor space.
func (t *Tokenizer) Append(dst []uint32, text []byte) []uint32 {
	w := t.spaces.get()
	w.dst = dst
	w.encode(t, text)
	dst = w.dst
	t.spaces.put(w)
	return dst
}

// AppendSpecial is Append with what the post-processor puts before and behind a text, such as a BOS token.
func (t *Tokenizer) AppendSpecial(dst []uint32, text []byte) []uint32 {
	dst = append(dst, t.before...)
	dst = t.Append(dst, text)
	return append(dst, t.after...)
}

// AppendText appends the text of ids to dst. Special tokens are written as they are spelled; ids that the vocabulary does not
// have are left out. Ids that together make no valid UTF-8 yield their bytes, where upstream writes U+FFFD.
func (t *Tokenizer) AppendText(dst []byte, ids []uint32) []byte {
	for i, id := range ids {
		text := t.texts.of(id)
		if i == 0 {
			text = t.decoding.trimFirst(text)
		}
		dst = append(dst, text...)
	}
	return dst
}

// ID returns the id of a token as tokenizer.json spells it (a byte-level vocabulary writes a space as "Ġ").
func (t *Tokenizer) ID(token string) (uint32, bool) {
	if id, ok := t.added[token]; ok {
		return id, true
	}
	return t.model.spelled(token)
}

// Vocabulary returns the number of ids: one more than the highest.
func (t *Tokenizer) Vocabulary() int { return t.size }

// Notes tells what a caller may want to log: where this tokenizer does without what makes others exact and fast. It is empty for
// those that are common.
func (t *Tokenizer) Notes() []string { return slices.Clone(t.notes) }

// GaveUp counts the texts so far whose words could not be found in time, so that their ids are wrong: possible only with patterns
// that Notes names. Whoever needs to know whether ids are right looks at it before and after.
func (t *Tokenizer) GaveUp() uint64 { return t.gaveUp.Load() }

// NextAdded finds the first added token in text at which text can be cut: Append of what stands before it, its id and Append
// of what stands behind it are together the Append of the whole. start and end include the white space that the token
// swallows. Tokens at which what stands behind them decides whether they are found, or where they end, are passed over: text that
// begins with the same bytes up to end is cut there, too. ok is false if there is no such token, or if this tokenizer treats the beginning of a text in another way than
// what follows a token.
func (t *Tokenizer) NextAdded(text []byte) (start, end int, id uint32, ok bool) {
	if t.startMatters {
		return 0, 0, 0, false
	}
	var s scan
	for {
		start, end, token := t.raw.next(t.chars, text, &s)
		if token == nil {
			return 0, 0, 0, false
		}
		if t.raw.cuts(t.chars, token, text[start:end]) {
			return start, end, token.id, true
		}
		s.done = end
	}
}
