package sim

import (
	"net"
	"sync"
	"time"
)

// gate is a TCP listener that can be shut, so that connects are refused, and opened again on the same port, while one
// http.Server serves it all the time. Safe for concurrent use.
type gate struct {
	addr *net.TCPAddr

	mu     sync.Mutex    // guards the fields below
	inner  net.Listener  // nil while shut
	opened chan struct{} // closed by open and Close; made anew by shut
	closed bool
}

func newGate(address string) (*gate, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	g := &gate{addr: l.Addr().(*net.TCPAddr), inner: l, opened: make(chan struct{})} //nolint:forcetypeassert // by network "tcp"
	close(g.opened)
	return g, nil
}

// Addr is the address it was opened at first.
func (g *gate) Addr() net.Addr { return g.addr }

// Accept waits for a connection, through times when the gate is shut.
func (g *gate) Accept() (net.Conn, error) {
	for {
		g.mu.Lock()
		inner, opened, closed := g.inner, g.opened, g.closed
		g.mu.Unlock()
		switch {
		case closed:
			return nil, net.ErrClosed
		case inner == nil:
			<-opened
			continue
		}
		conn, err := inner.Accept()
		if err == nil {
			return conn, nil
		}
		g.mu.Lock()
		gone := g.inner != inner
		g.mu.Unlock()
		if !gone {
			return nil, err
		}
	}
}

// shut closes the port.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inner == nil {
		return
	}
	_ = g.inner.Close()
	g.inner, g.opened = nil, make(chan struct{})
}

// open listens again. Somebody else may have taken the port meanwhile; then it tries until it is free, or until Close.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.inner != nil {
		return
	}
	l, err := net.Listen("tcp", g.addr.String())
	if err != nil {
		time.AfterFunc(20*time.Millisecond, g.open)
		return
	}
	g.inner = l
	close(g.opened)
}

// Close ends Accept.
func (g *gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	if g.inner == nil {
		close(g.opened)
		return nil
	}
	return g.inner.Close()
}
