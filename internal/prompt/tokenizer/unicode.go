package tokenizer

import (
	"encoding/binary"
	"sync"
	"unicode/utf8"
)

// class is what the word patterns ask of a character. The bits are in the order in which internal/unicodegen writes them.
type class uint8

const (
	upper    class = 1 << iota // Lu, Lt
	lower                      // Ll
	caseless                   // Lm, Lo
	mark                       // M
	number                     // N
	symbol                     // P, S
	space                      // White_Space
	newline                    // CR, LF
	letter   = upper | lower | caseless
)

// trait is what the other parts ask of a character.
type trait uint8

const (
	wordChar  trait = 1 << iota // \w of the rule for single_word
	digitChar                   // what the Digits pre-tokenizer cuts off
	nfcUnsafe                   // NFC may change it, or it may change places or join with what stands before it
	hanChar                     // of the script Han
)

const (
	points = utf8.MaxRune + 1
	// rawByte added to a byte stands for one that is no UTF-8. It is above all code points and has no class.
	rawByte = points
)

// unicodeTables answers for every code point. They are large and plain, as one load is all that an answer may cost.
type unicodeTables struct {
	classes [points + 256]class
	traits  [points + 256]trait
	norm    normTables
}

// sharedTables are made once, when the first tokenizer is parsed, and are the same for all.
var sharedTables = sync.OnceValue(func() *unicodeTables {
	t := new(unicodeTables)
	eachRun(classRuns, func(from, to int, v byte) {
		for c := from; c < to && v != 0; c++ {
			t.classes[c] = class(v)
		}
	})
	eachRun(traitRuns, func(from, to int, v byte) {
		for c := from; c < to && v != 0; c++ {
			t.traits[c] = trait(v)
		}
	})
	t.norm.load()
	return t
})

// class returns the class and the length of the first character of text, which must not be empty.
func (t *unicodeTables) class(text []byte) (class, int) {
	if c := text[0]; c < utf8.RuneSelf {
		return t.classes[c], 1
	}
	r, n := decode(text)
	return t.classes[r], n
}

// run returns the end of the run of characters of any class in set that begins at i.
func (t *unicodeTables) run(text []byte, i int, set class) int {
	for i < len(text) {
		if c := text[i]; c < utf8.RuneSelf {
			if t.classes[c]&set == 0 {
				return i
			}
			i++
			continue
		}
		r, n := decode(text[i:])
		if t.classes[r]&set == 0 {
			return i
		}
		i += n
	}
	return i
}

// runNot is run for the characters of none of the classes in set.
func (t *unicodeTables) runNot(text []byte, i int, set class) int {
	for i < len(text) {
		k, n := t.class(text[i:])
		if k&set != 0 {
			return i
		}
		i += n
	}
	return i
}

// decode is utf8.DecodeRune with a value of its own for bytes that are no UTF-8.
func decode(text []byte) (rune, int) {
	r, n := utf8.DecodeRune(text)
	if r == utf8.RuneError && n == 1 {
		return rawByte + rune(text[0]), 1
	}
	return r, n
}

// decodeLast is decode for the last character.
func decodeLast(text []byte) (rune, int) {
	r, n := utf8.DecodeLastRune(text)
	if r == utf8.RuneError && n == 1 {
		return rawByte + rune(text[len(text)-1]), 1
	}
	return r, n
}

// eachRun reads a generated table of runs.
func eachRun(data string, run func(from, to int, value byte)) {
	b, at := []byte(data), 0
	for len(b) > 1 {
		length, n := binary.Uvarint(b)
		run(at, at+int(length), b[n])
		at, b = at+int(length), b[n+1:]
	}
}

// eachMap reads a generated table of what code points become. to is valid during the call only.
func eachMap(data string, mapping func(from rune, to []rune)) {
	b, at := []byte(data), rune(0)
	var to []rune
	for len(b) > 1 {
		step, n := binary.Uvarint(b)
		count := int(b[n])
		at, b, to = at+rune(step), b[n+1:], to[:0]
		for range count {
			r, n := binary.Uvarint(b)
			to, b = append(to, rune(r)), b[n:]
		}
		mapping(at, to)
	}
}
