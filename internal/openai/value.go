package openai

import (
	"math"
	"strconv"
)

// skip passes one value of any kind, checking it, and returns where it stands. It keeps the kinds of the open brackets
// in a bit set instead of recursing: tools and token ids are many small values.
func (s *scanner) skip() Span {
	s.peek()
	from, base := s.i, s.depth
	var arrays [maxDepth/64 + 1]uint64 // bit d: the bracket opened at depth d is '['
	for {
		switch c := s.peek(); {
		case c == '"':
			s.str()
		case c == '{':
			s.open('{')
			if s.take('}') {
				s.depth--
				break
			}
			arrays[s.depth/64] &^= 1 << (s.depth % 64)
			if _, ok := s.name(); !ok {
				return Span{}
			}
			continue
		case c == '[':
			s.open('[')
			if s.take(']') {
				s.depth--
				break
			}
			arrays[s.depth/64] |= 1 << (s.depth % 64)
			if s.err != nil {
				return Span{}
			}
			continue
		case c == '-' || c >= '0' && c <= '9':
			s.number()
		default:
			s.literal()
		}
		// A value is complete: close what ends with it, until a comma announces another.
		for {
			if s.err != nil {
				return Span{}
			}
			if s.depth == base {
				return Span{from, s.i}
			}
			inArray := arrays[s.depth/64]&(1<<(s.depth%64)) != 0
			if s.take(',') {
				if !inArray {
					s.name()
				}
				break
			}
			switch {
			case inArray && s.take(']'), !inArray && s.take('}'):
				s.depth--
			case inArray:
				s.unexpected("',' or ']' after the array element")
			default:
				s.unexpected("',' or '}' after the object member")
			}
		}
	}
}

const literalTrue = "true"

// literal passes true, false or null.
func (s *scanner) literal() {
	var word string
	switch rest := s.b[s.i:]; {
	case len(rest) == 0:
	case rest[0] == 't':
		word = literalTrue
	case rest[0] == 'f':
		word = "false"
	case rest[0] == 'n':
		word = "null"
	}
	if word == "" {
		s.unexpected("a value")
		return
	}
	for k := range len(word) {
		if s.i == len(s.b) || s.b[s.i] != word[k] {
			s.unexpected(word)
			return
		}
		s.i++
	}
}

// number passes a number in JSON's grammar: no sign but '-', no leading zero, a digit on each side of the point.
func (s *scanner) number() {
	if s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if !s.digits() {
		return
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if !s.digits() {
			return
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		s.digits()
	}
}

// digits passes one digit or more.
func (s *scanner) digits() bool {
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	if s.i == from {
		s.unexpected("a digit")
		return false
	}
	return true
}

// text reads a value that is a string; every other value is passed and counts as empty.
func (s *scanner) text() (contents Span) {
	if s.peek() != '"' {
		s.skip()
		return Span{}
	}
	contents, _ = s.str()
	return contents
}

// flag reads a value that is true; every other value is passed and counts as false.
func (s *scanner) flag() bool {
	return string(s.skip().In(s.b)) == literalTrue
}

// integer reads a number as an int, cutting off a fraction and keeping within 32 bits; every other value is passed and
// ok is false.
func (s *scanner) integer() (n int, ok bool) {
	s.peek()
	raw := s.skip()
	if s.err != nil {
		return 0, false
	}
	return integer(raw.In(s.b))
}

// integer is a checked JSON value as an int, as the method of that name reads it.
func integer(raw []byte) (n int, ok bool) {
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(raw), 64) // an int of 32 bits is exact in a float64
	if err != nil && f == 0 {
		return 0, false
	}
	return int(max(math.MinInt32, min(f, math.MaxInt32))), true
}
