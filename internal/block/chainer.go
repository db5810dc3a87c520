package block

import "slices"

// Chainer cuts a stream of bytes into pieces of one size and gathers the sequence hash of each complete piece. How the
// stream is cut into writes makes no difference. A piece that lies within one write is hashed where it is; only the two
// ends of a write are copied, into a buffer of one piece.
//
// Reset makes the zero value, or a used Chainer, ready. Not for concurrent use.
type Chainer struct {
	seed   uint64
	hashes []Hash
	from   int    // hashes that were there before the stream
	part   []byte // the incomplete piece; its capacity is the size of a piece
	bytes  int
}

// Reset starts a new stream: pieces of pieceBytes (at least 1), in the namespace of seed (see Seed), their sequence hashes
// appended to dst. It allocates only when pieces become larger than before.
func (c *Chainer) Reset(pieceBytes int, seed uint64, dst []Hash) {
	if cap(c.part) < pieceBytes {
		c.part = make([]byte, 0, pieceBytes)
	}
	*c = Chainer{seed: seed, hashes: dst, from: len(dst), part: c.part[:0:pieceBytes]}
}

// Write appends p to the stream. It keeps no reference to p.
func (c *Chainer) Write(p []byte) {
	c.bytes += len(p)
	size := cap(c.part)
	if len(c.part) > 0 {
		n := min(size-len(c.part), len(p))
		c.part = append(c.part, p[:n]...)
		p = p[n:]
		if len(c.part) < size {
			return
		}
		c.add(c.part)
		c.part = c.part[:0]
	}
	if len(p) >= size {
		p = c.addAll(p)
	}
	c.part = append(c.part, p...)
}

// WriteString appends s to the stream. It is meant for short texts: every byte is copied.
func (c *Chainer) WriteString(s string) {
	c.bytes += len(s)
	size := cap(c.part)
	for len(s) > 0 {
		n := min(size-len(c.part), len(s))
		c.part = append(c.part, s[:n]...)
		s = s[n:]
		if len(c.part) == size {
			c.add(c.part)
			c.part = c.part[:0]
		}
	}
}

func (c *Chainer) add(piece []byte) {
	if n := len(c.hashes); n > c.from {
		c.hashes = append(c.hashes, link(c.hashes[n-1], Local(piece, Plain)))
		return
	}
	c.hashes = append(c.hashes, Local(piece, c.seed))
}

// addAll adds the pieces at the beginning of p, at least one, and returns what is left of it.
func (c *Chainer) addAll(p []byte) (rest []byte) {
	size := cap(c.part)
	c.hashes = slices.Grow(c.hashes, len(p)/size)
	c.add(p[:size])
	p = p[size:]
	n := len(c.hashes)
	parent, dst := c.hashes[n-1], c.hashes[n:n+len(p)/size]
	for i := range dst {
		parent = link(parent, Local(p[:size], Plain))
		dst[i] = parent
		p = p[size:]
	}
	c.hashes = c.hashes[:n+len(dst)]
	return p
}

// Sum is what Reset was given, followed by the sequence hash of each complete piece. Bytes after the last complete piece
// have none. The stream may go on; Sum then returns more.
func (c *Chainer) Sum() []Hash { return c.hashes }

// Bytes is how much was written since Reset, the incomplete piece included.
func (c *Chainer) Bytes() int { return c.bytes }
