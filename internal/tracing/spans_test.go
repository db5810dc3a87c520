package tracing

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"attache/internal/router"
	"attache/internal/traceparent"
)

var update = flag.Bool("update", false, "write testdata/golden; commit only a difference you understand")

const ms = time.Millisecond

var began = time.Unix(1_000_000, 0).UTC()

func parent(t testing.TB, flags string) traceparent.Parent {
	t.Helper()
	p, ok := traceparent.Parse([]byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-" + flags))
	if !ok {
		t.Fatal("not a traceparent")
	}
	return p
}

// request is one with everything.
func request(t testing.TB) *router.Finished {
	return &router.Finished{
		Parent: parent(t, "01"), Began: began, ID: "r1.2", RequestID: "abc", Path: "/v1/chat/completions?key=secret", Model: "llama", Pool: "default",
		Policy: "time", Rung: "approximate", Why: "no_model", Worker: "w1", Served: "w1", PromptTokens: 1000, Available: 800, Captured: 600,
		PredictedTTFT: 250 * ms,
		Phases: router.Phases{Complete: 2 * ms, Parsed: 3 * ms, Chained: 5 * ms, Looked: 6 * ms, Picked: 7 * ms, Decided: 8 * ms, Sent: 9 * ms,
			Prefilling: 100 * ms, Prefilled: 200 * ms, FirstToken: 220 * ms, Ended: 900 * ms},
		Outcome: &router.Outcome{Status: 200, Served: netip.MustParseAddrPort("10.0.0.1:8000"), Attempts: 1, TTFT: 220 * ms, EngineTTFT: 210 * ms,
			CachedTokens: 500, CachedKnown: true},
	}
}

func newTracer(t testing.TB, change func(*Config)) (*Tracer, *tracetest.InMemoryExporter, *prometheus.Registry) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Endpoint = "collector:4318"
	if change != nil {
		change(&cfg)
	}
	spans, reg := tracetest.NewInMemoryExporter(), prometheus.NewRegistry()
	tr, err := New(Params{Config: cfg, Replica: "r1", Version: "v1", Log: slog.New(slog.DiscardHandler), Metrics: reg, Exporter: &keeping{spans}})
	if err != nil {
		t.Fatal(err)
	}
	return tr, spans, reg
}

// keeping is an in-memory exporter that still has its spans after it was shut down.
type keeping struct{ *tracetest.InMemoryExporter }

func (*keeping) Shutdown(context.Context) error { return nil }

// drawing is the spans of one request as a picture: times in milliseconds from its first byte.
func drawing(t testing.TB, f *router.Finished) string {
	t.Helper()
	tr, exporter, _ := newTracer(t, nil)
	tr.emit(f)
	if err := tr.provider.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	spans := exporter.GetSpans()
	if err := tr.provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	root := spans[len(spans)-1] // it ends last
	var b strings.Builder
	at := func(when time.Time) float64 { return float64(when.Sub(f.Began)) / float64(ms) }
	fmt.Fprintf(&b, "%-12s %8.3f %8.3f", root.Name, at(root.StartTime), at(root.EndTime))
	if root.Parent.IsValid() {
		fmt.Fprintf(&b, "  of %s-%s", root.Parent.TraceID(), root.Parent.SpanID())
	}
	if root.Status.Code != codes.Unset {
		fmt.Fprintf(&b, "  %s: %s", root.Status.Code, root.Status.Description)
	}
	b.WriteByte('\n')
	for _, s := range spans[:len(spans)-1] {
		if s.Parent.SpanID() != root.SpanContext.SpanID() || s.SpanContext.TraceID() != root.SpanContext.TraceID() {
			t.Errorf("%s is no child of %s", s.Name, root.Name)
		}
		fmt.Fprintf(&b, "  %-10s %8.3f %8.3f\n", s.Name, at(s.StartTime), at(s.EndTime))
	}
	for _, e := range root.Events {
		fmt.Fprintf(&b, "  %-10s %8.3f\n", e.Name, at(e.Time))
	}
	for _, a := range root.Attributes {
		fmt.Fprintf(&b, "  %s = %s\n", a.Key, a.Value.String())
	}
	return b.String()
}

func TestGoldenSpans(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*router.Finished)
	}{
		{"a stream with everything", func(*router.Finished) {}},
		{"held back, nobody sent it, and no events", func(f *router.Finished) {
			f.Parent, f.Waited, f.Phases.Picked, f.Phases.Decided, f.Phases.Sent = traceparent.Parent{}, 80*ms, 87*ms, 88*ms, 89*ms
			f.Phases.Prefilling, f.Phases.Prefilled = 0, 0
		}},
		{"nobody told how it went", func(f *router.Finished) { f.Outcome, f.Served, f.Phases.FirstToken = nil, "", 0 }},
		{"the worker died mid-answer", func(f *router.Finished) { f.Outcome = &router.Outcome{Status: 200, Broken: true, Attempts: 1} }},
		{"nobody timed it", func(f *router.Finished) {
			f.Phases = router.Phases{Decided: 1 * ms, Ended: 900 * ms}
			f.Outcome.EngineTTFT = 0
		}},
		{"a first token before the reply by another clock", func(f *router.Finished) { f.Phases.FirstToken = 8 * ms }},
		{"names that are no text", func(f *router.Finished) { f.RequestID, f.Model = "a\xffb", strings.Repeat("m", 1000) }},
	} {
		got := drawing(t, changed(t, c.change))
		path := filepath.Join("testdata", "golden", strings.NewReplacer(" ", "-", ",", "").Replace(c.name)+".txt")
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != got {
			t.Errorf("%s (-want +got):\n%s", c.name, cmp.Diff(string(want), got))
		}
	}
}

// changed is a request that differs from the one with everything.
func changed(t testing.TB, change func(*router.Finished)) *router.Finished {
	f := request(t)
	change(f)
	return f
}
