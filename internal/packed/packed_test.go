package packed

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"testing"

	"pgregory.net/rapid"
)

var errWrong = errors.New("wrong")

func TestWhatIsWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOf(rapid.IntRange(0, math.MaxInt64>>1)).Draw(t, "numbers")
		words := rapid.SliceOf(rapid.Uint64()).Draw(t, "words")
		text := rapid.String().Draw(t, "text")
		var b bytes.Buffer
		for range 2 { // two parts, one after the other
			w := NewWriter(&b)
			for _, n := range numbers {
				w.Number(n)
			}
			for _, n := range words {
				w.Word(n)
				w.Flag(n&1 == 1)
			}
			w.Text(text)
			before := b.Len()
			if n, err := w.Close(); err != nil || n < 8 || b.Len() < before {
				t.Fatalf("%d bytes, %v", n, err)
			}
		}
		in := bufio.NewReader(&b)
		for range 2 {
			r := NewReader(in, errWrong)
			for _, n := range numbers {
				if got := r.Number(n); got != n {
					t.Fatalf("%d, want %d: %v", got, n, r.Err())
				}
			}
			for _, n := range words {
				if got := r.Word(); got != n {
					t.Fatalf("%x, want %x", got, n)
				}
				if r.Flag() != (n&1 == 1) {
					t.Fatal("a flag is turned")
				}
			}
			if got := r.Text(len(text)); got != text {
				t.Fatalf("%q, want %q", got, text)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
			t.Fatal("something is left")
		}
	})
}

func TestDamageIsFound(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	w.Number(300)
	w.Text("abc")
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	good := b.Bytes()
	read := func(p []byte, most int) error {
		r := NewReader(bytes.NewReader(p), errWrong)
		r.Number(most)
		r.Text(10)
		return r.Close()
	}
	if err := read(good, 300); err != nil {
		t.Fatal(err)
	}
	if err := read(good, 299); !errors.Is(err, errWrong) {
		t.Errorf("too large a number: %v", err)
	}
	if err := read(bytes.Repeat([]byte{0x80}, 20), 300); !errors.Is(err, errWrong) {
		t.Errorf("an endless number: %v", err)
	}
	for i := range good {
		if err := read(good[:i], 300); !errors.Is(err, errWrong) {
			t.Errorf("cut at %d: %v", i, err)
		}
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if err := read(bad, 1<<40); err == nil {
			t.Errorf("changed at %d: no error", i)
		}
	}
	if err := NewReader(broken{}, errWrong).Close(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v, want the reader's own error", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }
