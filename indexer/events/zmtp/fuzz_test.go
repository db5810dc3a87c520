package zmtp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// FuzzReader compares the reader with the dumb one on any bytes, in any pieces, under small limits.
func FuzzReader(f *testing.F) {
	f.Add(slices.Concat(hand(1, "kv"), hand(4, "\x04PING\x00\x00"), hand(0, "payload")), uint16(5))
	f.Add(hand(2, "long form"), uint16(1))
	f.Add([]byte{2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0}, uint16(3))
	f.Add(bytes.Repeat(hand(1, "x"), 9), uint16(4096))
	f.Fuzz(func(t *testing.T, stream []byte, piece uint16) {
		compare(t, stream, limits{frame: 300, frames: 4, message: 700}, int(piece)+1)
	})
}

// FuzzHandshake lets a stranger say anything: the outcome is an error of ours, or a peer that fits, and little memory.
func FuzzHandshake(f *testing.F) {
	f.Add(slices.Concat(handGreeting(), handReady("PUB"), hand(1, "kv"), hand(0, "x")), uint16(7))
	f.Add(slices.Concat(handGreeting(), hand(4, "\x05ERROR\x02no")), uint16(100))
	f.Add(slices.Concat(handGreeting(), handReady("PUB"), hand(4, "\x04PING\x00\x01context"), hand(4, "\x09SUBSCRIBEkv")), uint16(1))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), uint16(9))
	f.Fuzz(func(t *testing.T, stream []byte, piece uint16) {
		cfg := DefaultConfig()
		cfg.MaxFrame, cfg.MaxFrames, cfg.MaxMessage = 300, 4, 700
		c := newConn(&recorded{pieces: pieces{stream, int(piece) + 1}}, cfg)
		_, err := c.handshake(typeSub, time.Time{})
		if err == nil {
			_ = c.watch(cfg)
			for err == nil {
				_, err = c.receive()
			}
		}
		if !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrLimit) && !errors.Is(err, io.EOF) {
			t.Fatalf("%v", err)
		}
		if len(c.reader.buf) > maxAhead+maxHeader {
			t.Fatalf("the buffer grew to %d bytes", len(c.reader.buf))
		}
	})
}

// recorded is a connection whose peer said everything beforehand.
type recorded struct {
	net.Conn
	pieces
}

func (r *recorded) Read(b []byte) (int, error)       { return r.pieces.Read(b) }
func (r *recorded) Write(b []byte) (int, error)      { return len(b), nil }
func (r *recorded) Close() error                     { return nil }
func (r *recorded) SetDeadline(time.Time) error      { return nil }
func (r *recorded) SetReadDeadline(time.Time) error  { return nil }
func (r *recorded) SetWriteDeadline(time.Time) error { return nil }
