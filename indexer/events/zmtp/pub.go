package zmtp

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
)

// PubParams are what a Pub needs.
type PubParams struct {
	// Endpoint to listen at, or with Connect to dial, as CheckEndpoint takes it.
	Endpoint string
	// Connect dials a subscriber that binds, as engines do where a collector stands in the middle.
	Connect bool
	// Queue is how many messages may wait for one subscriber; what comes beyond is dropped for it, as ZeroMQ does at the
	// high-water mark. 0: 1000, as in ZeroMQ.
	Queue  int
	Config Config
	// Notify is told of changes, one at a time. nil: nobody is.
	Notify func(Change)
}

// Pub is a PUB socket. It differs from libzmq's in this: what waits for subscribers when Run ends is gone (there is no
// linger), and a dialled subscriber gets nothing until it has subscribed.
type Pub struct {
	link

	queue   int
	dropped atomic.Uint64

	mu    sync.Mutex // guards peers and their topics
	peers map[*subscriber]struct{}
}

// subscriber is one peer of a Pub.
type subscriber struct {
	topics  map[string]int // prefix → how many times it was subscribed to
	queue   chan []byte    // messages, encoded; shared with other subscribers
	control chan []byte    // PING and PONG
}

const (
	defaultQueue = 1000
	// maxTopics and maxTopic, the bytes of one, bound what a subscriber can make a Pub remember and compare.
	maxTopics = 1024
	maxTopic  = 1 << 10
	// batch is how many bytes are gathered for one write.
	batch = 64 << 10
)

// NewPub makes a publisher, and opens its listener unless it connects; Run does the work.
func NewPub(p PubParams) (*Pub, error) {
	if p.Queue < 0 {
		return nil, errors.New("the Queue of a Pub must not be negative")
	}
	pub := &Pub{queue: p.Queue, peers: map[*subscriber]struct{}{}}
	if pub.queue == 0 {
		pub.queue = defaultQueue
	}
	lp := linkParams{cfg: p.Config, socket: typePub, endpoint: p.Endpoint, bind: !p.Connect, notify: p.Notify}
	if err := pub.init(lp, pub.serve); err != nil {
		return nil, err
	}
	return pub, nil
}

// Send queues a message for every subscriber to a prefix of its first frame. It never blocks and is safe for concurrent
// use; all subscribers see messages in one order. The frames may be changed afterwards.
func (p *Pub) Send(frames ...[]byte) {
	if len(frames) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var encoded []byte
	for s := range p.peers {
		if !s.wants(frames[0]) {
			continue
		}
		if encoded == nil {
			encoded = appendMessage(nil, frames)
		}
		select {
		case s.queue <- encoded:
		default:
			p.dropped.Add(1)
		}
	}
}

// Dropped is how many messages were dropped because a subscriber's queue was full; one that two lost counts twice.
func (p *Pub) Dropped() uint64 { return p.dropped.Load() }

// Subscribers is how many peers are subscribed to anything.
func (p *Pub) Subscribers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for s := range p.peers {
		if len(s.topics) > 0 {
			n++
		}
	}
	return n
}

func (s *subscriber) wants(topic []byte) bool {
	for prefix := range s.topics {
		if len(prefix) <= len(topic) && string(topic[:len(prefix)]) == prefix {
			return true
		}
	}
	return false
}

// serve reads subscriptions, while a second goroutine writes: a subscriber that takes in nothing must not keep its PONGs
// from being read.
func (p *Pub) serve(_ Peer, _ string, c *conn) error {
	s := &subscriber{topics: map[string]int{}, queue: make(chan []byte, p.queue), control: make(chan []byte, 4)}
	c.control = func(frame []byte) error {
		select {
		case s.control <- bytes.Clone(frame):
		default: // the peer takes in nothing, so one answer less does not matter
		}
		return nil
	}
	c.command = func(name, data []byte) error {
		switch string(name) { // of peers that speak ZMTP 3.1 though we said 3.0
		case cmdSubscribe:
			return p.subscribe(s, data, 1)
		case cmdCancel:
			return p.subscribe(s, data, -1)
		}
		return nil
	}
	// Subscriptions are all that may come, and they are remembered.
	c.reader.limits = limits{frame: maxTopic, frames: 1, message: maxTopic + maxHeader}
	p.mu.Lock()
	p.peers[s] = struct{}{}
	p.mu.Unlock()
	ended := make(chan struct{})
	var writing sync.WaitGroup
	var wrote error
	writing.Go(func() {
		wrote = s.write(c, ended)
		_ = c.nc.Close() // wakes the reader
	})
	err := p.read(s, c)
	p.mu.Lock()
	delete(p.peers, s)
	p.mu.Unlock()
	close(ended)
	_ = c.nc.Close() // wakes the writer
	writing.Wait()
	if wrote != nil {
		return wrote
	}
	return err
}

func (p *Pub) read(s *subscriber, c *conn) error {
	for {
		m, err := c.receive()
		switch {
		case err != nil:
			return err
		case len(m[0]) == 0:
			continue // an XSUB may send what it likes
		}
		switch m[0][0] {
		case subscribe:
			err = p.subscribe(s, m[0][1:], 1)
		case unsubscribe:
			err = p.subscribe(s, m[0][1:], -1)
		}
		if err != nil {
			return err
		}
	}
}

// subscribe counts: ZeroMQ wants a prefix cancelled as many times as it was subscribed to.
func (p *Pub) subscribe(s *subscriber, prefix []byte, by int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := s.topics[string(prefix)] + by
	switch {
	case n <= 0:
		delete(s.topics, string(prefix))
	case n == 1 && len(s.topics) == maxTopics:
		return because(ErrLimit, "more than %d subscriptions", maxTopics)
	default:
		s.topics[string(prefix)] = n
	}
	return nil
}

// write sends what is queued until the connection ends. It waits for a slow subscriber without limit; one that answers no
// PING is given up by the reader.
func (s *subscriber) write(c *conn, ended <-chan struct{}) error {
	var out []byte
	for {
		select {
		case b := <-s.control:
			out = append(out[:0], b...)
		case b := <-s.queue:
			out = append(out[:0], b...)
		case <-ended:
			return nil
		}
	gather:
		for len(out) < batch {
			select {
			case b := <-s.control:
				out = append(out, b...)
			case b := <-s.queue:
				out = append(out, b...)
			default:
				break gather
			}
		}
		if _, err := c.nc.Write(out); err != nil {
			select {
			case <-ended: // and therefore closed
				return nil
			default:
				return err
			}
		}
		if cap(out) > maxKept {
			out = nil
		}
	}
}
