package zmtp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// These tests meet libzmq. They need PYTHON to name a Python that has pyzmq, 24 or later.

// libzmq is a peer of testdata/peer.py.
type libzmq struct {
	stdin io.Writer
	lines *bufio.Scanner
}

func startPeer(t *testing.T, mode, endpoint string, options ...string) *libzmq {
	t.Helper()
	python := os.Getenv("PYTHON")
	if python == "" {
		t.Skip("PYTHON does not name a Python with pyzmq")
	}
	cmd := exec.Command(python, append([]string{"testdata/peer.py", mode, endpoint}, options...)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A peer that hangs must not hang the test.
	timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		timer.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &libzmq{stdin, bufio.NewScanner(stdout)}
}

// line is the next that the peer says.
func (p *libzmq) line(t *testing.T) string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("the peer ended: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// bound is where the peer listens.
func (p *libzmq) bound(t *testing.T) string {
	t.Helper()
	at, ok := strings.CutPrefix(p.line(t), "bound ")
	if !ok {
		t.Fatalf("the peer says %q", at)
	}
	return at
}

// tally checks a stream of events as it comes.
type tally struct {
	mu    sync.Mutex
	hello bool
	n     int
	ended bool
	wrong string
}

func (y *tally) receive(_ Peer, m Message) {
	y.mu.Lock()
	defer y.mu.Unlock()
	switch {
	case string(m[0]) == "hello":
		y.hello = true
	case len(m) != 3 || string(m[0]) != "kv-events" || len(m[1]) != 8:
		y.wrong = fmt.Sprintf("%.200q", m)
	case binary.BigEndian.Uint64(m[1]) == 1<<64-1:
		y.ended = true
	case binary.BigEndian.Uint64(m[1]) != uint64(y.n), !bytes.Equal(m[2], bytes.Repeat([]byte{byte(y.n)}, len(m[2]))):
		y.wrong = fmt.Sprintf("message %d is %.200q", y.n, m)
	default:
		y.n++
	}
}

func (y *tally) see(f func() bool) func() bool {
	return func() bool {
		y.mu.Lock()
		defer y.mu.Unlock()
		return f()
	}
}

// heartbeats is a configuration that sends PINGs so often; 0: never.
func heartbeats(every time.Duration) Config {
	cfg := DefaultConfig()
	cfg.HeartbeatInterval, cfg.HeartbeatTimeout = every, 2*time.Second
	return cfg
}

var streams = []struct {
	name    string
	bind    bool // libzmq does
	config  Config
	count   int
	options []string
}{
	{"libzmq binds", true, heartbeats(0), 20_000, []string{"COUNT=20000", "SIZE=1024"}},
	{"libzmq connects", false, heartbeats(0), 20_000, []string{"COUNT=20000", "SIZE=1024"}},
	{"large messages", true, heartbeats(0), 30, []string{"COUNT=30", "SIZE=3000000"}},
	{"libzmq pings", true, heartbeats(0), 10, []string{"HEARTBEAT=100", "IDLE=3"}},
	{"libzmq pings amid large messages", true, heartbeats(0), 100, []string{"HEARTBEAT=10", "COUNT=100", "SIZE=1000000"}},
	{"we ping", true, heartbeats(100 * time.Millisecond), 10, []string{"IDLE=3"}},
	{"both ping", false, heartbeats(70 * time.Millisecond), 10, []string{"HEARTBEAT=300", "IDLE=3"}},
}

func TestSubscribeToLibzmq(t *testing.T) {
	for _, c := range streams {
		t.Run(c.name, func(t *testing.T) {
			var y tally
			j := new(journal)
			p := SubParams{Endpoint: "tcp://127.0.0.1:*", Bind: !c.bind, Topics: []string{"kv", "hello"}, Config: c.config, Receive: y.receive, Notify: j.notify}
			var peer *libzmq
			if c.bind {
				peer = startPeer(t, "pub", p.Endpoint, c.options...)
				p.Endpoint = peer.bound(t)
			}
			s, err := NewSub(p)
			if err != nil {
				t.Fatal(err)
			}
			if !c.bind {
				peer = startPeer(t, "pub", s.Endpoint(), c.options...)
			}
			run(t, s)
			eventually(t, "subscribed", y.see(func() bool { return y.hello }))
			fmt.Fprintln(peer.stdin, "go")
			eventually(t, "all", y.see(func() bool { return y.ended || y.wrong != "" }))
			if y.n != c.count || y.wrong != "" {
				t.Errorf("%d messages; want %d; wrong: %s", y.n, c.count, y.wrong)
			}
			if n := j.count(Lost); n != 0 {
				t.Errorf("lost %d times, first: %v", n, j.lost(t, 0).Err)
			}
			fmt.Fprintln(peer.stdin, "end")
		})
	}
}

func TestPublishToLibzmq(t *testing.T) {
	for _, c := range streams {
		t.Run(c.name, func(t *testing.T) {
			count, size, idle := 10, 16, 0.0
			for _, o := range c.options {
				_, _ = fmt.Sscanf(o, "COUNT=%d", &count)
				_, _ = fmt.Sscanf(o, "SIZE=%d", &size)
				_, _ = fmt.Sscanf(o, "IDLE=%g", &idle)
			}
			j := new(journal)
			p := PubParams{Endpoint: "tcp://127.0.0.1:*", Connect: c.bind, Queue: 100_000, Config: c.config, Notify: j.notify}
			var peer *libzmq
			if c.bind {
				peer = startPeer(t, "sub", p.Endpoint, c.options...)
				p.Endpoint = peer.bound(t)
			}
			pub, err := NewPub(p)
			if err != nil {
				t.Fatal(err)
			}
			if !c.bind {
				peer = startPeer(t, "sub", pub.Endpoint(), c.options...)
			}
			run(t, pub)
			eventually(t, "subscribed", func() bool { return pub.Subscribers() == 1 })
			for i := range count {
				pub.Send([]byte("kv-events"), binary.BigEndian.AppendUint64(nil, uint64(i)), bytes.Repeat([]byte{byte(i)}, size))
			}
			time.Sleep(time.Duration(idle * float64(time.Second)))
			if n := j.count(Lost); n != 0 {
				t.Errorf("lost %d times, first: %v", n, j.lost(t, 0).Err)
			}
			pub.Send([]byte("kv-events"), []byte("\xff\xff\xff\xff\xff\xff\xff\xff"), nil)
			if got, want := peer.line(t), fmt.Sprintf("got %d", count); got != want || pub.Dropped() != 0 {
				t.Errorf("%s; want %s; %d dropped", got, want, pub.Dropped())
			}
		})
	}
}

func TestReplayFromLibzmq(t *testing.T) {
	for _, options := range [][]string{{"FRAMING=old"}, {"FRAMING=new"}, {"FRAMING=new", "HEARTBEAT=100", "IDLE=3"}} {
		t.Run(strings.Join(options, " "), func(t *testing.T) {
			peer := startPeer(t, "router", "tcp://127.0.0.1:*", options...)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			d, err := DialDealer(ctx, peer.bound(t), heartbeats(200*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			got, err := askReplay(d, 41)
			if want := "[41 payload 41 42 payload 42 43 payload 43]"; fmt.Sprint(got) != want || err != nil {
				t.Errorf("%v, %v; want %s", got, err, want)
			}
		})
	}
}

func TestReplayToLibzmq(t *testing.T) {
	names := make(chan string, 10)
	r, _ := router(t, RouterParams{Receive: func(c *Caller, m Message) {
		names <- c.Identity()
		replay(c, m)
	}})
	peer := startPeer(t, "dealer", r.Endpoint(), "NAME=worker-7", "HEARTBEAT=100")
	for seq := 41; seq < 44; seq++ {
		if got, want := peer.line(t), fmt.Sprintf("4 %d payload %[1]d", seq); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
	if name := <-names; name != "worker-7" {
		t.Errorf("identity %q", name)
	}
}

func TestAnswerREQOfLibzmq(t *testing.T) {
	r, _ := router(t, RouterParams{Receive: func(c *Caller, m Message) {
		if len(m) == 2 && len(m[0]) == 0 {
			_ = c.Send(nil, bytes.ToUpper(m[1]))
		}
	}})
	peer := startPeer(t, "req", r.Endpoint())
	for _, want := range []string{"ONE", "TWO", "THREE"} {
		if got := peer.line(t); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
}

// TestLibzmqOfAnotherType is refused with what it is.
func TestLibzmqOfAnotherType(t *testing.T) {
	peer := startPeer(t, "router", "tcp://127.0.0.1:*", "FRAMING=new")
	_, j := subscriberOf(t, SubParams{Endpoint: peer.bound(t)})
	// It refuses us, too, and may hang up before it says what it is; the next attempt then tells.
	eventually(t, "it said what it is", func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, c := range j.changes {
			if errors.Is(c.Err, ErrMismatch) && strings.Contains(c.Err.Error(), `its socket type is "ROUTER"`) {
				return true
			}
		}
		return false
	})
}
