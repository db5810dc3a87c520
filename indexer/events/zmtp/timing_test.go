package zmtp

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"attache/internal/bubble"
)

// These tests run on virtual time, against peers at the other end of a pipe.

func TestPulse(t *testing.T) {
	const s = time.Second
	type step struct {
		wait time.Duration
		gone bool
	}
	for _, c := range []struct {
		name  string
		pulse pulse
		steps []step
	}{
		{"asks, then gives up", pulse{interval: 5 * s, timeout: 10 * s}, []step{{5 * s, false}, {10 * s, true}}},
		{"the peer's own limit comes first", pulse{interval: 5 * s, timeout: 10 * s, ttl: 2 * s}, []step{{2 * s, true}}},
		{"it comes between", pulse{interval: 5 * s, timeout: 10 * s, ttl: 8 * s}, []step{{5 * s, false}, {3 * s, true}}},
		{"it falls on the PING", pulse{interval: 5 * s, timeout: 10 * s, ttl: 5 * s}, []step{{5 * s, true}}},
		{"no PINGs", pulse{timeout: 10 * s, ttl: 3 * s}, []step{{3 * s, true}}},
		{"neither", pulse{timeout: 10 * s}, []step{{wait: 0}}},
	} {
		for i, want := range c.steps {
			if got := c.pulse.wait(); got != want.wait {
				t.Fatalf("%s: waits %s in step %d; want %s", c.name, got, i, want.wait)
			}
			if want.wait > 0 && c.pulse.expired() != want.gone {
				t.Fatalf("%s: gone is not %t in step %d", c.name, want.gone, i)
			}
		}
		c.pulse.heard()
		if wait := c.pulse.wait(); wait != c.pulse.interval {
			t.Errorf("%s: waits %s after life", c.name, wait)
		}
	}
}

// TestPauses: they double up to the bound, less up to half, and a good connection brings them back.
func TestPauses(t *testing.T) {
	b := backoff{least: 100, most: 1000, next: 100}
	for i, c := range []struct{ lasted, most time.Duration }{
		{0, 100}, {0, 200}, {0, 400}, {0, 800}, {0, 1000}, {0, 1000}, {999, 1000}, {1000, 100}, {0, 200}, {50, 400},
	} {
		if d := b.pause(c.lasted); d > c.most || d < c.most/2 {
			t.Errorf("pause %d is %d; want %d to %d", i, d, c.most/2, c.most)
		}
	}
}

func TestReconnectPauses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, j := sub(t, DefaultConfig(), nil)
		run(t, s)
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, most := range []time.Duration{
			100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond,
			3200 * time.Millisecond, 6400 * time.Millisecond, 10 * time.Second, 10 * time.Second,
		} {
			c := j.lost(t, i)
			if c.Pause > most || c.Pause < most/2 || c.Endpoint != "tcp://engine:5557" || c.Peer.ID != uint64(i+1) {
				t.Errorf("loss %d: %+v; want a pause of up to %s", i, c, most)
			}
		}
		if n := j.count(Connecting); n != j.count(Lost) || n > 7+12 {
			t.Errorf("%d attempts and %d losses in a minute", n, j.count(Lost))
		}
	})
}

// TestHalfOpenPeers are dropped and dialled again, whenever they fall silent.
func TestHalfOpenPeers(t *testing.T) {
	for _, c := range []struct {
		name   string
		peer   func(nc net.Conn)
		text   string
		after  time.Duration
		silent bool
	}{
		{"accepts and says nothing", drain, "the handshake is not complete", 5 * time.Second, true},
		{"greets, then nothing", func(nc net.Conn) {
			_, _ = io.ReadFull(nc, make([]byte, 64))
			_, _ = nc.Write(handGreeting())
			drain(nc)
		}, "READY: ", 5 * time.Second, true},
		{"takes in nothing", func(nc net.Conn) { time.Sleep(time.Minute) }, "it took in nothing for 5s", 5 * time.Second, true},
		{"shakes hands, then nothing", func(nc net.Conn) {
			_ = shake(nc, "PUB")
			drain(nc)
		}, "nothing came for 15s, nor an answer to a PING", 15*time.Second + lastLook, true},
		{"is alive for a while", func(nc net.Conn) {
			_ = shake(nc, "PUB")
			time.Sleep(4 * time.Second)
			_, _ = nc.Write([]byte{0}) // which is no frame yet
			drain(nc)
		}, "nothing came for 15s", 19*time.Second + lastLook, true},
		{"answers one PING", func(nc net.Conn) {
			_ = shake(nc, "PUB")
			_, _, _ = readFrame(nc)
			_, _ = nc.Write(hand(4, "\x04PONG"))
			drain(nc)
		}, "nothing came for 15s", 20*time.Second + lastLook, true},
		{"sets itself a limit", func(nc net.Conn) {
			_ = shake(nc, "PUB")
			_, _ = nc.Write(hand(4, "\x04PING\x00\x1e"))
			drain(nc)
		}, "nothing came for 3s, though its own PING promised something", 3*time.Second + lastLook, true},
		{"answers late", func(nc net.Conn) {
			_ = shake(nc, "PUB")
			_, _, _ = readFrame(nc)
			time.Sleep(10*time.Second + lastLook/2)
			_, _ = nc.Write(hand(4, "\x04PONG"))
			drain(nc)
		}, "nothing came for 15s", 30*time.Second + lastLook*3/2, true},
		{"closes", func(nc net.Conn) { _ = shake(nc, "PUB") }, "the peer closed the connection", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s, j := sub(t, DefaultConfig(), func(_ int, nc net.Conn) { c.peer(nc) })
				begin := time.Now()
				var first time.Duration
				s.notify = func(change Change) {
					if change.State == Lost && first == 0 {
						first = time.Since(begin) + 1
					}
					j.notify(change)
				}
				stop := run(t, s)
				time.Sleep(time.Minute)
				stop()
				lost := j.lost(t, 0)
				if !strings.Contains(lost.Err.Error(), c.text) || errors.Is(lost.Err, ErrSilent) != c.silent || first-1 != c.after {
					t.Errorf("lost after %s: %v; want %q after %s", first-1, lost.Err, c.text, c.after)
				}
				if j.count(Connecting) < 2 {
					t.Error("it was not dialled again")
				}
			})
		})
	}
}

// TestPings: libzmq's are answered with their context, at any moment; ours come after silence only.
func TestPings(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		type said struct {
			at    time.Duration
			flags byte
			body  string
		}
		var heard []said
		s, j := sub(t, DefaultConfig(), func(_ int, nc net.Conn) {
			_ = shake(nc, "PUB")
			begin := time.Now()
			send := func(frames ...[]byte) {
				for _, f := range frames {
					_, _ = nc.Write(f)
				}
			}
			listen := func() {
				flags, body, err := readFrame(nc)
				if err == nil {
					heard = append(heard, said{time.Since(begin), flags, body})
				}
			}
			send(hand(4, "\x04PING\x00\x00"))
			listen()
			send(hand(1, "kv"), hand(4, "\x04PING\x00\x000123456789abcdefXYZ"))
			listen()
			send(hand(0, "payload"), hand(4, "\x05LATER a command of a later version"))
			time.Sleep(4 * time.Second)
			send(hand(0, "still alive"))
			listen() // 5 s later
			send(hand(4, "\x04PONG"))
			listen() // another 5 s later
			send(hand(4, "\x04PONG"))
		})
		stop := run(t, s)
		time.Sleep(14*time.Second + time.Millisecond)
		stop()
		want := []said{
			{0, 4, "\x04PONG"},
			{0, 4, "\x04PONG0123456789abcdef"},
			{9 * time.Second, 4, "\x04PING\x00\x00"},
			{14 * time.Second, 4, "\x04PING\x00\x00"},
		}
		if len(heard) != len(want) {
			t.Fatalf("%v", heard)
		}
		for i := range want {
			if heard[i] != want[i] {
				t.Errorf("%v; want %v", heard[i], want[i])
			}
		}
		if len(j.messages) != 2 || string(j.messages[0][0]) != "kv" || string(j.messages[0][1]) != "payload" {
			t.Errorf("%q", j.messages)
		}
	})
}

// TestSilenceWithoutHeartbeats lasts, also after a limit that the peer set itself and kept.
func TestSilenceWithoutHeartbeats(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.HeartbeatInterval = 0
		s, j := sub(t, cfg, func(_ int, nc net.Conn) {
			_ = shake(nc, "PUB")
			_, _ = nc.Write(hand(4, "\x04PING\x00\x1e"))
			_, _, _ = readFrame(nc)
			time.Sleep(2 * time.Second)
			_, _ = nc.Write(hand(0, "kept"))
			drain(nc)
		})
		stop := run(t, s)
		time.Sleep(24 * time.Hour)
		if n := j.count(Lost); n != 0 {
			t.Error(j.lost(t, 0).Err)
		}
		stop()
		if lost := j.lost(t, 0); !errors.Is(lost.Err, context.Canceled) || lost.Pause != 0 {
			t.Errorf("%+v", lost)
		}
	})
}

// TestBadPeers: every one is told apart, and dialled again.
func TestBadPeers(t *testing.T) {
	greeted := func(change func(g []byte), after ...[]byte) func(net.Conn) {
		return func(nc net.Conn) {
			_, _ = io.ReadFull(nc, make([]byte, 64))
			g := handGreeting()
			if change != nil {
				change(g)
			}
			_, _ = nc.Write(g)
			for _, f := range after {
				_, _, _ = readFrame(nc)
				_, _ = nc.Write(f)
			}
			drain(nc)
		}
	}
	says := func(text string) func(net.Conn) {
		return func(nc net.Conn) {
			_, _ = io.ReadFull(nc, make([]byte, 64))
			_, _ = nc.Write([]byte(text))
			drain(nc)
		}
	}
	for _, c := range []struct {
		name string
		peer func(net.Conn)
		kind error
		text string
	}{
		{"a web server", says("HTTP/1.1 400 Bad Request\r\n"), ErrProtocol, `it begins with "HTTP/1.1 400 Bad"`},
		{"ZMTP 1.0", says("\x01\x00"), ErrProtocol, `it begins with "\x01\x00"`},
		{"a wrong signature", says("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x00"), ErrProtocol, "7f ninth after it"},
		{"ZMTP 2.0", says("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01"), ErrMismatch, "its version byte is 1; version 3 is needed"},
		{"PLAIN", greeted(func(g []byte) { copy(g[12:], "PLAIN") }), ErrMismatch, `its mechanism is "PLAIN"; only NULL is spoken here`},
		{"a longer name than NULL", greeted(func(g []byte) { g[31] = 'x' }), ErrMismatch, "its mechanism is"},
		{"closes in the greeting", func(nc net.Conn) {
			_, _ = io.ReadFull(nc, make([]byte, 64))
			_, _ = nc.Write(handGreeting()[:20])
		}, io.EOF, "greeting: the peer closed the connection"},
		{"PULL", greeted(nil, handReady("PULL")), ErrMismatch, `its socket type is "PULL"; a SUB needs PUB or XPUB`},
		{"no socket type", greeted(nil, hand(4, "\x05READY")), ErrMismatch, `its socket type is ""`},
		{"a message for READY", greeted(nil, hand(0, "hello")), ErrProtocol, "a message came where READY was due"},
		{"another command", greeted(nil, hand(4, "\x05HELLOx")), ErrProtocol, `the command "HELLO" came where READY was due`},
		{"a command without a name", greeted(nil, hand(4, "")), ErrProtocol, "without a name"},
		{"a broken READY", greeted(nil, hand(4, "\x05READY\x05a")), ErrProtocol, "READY ends inside"},
		{"a READY of 1 GiB", greeted(nil, []byte{6, 0, 0, 0, 0, 0x40, 0, 0, 0}), ErrLimit, "a command of 1073741824 bytes"},
		{"a refusal", greeted(nil, hand(4, "\x05ERROR\x0bgo away now")), ErrMismatch, `it refuses us with the error "go away now"`},
		{"garbage after READY", greeted(nil, append(handReady("PUB"), 0xf0, 0)), ErrProtocol, "a frame with the flags 0xf0"},
		{"an error after READY", greeted(nil, append(handReady("PUB"), hand(4, "\x05ERROR\x02no")...)), ErrMismatch, `it gave up with the error "no"`},
		{"a broken PING", greeted(nil, append(handReady("PUB"), hand(4, "\x04PING\x00")...)), ErrProtocol, "a PING of 1 bytes"},
		{"a nameless command", greeted(nil, append(handReady("PUB"), hand(4, "\x00")...)), ErrProtocol, "without a name"},
		{"a frame beyond the limit", greeted(nil, append(handReady("PUB"), 2, 0, 0, 0, 0, 0x40, 0, 0, 0)), ErrLimit, "a frame of 1073741824 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s, j := sub(t, DefaultConfig(), func(_ int, nc net.Conn) { c.peer(nc) })
				stop := run(t, s)
				time.Sleep(10 * time.Second)
				stop()
				err := j.lost(t, 0).Err
				if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "tcp://engine:5557") {
					t.Errorf("%v; want %q", err, c.text)
				}
				if j.count(Connecting) < 3 {
					t.Errorf("%d attempts", j.count(Connecting))
				}
				if n := j.received(); n != 0 {
					t.Errorf("%d messages came through", n)
				}
			})
		})
	}
}

// TestReconnect: a peer that comes back is subscribed to again, and what it sends is told in order.
func TestReconnect(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var order []string
		s, _ := sub(t, DefaultConfig(), func(n int, nc net.Conn) {
			if n == 1 {
				return // refuses in between
			}
			_ = shake(nc, "PUB")
			_, _ = nc.Write(hand(0, string(rune('a'+n))))
			time.Sleep(time.Second)
		})
		s.notify = func(c Change) { order = append(order, string(c.State)) }
		s.receive = func(p Peer, m Message) { order = append(order, string(m[0])) }
		stop := run(t, s)
		time.Sleep(2300 * time.Millisecond)
		stop()
		got, want := strings.Join(order, " "), "connecting connected a lost connecting lost connecting connected c lost"
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s; want %s", got, want)
		}
	})
}

// TestPubDropsSilentSubscribers, also those that take in nothing any more, and keeps the others.
func TestPubDropsSilentSubscribers(t *testing.T) {
	for _, c := range []struct {
		name    string
		peer    func(net.Conn)
		text    string // of the loss; "": it is kept
		dropped uint64
	}{
		{"takes in, says nothing", drain, "nothing came for 15s, nor an answer to a PING", 0},
		{"takes in nothing", func(net.Conn) { time.Sleep(time.Minute) }, "nothing came for 15s, nor an answer to a PING", 5},
		{"answers", func(nc net.Conn) {
			for {
				flags, _, err := readFrame(nc)
				if err != nil {
					return
				}
				if flags == 4 {
					_, _ = nc.Write(hand(4, "\x04PONG"))
				}
			}
		}, "", 0},
		{"says too much", func(nc net.Conn) {
			go func() { _, _ = nc.Write(hand(0, "\x01"+strings.Repeat("a", maxTopic))) }()
			drain(nc)
		}, "a frame of 1025 bytes; max_frame is 1024", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				j := new(journal)
				p, err := NewPub(PubParams{Endpoint: "tcp://collector:5557", Connect: true, Queue: 10, Config: DefaultConfig(), Notify: j.notify})
				if err != nil {
					t.Fatal(err)
				}
				pipes(t, &p.link, func(n int, nc net.Conn) {
					if n > 0 {
						return
					}
					_ = shake(nc, "SUB")
					_, _ = nc.Write(hand(0, "\x01kv"))
					c.peer(nc)
				})
				stop := run(t, p)
				time.Sleep(time.Second)
				synctest.Wait()
				if c.text == "" || c.name[0] == 't' {
					for range 16 { // one is being written, ten wait
						p.Send([]byte("kv"))
						synctest.Wait()
					}
				}
				time.Sleep(19 * time.Second)
				synctest.Wait()
				lost := j.count(Lost) > 0
				if lost != (c.text != "") || lost && !strings.Contains(j.lost(t, 0).Err.Error(), c.text) || p.Dropped() != c.dropped {
					t.Errorf("lost %t, %d dropped; want %q, %d", lost, p.Dropped(), c.text, c.dropped)
				}
				stop()
			})
		})
	}
}
