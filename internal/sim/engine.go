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
	"sync/atomic"
	"time"
)

// Engine is a Core behind HTTP, or several, in real time. Safe for concurrent use. What a restart keeps is here, what it
// loses is in a life.
type Engine struct {
	cfg         Config
	log         *slog.Logger
	gate        *gate
	server      *http.Server
	faults      *faults
	eventFaults eventFaults
	conns       conns
	restarts    chan restart
	ended       chan struct{} // closed when Run has stopped all
	current     atomic.Pointer[life]
}

// restart asks for one.
type restart struct {
	spared net.Conn // stays open; nil: none does
	done   chan struct{}
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
		cfg: cfg, log: log.With("engine", cfg.Name), gate: g, restarts: make(chan restart), ended: make(chan struct{}),
	}
	e.conns.open = make(map[net.Conn]struct{})
	e.faults = newFaults(e.faultChanged)
	first, err := e.newLife(1, nil)
	if err != nil {
		_ = g.Close()
		return nil, fmt.Errorf("simulated engine: %w", err)
	}
	e.current.Store(first)
	e.server = &http.Server{
		Handler:           e.handler(),
		ConnState:         e.conns.track,
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
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
	running.Go(func() { e.live(ctx) })
	running.Go(func() {
		<-ctx.Done()
		e.faults.set(Fault{}) // wakes who hangs, ends the timer
		_ = e.server.Close()
	})
	err := e.server.Serve(e.gate)
	cancel()
	running.Wait()
	close(e.ended)
	e.conns.ended.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// live leads one life after another until ctx ends.
func (e *Engine) live(ctx context.Context) {
	for ctx.Err() == nil {
		l := e.current.Load()
		living, die := context.WithCancel(ctx)
		over := make(chan struct{})
		go func() {
			defer close(over)
			l.run(living)
		}()
		select {
		case <-ctx.Done():
			die()
			<-over
		case r := <-e.restarts:
			e.gate.shut()
			e.conns.closeAll(r.spared)
			die()
			<-over
			e.reborn(ctx, l)
			if f, _ := e.faults.get(); f.Mode != FaultRefuse {
				e.gate.open()
			}
			close(r.done)
		}
	}
}

// reborn begins the life after l. Somebody else may have taken a port meanwhile; then it tries until it is free, or ctx ends.
func (e *Engine) reborn(ctx context.Context, l *life) {
	for {
		next, err := e.newLife(l.epoch+1, l.at())
		if err == nil {
			e.current.Store(next)
			e.log.Warn("restarted", "epoch", next.epoch)
			return
		}
		e.log.Warn("restarting waits for a port", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// errEnded says that nothing runs any more.
var errEnded = errors.New("the engine has ended")

// Restart does what the end of the process and a new start would do, on the same ports: connections are cut, requests and
// caches are gone, sequence numbers begin with 0, the hash seed is another one unless it is configured. Faults stay. It
// returns when the ports are open again; it needs Run.
func (e *Engine) Restart(ctx context.Context) error { return e.restart(ctx, nil) }

func (e *Engine) restart(ctx context.Context, spared net.Conn) error {
	r := restart{spared: spared, done: make(chan struct{})}
	select {
	case e.restarts <- r:
	case <-e.ended:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
	<-r.done
	return nil
}

// Reset empties the prefix cache. Requests that run go on, as no real engine would let them.
func (e *Engine) Reset() { e.current.Load().reset(true) }

// Stats are the figures of the cores at this moment, all ranks together.
func (e *Engine) Stats() Stats { return e.current.Load().stats() }

// SetEventFault makes something go wrong with the events, in addition to what is wrong in other ways. The fault must be valid.
func (e *Engine) SetEventFault(f EventFault) {
	e.log.Warn("injected event fault", "mode", f.Mode, "count", f.Count, "for", f.For)
	e.eventFaults.set(f)
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
		e.conns.closeAll(nil)
	case was.Mode == FaultRefuse:
		e.gate.open()
	}
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

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

// closeAll closes all but one; nil spares none.
func (c *conns) closeAll(spared net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		if conn != spared {
			_ = conn.Close()
		}
	}
}
