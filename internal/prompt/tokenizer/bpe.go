package tokenizer

import (
	"fmt"
	"math"
)

// none is no token and no rank.
const none = math.MaxUint32

// bpe is a byte pair encoding: a word is taken apart into its smallest tokens, and the adjacent pair with the lowest rank is
// joined until no pair has one. Of equal ranks the leftmost is first.
type bpe struct {
	vocab vocabulary
	pairs pairTable
	// byteLevel vocabularies start from bytes, others from characters.
	byteLevel bool
	// byteIDs are the tokens of single bytes: of the alphabet if byteLevel, else those of byte fallback (<0x0A>).
	byteIDs byteIDs
	// fallback: a character that is no token becomes its bytes. fuse: neighbouring unknown characters become one unknown.
	fallback, fuse bool
	unknown        uint32 // none if what is unknown is left out
	// whole tells that a word that is a token is not taken apart at all (ignore_merges).
	whole bool
}

// merged is what a pair becomes and how early. rank is none for a pair that is never joined.
type merged struct{ rank, id uint32 }

// append appends the ids of one word.
func (b *bpe) append(dst []uint32, word []byte, s *scratch) []uint32 {
	if b.whole {
		if id, ok := b.vocab.id(word); ok {
			return append(dst, id)
		}
	}
	m := &s.merge
	if b.byteLevel {
		m.ids = b.appendBytes(m.ids[:0], word)
	} else {
		m.ids = b.appendChars(m.ids[:0], word)
	}
	if len(m.ids) > longWord {
		return m.mergeLong(dst, b)
	}
	return m.mergeShort(dst, b)
}

// appendBytes starts from bytes. Upstream leaves out what is unknown if there is no unknown token.
func (b *bpe) appendBytes(dst []uint32, word []byte) []uint32 {
	unknown := false
	for _, c := range word {
		id := b.byteIDs[c]
		dst, unknown = b.appendSymbol(dst, id, unknown)
	}
	return dst
}

// appendChars starts from characters.
func (b *bpe) appendChars(dst []uint32, word []byte) []uint32 {
	unknown := false
	for i := 0; i < len(word); {
		_, n := decode(word[i:])
		char := word[i : i+n]
		i += n
		id, ok := b.vocab.id(char)
		if !ok {
			id = none
			if b.fallback && b.byteIDs.cover(char) {
				for _, c := range char {
					dst = append(dst, b.byteIDs[c])
				}
				continue
			}
		}
		dst, unknown = b.appendSymbol(dst, id, unknown)
	}
	return dst
}

// byteIDs are the tokens of single bytes, none for those without.
type byteIDs [256]uint32

// cover tells whether all bytes of text have tokens.
func (b *byteIDs) cover(text []byte) bool {
	for _, c := range text {
		if b[c] == none {
			return false
		}
	}
	return true
}

// fallbackIDs are the tokens of bytes as byte fallback spells them, <0x0A>.
func fallbackIDs(tokens map[string]uint32) (b byteIDs) {
	for c := range b {
		id, ok := tokens[fmt.Sprintf("<0x%02X>", c)]
		if !ok {
			id = none
		}
		b[c] = id
	}
	return b
}

// alphabetIDs are the tokens of bytes as a byte-level vocabulary spells them.
func alphabetIDs(tokens map[string]uint32) (b byteIDs) {
	for c := range b {
		id, ok := tokens[string(alphabet[c])]
		if !ok {
			id = none
		}
		b[c] = id
	}
	return b
}

// appendSymbol appends one starting symbol; afterUnknown and the second result tell whether the last one was unknown.
func (b *bpe) appendSymbol(dst []uint32, id uint32, afterUnknown bool) ([]uint32, bool) {
	switch {
	case id != none:
		return append(dst, id), false
	case b.unknown == none:
		return dst, false
	case afterUnknown && b.fuse:
		return dst, true
	default:
		return append(dst, b.unknown), true
	}
}

// spelled returns the id of a token of the model as the file spells it.
func (b *bpe) spelled(token string) (uint32, bool) {
	if !b.byteLevel {
		return b.vocab.id([]byte(token))
	}
	raw, ok := fromAlphabet(token)
	if !ok {
		id, ok := b.vocab.odd[token]
		return id, ok
	}
	return b.vocab.id([]byte(raw))
}
