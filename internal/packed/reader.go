package packed

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"
)

// Reader reads and sums. It is not for concurrent use. After an error all that it reads is zero.
type Reader struct {
	r       *bufio.Reader
	wrong   error
	sum     xxh3.Hasher
	err     error
	scratch [binary.MaxVarintLen64]byte
}

// NewReader reads what a Writer wrote. It reads no byte beyond that from a *bufio.Reader, so that several parts may follow each
// other in one. wrong is the error that stands for damage.
func NewReader(r io.Reader, wrong error) *Reader { return &Reader{r: bufio.NewReader(r), wrong: wrong} }

// Check makes an error if what was read is not as it must be; what says what is wrong.
func (r *Reader) Check(ok bool, what string) {
	if r.err == nil && !ok {
		r.err = fmt.Errorf("%w: %s", r.wrong, what)
	}
}

// Fail stops reading with an error.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Err is the first error.
func (r *Reader) Err() error { return r.err }

// Raw fills p.
func (r *Reader) Raw(p []byte) {
	if r.err != nil {
		clear(p)
		return
	}
	if _, err := io.ReadFull(r.r, p); err != nil {
		clear(p)
		r.failed(err)
		return
	}
	r.sum.Write(p) //nolint:errcheck // a hash takes all
}

// failed tells the end of a file that was cut off from trouble in reading it.
func (r *Reader) failed(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: it ends early", r.wrong)
	}
	r.err = err
}

// Number reads one that may be 0 to most; if most is below 0 there is none that fits.
func (r *Reader) Number(most int) int {
	var n uint64
	read := 0
	for r.err == nil {
		b, err := r.r.ReadByte()
		if err != nil {
			r.failed(err)
			return 0
		}
		r.scratch[read] = b
		n |= uint64(b&0x7F) << (7 * read)
		read++
		if b < 0x80 {
			break
		}
		r.Check(read < 9, "a number is too long")
	}
	if r.err != nil {
		return 0
	}
	r.sum.Write(r.scratch[:read]) //nolint:errcheck // a hash takes all
	r.Check(most >= 0 && n <= uint64(max(most, 0)), "a number is too large")
	if r.err != nil {
		return 0
	}
	return int(n)
}

// Word reads 64 bits.
func (r *Reader) Word() uint64 {
	r.Raw(r.scratch[:8])
	return binary.LittleEndian.Uint64(r.scratch[:8])
}

// Flag reads yes or no.
func (r *Reader) Flag() bool { return r.Number(1) == 1 }

// Text reads a string of at most so many bytes.
func (r *Reader) Text(most int) string {
	p := make([]byte, r.Number(most))
	r.Raw(p)
	return string(p)
}

// Close reads the sum and compares it. It returns the first error.
func (r *Reader) Close() error {
	sum := r.sum.Sum64()
	r.Check(r.Word() == sum, "its checksum differs")
	return r.err
}
