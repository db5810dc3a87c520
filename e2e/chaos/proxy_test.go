package chaos

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy stands before one port of an engine: what a follower dials. It can be pointed elsewhere, cut, stalled and slowed
// down. Safe for concurrent use.
type proxy struct {
	listener net.Listener
	stalled  atomic.Int32 // nothing passes, in either direction, while it is above 0
	slow     atomic.Int32 // little passes
	running  sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	target string     // host:port; "" refuses
	open   map[net.Conn]struct{}
	closed bool
}

func newProxy(at string) (*proxy, error) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, open: map[net.Conn]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

// addr is where it listens.
func (p *proxy) addr() *net.TCPAddr {
	return p.listener.Addr().(*net.TCPAddr)
}

// point says where new connections lead to.
func (p *proxy) point(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close()
	}
}

// close ends all that runs.
func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.cut()
	p.running.Wait()
}

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(time.Millisecond) // too many open files
			continue
		}
		if p.note(near) {
			p.running.Go(func() { p.join(near) })
		}
	}
}

// note remembers a connection, to be cut; one that comes too late is closed.
func (p *proxy) note(c net.Conn) (ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.open[c] = struct{}{}
	return true
}

func (p *proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// join carries bytes between a connection and the target until either side ends.
func (p *proxy) join(near net.Conn) {
	defer p.drop(near)
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	if target == "" {
		return
	}
	far, err := net.DialTimeout("tcp", target, time.Second)
	if err != nil || !p.note(far) {
		return
	}
	defer p.drop(far)
	var back sync.WaitGroup
	back.Go(func() {
		p.carry(far, near)
		_, _ = near.Close(), far.Close()
	})
	p.carry(near, far)
	_, _ = near.Close(), far.Close()
	back.Wait()
}

// Of a slow connection, 1 KB passes every 20 ms.
const (
	slowBytes = 1 << 10
	slowPause = 20 * time.Millisecond
)

func (p *proxy) carry(from io.Reader, to io.Writer) {
	buffer := make([]byte, 16<<10)
	for {
		room := len(buffer)
		if p.slow.Load() > 0 {
			room = slowBytes
		}
		n, err := from.Read(buffer[:room])
		for p.stalled.Load() > 0 && !p.isClosed() {
			time.Sleep(5 * time.Millisecond)
		}
		if p.slow.Load() > 0 {
			time.Sleep(slowPause)
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// consecutive opens proxies at n ports that follow each other, as the ranks of an engine have them.
func consecutive(t *testing.T, n int) []*proxy {
	t.Helper()
	for range 100 {
		first, err := newProxy("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		all := []*proxy{first}
		for len(all) < n {
			next, err := newProxy((&net.TCPAddr{IP: first.addr().IP, Port: first.addr().Port + len(all)}).String())
			if err != nil {
				break
			}
			all = append(all, next)
		}
		if len(all) == n {
			return all
		}
		for _, p := range all {
			p.close()
		}
	}
	t.Fatal("no ports that follow each other")
	return nil
}
