package zmtp

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is the part that Sub, Pub and Router share: it dials an endpoint again and again, or listens at it, and serves every
// peer that shakes hands.
type link struct {
	cfg      Config
	socket   string // type of ours
	endpoint endpoint
	listener net.Listener // nil when the endpoint is dialled
	dial     func(context.Context) (net.Conn, error)
	serve    func(p Peer, identity string, c *conn) error // until the connection ends
	notify   func(Change)
	ids      atomic.Uint64

	calls sync.Mutex // held while the functions of a socket's user run, so that they run one at a time
}

// linkParams are what every socket is given.
type linkParams struct {
	cfg      Config
	socket   string
	endpoint string
	bind     bool
	notify   func(Change)
}

// init checks the parameters and, to bind, opens the listener: an address that is taken is an error at the start.
func (l *link) init(p linkParams, serve func(Peer, string, *conn) error) error {
	if err := p.cfg.Validate(); err != nil {
		return err
	}
	at, err := parseEndpoint(p.endpoint, p.bind)
	if err != nil {
		return err
	}
	l.cfg, l.socket, l.endpoint, l.serve, l.notify = p.cfg, p.socket, at, serve, p.notify
	l.dial = at.dial
	if p.bind {
		if l.listener, err = at.listen(); err != nil {
			return fmt.Errorf("binding %s: %w", at.text, err)
		}
	}
	return nil
}

// Endpoint is the socket's endpoint; where it was bound, with the port it got.
func (l *link) Endpoint() string {
	if l.listener != nil {
		return bound(l.listener.Addr())
	}
	return l.endpoint.text
}

// Run serves until ctx ends, and then returns nil. It is called once; it closes what a bound socket listens at.
func (l *link) Run(ctx context.Context) error {
	if l.listener != nil {
		l.accept(ctx)
	} else {
		l.connect(ctx)
	}
	return nil
}

func (l *link) connect(ctx context.Context) {
	for retry := l.cfg.backoff(); ctx.Err() == nil; {
		p := Peer{ID: l.ids.Add(1), Address: l.endpoint.text}
		l.tell(Change{State: Connecting, Peer: p})
		lasted, err := l.attempt(ctx, p)
		pause := retry.pause(lasted)
		if ctx.Err() != nil {
			err, pause = ctx.Err(), 0
		}
		l.tell(Change{State: Lost, Peer: p, Err: err, Pause: pause})
		sleep(ctx, pause)
	}
}

func (l *link) attempt(ctx context.Context, p Peer) (lasted time.Duration, err error) {
	until := time.Now().Add(l.cfg.Timeout)
	dialing, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	nc, err := l.dial(dialing)
	if err != nil {
		return 0, fmt.Errorf("dialling %s: %w", l.endpoint.text, err)
	}
	return l.meet(ctx, p, nc, until)
}

// meet shakes hands with a peer and serves it until the connection or ctx ends.
func (l *link) meet(ctx context.Context, p Peer, nc net.Conn, until time.Time) (lasted time.Duration, err error) {
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
	defer func() { _ = nc.Close() }()
	c := newConn(nc, l.cfg)
	identity, err := c.handshake(l.socket, until)
	if err != nil {
		return 0, fmt.Errorf("shaking hands with %s: %w", p.Address, err)
	}
	if err := c.watch(l.cfg); err != nil {
		return 0, err
	}
	begin := time.Now()
	l.tell(Change{State: Connected, Peer: p})
	err = l.serve(p, identity, c)
	return time.Since(begin), fmt.Errorf("connection to %s: %w", p.Address, err)
}

func (l *link) accept(ctx context.Context) {
	var peers sync.WaitGroup
	defer peers.Wait()
	defer context.AfterFunc(ctx, func() { _ = l.listener.Close() })()
	defer func() { _ = l.listener.Close() }()
	slots := make(chan struct{}, l.cfg.MaxPeers)
	for retry := l.cfg.backoff(); ; {
		nc, err := l.listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = nc.Close()
			}
			return
		}
		if err != nil { // too many open files, mostly
			pause := retry.pause(0)
			l.tell(Change{State: Lost, Err: fmt.Errorf("accepting at %s: %w", l.endpoint.text, err), Pause: pause})
			sleep(ctx, pause)
			continue
		}
		retry = l.cfg.backoff()
		p := Peer{ID: l.ids.Add(1), Address: l.endpoint.text} // processes at the other end of an ipc socket have no address
		if l.endpoint.network == "tcp" {
			p.Address = nc.RemoteAddr().String()
		}
		l.tell(Change{State: Connecting, Peer: p})
		select {
		case slots <- struct{}{}:
		default:
			_ = nc.Close()
			l.tell(Change{State: Lost, Peer: p, Err: because(ErrLimit, "max_peers, which is %d, are connected", l.cfg.MaxPeers)})
			continue
		}
		peers.Go(func() {
			_, err := l.meet(ctx, p, nc, time.Now().Add(l.cfg.Timeout))
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			<-slots
			l.tell(Change{State: Lost, Peer: p, Err: err})
		})
	}
}

func (l *link) tell(c Change) {
	if l.notify == nil {
		return
	}
	c.Endpoint = l.endpoint.text
	l.calls.Lock()
	defer l.calls.Unlock()
	l.notify(c)
}
