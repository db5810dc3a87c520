// Package packed writes and reads numbers in few bytes: what snapshots are made of.
//
// A Writer is given numbers one after the other, sums all that it writes, and ends with the sum. A Reader takes them back in
// the same order. Every number is read with the largest value that makes sense there, so that what was damaged, even on
// purpose, is found before anybody makes room for it. Both keep their first error and do nothing more after it, so that
// callers check once, at the end of a part.
package packed

import (
	"bufio"
	"encoding/binary"
	"io"

	"github.com/zeebo/xxh3"
)

// Writer writes and sums. It is not for concurrent use.
type Writer struct {
	w       *bufio.Writer
	sum     xxh3.Hasher
	n       int64
	err     error
	scratch [binary.MaxVarintLen64]byte
}

// NewWriter makes a writer; nothing may be written to w by others until Close.
func NewWriter(w io.Writer) *Writer { return &Writer{w: bufio.NewWriterSize(w, 64<<10)} }

// Raw writes bytes as they are.
func (w *Writer) Raw(p []byte) {
	if w.err != nil {
		return
	}
	w.sum.Write(p) //nolint:errcheck // a hash takes all
	var n int
	n, w.err = w.w.Write(p)
	w.n += int64(n)
}

// Number writes a number that is not negative, the smaller the shorter: 1 byte up to 127.
func (w *Writer) Number(n int) { w.Raw(binary.AppendUvarint(w.scratch[:0], uint64(n))) }

// Word writes any 64 bits in 8 bytes: for hashes.
func (w *Writer) Word(n uint64) { w.Raw(binary.LittleEndian.AppendUint64(w.scratch[:0], n)) }

// Flag writes yes or no in a byte.
func (w *Writer) Flag(b bool) {
	n := 0
	if b {
		n = 1
	}
	w.Number(n)
}

// Text writes a string with its length before it.
func (w *Writer) Text(s string) {
	w.Number(len(s))
	w.Raw([]byte(s))
}

// Err is the first error.
func (w *Writer) Err() error { return w.err }

// Close writes the sum of all that was written (XXH3-64, 8 bytes) and what is still in the buffer. It returns how many bytes
// were written in all, and the first error.
func (w *Writer) Close() (int64, error) {
	w.Word(w.sum.Sum64())
	if err := w.w.Flush(); w.err == nil {
		w.err = err
	}
	return w.n, w.err
}
