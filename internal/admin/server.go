package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/field"
)

// Bounds of the HTTP server. Streams set their own deadlines, and Go's profiles extend theirs.
const (
	headerTimeout   = 5 * time.Second
	idleTimeout     = 2 * time.Minute
	maxHeader       = 16 << 10
	shutdownTimeout = 3 * time.Second
	metricsTimeout  = 10 * time.Second
	maxScrapes      = 4 // /metrics at the same time
)

// timeouts bound how long a request may take to arrive, and an answer to be written.
type timeouts struct{ read, answer time.Duration }

// Server is the operator's listener. Make one with New, then Run it once.
type Server struct {
	cfg      Config
	view     reader
	log      *slog.Logger
	gatherer prometheus.Gatherer
	listener net.Listener
	hub      *hub
	timeouts timeouts
	handler  http.Handler

	explaining chan struct{} // has room for as many as may be explained at the same time
}

// New checks the configuration and opens the listener, so that a taken port fails the start. Run serves it.
func New(cfg Config, src Source, log *slog.Logger, gatherer prometheus.Gatherer) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, view: reader{src: src, now: time.Now}, log: log, gatherer: gatherer,
		timeouts: timeouts{read: 10 * time.Second, answer: 30 * time.Second}, explaining: make(chan struct{}, maxExplained)}
	s.hub = newHub(func() ([]byte, error) { return json.Marshal(s.view.state()) }, cfg.Refresh, cfg.MaxViewers, log)
	files, err := newFiles()
	if err != nil {
		return nil, err
	}
	s.handler = s.routes(files)
	if s.listener, err = field.Listen(cfg.Listen); err != nil {
		return nil, fmt.Errorf("admin.listen: %w", err)
	}
	return s, nil
}

// Addr is the address that is listened on; it tells the port when the configuration left it open.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends, then closes the streams and gives other requests a moment. It returns nil after a normal
// end, and does not outlive its goroutines.
func (s *Server) Run(ctx context.Context) error {
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       s.timeouts.read,
		WriteTimeout:      s.timeouts.answer,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.listener) }()
	go s.hub.run(ctx)
	s.log.Info("admin listening", "address", s.Addr().String())

	var err error
	select {
	case <-ctx.Done():
		grace, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer done()
		if server.Shutdown(grace) != nil {
			_ = server.Close() // whoever is still reading has had its time
		}
		err = <-served
	case err = <-served:
		cancel()
		_ = server.Close()
	}
	<-s.hub.done
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("admin serve %s: %w", s.Addr(), err)
}
