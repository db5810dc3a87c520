package tokenizer

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"strings"
)

// vocabulary finds the id of a token by its bytes. All tokens lie in one block and the table holds nothing but ids: a Go map
// of 150,000 strings would take four times the memory.
type vocabulary struct {
	block []byte
	spans []span   // by id; unused ids have the length absent
	table []uint32 // open addressing, none where empty
	seed  maphash.Seed
	// odd are the tokens of a byte-level vocabulary that are not written in the byte alphabet. No text leads to them.
	odd map[string]uint32
}

type span struct{ start, length uint32 }

const absent = none

// newVocabulary expects distinct ids.
func newVocabulary(tokens map[string]uint32, ids int) (vocabulary, error) {
	v := vocabulary{spans: make([]span, ids), seed: maphash.MakeSeed()}
	for i := range v.spans {
		v.spans[i].length = absent
	}
	size := 0
	for s := range tokens {
		size += len(s)
	}
	v.block = make([]byte, 0, size)
	v.table = make([]uint32, tableSize(len(tokens)))
	for i := range v.table {
		v.table[i] = none
	}
	for s, id := range tokens {
		if v.spans[id].length != absent {
			return v, fmt.Errorf("model.vocab: %q and %q both have the id %d, expected one token for an id", s, v.text(id), id)
		}
		v.spans[id] = span{uint32(len(v.block)), uint32(len(s))}
		v.block = append(v.block, s...)
		i := maphash.String(v.seed, s) & uint64(len(v.table)-1)
		for v.table[i] != none {
			i = (i + 1) & uint64(len(v.table)-1)
		}
		v.table[i] = id
	}
	return v, nil
}

// id returns the id of a token.
func (v *vocabulary) id(token []byte) (uint32, bool) {
	i := maphash.Bytes(v.seed, token) & uint64(len(v.table)-1)
	for ; v.table[i] != none; i = (i + 1) & uint64(len(v.table)-1) {
		if id := v.table[i]; string(v.text(id)) == string(token) {
			return id, true
		}
	}
	return 0, false
}

// text returns the bytes of a token, which must exist.
func (v *vocabulary) text(id uint32) []byte {
	s := v.spans[id]
	return v.block[s.start : s.start+s.length]
}

// tableSize is a power of two that leaves a third of a table of n entries free, and at least one place.
func tableSize(n int) int { return 1 << bits.Len(uint(n+n/2)) }

// pairTable finds what two neighbouring tokens become.
type pairTable struct {
	slots []pairSlot // open addressing; rank none where empty
	shift uint
}

type pairSlot struct {
	merged

	key uint64
}

func newPairTable(n int) pairTable {
	slots := make([]pairSlot, tableSize(n))
	for i := range slots {
		slots[i].rank = none
	}
	return pairTable{slots, uint(64 - bits.Len(uint(len(slots)-1)))}
}

// find returns the place of a pair: its own or the empty one where it would stand.
func (p *pairTable) find(key uint64) *pairSlot {
	i := key * 0x9E3779B97F4A7C15 >> (p.shift & 63)
	for {
		s := &p.slots[i&uint64(len(p.slots)-1)]
		if s.key == key || s.rank == none {
			return s
		}
		i++
	}
}

// get returns what a pair becomes; its rank is none if it is never joined.
func (p *pairTable) get(left, right uint32) merged {
	return p.find(pairKey(left, right)).merged
}

// put sets what a pair becomes. The last word counts, as upstream.
func (p *pairTable) put(left, right uint32, m merged) {
	s := p.find(pairKey(left, right))
	s.key, s.merged = pairKey(left, right), m
}

// grown returns a table twice as large with the same pairs.
func (p *pairTable) grown() pairTable {
	out := newPairTable(len(p.slots))
	for _, s := range p.slots {
		if s.rank != none {
			*out.find(s.key) = s
		}
	}
	return out
}

func pairKey(left, right uint32) uint64 { return uint64(left)<<32 | uint64(right) }

// alphabet holds the character by which byte-level vocabularies write each byte: printable ones as themselves, the others in
// order from U+0100 on.
var alphabet = func() (a [256]rune) {
	other := rune(0x100)
	for c := range rune(256) {
		if '!' <= c && c <= '~' || 0xA1 <= c && c <= 0xAC || 0xAE <= c {
			a[c] = c
		} else {
			a[c] = other
			other++
		}
	}
	return a
}()

// fromAlphabet is the inverse of alphabet for a whole token; ok is false if a character is none of its.
func fromAlphabet(token string) (raw string, ok bool) {
	plain := 0
	for plain < len(token) && '!' <= token[plain] && token[plain] <= '~' {
		plain++
	}
	if plain == len(token) {
		return token, true // most are spelled as they are
	}
	out := append(make([]byte, 0, len(token)), token[:plain]...)
	for _, r := range token[plain:] {
		if int(r) >= len(alphabetBytes) || alphabetBytes[r] < 0 {
			return "", false
		}
		out = append(out, byte(alphabetBytes[r]))
	}
	return string(out), true
}

// alphabetBytes are the bytes that characters stand for, -1 for none.
var alphabetBytes = func() (bytes [0x144]int16) {
	for i := range bytes {
		bytes[i] = -1
	}
	for c, r := range alphabet {
		bytes[r] = int16(c)
	}
	return bytes
}()

// texts are what ids decode to, in one block.
type texts struct {
	block []byte
	spans []span
}

func (t *texts) of(id uint32) []byte {
	if int64(id) >= int64(len(t.spans)) || t.spans[id].length == absent {
		return nil
	}
	s := t.spans[id]
	return t.block[s.start : s.start+s.length]
}

func (t *texts) set(id uint32, text string) {
	t.spans[id] = span{uint32(len(t.block)), uint32(len(text))}
	t.block = append(t.block, text...)
}

func newTexts(ids int) texts {
	t := texts{spans: make([]span, ids)}
	for i := range t.spans {
		t.spans[i].length = absent
	}
	return t
}

// decoding is how the text of a token is made from its spelling.
type decoding struct {
	byteLevel, byteFallback bool
	// space is written for a blank; empty if blanks are written as such.
	space string
	// trimSpace: one blank at the beginning of a text is left out. trimAll: all of the first token are.
	trimSpace, trimAll bool
}

// spell returns the text of a token.
func (d decoding) spell(token string) string {
	if d.byteLevel {
		if raw, ok := fromAlphabet(token); ok {
			return raw
		}
		return token
	}
	if c, ok := fallbackByte(token); ok && d.byteFallback {
		return string([]byte{c})
	}
	if d.space != "" {
		token = strings.ReplaceAll(token, d.space, " ")
	}
	return token
}

func (d decoding) trimFirst(text []byte) []byte {
	switch {
	case d.trimSpace && len(text) > 0 && text[0] == ' ':
		return text[1:]
	case d.trimAll:
		for len(text) > 0 && text[0] == ' ' {
			text = text[1:]
		}
	}
	return text
}

// fallbackByte reads a token like <0x0A>.
func fallbackByte(token string) (byte, bool) {
	var c byte
	if len(token) != 6 {
		return 0, false
	}
	if _, err := fmt.Sscanf(token, "<0x%02X>", &c); err != nil || token != fmt.Sprintf("<0x%02X>", c) {
		return 0, false
	}
	return c, true
}
