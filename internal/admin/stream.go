package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// How long one write to a viewer may take, and what a browser waits before it comes back.
const (
	writeDeadline = 5 * time.Second
	retryMillis   = 2000
)

// hub gives every viewer the same frames. Its loop asks for a frame only while there are viewers, and once for all.
type hub struct {
	capture func() ([]byte, error) // one state as JSON, without line breaks
	refresh time.Duration
	limit   int
	log     *slog.Logger

	join  chan *viewer
	leave chan *viewer
	done  chan struct{} // closed when the loop has ended
}

// viewer is one open stream. frames holds at most the newest frame: a slow reader skips.
type viewer struct {
	frames   chan []byte
	admitted chan bool
}

func newHub(capture func() ([]byte, error), refresh time.Duration, limit int, log *slog.Logger) *hub {
	return &hub{
		capture: capture, refresh: refresh, limit: limit, log: log,
		join: make(chan *viewer), leave: make(chan *viewer), done: make(chan struct{}),
	}
}

// run owns the viewers until ctx ends. One thing happens at a time: a viewer comes (and gets the newest frame at once),
// a viewer goes (the last one stops the clock), or it is time for the next frame.
func (h *hub) run(ctx context.Context) {
	defer close(h.done)
	var (
		viewers = map[*viewer]struct{}{}
		latest  []byte       // what a new viewer gets; nil while nobody watches
		clock   *time.Ticker // runs only while somebody watches
		tick    <-chan time.Time
	)
	stop := func() {
		if clock != nil {
			clock.Stop()
		}
		clock, tick, latest = nil, nil, nil
	}
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case v := <-h.join:
			if len(viewers) >= h.limit {
				v.admitted <- false
				continue
			}
			viewers[v] = struct{}{}
			v.admitted <- true
			if clock == nil {
				clock = time.NewTicker(h.refresh)
				tick, latest = clock.C, h.frame()
			}
			v.offer(latest)
		case v := <-h.leave:
			delete(viewers, v)
			if len(viewers) == 0 {
				stop()
			}
		case <-tick:
			latest = h.frame()
			for v := range viewers {
				v.offer(latest)
			}
		}
	}
}

// offer replaces a frame that was not taken yet. Only the loop offers, so there is always room afterwards.
func (v *viewer) offer(frame []byte) {
	select {
	case <-v.frames:
	default:
	}
	v.frames <- frame
}

// frame is one server-sent event: the state, or what hindered it. A panic below is an error of the view, and the view
// must not take the data path down with it.
func (h *hub) frame() (frame []byte) {
	problem := func(err error) []byte {
		h.log.Error("dashboard: state could not be read", "error", err)
		return event("problem", []byte(strings.Join(strings.Fields(err.Error()), " "))) // an event ends with its line
	}
	defer func() {
		if p := recover(); p != nil {
			frame = problem(fmt.Errorf("panic: %v", p))
		}
	}()
	state, err := h.capture()
	if err != nil {
		return problem(err)
	}
	return event("state", state)
}

func event(name string, data []byte) []byte {
	var b bytes.Buffer
	b.Grow(len(data) + 32)
	b.WriteString("event: " + name + "\ndata: ")
	b.Write(data)
	b.WriteString("\n\n")
	return b.Bytes()
}

var (
	errClosing = errors.New("shutting down")
	errFull    = errors.New("no more viewers allowed")
)

// enter adds a viewer; the caller must call out when it is gone.
func (h *hub) enter(ctx context.Context) (v *viewer, out func(), err error) {
	v = &viewer{frames: make(chan []byte, 1), admitted: make(chan bool, 1)}
	select {
	case h.join <- v:
	case <-h.done:
		return nil, nil, errClosing
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if !<-v.admitted {
		return nil, nil, errFull
	}
	return v, func() {
		select {
		case h.leave <- v:
		case <-h.done:
		}
	}, nil
}

// stream answers with an endless sequence of events.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	if r.Method == http.MethodHead {
		head.Set("Content-Type", "text/event-stream")
		return
	}
	v, out, err := s.hub.enter(r.Context())
	switch {
	case errors.Is(err, errFull):
		head.Set("Retry-After", "10")
		s.failf(w, http.StatusServiceUnavailable, "%d dashboards are open already: close one, or raise max_viewers", s.cfg.MaxViewers)
		return
	case err != nil:
		s.failf(w, http.StatusServiceUnavailable, "%v", err)
		return
	}
	defer out()

	head.Set("Content-Type", "text/event-stream")
	head.Set("X-Accel-Buffering", "no") // proxies in between must not collect events
	conn := http.NewResponseController(w)
	// The server's read deadline would end the request's context in the middle of the stream.
	if err := conn.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return
	}
	send := func(frame []byte) bool {
		if err := conn.SetWriteDeadline(time.Now().Add(writeDeadline)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return false
		}
		if _, err := w.Write(frame); err != nil {
			return false
		}
		return conn.Flush() == nil
	}
	if !send(fmt.Appendf(nil, "retry: %d\n\n", retryMillis)) {
		return
	}
	for {
		select {
		case frame := <-v.frames:
			if !send(frame) {
				return
			}
		case <-s.hub.done:
			return
		case <-r.Context().Done():
			return
		}
	}
}
