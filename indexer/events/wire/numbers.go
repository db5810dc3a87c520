package wire

import (
	"encoding/binary"
	"math"
)

// hashes reads len(dst) block hashes: integers, or bytes, of which digests tells. ok is false when something else stands
// there.
func (r *reader) hashes(dst []uint64) (digests, ok bool) {
	for k := range dst {
		if b, i := r.b, r.i; i+9 <= len(b) && (b[i] == leadUint64 || b[i] == leadInt64) {
			dst[k] = binary.BigEndian.Uint64(b[i+1:])
			r.i = i + 9
			continue
		}
		h, digest, ok := r.hash()
		if !ok {
			return false, false
		}
		dst[k] = h
		digests = digests || digest
	}
	return digests, true
}

// hash reads one block hash and reduces it to 64 bits; see Event.Hashes.
func (r *reader) hash() (h uint64, digest, ok bool) {
	if h, _, ok = r.integer(); ok {
		return h, false, true
	}
	s, ok := r.bytes()
	if !ok || s.Empty() {
		return 0, false, false
	}
	b := s.In(r.b)
	for _, c := range b[max(0, len(b)-8):] {
		h = h<<8 | uint64(c)
	}
	return h, true, true
}

// tokens reads len(dst) token ids. Almost all the bytes of a batch are read here. Ids below 128 take one byte, below 65,536
// three, others five; the loop has them inline, most frequent first, while five bytes are there.
func (r *reader) tokens(dst []uint32) (ok bool) {
	b, i := r.b, r.i
	for k := range dst {
		if i+5 > len(b) {
			r.i = i
			return r.lastTokens(dst[k:])
		}
		switch p := b[i : i+5 : i+5]; {
		case p[0] == leadUint16:
			dst[k] = uint32(p[1])<<8 | uint32(p[2])
			i += 3
		case p[0] == leadUint32:
			dst[k] = binary.BigEndian.Uint32(p[1:])
			i += 5
		case p[0] < 0x80:
			dst[k] = uint32(p[0])
			i++
		case p[0] == leadUint8:
			dst[k] = uint32(p[1])
			i += 2
		default: // wider than need be, or signed
			r.i = i
			v, ok := r.within(math.MaxUint32)
			if !ok {
				return false
			}
			dst[k] = uint32(v)
			i = r.i
		}
	}
	r.i = i
	return true
}

// lastTokens is tokens without the haste.
func (r *reader) lastTokens(dst []uint32) (ok bool) {
	for k := range dst {
		v, ok := r.within(math.MaxUint32)
		if !ok {
			return false
		}
		dst[k] = uint32(v)
	}
	return true
}

// pairs reads len(dst) pairs of token ids, each beginning with the id that ends the one before. dst gets the first ids, next is
// the last second one.
func (r *reader) pairs(dst []uint32) (next uint32, ok bool) {
	for k := range dst {
		if n, ok := r.array(); !ok || n != 2 {
			return 0, false
		}
		var pair [2]uint32
		if !r.tokens(pair[:]) || k > 0 && pair[0] != next {
			return 0, false
		}
		dst[k], next = pair[0], pair[1]
	}
	return next, true
}
