package zmtp

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if at := os.Getenv(floodVariable); at != "" {
		flood(at)
		return
	}
	goleak.VerifyTestMain(m)
}

// journal keeps what a socket told, in order.
type journal struct {
	mu       sync.Mutex
	changes  []Change
	messages []Message
}

func (j *journal) notify(c Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.changes = append(j.changes, c)
}

func (j *journal) receive(_ Peer, m Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.messages = append(j.messages, m.Clone())
}

// count is how often a state was told.
func (j *journal) count(s State) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, c := range j.changes {
		if c.State == s {
			n++
		}
	}
	return n
}

// lost is the n-th loss, from 0.
func (j *journal) lost(t *testing.T, n int) Change {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.changes {
		if c.State != Lost {
			continue
		}
		if n == 0 {
			return c
		}
		n--
	}
	t.Fatalf("not lost %d more times in %v", n+1, j.changes)
	return Change{}
}

func (j *journal) received() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.messages)
}

// run runs a socket until the test ends, or until the function it returns is called.
func run(t *testing.T, socket interface{ Run(context.Context) error }) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := socket.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// The fakes below speak ZMTP by hand, so that they share no mistake with the code under test.

// hand writes a frame.
func hand(flags byte, body string) []byte {
	if len(body) > 255 || flags&flagLong != 0 {
		b := binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(len(body)))
		return append(b, body...)
	}
	return append([]byte{flags, byte(len(body))}, body...)
}

func handGreeting() []byte {
	g := make([]byte, 64)
	g[0], g[8], g[9], g[10], g[11] = 0xff, 1, 0x7f, 3, 1 // as libzmq 4.3 has it
	copy(g[12:], "NULL")
	return g
}

func handReady(socket string) []byte {
	return hand(4, "\x05READY\x0bSocket-Type\x00\x00\x00"+string(rune(len(socket)))+socket+"\x08Identity\x00\x00\x00\x00")
}

// readFrame reads one frame of a connection.
func readFrame(r io.Reader) (flags byte, body string, err error) {
	var h [9]byte
	if _, err := io.ReadFull(r, h[:2]); err != nil {
		return 0, "", err
	}
	n := uint64(h[1])
	if h[0]&2 != 0 {
		if _, err := io.ReadFull(r, h[2:]); err != nil {
			return 0, "", err
		}
		n = binary.BigEndian.Uint64(h[1:])
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return h[0], string(b), err
}

// shake shakes hands as a peer of the type does, and reads the subscription when it is a publisher.
func shake(nc net.Conn, socket string) error {
	if _, err := io.ReadFull(nc, make([]byte, 64)); err != nil {
		return err
	}
	if _, err := nc.Write(handGreeting()); err != nil {
		return err
	}
	if _, _, err := readFrame(nc); err != nil {
		return err
	}
	_, err := nc.Write(handReady(socket))
	if err == nil && socket == "PUB" {
		_, _, err = readFrame(nc)
	}
	return err
}

// drain reads until the connection ends.
func drain(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) }

// pipes replaces dialling by pipes to a peer, which is told how often it was dialled before. Its end is closed when it returns.
func pipes(t *testing.T, l *link, peer func(n int, nc net.Conn)) {
	t.Helper()
	var peers sync.WaitGroup
	t.Cleanup(peers.Wait)
	n := -1
	l.dial = func(context.Context) (net.Conn, error) {
		n++
		if peer == nil {
			return nil, errors.New("nobody is there")
		}
		ours, theirs := net.Pipe()
		this := n
		peers.Go(func() {
			defer func() { _ = theirs.Close() }()
			peer(this, theirs)
		})
		return ours, nil
	}
}

// sub is a subscriber whose endpoint is replaced by pipes.
func sub(t *testing.T, cfg Config, peer func(n int, nc net.Conn)) (*Sub, *journal) {
	t.Helper()
	j := new(journal)
	s, err := NewSub(SubParams{Endpoint: "tcp://engine:5557", Config: cfg, Receive: j.receive, Notify: j.notify})
	if err != nil {
		t.Fatal(err)
	}
	pipes(t, &s.link, peer)
	return s, j
}
