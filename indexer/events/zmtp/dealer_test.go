package zmtp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"attache/internal/bubble"
)

// replay answers like an engine: three batches from the asked one on, then the end.
func replay(c *Caller, m Message) {
	if len(m) != 2 || len(m[0]) != 0 || len(m[1]) != 8 {
		return // engines ignore what they do not understand
	}
	start := binary.BigEndian.Uint64(m[1])
	for seq := start; seq < start+3; seq++ {
		_ = c.Send(nil, []byte("kv"), binary.BigEndian.AppendUint64(nil, seq), fmt.Appendf(nil, "payload %d", seq))
	}
	_ = c.Send(nil, nil, []byte("\xff\xff\xff\xff\xff\xff\xff\xff"), nil)
}

func router(t *testing.T, p RouterParams) (*Router, *journal) {
	t.Helper()
	j := new(journal)
	p.Notify, p.Endpoint, p.Config = j.notify, "tcp://127.0.0.1:*", DefaultConfig()
	r, err := NewRouter(p)
	if err != nil {
		t.Fatal(err)
	}
	run(t, r)
	return r, j
}

// askReplay sends the request of a replay and returns the sequence numbers that came before the end, and their payloads.
func askReplay(d *Dealer, start uint64) (got []string, err error) {
	if err := d.Send(nil, binary.BigEndian.AppendUint64(nil, start)); err != nil {
		return nil, err
	}
	for {
		m, err := d.Receive()
		switch {
		case err != nil:
			return got, err
		case len(m) < 3:
			return got, fmt.Errorf("an answer of %d frames", len(m))
		}
		// Both framings of engines end in these two.
		seq, payload := m[len(m)-2], m[len(m)-1]
		if len(payload) == 0 {
			return got, nil
		}
		got = append(got, fmt.Sprintf("%d %s", binary.BigEndian.Uint64(seq), payload))
	}
}

func TestReplay(t *testing.T) {
	r, j := router(t, RouterParams{Receive: replay})
	for _, start := range []uint64{0, 41} {
		d, err := DialDealer(t.Context(), r.Endpoint(), DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // one connection serves several requests
			got, err := askReplay(d, start)
			want := fmt.Sprintf("[%d payload %[1]d %d payload %[2]d %d payload %[3]d]", start, start+1, start+2)
			if fmt.Sprint(got) != want || err != nil {
				t.Errorf("%v, %v; want %s", got, err, want)
			}
		}
		d.Close()
		d.Close()
		if _, err := d.Receive(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("receiving from a closed Dealer: %v", err)
		}
	}
	eventually(t, "both are gone", func() bool { return j.count(Lost) == 2 })
}

// TestDealerEnds with its context, whatever it waits for.
func TestDealerEnds(t *testing.T) {
	r, _ := router(t, RouterParams{Receive: replay})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	d, err := DialDealer(ctx, r.Endpoint(), DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	// Without the empty frame an engine says nothing at all.
	if err := d.Send(binary.BigEndian.AppendUint64(nil, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Receive(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), r.Endpoint()) {
		t.Errorf("%v", err)
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = nobody.Close()
	if _, err := DialDealer(t.Context(), "tcp://"+nobody.Addr().String(), DefaultConfig()); err == nil || !strings.Contains(err.Error(), "dialling tcp://127") {
		t.Errorf("%v", err)
	}
}

func TestDealerMeetsBadPeers(t *testing.T) {
	for _, c := range []struct {
		name string
		peer func(net.Conn)
		kind error
		text string
	}{
		{"a publisher", func(nc net.Conn) { _ = shake(nc, "XPUB") }, ErrMismatch, `its socket type is "XPUB"; a DEALER needs ROUTER`},
		{"nobody", drain, ErrSilent, "the handshake is not complete"},
		{"falls silent", func(nc net.Conn) {
			_ = shake(nc, "ROUTER")
			drain(nc)
		}, ErrSilent, "nothing came for 15s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				go func() {
					c.peer(theirs)
					_ = theirs.Close()
				}()
				cfg := DefaultConfig()
				d, err := newDealer(t.Context(), "tcp://engine:5558", ours, cfg, time.Now().Add(cfg.Timeout))
				if err == nil {
					_, err = d.Receive()
					d.Close()
				}
				if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "tcp://engine:5558") {
					t.Errorf("%v; want %q", err, c.text)
				}
			})
		})
	}
}

// TestIdentities: a router knows its peers by the name they give themselves, or by one that it makes.
func TestIdentities(t *testing.T) {
	names := make(chan string, 10)
	r, j := router(t, RouterParams{Receive: func(c *Caller, m Message) {
		if c.Peer().ID == 0 {
			t.Error("no peer")
		}
		names <- c.Identity()
		_ = c.Send(m...)
		_ = c.Send()
	}})
	dial := func(identity string) net.Conn {
		nc, err := net.Dial("tcp", strings.TrimPrefix(r.Endpoint(), "tcp://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		nc.Write(handGreeting())
		nc.Write(ready{socket: "DEALER", identity: identity}.frame())
		nc.Write(hand(0, "hello"))
		return nc
	}
	dial("worker 1")
	if name := <-names; name != "worker 1" {
		t.Errorf("%q", name)
	}
	dial("")
	if name := <-names; name != "\x00\x00\x00\x00\x02" {
		t.Errorf("%q", name)
	}
	for i, c := range []struct {
		identity string
		kind     error
	}{{"worker 1", ErrMismatch}, {"\x00\x00\x00\x00\x02", ErrProtocol}} {
		dial(c.identity)
		eventually(t, "it is turned away", func() bool { return j.count(Lost) == i+1 })
		if err := j.lost(t, i).Err; !errors.Is(err, c.kind) {
			t.Errorf("%q: %v", c.identity, err)
		}
	}
}

// TestCallerOfASlowPeer: an answer that the peer does not take in ends the connection instead of blocking for ever.
func TestCallerOfASlowPeer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c := &Caller{c: newConn(ours, DefaultConfig())}
		begin := time.Now()
		err := c.Send([]byte("answer"))
		if took := time.Since(begin); !errors.Is(err, ErrSilent) || took != 5*time.Second {
			t.Errorf("%v after %s", err, took)
		}
		if err := c.Send([]byte("answer")); err == nil {
			t.Error("another answer went after half a frame")
		}
	})
}
