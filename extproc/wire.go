package extproc

import (
	"encoding/binary"
	"errors"
	"math"
)

// The protobuf wire format, as far as ext_proc messages need it (https://protobuf.dev/programming-guides/encoding).
// A field is a tag (number<<3 | wire type) and a value.

// errWire says that bytes are not a protobuf message.
var errWire = errors.New("not a protobuf message: a field is cut short or has an unknown wire type")

// Wire types. Groups (3, 4) are not used by any message of ext_proc and count as malformed.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// tag of a field number with a wire type.
func tag(number, wire uint64) uint64 { return number<<3 | wire }

// fields walks the fields of one message without copying: for f.next() { switch f.tag … }; f.err tells at the end whether
// the input was well formed. bytes, a slice of the input, is set for length-delimited fields, varint for numbers.
type fields struct {
	rest   []byte
	tag    uint64
	bytes  []byte
	varint uint64
	err    error
}

func (f *fields) next() bool {
	if len(f.rest) == 0 || f.err != nil {
		return false
	}
	tag, n := binary.Uvarint(f.rest)
	if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return f.fail()
	}
	f.tag, f.rest, f.bytes, f.varint = tag, f.rest[n:], nil, 0
	switch tag & 7 {
	case wireVarint:
		v, n := binary.Uvarint(f.rest)
		if n <= 0 {
			return f.fail()
		}
		f.varint, f.rest = v, f.rest[n:]
	case wireBytes:
		size, n := binary.Uvarint(f.rest)
		if n <= 0 || size > uint64(len(f.rest)-n) {
			return f.fail()
		}
		f.bytes, f.rest = f.rest[n:n+int(size)], f.rest[n+int(size):]
	case wireFixed64:
		return f.skip(8)
	case wireFixed32:
		return f.skip(4)
	default:
		return f.fail()
	}
	return true
}

func (f *fields) skip(n int) bool {
	if len(f.rest) < n {
		return f.fail()
	}
	f.rest = f.rest[n:]
	return true
}

func (f *fields) fail() bool {
	f.err = errWire
	return false
}

// encoder builds a message from its end to its start: what a nested message contains is written before its length is
// needed, so nothing is computed twice or moved. The last bytes of the message may live elsewhere (tail), which is how a
// request body is sent back without being copied.
type encoder struct {
	buf  []byte
	at   int // buf[at:] is written
	tail int // bytes that follow buf and are written by somebody else
}

func newEncoder(capacity, tail int) encoder {
	return encoder{buf: make([]byte, capacity), at: capacity, tail: tail}
}

// size is how many bytes are written so far, the tail included; it marks the end of a nested message.
func (e *encoder) size() int { return len(e.buf) - e.at + e.tail }

func (e *encoder) bytes() []byte { return e.buf[e.at:] }

func (e *encoder) room(n int) []byte {
	if e.at < n {
		grown := make([]byte, 2*len(e.buf)+n)
		at := len(grown) - (len(e.buf) - e.at)
		copy(grown[at:], e.buf[e.at:])
		e.buf, e.at = grown, at
	}
	e.at -= n
	return e.buf[e.at : e.at+n]
}

func (e *encoder) uvarint(v uint64) {
	var b [binary.MaxVarintLen64]byte
	copy(e.room(binary.PutUvarint(b[:], v)), b[:])
}

// nest turns everything written since the mark into a length-delimited field.
func (e *encoder) nest(number uint64, mark int) {
	e.uvarint(uint64(e.size() - mark))
	e.uvarint(tag(number, wireBytes))
}

func (e *encoder) text(number uint64, s string) {
	copy(e.room(len(s)), s)
	e.uvarint(uint64(len(s)))
	e.uvarint(tag(number, wireBytes))
}

func (e *encoder) data(number uint64, b []byte) {
	copy(e.room(len(b)), b)
	e.uvarint(uint64(len(b)))
	e.uvarint(tag(number, wireBytes))
}

func (e *encoder) number(number, v uint64) {
	e.uvarint(v)
	e.uvarint(tag(number, wireVarint))
}

func (e *encoder) double(number uint64, v float64) {
	binary.LittleEndian.PutUint64(e.room(8), math.Float64bits(v))
	e.uvarint(tag(number, wireFixed64))
}
