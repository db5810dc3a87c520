package direct

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// hub tells a pool's records to its subscribers. Safe for concurrent use.
type hub struct {
	buffer  int // bytes that may wait for one subscriber
	figures figures

	mu          sync.Mutex // guards what follows, and what says so in subscribers
	subscribers map[*subscriber]bool
	closed      bool
}

// subscriber is another replica that follows this one.
type subscriber struct {
	process random
	name    string
	wake    chan struct{} // something waits, or it is over; capacity 1
	over    chan struct{} // closed when it is to end at once

	// Guarded by the hub.
	waiting mem.BufferSlice
	bytes   int
	ceiling int   // how much may wait
	last    bool  // nothing comes any more
	why     error // over is closed
}

func newSubscriber(process random, name string) *subscriber {
	return &subscriber{process: process, name: name, wake: make(chan struct{}, 1), over: make(chan struct{})}
}

var (
	errSlow     = status.Error(codes.ResourceExhausted, "too slow: more waits than the buffer holds")
	errReplaced = status.Error(codes.Aborted, "the same replica has connected again")
	errStopped  = status.Error(codes.Unavailable, "this replica is stopping")
)

// publish puts records before all subscribers. It never waits.
func (h *hub) publish(records [][]byte) error {
	for i, r := range records {
		if len(r) > maxRecord {
			return fmt.Errorf("record %d of %d has %d bytes: must be at most %d", i+1, len(records), len(r), maxRecord)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return errors.New("the connections between replicas are closed already")
	}
	if len(h.subscribers) == 0 {
		return nil
	}
	frame := make(mem.BufferSlice, len(records))
	for i, r := range records {
		frame[i] = framed(r)
	}
	bytes := frame.Len()
	for s := range h.subscribers {
		// What finds the queue within the buffer goes in, however large: a snapshot would otherwise never reach anybody. Then there is
		// room for another buffer while it is on its way.
		if s.bytes <= h.buffer {
			s.ceiling = s.bytes + bytes + h.buffer
		}
		if s.bytes+bytes > s.ceiling {
			h.figures.cut.Inc()
			h.end(s, errSlow)
			continue
		}
		s.waiting, s.bytes = append(s.waiting, frame...), s.bytes+bytes
		s.poke()
	}
	return nil
}

func (s *subscriber) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// end lets a subscriber go at once; h.mu must be held.
func (h *hub) end(s *subscriber, why error) {
	if s.why == nil {
		s.why, s.waiting, s.bytes = why, nil, 0
		delete(h.subscribers, s)
		close(s.over)
	}
}

// subscribe tells s every record that is published from now on, until leave. A process has one subscription: the latest.
func (h *hub) subscribe(s *subscriber) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return errStopped
	}
	for o := range h.subscribers {
		if o.process == s.process {
			h.end(o, errReplaced)
		}
	}
	h.subscribers[s] = true
	return nil
}

// leave ends a subscription and returns why it was ended before, if it was.
func (h *hub) leave(s *subscriber) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	why := s.why
	h.end(s, errStopped)
	return why
}

// close lets all subscribers go as soon as they were told what waits.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for s := range h.subscribers {
		s.last = true
		s.poke()
	}
}

// take takes a frame of what waits; more is false when that was the last.
func (h *hub) take(s *subscriber) (frame mem.BufferSlice, bytes int, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for n < len(s.waiting) && bytes < frameBytes {
		bytes += s.waiting[n].Len()
		n++
	}
	frame = s.waiting[:n:n]
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil // gRPC reads what was taken after it was sent: its array is not used again
	}
	s.bytes -= bytes
	return frame, bytes, n > 0 || !s.last && s.why == nil
}

// send sends what waits for s, until nothing comes any more or ctx ends.
func (h *hub) send(ctx context.Context, s *subscriber, send func(any) error) error {
	for {
		frame, bytes, more := h.take(s)
		switch {
		case !more:
			return nil
		case len(frame) > 0:
			if err := send(outgoing(frame)); err != nil {
				return err
			}
			h.figures.sent.Add(float64(bytes))
			continue
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// count is how many subscribers there are.
func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.subscribers)
}
