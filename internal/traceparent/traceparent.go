// Package traceparent reads the header of that name (W3C Trace Context, https://www.w3.org/TR/trace-context, 3.2): which trace a
// request belongs to, and which span of it has sent the request here.
package traceparent

import "encoding/hex"

// Parent is a span elsewhere. The zero Parent is none. It is comparable and holds no memory of the header.
type Parent struct {
	Trace [16]byte // not all zero
	Span  [8]byte  // not all zero
	Flags byte
}

// Valid reports whether there is a parent.
func (p Parent) Valid() bool { return p.Trace != [16]byte{} && p.Span != [8]byte{} }

// Sampled reports whether the parent's trace is being recorded.
func (p Parent) Sampled() bool { return p.Flags&1 != 0 }

// String writes the header's value in version 00; "" for none.
func (p Parent) String() string {
	if !p.Valid() {
		return ""
	}
	const digits = "0123456789abcdef"
	b := make([]byte, 0, size)
	b = append(b, "00-"...)
	b = append(hex.AppendEncode(b, p.Trace[:]), '-')
	b = append(hex.AppendEncode(b, p.Span[:]), '-')
	return string(append(b, digits[p.Flags>>4], digits[p.Flags&15]))
}

const size = 55 // of version 00: version-trace-span-flags, 2+1+32+1+16+1+2

// Parse reads a header's value; ok is false for what the specification tells to ignore: another form, capitals, version ff, ids
// of zeros only. Of later versions it reads the part that is as in version 00. It allocates nothing.
func Parse(value []byte) (p Parent, ok bool) {
	if len(value) < size || value[2] != '-' || value[35] != '-' || value[52] != '-' {
		return Parent{}, false
	}
	var version, flags [1]byte
	if !decode(version[:], value[:2]) || !decode(p.Trace[:], value[3:35]) || !decode(p.Span[:], value[36:52]) || !decode(flags[:], value[53:55]) {
		return Parent{}, false
	}
	p.Flags = flags[0]
	switch {
	case version[0] == 0xff, !p.Valid(), version[0] == 0 && len(value) > size, len(value) > size && value[size] != '-':
		return Parent{}, false
	}
	return p, true
}

// decode reads lower-case hexadecimal digits, two for each byte of dst.
func decode(dst, digits []byte) bool {
	for i := range dst {
		high, low := digit(digits[2*i]), digit(digits[2*i+1])
		if high > 15 || low > 15 {
			return false
		}
		dst[i] = high<<4 | low
	}
	return true
}

// digit is the value of a lower-case hexadecimal digit; above 15 for anything else.
func digit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	default:
		return 0xff
	}
}
