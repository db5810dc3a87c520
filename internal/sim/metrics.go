package sim

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// registry has the metrics of one life: those that a gateway may want, under the names and labels of the dialect.
type registry struct{ *prometheus.Registry }

// metrics are what is observed of one rank.
type metrics struct {
	firstToken, interToken, queueTime, duration prometheus.Histogram
	promptTokens, outputTokens                  prometheus.Histogram
	finishedBy                                  *prometheus.CounterVec
}

// vLLM's buckets of the histograms, in seconds and tokens.
var (
	firstTokenBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	interTokenBuckets = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	durationBuckets   = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	tokenBuckets      = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000}
)

// newRegistry makes the metrics of a life whose ranks are there.
func newRegistry(l *life) *registry {
	g := &registry{prometheus.NewRegistry()}
	d := exposedBy(l.cfg.dialect())
	for _, r := range l.ranks {
		labels := d.labels(&l.cfg, itoa(r.number))
		r.metrics = newMetrics(g, d, labels)
		for _, f := range d.figures {
			value := func() float64 {
				l.mu.Lock()
				defer l.mu.Unlock()
				return f.value(&l.cfg, r.core.Stats())
			}
			opts := prometheus.Opts{Name: d.prefix + f.name, Help: f.help, ConstLabels: labels}
			if f.counts {
				g.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts(opts), value))
			} else {
				g.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts), value))
			}
		}
		if d.info != nil {
			g.MustRegister(d.info(&l.cfg, labels))
		}
	}
	start := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "process_start_time_seconds", Help: "When the engine was started, in seconds since 1970.",
	})
	start.Set(float64(l.started.UnixMicro()) / 1e6)
	g.MustRegister(start)
	return g
}

// newMetrics makes those of one rank; what the dialect has no name for is not shown.
func newMetrics(g *registry, d *exposition, labels prometheus.Labels) *metrics {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: d.prefix + name, Help: help, ConstLabels: labels, Buckets: buckets})
		if name != "" {
			g.MustRegister(h)
		}
		return h
	}
	m := &metrics{
		firstToken:   histogram("time_to_first_token_seconds", "Time from arrival to the first token in seconds.", firstTokenBuckets),
		interToken:   histogram(d.interToken, "Time between two tokens of an answer in seconds.", interTokenBuckets),
		queueTime:    histogram(d.queueTime, "Time from arrival to admission in seconds.", durationBuckets),
		duration:     histogram("e2e_request_latency_seconds", "Time from arrival to the last token in seconds.", durationBuckets),
		promptTokens: histogram(d.promptTokens, "Prompt tokens per request.", tokenBuckets),
		outputTokens: histogram(d.outputTokens, "Answer tokens per request.", tokenBuckets),
		finishedBy: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: d.prefix + "request_success_total", Help: "Requests that ended, by reason.", ConstLabels: labels,
		}, []string{"finished_reason"}),
	}
	for _, reason := range []string{finishStop, finishLength, finishAbort, "error"} {
		m.finishedBy.WithLabelValues(reason)
	}
	if d.finished {
		g.MustRegister(m.finishedBy)
	}
	return m
}

// finished counts a request that ended.
func (m *metrics) finished(j *job, took time.Duration, reason string) {
	m.finishedBy.WithLabelValues(reason).Inc()
	if reason == finishAbort {
		return
	}
	m.duration.Observe(took.Seconds())
	m.promptTokens.Observe(float64(j.prompt))
	m.outputTokens.Observe(float64(j.output))
}

func (g *registry) handler() http.Handler {
	return promhttp.HandlerFor(g.Registry, promhttp.HandlerOpts{})
}
