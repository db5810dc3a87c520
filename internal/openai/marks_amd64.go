package openai

import "math/bits"

// marks finds where strings end. It looks at a window of the text as a whole, without a branch, and makes one bit per byte of it:
//
//	text      n a m e " : " a \ n b \ u 0 0 e 9 \ \ "
//	stops             1   1             1             1
//	slashes                   1     1             1 1
//
// A stop is where a search must look: a quote, unless it is escaped, a control character, which JSON forbids, and what stands behind
// a backslash, unless it is one of the usual escapes. So those cost nothing at all, and short strings no call. The zero marks
// have looked at nothing.
type marks struct {
	from, to int    // the window
	escaped  uint64 // 1 if the byte behind the window is
	stops    [windowPieces]uint64
	slashes  [windowPieces]uint64
}

// The window is one KiB: long enough for calls to cost nothing, short enough for little to be looked at in vain where strings
// are few.
const (
	pieceSize    = 64 // bytes per word of bits
	windowPieces = 16
)

// mark sets bit k of stops[j] and slashes[j] according to b[64*j+k], and returns whether the byte behind b is escaped; escaped is that
// of its first one. b has 64 bytes for each word of stops, and slashes has as many. It is written for SSE2, which every amd64 has.
//
//go:noescape
func mark(stops, slashes []uint64, b []byte, escaped uint64) (next uint64)

// look moves the window to i. Bytes behind the end of b count as stops, so that every search ends.
func (m *marks) look(b []byte, i int) {
	if i != m.to { // then it begins inside a string, but not behind a backslash
		m.escaped = 0
	}
	whole := min((len(b)-i)/pieceSize, windowPieces)
	tail := i + whole*pieceSize
	m.from, m.to = i, tail
	m.escaped = mark(m.stops[:whole], m.slashes[:whole], b[i:tail], m.escaped)
	if whole < windowPieces {
		var piece [pieceSize]byte // zeros are control characters
		copy(piece[:], b[tail:])
		mark(m.stops[whole:whole+1], m.slashes[whole:whole+1], piece[:], m.escaped)
		m.to += pieceSize
	}
}

// next is the first stop of b from i on, or the end of b, and whether there are backslashes before it.
func (m *marks) next(b []byte, i int) (stop int, slashes bool) {
	var seen uint64
	for {
		if i < m.from || i >= m.to {
			m.look(b, i)
		}
		at := uint(i - m.from)
		word, shift := at/pieceSize%windowPieces, at%pieceSize
		found := m.stops[word] >> shift
		seen |= m.slashes[word] >> shift & (found&-found - 1) // those below the lowest bit of found; all, if it is 0
		if found != 0 {
			return min(i+bits.TrailingZeros64(found), len(b)), seen != 0
		}
		i += pieceSize - int(shift)
	}
}

// stringEnd finds the quote that ends the string whose contents begin at i, and tells their form. When ok is false, end is
// where the string is wrong.
func (s *scanner) stringEnd(i int) (end int, form Form, ok bool) {
	b := s.b
	for {
		stop, slashes := s.marks.next(b, i)
		if slashes {
			form = max(form, Shortest)
		}
		switch {
		case stop == len(b):
			return stop, Plain, false
		case b[stop] == '"':
			return stop, form, true
		case b[stop] == '/' && slashes:
			form, i = Escaped, stop+1
		case b[stop] < 0x20 || !slashes:
			return stop, Plain, false
		default:
			wrong, ok := unicodeEscapeEnd(b, stop-1)
			if !ok {
				return wrong, Plain, false
			}
			form, i = Escaped, stop+5
		}
	}
}
