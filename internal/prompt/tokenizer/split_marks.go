package tokenizer

import (
	"bytes"
	"strings"
)

// Vocabularies in the manner of SentencePiece take a whole text for one word, with "▁" for each blank. Merging it as one word is
// slow, and none of it would ever be found in the table of words. But what no merge joins can as well be cut before.

// blankMark is what stands for a blank.
const blankMark = "▁"

// appendMarks appends a stage that cuts before a blankMark wherever no merge joins it with the character before it.
func (t *Tokenizer) appendMarks(b *bpe) {
	if _, known := b.vocab.id([]byte(blankMark)); !known || b.byteLevel || b.whole || b.drops() {
		return
	}
	joined, ok := b.joinedWithMark()
	if !ok {
		return
	}
	t.stages = append(t.stages, stage{next: splitMarks(joined), shortcut: true})
}

// joinedWithMark returns the characters that stand before a blankMark within a token that merges make. ok is false if the token
// of a byte or of what is unknown is before one, which stands for many characters.
func (b *bpe) joinedWithMark() (joined map[rune]bool, ok bool) {
	joined = make(map[rune]bool)
	for _, slot := range b.pairs.slots {
		if slot.rank == none {
			continue
		}
		text := string(b.vocab.text(slot.id))
		for i := 0; i < len(text); {
			n := strings.Index(text[i:], blankMark)
			if n < 0 {
				break
			}
			if i += n; i > 0 {
				c, _ := decodeLast([]byte(text[:i]))
				joined[c] = true
				_, isByte := fallbackByte(text[max(0, i-len("<0x00>")):i])
				if isByte || b.unknown != none && strings.HasSuffix(text[:i], string(b.vocab.text(b.unknown))) {
					return nil, false
				}
			}
			i += len(blankMark)
		}
	}
	mark, _ := decode([]byte(blankMark))
	joined[mark] = true
	return joined, true
}

// drops tells that a character may leave no symbol, so that its neighbours become neighbours of each other.
func (b *bpe) drops() bool {
	if b.unknown != none {
		return false
	}
	for c, id := range b.byteIDs {
		if id == none && inUTF8(byte(c)) {
			return true
		}
	}
	return !b.fallback
}

func splitMarks(joined map[rune]bool) splitter {
	mark := []byte(blankMark)
	return func(_ *unicodeTables, text []byte) int {
		for i := 1; i < len(text); {
			n := bytes.Index(text[i:], mark)
			if n < 0 {
				break
			}
			i += n
			if c, _ := decodeLast(text[:i]); !joined[c] {
				return i
			}
			i += len(mark)
		}
		return len(text)
	}
}
