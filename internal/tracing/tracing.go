// Package tracing sends what became of requests to an OpenTelemetry collector: a root span for each, a child for each step of it.
//
// Nothing happens on the request path. The router times its steps and, when Envoy has told how a request went, hands over a record of
// it; that waits in a bounded queue until its spans are made and sent. What the collector is too slow for is dropped and counted.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"attache/internal/router"
)

// Tracer makes spans of finished requests; it is the router's Observer. Safe for concurrent use.
type Tracer struct {
	ratio    atomic.Pointer[float64]
	draw     func() float64 // from [0, 1)
	queue    chan *router.Finished
	exporter *counted
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	dropped  prometheus.Counter
}

// Params are the collaborators of a Tracer.
type Params struct {
	Config  Config
	Replica string
	Version string
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Exporter takes the spans instead of the collector that the configuration names; nil: that one.
	Exporter sdk.SpanExporter
}

// New makes a tracer; Run sends its spans. The configuration must have been validated, and tracing be enabled. It connects to nobody
// yet.
func New(p Params) (*Tracer, error) {
	exporter := p.Exporter
	if exporter == nil {
		var err error
		if exporter, err = newExporter(p.Config); err != nil {
			return nil, err
		}
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "attache_tracing_" + name, Help: help})
	}
	t := &Tracer{
		draw: rand.Float64, queue: make(chan *router.Finished, p.Config.Queue),
		dropped: counter("dropped_total", "Finished requests whose spans were dropped because too many waited for the collector."),
	}
	t.Reconfigure(p.Config)
	t.exporter = &counted{SpanExporter: exporter, log: p.Log,
		sent:   counter("spans_total", "Spans that the collector took."),
		failed: counter("failed_spans_total", "Spans that the collector did not take."),
	}
	p.Metrics.MustRegister(t.dropped, t.exporter.sent, t.exporter.failed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "attache_tracing_queue", Help: "Finished requests that wait until their spans are made."}, func() float64 { return float64(len(t.queue)) }))
	t.provider = sdk.NewTracerProvider(
		sdk.WithSampler(sdk.AlwaysSample()), // sampled says whom to ask for, before there is a span
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", p.Config.ServiceName), attribute.String("service.version", p.Version),
			attribute.String("service.instance.id", p.Replica))),
		// The processor waits for the collector rather than lose spans: what does not fit waits in our queue, which counts what it drops.
		sdk.WithBatcher(t.exporter, sdk.WithBlocking(), sdk.WithBatchTimeout(batching), sdk.WithExportTimeout(exporting)))
	t.tracer = t.provider.Tracer("attache")
	return t, nil
}

const (
	batching  = time.Second     // how long a span waits for others
	exporting = 5 * time.Second // how long the collector may take for a batch
)

// newExporter makes what sends to the collector.
func newExporter(cfg Config) (sdk.SpanExporter, error) {
	headers := map[string]string{}
	if cfg.HeadersFile != "" {
		var err error
		if headers, err = readHeaders(cfg.HeadersFile); err != nil {
			return nil, fmt.Errorf("tracing.headers_file: %s: %w", cfg.HeadersFile, err)
		}
	}
	if cfg.Protocol == "grpc" {
		options := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(cfg.Endpoint), otlptracegrpc.WithHeaders(headers)}
		if cfg.Insecure {
			options = append(options, otlptracegrpc.WithInsecure())
		}
		return otlptracegrpc.New(context.Background(), options...)
	}
	options := []otlptracehttp.Option{otlptracehttp.WithEndpoint(cfg.Endpoint), otlptracehttp.WithHeaders(headers)}
	if cfg.Insecure {
		options = append(options, otlptracehttp.WithInsecure())
	}
	return otlptracehttp.New(context.Background(), options...)
}

// Finished implements router.Observer: it keeps the request until Run has made its spans, or drops it.
func (t *Tracer) Finished(f *router.Finished) {
	if !t.sampled(f) {
		return
	}
	select {
	case t.queue <- f:
	default:
		t.dropped.Inc()
	}
}

// sampled: whoever sent the request decides, if somebody did; else chance.
func (t *Tracer) sampled(f *router.Finished) bool {
	if f.Parent.Valid() {
		return f.Parent.Sampled()
	}
	return t.draw() < *t.ratio.Load()
}

// Reconfigure traces another share of the requests that are over from now on; of the configuration only Ratio counts. It is safe for
// concurrent use.
func (t *Tracer) Reconfigure(cfg Config) { t.ratio.Store(&cfg.Ratio) }

// lastSpans is how long the collector may take for what is left at the end.
const lastSpans = 3 * time.Second

// Run makes spans until ctx ends, then those of what is left, and sends them.
func (t *Tracer) Run(ctx context.Context) error {
	for {
		select {
		case f := <-t.queue:
			t.emit(f)
			continue
		case <-ctx.Done():
		}
		break
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSpans)
	defer cancel()
	for {
		select {
		case f := <-t.queue:
			if end.Err() != nil {
				t.dropped.Inc()
				continue
			}
			t.emit(f)
		default:
			return t.provider.Shutdown(end)
		}
	}
}

// counted is an exporter that counts, and says once when sending begins to fail and once when it works again. Errors go no further:
// the SDK would write them to standard error.
type counted struct {
	sdk.SpanExporter

	log          *slog.Logger
	sent, failed prometheus.Counter
	failing      atomic.Bool
}

// ExportSpans sends a batch.
func (c *counted) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		c.failed.Add(float64(len(spans)))
		if !c.failing.Swap(true) {
			c.log.Warn("spans cannot be sent to the collector", "error", err)
		}
		return nil
	}
	c.sent.Add(float64(len(spans)))
	if c.failing.Swap(false) {
		c.log.Info("spans can be sent to the collector again")
	}
	return nil
}
