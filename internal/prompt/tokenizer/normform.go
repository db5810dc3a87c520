package tokenizer

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// normTables are the data of the normal forms. Hangul syllables are computed instead.
type normTables struct {
	combining  map[rune]uint8 // canonical combining class, absent for 0
	canonical  map[rune][]rune
	compatible map[rune][]rune // where it differs from canonical
	composed   map[[2]rune]rune
	lower      map[rune][]rune
}

func (n *normTables) load() {
	n.combining = make(map[rune]uint8)
	eachRun(combiningRuns, func(from, to int, v byte) {
		for c := from; c < to && v != 0; c++ {
			n.combining[rune(c)] = v
		}
	})
	read := func(data string) map[rune][]rune {
		out := make(map[rune][]rune)
		eachMap(data, func(from rune, to []rune) { out[from] = slices.Clone(to) })
		return out
	}
	n.canonical, n.compatible, n.lower = read(canonicalMaps), read(compatibleMaps), read(lowerMaps)
	n.composed = make(map[[2]rune]rune)
	eachMap(composedMaps, func(from rune, to []rune) { n.composed[[2]rune(to)] = from })
}

// Hangul syllables are composed of a leading consonant, a vowel and possibly a trailing consonant (Unicode 3.12).
const (
	hangulS, hangulL, hangulV, hangulT     = 0xAC00, 0x1100, 0x1161, 0x11A7
	hangulLS, hangulVS, hangulTS, hangulSS = 19, 21, 28, 19 * 21 * 28
)

// normalForm is NFC, NFD, NFKC or NFKD. There is no limit on the marks behind a letter: unlike golang.org/x/text, upstream
// does not break long runs of them up.
type normalForm struct{ compatible, compose bool }

func (f normalForm) keeps(t *unicodeTables, text []byte) bool {
	if f.compose && !f.compatible {
		_, unsafe := t.nextUnsafe(text, 0)
		return unsafe == len(text)
	}
	return !slices.ContainsFunc(text, func(b byte) bool { return b >= utf8.RuneSelf })
}

func (f normalForm) append(w *workspace, t *unicodeTables, dst, text []byte) []byte {
	if !f.compose || f.compatible {
		return f.appendPart(w, t, dst, text)
	}
	// Only what surrounds a character that NFC may change is looked at: from the character before it, with which it may join,
	// up to the next one that keeps to itself.
	for done := 0; ; {
		start, unsafe := t.nextUnsafe(text, done)
		if unsafe == len(text) {
			return append(dst, text[done:]...)
		}
		dst = append(dst, text[done:start]...)
		end := t.nextSafe(text, unsafe)
		dst = f.appendPart(w, t, dst, text[start:end])
		done = end
	}
}

// nextUnsafe finds the first character at or behind from that NFC may change, and the start of the one before it.
func (t *unicodeTables) nextUnsafe(text []byte, from int) (before, unsafe int) {
	const high = 0x8080808080808080 // of eight bytes
	before = from
	for i := from; i < len(text); {
		if len(text)-i >= 8 && binary.LittleEndian.Uint64(text[i:])&high == 0 {
			i += 8
			before = i - 1
			continue
		}
		if text[i] < utf8.RuneSelf {
			before = i
			i++
			continue
		}
		r, n := decode(text[i:])
		if t.traits[r]&nfcUnsafe != 0 {
			return before, i
		}
		before = i
		i += n
	}
	return len(text), len(text)
}

// nextSafe finds the first character at or behind from that NFC leaves alone.
func (t *unicodeTables) nextSafe(text []byte, from int) int {
	for i := from; i < len(text); {
		r, n := decode(text[i:])
		if t.traits[r]&nfcUnsafe == 0 {
			return i
		}
		i += n
	}
	return len(text)
}

// appendPart normalizes a text that begins with a character that nothing before it can change.
func (f normalForm) appendPart(w *workspace, t *unicodeTables, dst, text []byte) []byte {
	b := &w.runes
	b.runes, b.class = b.runes[:0], b.class[:0]
	for i := 0; i < len(text); {
		r, n := decode(text[i:])
		b.decompose(&t.norm, r, f.compatible)
		i += n
	}
	b.order()
	if f.compose {
		b.compose(&t.norm)
	}
	return appendRunes(dst, b.runes)
}

// runeBuffer is a text as characters with their combining classes.
type runeBuffer struct {
	runes  []rune
	class  []uint8
	sorted []rune // for order
}

func (b *runeBuffer) trim() {
	if cap(b.runes) > keepWork {
		*b = runeBuffer{}
	}
}

func (b *runeBuffer) decompose(n *normTables, r rune, compatible bool) {
	if s := r - hangulS; 0 <= s && s < hangulSS {
		b.runes = append(b.runes, hangulL+s/(hangulVS*hangulTS), hangulV+s%(hangulVS*hangulTS)/hangulTS)
		b.class = append(b.class, 0, 0)
		if tail := s % hangulTS; tail != 0 {
			b.runes, b.class = append(b.runes, hangulT+tail), append(b.class, 0)
		}
		return
	}
	parts := n.canonical[r]
	if p := n.compatible[r]; compatible && p != nil {
		parts = p
	}
	if parts == nil {
		b.runes, b.class = append(b.runes, r), append(b.class, n.combining[r])
		return
	}
	for _, p := range parts {
		b.runes, b.class = append(b.runes, p), append(b.class, n.combining[p])
	}
}

// order brings every run of marks into the order of their classes, keeping marks of the same class as they are.
func (b *runeBuffer) order() {
	for i := 0; i < len(b.class); {
		if b.class[i] == 0 {
			i++
			continue
		}
		end := i
		for end < len(b.class) && b.class[end] != 0 {
			end++
		}
		if !slices.IsSorted(b.class[i:end]) {
			b.orderRun(i, end)
		}
		i = end
	}
}

// orderRun is a counting sort, so that a megabyte of marks behind one letter costs no more than elsewhere.
func (b *runeBuffer) orderRun(from, to int) {
	var starts [257]int
	for _, k := range b.class[from:to] {
		starts[int(k)+1]++
	}
	for k := 1; k < len(starts); k++ {
		starts[k] += starts[k-1]
	}
	b.sorted = slices.Grow(b.sorted[:0], to-from)[:to-from]
	for i := from; i < to; i++ {
		k := b.class[i]
		b.sorted[starts[k]] = b.runes[i]
		starts[k]++
	}
	copy(b.runes[from:to], b.sorted)
	slices.Sort(b.class[from:to])
}

// compose joins characters with the starter before them (Unicode 3.11, D117).
func (b *runeBuffer) compose(n *normTables) {
	out, starter, last := 0, -1, -1 // last is the class of the character before in out behind the starter, -1 for none
	for i, r := range b.runes {
		k := int(b.class[i])
		if starter >= 0 && last < k {
			if joined, ok := n.join(b.runes[starter], r); ok {
				b.runes[starter] = joined
				continue
			}
		}
		if k == 0 {
			starter, last = out, -1
		} else {
			last = k
		}
		b.runes[out] = r
		out++
	}
	b.runes = b.runes[:out]
}

// join returns the composite of two characters.
func (n *normTables) join(a, b rune) (rune, bool) {
	l, v, tail := a-hangulL, b-hangulV, b-hangulT
	if 0 <= l && l < hangulLS && 0 <= v && v < hangulVS {
		return hangulS + (l*hangulVS+v)*hangulTS, true
	}
	if s := a - hangulS; 0 <= s && s < hangulSS && s%hangulTS == 0 && 0 < tail && tail < hangulTS {
		return a + tail, true
	}
	r, ok := n.composed[[2]rune{a, b}]
	return r, ok
}

// appendRunes appends characters as UTF-8, and bytes that were none as they were.
func appendRunes(dst []byte, runes []rune) []byte {
	for _, r := range runes {
		if r >= rawByte {
			dst = append(dst, byte(r-rawByte))
			continue
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}
