package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"attache/internal/bubble"
	"attache/internal/router"
	"attache/internal/traceparent"
)

// value is a counter or gauge of the tracer.
func value(t *testing.T, reg prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "attache_tracing_"+name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %q", name)
	return 0
}

func TestWhoIsSampled(t *testing.T) {
	none := traceparent.Parent{}
	for _, c := range []struct {
		name   string
		parent traceparent.Parent
		ratio  float64
		draw   float64
		want   bool
	}{
		{"its sender's span is", parent(t, "01"), 0, .9, true},
		{"its sender's span is not", parent(t, "00"), 1, 0, false},
		{"chance says yes", none, .5, .49, true},
		{"chance says no", none, .5, .5, false},
		{"all", none, 1, .999, true},
		{"none", none, 0, 0, false},
	} {
		tr, _, _ := newTracer(t, func(cfg *Config) { cfg.Ratio = c.ratio })
		tr.draw = func() float64 { return c.draw }
		tr.Finished(changed(t, func(f *router.Finished) { f.Parent = c.parent }))
		if got := len(tr.queue) == 1; got != c.want {
			t.Errorf("%s: sampled %v", c.name, got)
		}
		_ = tr.provider.Shutdown(t.Context())
	}
}

// TestWhatIsTooMuchIsDropped: nobody takes anything out of the queue.
func TestWhatIsTooMuchIsDropped(t *testing.T) {
	tr, _, reg := newTracer(t, func(c *Config) { c.Queue = 3 })
	for range 5 {
		tr.Finished(request(t))
	}
	if queued, dropped := value(t, reg, "queue"), value(t, reg, "dropped_total"); queued != 3 || dropped != 2 {
		t.Errorf("%v wait, %v dropped; want 3 and 2", queued, dropped)
	}
	_ = tr.provider.Shutdown(t.Context())
}

// TestRun: spans are sent a moment later, and at the end what is left.
func TestRun(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tr, spans, reg := newTracer(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- tr.Run(ctx) }()
		tr.Finished(request(t))
		time.Sleep(batching + time.Millisecond)
		synctest.Wait()
		if n := len(spans.GetSpans()); n != 9 {
			t.Errorf("%d spans, want the root and eight steps", n)
		}
		tr.Finished(request(t))
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := len(spans.GetSpans()); n != 18 || value(t, reg, "spans_total") != 18 {
			t.Errorf("%d spans at the end, %v counted; want 18", n, value(t, reg, "spans_total"))
		}
	})
}

// broken fails while it is told to.
type broken struct {
	tracetest.NoopExporter

	err error
}

func (b *broken) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return b.err }

func TestACollectorThatFails(t *testing.T) {
	var log bytes.Buffer
	b := &broken{err: errors.New("no route to host")}
	count := func(name string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: name})
	}
	c := &counted{SpanExporter: b, log: slog.New(slog.NewTextHandler(&log, nil)), sent: count("sent"), failed: count("failed")}
	for _, err := range []error{b.err, b.err, nil, nil, b.err} {
		b.err = err
		if err := c.ExportSpans(t.Context(), make([]sdk.ReadOnlySpan, 10)); err != nil {
			t.Error("the error goes on to the SDK, which writes it to standard error")
		}
	}
	if bad, good := strings.Count(log.String(), "cannot be sent"), strings.Count(log.String(), "sent to the collector again"); bad != 2 || good != 1 {
		t.Errorf("%d times bad, %d times good again:\n%s", bad, good, &log)
	}
}

// stub is a collector that keeps what it is sent.
type stub struct {
	collector.UnimplementedTraceServiceServer

	got chan string // the name of each span, and the token that came with it
}

func (s *stub) take(req *collector.ExportTraceServiceRequest, token string) {
	for _, r := range req.GetResourceSpans() {
		for _, scope := range r.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				s.got <- span.GetName() + " " + token
			}
		}
	}
}

func (s *stub) Export(ctx context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	s.take(req, strings.Join(md.Get("x-token"), ","))
	return &collector.ExportTraceServiceResponse{}, nil
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var req collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &req) != nil || r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.take(&req, r.Header.Get("x-token"))
	w.Header().Set("content-type", "application/x-protobuf")
}

// TestACollectorGetsSpans over both protocols, with the token from the file.
func TestACollectorGetsSpans(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers.yaml")
	if err := os.WriteFile(file, []byte("x-token: \"open sesame\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{"http", "grpc"} {
		s := &stub{got: make(chan string, 100)}
		cfg := DefaultConfig()
		cfg.Protocol, cfg.Insecure, cfg.HeadersFile = protocol, true, file
		if protocol == "http" {
			server := httptest.NewServer(s)
			defer server.Close()
			cfg.Endpoint = strings.TrimPrefix(server.URL, "http://")
		} else {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer()
			collector.RegisterTraceServiceServer(server, s)
			go func() { _ = server.Serve(l) }()
			defer server.Stop()
			cfg.Endpoint = l.Addr().String()
		}
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		tr, err := New(Params{Config: cfg, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		tr.Finished(request(t))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := tr.Run(ctx); err != nil {
			t.Errorf("%s: %v", protocol, err)
		}
		close(s.got)
		var names []string
		for name := range s.got {
			names = append(names, name)
		}
		if len(names) != 9 || !slices.Contains(names, "attache default open sesame") {
			t.Errorf("%s: %q", protocol, names)
		}
	}
}

// TestSecretsAreNotShown: neither in errors of the configuration nor in a tracer's.
func TestSecretsAreNotShown(t *testing.T) {
	for name, text := range map[string]string{
		"no YAML":      "authorization: [s3cret",
		"a list":       "- s3cret\n- more",
		"a line break": "authorization: \"s3cret\\nmore\"",
		"a bad name":   "\"s3cret s3cret\": value",
		"no value":     "s3cret:",
	} {
		file := filepath.Join(t.TempDir(), "headers.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := DefaultConfig()
		cfg.Endpoint, cfg.HeadersFile = "collector:4318", file
		err := cfg.Validate()
		_, made := New(Params{Config: cfg, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
		if err == nil || made == nil || strings.Contains(fmt.Sprint(err, made), "s3cret") {
			t.Errorf("%s: %v; %v", name, err, made)
		}
	}
}
