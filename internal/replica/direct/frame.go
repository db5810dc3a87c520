package direct

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"
)

// A frame is one gRPC message: some records, each behind its length as an unsigned varint. What waits is sent in as few frames as
// possible, which costs much less than a message for each record.

const (
	maxRecord  = 1 << 20
	frameBytes = 256 << 10 // from which on a frame is closed
	maxFrame   = frameBytes + maxRecord + 16
	maxHello   = 1024 // of what a follower sends
)

// framed copies a record with its length before it. It is never changed again: all subscribers' frames are made of it.
func framed(record []byte) mem.SliceBuffer {
	b := make([]byte, 0, len(record)+binary.MaxVarintLen32)
	return append(binary.AppendUvarint(b, uint64(len(record))), record...)
}

var errFrame = errors.New("a frame that cannot be read")

// visit calls deliver for each record of a frame, which are valid during the call.
func visit(frame []byte, deliver func(record []byte)) error {
	for len(frame) > 0 {
		n, width := binary.Uvarint(frame)
		if width <= 0 || n > maxRecord || n > uint64(len(frame)-width) {
			return errFrame
		}
		frame = frame[width:]
		deliver(frame[:n:n])
		frame = frame[n:]
	}
	return nil
}

// outgoing is a message to be sent; gRPC may read its buffers after it was sent.
type outgoing mem.BufferSlice

// incoming is a message that was received, valid until it is freed or used for the next one. The zero value holds none.
type incoming struct{ buffer mem.Buffer }

func (m *incoming) bytes() []byte { return m.buffer.ReadOnlyData() }

func (m *incoming) free() {
	if m.buffer != nil {
		m.buffer.Free()
		m.buffer = nil
	}
}

// codec leaves bytes as they are.
type codec struct{}

// Name implements encoding.CodecV2.
func (codec) Name() string { return "attache-replica" }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case outgoing:
		return mem.BufferSlice(m), nil
	case []byte:
		return mem.BufferSlice{mem.SliceBuffer(m)}, nil
	}
	return nil, fmt.Errorf("%T is no message between replicas", v)
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*incoming)
	if !ok {
		return fmt.Errorf("%T is no message between replicas", v)
	}
	m.free()
	m.buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}
