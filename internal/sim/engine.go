package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Engine is a Core behind HTTP, in real time. Safe for concurrent use.
//
// One goroutine, loop, steps the core: it waits for work, lets a step form its batch, sleeps until the step's end, tells
// the streams how many tokens they have, and goes on. Handlers submit and abort under the same mutex; what they submit
// during a step is seen by the next one, as on a real engine.
type Engine struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	gate    *gate
	server  *http.Server
	faults  *faults
	metrics *metrics
	wake    chan struct{} // there is work; capacity 1
	stopped chan struct{} // closed when the loop has ended
	conns   conns

	mu      sync.Mutex // guards the fields below
	core    *Core
	streams map[uint64]*stream
	lastID  uint64
}

// catchUp is how far the loop may lag behind the times of the model before it gives up on catching up: sleeping is not
// exact, and steps that began late are made up for by sleeping less, but a machine without a free CPU cannot do it.
const catchUp = 100 * time.Millisecond

// New opens the listener. Connections are answered once Run is called.
func New(cfg Config, log *slog.Logger) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("simulated engine: %w", err)
	}
	if cfg.ModelDir != "" {
		var err error
		if cfg.vocabulary, err = openVocabulary(cfg.ModelDir); err != nil {
			return nil, fmt.Errorf("simulated engine: model: %w", err)
		}
	}
	g, err := newGate(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("simulated engine: %w", err)
	}
	e := &Engine{
		cfg: cfg, log: log.With("engine", cfg.Name), started: time.Now(), gate: g,
		wake: make(chan struct{}, 1), stopped: make(chan struct{}), core: NewCore(cfg), streams: make(map[uint64]*stream),
	}
	e.conns.open = make(map[net.Conn]struct{})
	e.faults = newFaults(e.faultChanged)
	e.metrics = newMetrics(e)
	e.server = &http.Server{
		Handler:           e.handler(),
		ConnState:         e.conns.track,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Second, // vLLM's HTTP server drops idle connections that early
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	e.SetFault(cfg.Fault)
	return e, nil
}

// Addr is where the engine listens.
func (e *Engine) Addr() netip.AddrPort { return e.gate.addr.AddrPort() }

// Run serves until ctx ends; then every connection is cut at once. It returns after all its goroutines have ended. An
// Engine runs once.
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { e.loop(ctx) })
	running.Go(func() {
		<-ctx.Done()
		e.faults.set(Fault{}) // wakes who hangs, ends the timer
		_ = e.server.Close()
	})
	err := e.server.Serve(e.gate)
	cancel()
	running.Wait()
	e.conns.ended.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Reset empties the prefix cache, as after a restart. Requests that run go on.
func (e *Engine) Reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.Reset()
}

// Stats are the figures of the core at this moment.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.Stats()
}

// SetFault makes something go wrong, or well again; it replaces what was wrong before. The fault must be valid.
func (e *Engine) SetFault(f Fault) { e.faults.set(f) }

// faultChanged closes and opens the port.
func (e *Engine) faultChanged(was, is Fault) {
	if was.mode() != is.mode() {
		e.log.Warn("injected fault", "mode", is.mode(), "for", is.For)
	}
	switch {
	case is.Mode == FaultRefuse:
		e.gate.shut()
		e.conns.closeAll()
	case was.Mode == FaultRefuse:
		e.gate.open()
	}
}

// submit puts a request into the queue. The stream must be handed to leave when the caller is done with it.
func (e *Engine) submit(j *job) (*stream, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastID++
	s := &stream{id: e.lastID, arrived: time.Now(), ready: make(chan struct{}, 1)}
	err := e.core.Submit(time.Since(e.started), Request{ID: s.id, Prompt: j.prompt, Output: j.output, Chain: j.chain})
	if err != nil {
		return nil, err
	}
	e.streams[s.id] = s
	select {
	case e.wake <- struct{}{}:
	default:
	}
	return s, nil
}

// leave gives a stream up; a request that is not done is aborted and its memory freed at once.
func (e *Engine) leave(s *stream, j *job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.streams, s.id)
	if !e.core.Abort(s.id) && int(s.tokens.Load()) == j.output {
		e.metrics.finished(j, time.Since(s.arrived), j.finish)
		return
	}
	e.metrics.finished(j, time.Since(s.arrived), finishAbort)
}

// loop steps the core until ctx ends.
func (e *Engine) loop(ctx context.Context) {
	defer close(e.stopped)
	end := time.Now() // of the last step, by the model
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		fault, over := e.faults.get()
		if fault.Mode == FaultHang {
			select {
			case <-ctx.Done():
				return
			case <-over:
			}
			continue
		}
		if now := time.Now(); now.Sub(end) > catchUp {
			end = now
		}
		e.mu.Lock()
		took, events := e.core.Step(end.Sub(e.started))
		e.mu.Unlock()
		if took == 0 {
			select {
			case <-ctx.Done():
				return
			case <-e.wake:
			}
			end = time.Now()
			continue
		}
		if fault.Mode == FaultSlow {
			took += fault.Delay
		}
		end = end.Add(took)
		timer.Reset(time.Until(end))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		e.deliver(events)
	}
}

// deliver tells streams what they have got.
func (e *Engine) deliver(events []Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range events {
		s := e.streams[ev.ID]
		if s == nil {
			continue // aborted meanwhile
		}
		now := time.Now()
		if ev.Token == 1 {
			s.cached = ev.Cached
			e.metrics.firstToken.Observe(now.Sub(s.arrived).Seconds())
			e.metrics.queueTime.Observe(ev.Waited.Seconds())
		} else {
			e.metrics.interToken.Observe(now.Sub(s.last).Seconds())
		}
		s.last = now
		s.tokens.Store(int32(ev.Token))
		select {
		case s.ready <- struct{}{}:
		default:
		}
	}
}

// conns are the connections of the server.
type conns struct {
	ended sync.WaitGroup // counts them

	mu   sync.Mutex // guards the field below
	open map[net.Conn]struct{}
}

// track is the hook http.Server.ConnState.
func (c *conns) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.ended.Add(1)
		c.open[conn] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
		c.ended.Done()
	default:
	}
}

func (c *conns) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		_ = conn.Close()
	}
}
