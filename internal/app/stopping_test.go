package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"attache/internal/sim"
)

// steps is a log that stops attache at what it says, so that a test can look around there.
type steps struct {
	mu      *sync.Mutex // guards what follows
	at      map[string]func()
	stopped *[]string // components, in order
}

func (s steps) Enabled(context.Context, slog.Level) bool { return true }
func (s steps) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s steps) WithGroup(string) slog.Handler            { return s }

func (s steps) Handle(_ context.Context, r slog.Record) error {
	what := r.Message
	if what == "a component has stopped" {
		r.Attrs(func(a slog.Attr) bool { what = "stopped " + a.Value.String(); return false })
	}
	s.mu.Lock()
	if name, is := strings.CutPrefix(what, "stopped "); is {
		*s.stopped = append(*s.stopped, name)
	}
	look := s.at[what]
	s.mu.Unlock()
	if look != nil {
		look()
	}
	return nil
}

func newSteps() steps {
	return steps{mu: new(sync.Mutex), at: map[string]func(){}, stopped: new([]string)}
}

// on says what is done at a step.
func (s steps) on(step string, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at[step] = do
}

// engine is a simulated engine until the test ends.
func engine(t *testing.T) (address string) {
	t.Helper()
	cfg := sim.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	e, err := sim.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = e.Run(ctx) })
	t.Cleanup(func() { cancel(); serving.Wait() })
	return e.Addr().String()
}

// dial connects to ext_proc until the test ends.
func dial(t *testing.T, a *App) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(a.Addrs().ExtProc.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// stream is one request of Envoy's.
type stream = grpc.BidiStreamingClient[extprocv3.ProcessingRequest, extprocv3.ProcessingResponse]

// decide asks for a decision on a chat; the stream stays open.
func decide(t *testing.T, conn *grpc.ClientConn) (stream, error) {
	t.Helper()
	s, err := extprocv3.NewExternalProcessorClient(conn).Process(context.Background())
	if err != nil {
		return nil, err
	}
	headers := &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":method", RawValue: []byte("POST")}, {Key: ":path", RawValue: []byte("/v1/chat/completions")}}}
	for _, m := range []*extprocv3.ProcessingRequest{
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headers}},
			ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: filter.ProcessingMode_BUFFERED}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{
			Body: []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`), EndOfStream: true}}},
	} {
		if err := s.Send(m); err != nil {
			return nil, err
		}
		reply, err := s.Recv()
		if err != nil {
			return nil, err
		}
		if body := m.GetRequestBody(); body != nil && reply.GetDynamicMetadata() == nil {
			t.Errorf("no decision: %v", reply)
		}
	}
	return s, nil
}

// TestTheOrderOfStopping: readiness goes first, running requests finish, and everything they need is there until they have.
func TestTheOrderOfStopping(t *testing.T) {
	log, dir := newSteps(), t.TempDir()
	cfg := quiet(engine(t))
	cfg.ExtProc.DrainTimeout, cfg.Router.LearntDir = time.Hour, dir
	a, err := New(cfg, Options{Version: "test", Log: slog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready := func() bool { status, _ := get(t, a, "/readyz"); return status == 200 }
	eventually(t, "ready", ready)
	conn := dial(t, a)
	running, err := decide(t, conn)
	if err != nil {
		t.Fatal(err)
	}
	log.on("ext_proc is not ready any more, and goes on to take requests", func() {
		if ready() {
			t.Error("/readyz says 200 in the drain window")
		}
		if resp, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{}); err != nil ||
			resp.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Errorf("health in the drain window: %v, %v", resp, err)
		}
		late, err := decide(t, conn)
		if err != nil {
			t.Errorf("a request in the drain window: %v", err)
			return
		}
		_ = late.CloseSend()
	})
	noMore := make(chan struct{})
	log.on("ext_proc takes no more requests, and lets those that run finish", func() { close(noMore) })
	learnt := filepath.Join(dir, "default.learnt.json")
	log.on("stopped extproc", func() { _ = os.Remove(learnt) }) // if it was written meanwhile
	ended := make(chan error, 1)
	go func() { ended <- a.Stop() }()
	<-noMore
	eventually(t, "new requests are refused", func() bool {
		late, err := decide(t, conn)
		if err == nil {
			_ = late.CloseSend()
		}
		return err != nil
	})
	if status, _ := get(t, a, "/healthz"); status != 200 {
		t.Errorf("/healthz says %d while requests finish", status)
	}
	err = running.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{
		Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":status", RawValue: []byte("200")}}}}}})
	if err == nil {
		_, err = running.Recv()
	}
	if err != nil {
		t.Errorf("a running request was broken: %v", err)
	}
	if err := running.CloseSend(); err != nil {
		t.Error(err)
	}
	if _, err := running.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("a running request ended with %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if want := []string{"extproc", "configuration", "admin", "xds", "registration", "router", "workers files", "workers", "state"}; !slices.Equal(*log.stopped, want) {
		t.Errorf("stopped %v, want %v", *log.stopped, want)
	}
	if _, err := os.Stat(learnt); err != nil {
		t.Errorf("what was learnt is not written after the last request: %v", err)
	}
	if _, err := decide(t, conn); err == nil {
		t.Error("a request is answered after all has stopped")
	}
}
