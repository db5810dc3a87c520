package zmtp

import (
	"bytes"
	"encoding/binary"
)

// Flags of a frame, RFC 23 "Framing": one byte of flags, the size in one byte or, of a long frame, in eight, the body.
const (
	flagMore    = 1 // another frame of the same message follows
	flagLong    = 2 // the size has eight bytes, big-endian
	flagCommand = 4
)

// maxHeader is the size of the longest frame header.
const maxHeader = 9

// appendFrame appends one frame.
func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		b = binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(len(body)))
	} else {
		b = append(b, flags, byte(len(body)))
	}
	return append(b, body...)
}

// Message is a multipart message: at least one frame, any of which may be empty. The frames of a received message lie in
// the buffer of its connection and are valid until the receiver returns, or receives again; Clone keeps them.
type Message [][]byte

// Clone copies a message into memory of its own.
func (m Message) Clone() Message {
	c := make(Message, len(m))
	for i, f := range m {
		c[i] = bytes.Clone(f)
	}
	return c
}

func appendMessage(b []byte, m [][]byte) []byte {
	for i, f := range m {
		flags := byte(0)
		if i < len(m)-1 {
			flags = flagMore
		}
		b = appendFrame(b, flags, f)
	}
	return b
}
