package zmtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// dumb reads a whole stream the slow and obvious way: what came, and why it ended. io.EOF is an end, anywhere.
func dumb(b []byte, l limits) (items []string, end error) {
	var frames [][]byte
	occupied := uint64(0) // by the message in progress
	for {
		if len(b) < 2 {
			return items, io.EOF
		}
		flags, header, size := b[0], uint64(2), uint64(b[1])
		if flags&2 != 0 {
			if len(b) < 9 {
				return items, io.EOF
			}
			header, size = 9, binary.BigEndian.Uint64(b[1:])
		}
		isCommand, inside := flags&4 != 0, len(frames) > 0
		if flags >= 8 || flags&5 == 5 {
			return items, ErrProtocol
		}
		if isCommand && size > maxCommand || !isCommand && (size > uint64(l.frame) || len(frames) == l.frames) {
			return items, ErrLimit
		}
		if (!isCommand || inside) && occupied+header+size > uint64(l.message) {
			return items, ErrLimit
		}
		if uint64(len(b)) < header+size {
			return items, io.EOF
		}
		body := b[header : header+size]
		b = b[header+size:]
		if !isCommand || inside {
			occupied += header + size
		}
		switch {
		case isCommand:
			items = append(items, fmt.Sprintf("command %q", body))
		case flags&1 != 0:
			frames = append(frames, body)
		default:
			items = append(items, fmt.Sprintf("message %q", append(frames, body)))
			frames, occupied = nil, 0
		}
	}
}

// clever reads the same with a reader.
func clever(r *reader) (items []string, end error) {
	for {
		m, command, err := r.next()
		switch {
		case err != nil:
			return items, err
		case m != nil:
			items = append(items, fmt.Sprintf("message %q", [][]byte(m)))
		default:
			items = append(items, fmt.Sprintf("command %q", command))
		}
	}
}

// compare reads a stream both ways, in pieces of the given size, and reports a difference.
func compare(t *testing.T, stream []byte, l limits, piece int) {
	t.Helper()
	r := &reader{src: &pieces{stream, piece}, limits: l}
	got, gotEnd := clever(r)
	want, wantEnd := dumb(stream, l)
	if !slices.Equal(got, want) || !errors.Is(gotEnd, wantEnd) {
		t.Fatalf("pieces of %d, %+v:\n got %.300q, %v\nwant %.300q, %v\nof %.300x", piece, l, got, gotEnd, want, wantEnd, stream)
	}
	if most := max(l.message, maxAhead) + maxHeader; len(r.buf) > most {
		t.Fatalf("the buffer grew to %d bytes; %d are allowed", len(r.buf), most)
	}
}

// pieces gives a stream away piece by piece.
type pieces struct {
	rest []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.size, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

// TestReaderAgainstDumbOne reads random streams in pieces of any size.
func TestReaderAgainstDumbOne(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		l := limits{frame: 1 + rng.IntN(40_000), frames: 1 + rng.IntN(8), message: 100 + rng.IntN(100_000)}
		var stream []byte
		for range rng.IntN(60) {
			flags := byte(rng.IntN(3)) &^ flagLong
			if rng.IntN(3) == 0 {
				flags = flagCommand
			}
			if rng.IntN(5) == 0 {
				flags |= flagLong // also where it is not needed
			}
			if rng.IntN(500) == 0 {
				flags = byte(rng.Uint32())
			}
			size := rng.IntN(300)
			if rng.IntN(8) == 0 {
				size = rng.IntN(50_000)
			}
			stream = append(stream, hand(flags, strings.Repeat(string(rune('a'+rng.IntN(26))), size))...)
		}
		if rng.IntN(2) == 0 {
			stream = stream[:rng.IntN(len(stream)+1)]
		}
		compare(t, stream, l, 1+rng.IntN(1<<rng.IntN(18)))
	}
}

func TestReaderHoldsLimits(t *testing.T) {
	l := limits{frame: 1000, frames: 3, message: 2000}
	size := func(flags byte, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{flags | flagLong}, n) }
	for _, c := range []struct {
		name   string
		stream []byte
		kind   error
		text   string
	}{
		{"frame", size(0, 1001), ErrLimit, "a frame of 1001 bytes; max_frame is 1000"},
		{"frame of 2^64-1 bytes", size(0, 1<<64-1), ErrLimit, "a frame of 18446744073709551615 bytes"},
		{"frame of 2^63 bytes", size(flagMore, 1<<63), ErrLimit, "a frame of 9223372036854775808 bytes"},
		{"frames", bytes.Repeat(hand(1, ""), 4), ErrLimit, "more frames than max_frames, which is 3"},
		{"message", slices.Concat(hand(1, strings.Repeat("a", 995)), hand(1, strings.Repeat("b", 980)), []byte{0, 100}), ErrLimit,
			"a message of 2095 bytes or more; max_message is 2000"},
		{"command", size(flagCommand, 8193), ErrLimit, "a command of 8193 bytes"},
		{"commands inside a message", append(hand(1, ""), bytes.Repeat(hand(4, strings.Repeat("c", 200)), 10)...), ErrLimit, "max_message is 2000"},
		{"commands outside do not count", append(bytes.Repeat(hand(4, strings.Repeat("c", 200)), 50), 0, 0), io.EOF, "EOF"},
		{"unknown flag", []byte{8, 0}, ErrProtocol, "flags 0x08"},
		{"command with more", []byte{5, 0}, ErrProtocol, "flags 0x05"},
	} {
		r := &reader{src: bytes.NewReader(c.stream), limits: l}
		_, err := clever(r)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v; want %q", c.name, err, c.text)
		}
		if len(r.buf) > firstBuffer {
			t.Errorf("%s: the buffer grew to %d bytes", c.name, len(r.buf))
		}
	}
}

// TestReaderGrowsByArrival: a header that announces much must not make room for it.
func TestReaderGrowsByArrival(t *testing.T) {
	l := DefaultConfig().limits()
	announced := binary.BigEndian.AppendUint64([]byte{flagLong}, uint64(l.frame))
	r := &reader{src: io.MultiReader(bytes.NewReader(announced), iotest.ErrReader(io.EOF)), limits: l}
	if _, err := clever(r); !errors.Is(err, io.EOF) || len(r.buf) != firstBuffer {
		t.Fatalf("%v, with a buffer of %d bytes", err, len(r.buf))
	}
	// What a big message needed is given back when small ones follow.
	stream := append(hand(0, strings.Repeat("a", 5<<20)), bytes.Repeat(hand(0, "small"), 1000)...)
	r = &reader{src: &pieces{stream, 3000}, limits: l}
	items, err := clever(r)
	if len(items) != 1001 || !errors.Is(err, io.EOF) || len(r.buf) != maxAhead {
		t.Fatalf("%d items, %v, with a buffer of %d bytes", len(items), err, len(r.buf))
	}
}

// TestReaderAllocatesNothing in steady state, however the messages lie in the buffer.
func TestReaderAllocatesNothing(t *testing.T) {
	one := slices.Concat(hand(1, "kv"), hand(1, "12345678"), hand(0, strings.Repeat("p", 1024)))
	src := &endless{unit: one}
	r := &reader{src: src, limits: DefaultConfig().limits()}
	receive := func() {
		if m, _, err := r.next(); err != nil || len(m) != 3 || len(m[2]) != 1024 {
			t.Fatal(m, err)
		}
	}
	for range 2000 {
		receive()
	}
	if n := testing.AllocsPerRun(5000, receive); n != 0 {
		t.Errorf("%v allocations per message", n)
	}
}

// endless repeats a unit for ever.
type endless struct {
	unit []byte
	at   int
}

func (e *endless) Read(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		c := copy(b[n:], e.unit[e.at:])
		n += c
		e.at = (e.at + c) % len(e.unit)
	}
	return n, nil
}

func TestCloneOutlivesTheBuffer(t *testing.T) {
	r := &reader{src: bytes.NewReader(slices.Concat(hand(0, "first"), hand(0, "other"))), limits: DefaultConfig().limits()}
	m, _, _ := r.next()
	kept := m.Clone()
	clear(r.buf)
	if len(kept) != 1 || string(kept[0]) != "first" {
		t.Fatalf("%q", kept)
	}
}
