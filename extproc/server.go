// Package extproc is Envoy's side of one request: the external-processing server (envoy.service.ext_proc.v3).
//
// Envoy opens one stream per HTTP request and sends its headers, then its body. The exchange of that stream gathers
// them, asks the router for a decision, and answers with the ordered list of workers that Envoy then tries. The stream
// stays open until the response is over; its end releases what was booked. Nothing here knows how a worker is chosen.
package extproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/zeebo/xxh3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"attache/internal/field"
	"attache/internal/router"
)

// Router decides; *router.Router does.
type Router interface {
	Route(ctx context.Context, req *router.Request) (*router.Decision, error)
	Models() []string
}

// Server serves ext_proc, gRPC health, and what else is registered with it, on one port.
type Server struct {
	settings    atomic.Pointer[settings]
	router      Router
	defaultPool string
	gateway     Gateway
	log         *slog.Logger
	metrics     *metrics
	grpc        *grpc.Server
	health      *health.Server
	listener    net.Listener
	buffers     mem.BufferPool
	scans       scans
	now         func() time.Time // nil: requests are not timed
	readiness   func(bool)       // nil: nobody is told

	turning  sync.Mutex // guards draining, and turning readiness on and off
	draining bool

	open         atomic.Int64 // streams: requests under way
	complainOnce [8]sync.Once // by body mode
}

// Params are the collaborators of a Server.
type Params struct {
	Config      Config
	Router      Router
	DefaultPool string // the pool that Envoy's default route leads to; the others need a header
	Gateway     Gateway
	Log         *slog.Logger
	Metrics     prometheus.Registerer
	// Now times the steps of every request, for those who show them; nil: nobody does.
	Now func() time.Time
	// Ready is told when the server becomes ready and when it is no more, before Envoy can know; nil: nobody is.
	Ready func(bool)
	// Register adds further services to the port, such as the access-log service.
	Register []func(grpc.ServiceRegistrar)
}

// Gateway is how patient the gateway is, as its ext_proc filter is configured. Requests that wait for a worker ask it for more
// time than MessageTimeout, and for at most MaxMessageTimeout.
type Gateway struct{ MessageTimeout, MaxMessageTimeout time.Duration }

// New opens the listener; Run serves it. The configuration must have been validated.
func New(p Params) (*Server, error) {
	s := &Server{
		router: p.Router, defaultPool: p.DefaultPool, gateway: p.Gateway, log: p.Log,
		health: health.NewServer(), buffers: &bufferPool{}, now: p.Now, readiness: p.Ready,
	}
	s.Reconfigure(p.Config)
	s.metrics = newMetrics(p.Metrics, func() float64 { return float64(s.open.Load()) })
	options := s.options()
	if p.Config.TLS != nil {
		tls, err := p.Config.TLS.load()
		if err != nil {
			return nil, fmt.Errorf("extproc.tls: %w", err)
		}
		options = append(options, grpc.Creds(credentials.NewTLS(tls)))
	}
	listener, err := field.Listen(p.Config.Listen)
	if err != nil {
		return nil, fmt.Errorf("extproc.listen: %w", err)
	}
	s.listener = listener
	s.grpc = grpc.NewServer(options...)
	s.Register(s.grpc)
	for _, register := range p.Register {
		register(s.grpc)
	}
	grpc_health_v1.RegisterHealthServer(s.grpc, s.health)
	s.SetReady(false)
	return s, nil
}

// Register adds the ext_proc service to a gRPC server that has this server's codec.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	to.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Process", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return s.process(stream) }}},
		Metadata: "envoy/service/ext_proc/v3/external_processor.proto",
	}, s)
}

const serviceName = "envoy.service.ext_proc.v3.ExternalProcessor"

// options are what measuring chose (docs/performance.md): the lazy codec and the pool that does not clear its buffers
// halve the CPU of a decision; one stream per running request wants no limit on streams; Envoy pings every 30 s and
// grpc-go's default answers frequent pings by closing the connection.
func (s *Server) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec(s.buffers)),
		experimental.BufferPool(s.buffers),
		grpc.MaxRecvMsgSize(int(s.settings.Load().MaxMessage)),
		grpc.MaxConcurrentStreams(1 << 20),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ReadBufferSize(64 << 10),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.InitialWindowSize(1 << 20),
		grpc.InitialConnWindowSize(16 << 20),
	}
}

// streamWorkers serve streams on goroutines whose stacks have grown already; streams beyond their number get new ones.
const streamWorkers = 256

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// The health names of the endpoint picker protocol. The empty name, which plain probes ask for, means readiness too.
var readinessNames = []string{"", "readiness", serviceName}

// SetReady turns all readiness names on or off; liveness is always on. A server that drains does not become ready again.
func (s *Server) SetReady(ready bool) {
	s.turning.Lock()
	defer s.turning.Unlock()
	if ready && s.draining {
		return
	}
	if s.readiness != nil {
		s.readiness(ready)
	}
	state := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if ready {
		state = grpc_health_v1.HealthCheckResponse_SERVING
	}
	for _, name := range readinessNames {
		s.health.SetServingStatus(name, state)
	}
	s.health.SetServingStatus("liveness", grpc_health_v1.HealthCheckResponse_SERVING)
}

// Run serves until ctx ends, then drains: not ready first, so that Envoy goes elsewhere, then no new streams, then a
// bounded wait for the running ones and for what the access log has to say of them.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- s.grpc.Serve(s.listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("extproc: %w", err)
	case <-ctx.Done():
	}
	cfg := s.settings.Load()
	s.drain()
	s.log.Info("ext_proc is not ready any more, and goes on to take requests", "for", cfg.DrainWait.String())
	time.Sleep(cfg.DrainWait)
	s.log.Info("ext_proc takes no more requests, and lets those that run finish", "running", s.open.Load(), "at_most", cfg.DrainTimeout.String())
	stopped := make(chan struct{})
	go func() { s.grpc.GracefulStop(); close(stopped) }()
	s.awaitIdle(stopped, cfg.DrainTimeout)
	if cut := s.open.Load(); cut > 0 {
		s.log.Warn("ext_proc cuts requests that still run", "running", cut, "after", cfg.DrainTimeout.String())
	}
	s.grpc.Stop()
	<-stopped
	if err := <-failed; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began is stopped, too
		return fmt.Errorf("extproc: %w", err)
	}
	return nil
}

// drain turns readiness off for good.
func (s *Server) drain() {
	s.turning.Lock()
	s.draining = true
	s.turning.Unlock()
	s.SetReady(false)
}

// lastReports is how long the access log may take for the last requests: Envoy's flush interval and a little more.
const lastReports = 300 * time.Millisecond

// awaitIdle waits until no request runs, for at most the drain timeout. Access-log streams never end by themselves, so
// waiting for every stream would wait in vain.
func (s *Server) awaitIdle(stopped <-chan struct{}, timeout time.Duration) {
	deadline := time.Now().Add(timeout)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.open.Load() > 0 && time.Now().Before(deadline) {
		select {
		case <-tick.C:
		case <-stopped:
			return
		}
	}
	select {
	case <-time.After(min(lastReports, timeout)):
	case <-stopped:
	}
}

// process serves one stream. Envoy ends streams with EOF or by cancelling, for finished and for abandoned requests
// alike: neither is an error, and neither says how the request went.
func (s *Server) process(stream grpc.ServerStream) (err error) {
	x := &exchange{server: s, ctx: stream.Context()}
	x.send = func(r reply) error {
		x.out = r
		return stream.SendMsg(&x.out)
	}
	m := &x.in
	s.open.Add(1)
	defer s.open.Add(-1)
	defer m.free()
	defer x.close()
	defer func() {
		if v := recover(); v != nil {
			err = s.contain(v, m, x)
		}
	}()
	for {
		m.free()
		if err := stream.RecvMsg(m); err != nil {
			return s.ended(err)
		}
		if err := x.handle(m); err != nil {
			return s.ended(err)
		}
	}
}

func (s *Server) ended(err error) error {
	code := status.Code(err)
	if errors.Is(err, io.EOF) || code == codes.Canceled || code == codes.Unavailable {
		return nil
	}
	s.metrics.protocol.Inc()
	s.log.Warn("ext_proc stream ended", "error", err)
	return err
}

// contain turns a panic into the end of its own stream: with fail-open Envoy sends the request on by itself. What was
// on the table is recorded so that the bug can be found.
func (s *Server) contain(v any, m *message, x *exchange) error {
	s.metrics.panics.Inc()
	var input []byte
	if m.buffer != nil {
		input = m.buffer.ReadOnlyData()
	}
	hash := fmt.Sprintf("%016x", xxh3.Hash(input))
	record := fmt.Sprintf("panic: %v\nphase: %s\n%s\ninput: %d bytes, xxh3 %s\n\n%s", v, m.phase, x.shape(), len(input), hash,
		debug.Stack())
	s.log.Error("a request's handler panicked; its stream was ended", "panic", v, "input_xxh3", hash, "shape", x.shape())
	cfg := s.settings.Load()
	if dir := cfg.RecordPanics; dir != "" {
		if err := recordPanic(dir, hash, record, input, cfg.RecordBodies); err != nil {
			s.log.Warn("the panic could not be recorded", "error", err)
		}
	}
	return status.Errorf(codes.Internal, "attache: internal error on input %s", hash)
}

func recordPanic(dir, hash, record string, input []byte, full bool) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "panic-"+hash+".txt"), []byte(record), 0o600); err != nil {
		return err
	}
	if !full {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, "panic-"+hash+".bin"), input, 0o600)
}

// complain says once per mode that a gateway is configured in a way that cannot steer by prefix.
func (s *Server) complain(mode bodyMode) {
	if int(mode) >= len(s.complainOnce) {
		mode = 7
	}
	s.complainOnce[mode].Do(func() {
		s.log.Error("a gateway sends no request bodies that can steer: requests are routed by load only",
			"request_body_mode", mode.String(), "want", "BUFFERED or FULL_DUPLEX_STREAMED")
	})
}
