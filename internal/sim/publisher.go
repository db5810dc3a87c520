package sim

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"attache/indexer/events/wire"
	"attache/indexer/events/zmtp"
	"attache/internal/field"
)

// endpointOf is the endpoint of a rank: that of rank 0 with its port counted up, unless any port will do.
func endpointOf(base string, rank int) (string, error) {
	if err := zmtp.CheckEndpoint(base, true); err != nil {
		return "", err
	}
	if strings.HasPrefix(base, "ipc://") {
		if rank > 0 {
			return "", &field.Error{Value: base, Rule: "must be tcp:// when there are several ranks"}
		}
		return base, nil
	}
	host, port, err := net.SplitHostPort(strings.TrimPrefix(base, "tcp://"))
	if err != nil {
		return "", &field.Error{Value: base, Rule: err.Error()}
	}
	n, err := strconv.Atoi(port)
	if err != nil || n == 0 { // "*" or 0
		return base, nil //nolint:nilerr // checked above: it is "*"
	}
	if n+rank > 65535 {
		return "", &field.Error{Value: base, Rule: "must leave a port for every rank"}
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(n+rank)), nil
}

// endpoints are where a rank publishes and replays; replay is empty where it does not.
type endpoints struct{ events, replay string }

// publisher sends the batches of one rank and answers for those that were missed. Safe for concurrent use.
type publisher struct {
	withTopic bool // in replays
	topic     []byte
	faults    *eventFaults
	pub       *zmtp.Pub
	router    *zmtp.Router // nil: nobody can ask
	ended     chan struct{}

	mu   sync.Mutex // guards the fields below
	next uint64     // sequence number
	last []byte     // the payload before that; nil: there was none
	ring []wire.Message
	most int           // messages that ring keeps
	late *wire.Message // held back until the next one was sent
}

// newPublisher opens the sockets.
func newPublisher(cfg *Config, at endpoints, faults *eventFaults) (*publisher, error) {
	p := &publisher{
		withTopic: cfg.Dialect != DialectVLLMArray, topic: []byte(cfg.Topic), faults: faults, ended: make(chan struct{}), most: cfg.BufferSteps,
	}
	var err error
	if p.pub, err = zmtp.NewPub(zmtp.PubParams{Endpoint: at.events, Queue: 100_000, Config: zmtp.DefaultConfig()}); err != nil {
		return nil, err
	}
	if at.replay == "" {
		return p, nil
	}
	params := zmtp.RouterParams{Endpoint: at.replay, Config: zmtp.DefaultConfig(), Receive: p.answer}
	if p.router, err = zmtp.NewRouter(params); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// close closes the sockets of a publisher that will not run.
func (p *publisher) close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.run(ctx)
}

// at is where the sockets are, with the ports they got.
func (p *publisher) at() endpoints {
	at := endpoints{events: p.pub.Endpoint()}
	if p.router != nil {
		at.replay = p.router.Endpoint()
	}
	return at
}

// run serves until ctx ends, and then closes the sockets. It is called once.
func (p *publisher) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() {
		<-ctx.Done()
		close(p.ended)
	})
	running.Go(func() { _ = p.pub.Run(ctx) })
	if p.router != nil {
		running.Go(func() { _ = p.router.Run(ctx) })
	}
	running.Wait()
}

// publish sends a batch under the next sequence number.
func (p *publisher) publish(payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := wire.Message{Topic: p.topic, Seq: p.next, Payload: payload}
	p.next++
	p.last = payload
	if p.faults.take(EventLose) {
		return
	}
	if len(p.ring) == p.most {
		p.ring = p.ring[1:] // append moves what is left when the room ends, not each time
	}
	p.ring = append(p.ring, m)
	if p.faults.take(EventDrop) {
		return
	}
	if p.late == nil && p.faults.take(EventReorder) {
		p.late = &m
		return
	}
	p.send(m)
	if p.faults.take(EventDuplicate) {
		p.send(m)
	}
	if p.late != nil {
		p.send(*p.late)
		p.late = nil
	}
}

func (p *publisher) send(m wire.Message) { p.pub.Send(wire.LiveFrames(m)...) }

// sequence is the number of the next batch.
func (p *publisher) sequence() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// digest names the batch published last by its bytes; 0: there is none.
func (p *publisher) digest() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		return 0
	}
	return xxh3.Hash(p.last)
}

// from are the batches that are kept, beginning with start: what is older than all of them is passed over without a word.
func (p *publisher) from(start uint64) []wire.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, m := range p.ring {
		if m.Seq >= start {
			return append([]wire.Message(nil), p.ring[i:]...)
		}
	}
	return nil
}

// answer answers a request for a replay. What is no request gets no answer, as with the real ones.
func (p *publisher) answer(c *zmtp.Caller, frames zmtp.Message) {
	start, err := wire.ParseReplayRequest(frames)
	if err != nil || p.faults.take(EventNoReplay) {
		return
	}
	for _, m := range p.from(start) {
		if pause := p.faults.delay(EventSlowReplay); pause > 0 {
			select {
			case <-time.After(pause):
			case <-p.ended:
				return
			}
		}
		if c.Send(wire.ReplayFrames(m, p.withTopic)...) != nil {
			return
		}
	}
	_ = c.Send(wire.ReplayEnd(p.withTopic)...)
}
