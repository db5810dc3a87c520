package zmtp

import (
	"encoding/binary"
	"errors"
	"sync"
)

// RouterParams are what a Router needs.
type RouterParams struct {
	// Endpoint to listen at, as CheckEndpoint takes it.
	Endpoint string
	Config   Config
	// Receive is given every message of every peer, without the identity that libzmq puts before it; the Caller stands for
	// it. The message is valid until it returns. Calls for one peer follow one another, for several they overlap.
	Receive func(*Caller, Message)
	// Notify is told of changes, one at a time. nil: nobody is.
	Notify func(Change)
}

// Router is a bound ROUTER socket. It differs from libzmq's in this: an answer waits for a slow peer, up to Config.Timeout,
// instead of being dropped, and a peer that is gone is an error.
type Router struct {
	link

	receive func(*Caller, Message)

	mu      sync.Mutex
	callers map[string]struct{} // by identity; guarded by mu
}

// Caller is one peer of a Router. It is safe for concurrent use, and useless once the peer is gone.
type Caller struct {
	peer     Peer
	identity string
	c        *conn
}

// Identity is what the peer calls itself; of peers that do not, a zero byte and four that differ, as libzmq has it.
func (c *Caller) Identity() string { return c.identity }

// Peer is the connection.
func (c *Caller) Peer() Peer { return c.peer }

// Send sends one message to this peer. A REQ socket wants an empty frame first.
func (c *Caller) Send(frames ...[]byte) error {
	if len(frames) == 0 {
		return nil
	}
	return c.c.send(frames)
}

// NewRouter makes a router and opens its listener; Run does the work.
func NewRouter(p RouterParams) (*Router, error) {
	if p.Receive == nil {
		return nil, errors.New("a Router needs a Receive")
	}
	r := &Router{receive: p.Receive, callers: map[string]struct{}{}}
	lp := linkParams{cfg: p.Config, socket: typeRouter, endpoint: p.Endpoint, bind: true, notify: p.Notify}
	if err := r.init(lp, r.serve); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Router) serve(p Peer, identity string, c *conn) error {
	switch {
	case identity == "":
		identity = string(binary.BigEndian.AppendUint32([]byte{0}, uint32(p.ID)))
	case identity[0] == 0: // kept for those that have none, RFC 23 "Identity"
		return because(ErrProtocol, "an identity that begins with 0")
	}
	if !r.enter(identity) {
		return because(ErrMismatch, "its identity %q is taken by another peer", identity)
	}
	defer r.leave(identity)
	caller := &Caller{peer: p, identity: identity, c: c}
	for {
		m, err := c.receive()
		if err != nil {
			return err
		}
		r.receive(caller, m)
	}
}

func (r *Router) enter(identity string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, taken := r.callers[identity]
	if !taken {
		r.callers[identity] = struct{}{}
	}
	return !taken
}

func (r *Router) leave(identity string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.callers, identity)
}
