package extproc

import (
	"fmt"
	"math/bits"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec is why a decision costs less than answering with generated protobuf code: requests are decoded lazily into
// *message, a view of the received bytes, and replies are bytes already. A gRPC server has one codec for all its
// services, so every other type (health, access log) goes to the ordinary protobuf codec.
type codec struct {
	pool  mem.BufferPool
	other encoding.CodecV2
}

func newCodec(pool mem.BufferPool) codec {
	return codec{pool: pool, other: encoding.GetCodecV2(proto.Name)}
}

// Name is the content subtype of both forms: on the wire they are the same.
func (codec) Name() string { return proto.Name }

// Marshal hands over the bytes of a reply, and the reference to its tail.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(*reply)
	if !ok {
		return c.other.Marshal(v)
	}
	if r.tail == nil {
		return mem.BufferSlice{mem.SliceBuffer(r.head)}, nil
	}
	return mem.BufferSlice{mem.SliceBuffer(r.head), r.tail}, nil
}

// Unmarshal decodes a request in place. A message that arrived in pieces is first joined into one pooled buffer: one
// copy, which lets everything behind it work on plain slices.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return c.other.Unmarshal(data, v)
	}
	m.free()
	m.buffer = data.MaterializeToBuffer(c.pool)
	if err := m.decode(m.buffer.ReadOnlyData()); err != nil {
		err = fmt.Errorf("ext_proc message of %d bytes: %w", m.buffer.Len(), err)
		m.free()
		return err
	}
	return nil
}

// bufferPool keeps buffers by powers of two and does not clear them: clearing is up to a fifth of the CPU of a large
// request, and every user here overwrites what it takes. Larger buffers than the largest class are left to the
// garbage collector.
type bufferPool struct {
	classes [maxClass + 1]sync.Pool // of *[]byte with capacity 1<<class
}

const (
	minClass = 8  // 256 bytes
	maxClass = 25 // 32 MiB
)

// Get returns a buffer of exactly n bytes with whatever was in it before.
func (p *bufferPool) Get(n int) *[]byte {
	class := max(minClass, bits.Len(uint(max(n, 1)-1)))
	if class > maxClass {
		b := make([]byte, n)
		return &b
	}
	if b, ok := p.classes[class].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, 1<<class)
	return &b
}

// Put takes a buffer back. Buffers that did not come from Get are ignored.
func (p *bufferPool) Put(b *[]byte) {
	size := cap(*b)
	class := bits.Len(uint(size)) - 1
	if class < minClass || class > maxClass || size != 1<<class {
		return
	}
	p.classes[class].Put(b)
}
