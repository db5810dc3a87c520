package wire

import (
	"encoding/binary"
	"math"
)

// Lead bytes of MessagePack (github.com/msgpack/msgpack, spec.md). Small values stand in the lead byte itself: integers
// 0x00-0x7f and 0xe0-0xff, maps 0x80-0x8f, arrays 0x90-0x9f, strings 0xa0-0xbf.
const (
	leadNil      = 0xc0
	leadNever    = 0xc1
	leadFalse    = 0xc2
	leadTrue     = 0xc3
	leadBin8     = 0xc4
	leadBin16    = 0xc5
	leadBin32    = 0xc6
	leadExt8     = 0xc7
	leadExt32    = 0xc9
	leadFloat32  = 0xca
	leadFloat64  = 0xcb
	leadUint8    = 0xcc
	leadUint16   = 0xcd
	leadUint32   = 0xce
	leadUint64   = 0xcf
	leadInt8     = 0xd0
	leadInt16    = 0xd1
	leadInt32    = 0xd2
	leadInt64    = 0xd3
	leadFixExt1  = 0xd4
	leadFixExt16 = 0xd8
	leadStr8     = 0xd9
	leadStr16    = 0xda
	leadStr32    = 0xdb
	leadArray16  = 0xdc
	leadArray32  = 0xdd
	leadMap16    = 0xde
	leadMap32    = 0xdf
)

// reader walks over MessagePack.
//
// A method that reads one type returns ok false, and stays where it is, when another type stands there; the caller decides
// what that means. Broken bytes are another matter: they set err and move to the end, where every method does nothing and
// every loop ends, so callers look at err once. Lengths are checked against the bytes that are left before anyone believes
// them.
type reader struct {
	b   []byte
	i   int
	err *SyntaxError
}

func (r *reader) fail(at int, want string) {
	if r.err == nil {
		r.err = &SyntaxError{Offset: at, Want: want, Got: found(r.b, at)}
	}
	r.i = len(r.b)
}

// peek is the next lead byte. At the end it fails and returns 0xc1, which begins nothing.
func (r *reader) peek() byte {
	if r.i < len(r.b) {
		return r.b[r.i]
	}
	r.fail(len(r.b), "a value")
	return leadNever
}

// has reports whether n more bytes are there, and fails if not.
func (r *reader) has(n int) bool {
	if n <= len(r.b)-r.i {
		return true
	}
	r.fail(len(r.b), "the rest of a value")
	return false
}

// size reads the big-endian length of width bytes (1, 2 or 4) behind the lead byte.
func (r *reader) size(width int) (n int, ok bool) {
	if !r.has(1 + width) {
		return 0, false
	}
	at := r.b[r.i+1:]
	switch width {
	case 1:
		n = int(at[0])
	case 2:
		n = int(binary.BigEndian.Uint16(at))
	default:
		n = int(binary.BigEndian.Uint32(at))
	}
	return n, true
}

// open passes the head of a list of n elements that take at least least bytes each.
func (r *reader) open(n, width, least int) (int, bool) {
	if width > 0 {
		var ok bool
		if n, ok = r.size(width); !ok {
			return 0, false
		}
	}
	if n > (len(r.b)-r.i-1-width)/least {
		r.fail(len(r.b), "as many elements as the list says")
		return 0, false
	}
	r.i += 1 + width
	return n, true
}

// array passes the head of an array.
func (r *reader) array() (n int, ok bool) {
	switch c := r.peek(); {
	case c&0xf0 == 0x90:
		return r.open(int(c&0x0f), 0, 1)
	case c == leadArray16:
		return r.open(0, 2, 1)
	case c == leadArray32:
		return r.open(0, 4, 1)
	default:
		return 0, false
	}
}

// object passes the head of a map of n members.
func (r *reader) object() (n int, ok bool) {
	switch c := r.peek(); {
	case c&0xf0 == 0x80:
		return r.open(int(c&0x0f), 0, 2)
	case c == leadMap16:
		return r.open(0, 2, 2)
	case c == leadMap32:
		return r.open(0, 4, 2)
	default:
		return 0, false
	}
}

// isMap reports whether a map begins here.
func (r *reader) isMap() bool {
	c := r.peek()
	return c&0xf0 == 0x80 || c == leadMap16 || c == leadMap32
}

// null passes nil.
func (r *reader) null() bool {
	if r.peek() != leadNil {
		return false
	}
	r.i++
	return true
}

// text reads a string.
func (r *reader) text() (Span, bool) {
	switch c := r.peek(); {
	case c&0xe0 == 0xa0:
		return r.contents(int(c&0x1f), 0)
	case c == leadStr8:
		return r.contents(0, 1)
	case c == leadStr16:
		return r.contents(0, 2)
	case c == leadStr32:
		return r.contents(0, 4)
	default:
		return Span{}, false
	}
}

// bytes reads binary data.
func (r *reader) bytes() (Span, bool) {
	switch r.peek() {
	case leadBin8:
		return r.contents(0, 1)
	case leadBin16:
		return r.contents(0, 2)
	case leadBin32:
		return r.contents(0, 4)
	default:
		return Span{}, false
	}
}

// contents passes a string or binary data of n bytes, or of as many as the length of width bytes says.
func (r *reader) contents(n, width int) (Span, bool) {
	if width > 0 {
		var ok bool
		if n, ok = r.size(width); !ok {
			return Span{}, false
		}
	}
	if !r.has(1 + width + n) {
		return Span{}, false
	}
	from := r.i + 1 + width
	r.i = from + n
	return Span{uint32(from), uint32(r.i)}, true
}

// integer reads an integer of any form, a negative one in two's complement.
func (r *reader) integer() (v uint64, negative, ok bool) {
	c := r.peek()
	if c < 0x80 || c >= 0xe0 {
		r.i++
		return uint64(int64(int8(c))), c >= 0xe0, true
	}
	if c < leadUint8 || c > leadInt64 {
		return 0, false, false
	}
	width := 1 << ((c - leadUint8) & 3)
	if !r.has(1 + width) {
		return 0, false, false
	}
	at := r.b[r.i+1:]
	switch c {
	case leadUint8:
		v = uint64(at[0])
	case leadUint16:
		v = uint64(binary.BigEndian.Uint16(at))
	case leadUint32:
		v = uint64(binary.BigEndian.Uint32(at))
	case leadUint64, leadInt64:
		v = binary.BigEndian.Uint64(at)
	case leadInt8:
		v = uint64(int64(int8(at[0])))
	case leadInt16:
		v = uint64(int64(int16(binary.BigEndian.Uint16(at))))
	default:
		v = uint64(int64(int32(binary.BigEndian.Uint32(at))))
	}
	r.i += 1 + width
	return v, c >= leadInt8 && int64(v) < 0, true
}

// within reads an integer from 0 to limit.
func (r *reader) within(limit uint64) (v uint64, ok bool) {
	at := r.i
	v, negative, ok := r.integer()
	if ok && (negative || v > limit) {
		r.i = at
		return 0, false
	}
	return v, ok
}

// signed reads an integer that fits int64.
func (r *reader) signed() (v int64, ok bool) {
	at := r.i
	u, negative, ok := r.integer()
	if ok && !negative && u > math.MaxInt64 {
		r.i = at
		return 0, false
	}
	return int64(u), ok
}

// number reads a float or an integer.
func (r *reader) number() (v float64, ok bool) {
	switch r.peek() {
	case leadFloat64:
		if !r.has(9) {
			return 0, false
		}
		v = math.Float64frombits(binary.BigEndian.Uint64(r.b[r.i+1:]))
		r.i += 9
		return v, true
	case leadFloat32:
		if !r.has(5) {
			return 0, false
		}
		v = float64(math.Float32frombits(binary.BigEndian.Uint32(r.b[r.i+1:])))
		r.i += 5
		return v, true
	default:
		u, negative, ok := r.integer()
		if negative {
			return float64(int64(u)), ok
		}
		return float64(u), ok
	}
}

// skip passes one value of any type. It counts the values still to come instead of descending, so depth costs nothing.
func (r *reader) skip() {
	for left := 1; left > 0; left-- {
		n := r.head()
		if r.err != nil {
			return
		}
		if left += n; left-1 > len(r.b)-r.i {
			r.fail(len(r.b), "as many elements as the list says")
			return
		}
	}
}

// head passes one value, or the head of a list, and returns how many values the list holds.
func (r *reader) head() (inside int) {
	c := r.peek()
	switch {
	case c < 0x80 || c >= 0xe0 || c == leadNil || c == leadFalse || c == leadTrue:
		r.i++
	case c&0xe0 == 0xa0 || c >= leadStr8 && c <= leadStr32:
		r.text()
	case c >= leadBin8 && c <= leadBin32:
		r.bytes()
	case c&0xf0 == 0x90 || c == leadArray16 || c == leadArray32:
		inside, _ = r.array()
	case c&0xf0 == 0x80 || c == leadMap16 || c == leadMap32:
		inside, _ = r.object()
		inside *= 2
	case c >= leadFloat32 && c <= leadInt64:
		r.number()
	case c >= leadExt8 && c <= leadExt32:
		r.extension(1 << (c - leadExt8))
	case c >= leadFixExt1 && c <= leadFixExt16:
		if n := 2 + 1<<(c-leadFixExt1); r.has(n) {
			r.i += n
		}
	default:
		if r.err == nil {
			r.fail(r.i, "a value")
		}
	}
	return inside
}

// extension passes an extension value: lead byte, length of width bytes, type, data.
func (r *reader) extension(width int) {
	if n, ok := r.size(width); ok && r.has(2+width+n) {
		r.i += 2 + width + n
	}
}
