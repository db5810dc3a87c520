package sim

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are those of vLLM's that a gateway may want, under vLLM's names and labels.
type metrics struct {
	registry                                    *prometheus.Registry
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

func newMetrics(e *Engine) *metrics {
	labels := prometheus.Labels{"model_name": e.cfg.Model, "engine": "0"}
	m := &metrics{registry: prometheus.NewRegistry()}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels, Buckets: buckets})
		m.registry.MustRegister(h)
		return h
	}
	m.firstToken = histogram("time_to_first_token_seconds", "Time from arrival to the first token in seconds.", firstTokenBuckets)
	m.interToken = histogram("inter_token_latency_seconds", "Time between two tokens of an answer in seconds.", interTokenBuckets)
	m.queueTime = histogram("request_queue_time_seconds", "Time from arrival to admission in seconds.", durationBuckets)
	m.duration = histogram("e2e_request_latency_seconds", "Time from arrival to the last token in seconds.", durationBuckets)
	m.promptTokens = histogram("request_prompt_tokens", "Prompt tokens per request.", tokenBuckets)
	m.outputTokens = histogram("request_generation_tokens", "Answer tokens per request.", tokenBuckets)
	m.finishedBy = prometheus.NewCounterVec(prometheus.CounterOpts{ //nolint:promlinter // vLLM's names have a colon
		Name: "vllm:request_success_total", Help: "Requests that ended, by reason.", ConstLabels: labels,
	}, []string{"finished_reason"})
	for _, reason := range []string{finishStop, finishLength, finishAbort, "error"} {
		m.finishedBy.WithLabelValues(reason)
	}
	m.registry.MustRegister(m.finishedBy)
	m.readCore(e, labels)
	start := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "process_start_time_seconds", Help: "When the engine was started, in seconds since 1970.",
	})
	start.Set(float64(e.started.UnixMicro()) / 1e6)
	m.registry.MustRegister(start, cacheInfo(&e.cfg, labels))
	return m
}

// readCore registers the figures that are read from the core at each scrape.
func (m *metrics) readCore(e *Engine, labels prometheus.Labels) {
	gauge := func(name, help string, value func(Stats) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels},
			func() float64 { return value(e.Stats()) }))
	}
	counter := func(name, help string, value func(Stats) int) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels},
			func() float64 { return float64(value(e.Stats())) }))
	}
	gauge("num_requests_running", "Requests in execution.", func(s Stats) float64 { return float64(s.Running) })
	gauge("num_requests_waiting", "Requests in the queue.", func(s Stats) float64 { return float64(s.Waiting) })
	gauge("kv_cache_usage_perc", "Share of the KV cache that requests hold; 1 is all of it.",
		func(s Stats) float64 { return float64(s.Held) / float64(s.Pages) })
	counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", func(s Stats) int { return s.Queried })
	counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", func(s Stats) int { return s.Hit })
	counter("prompt_tokens_total", "Prompt tokens processed, those found in the cache included.", func(s Stats) int { return s.Prompted })
	counter("generation_tokens_total", "Tokens generated.", func(s Stats) int { return s.Generated })
	counter("num_preemptions_total", "Requests preempted: none ever is.", func(Stats) int { return 0 })
}

// cacheInfo says what the KV cache is like, in the labels of a constant.
func cacheInfo(c *Config, labels prometheus.Labels) prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{ //nolint:promlinter // vLLM's names have a colon
		Name: "vllm:cache_config_info", Help: "The KV cache, in labels.", ConstLabels: prometheus.Labels{"engine": labels["engine"]},
	}, []string{"block_size", "num_gpu_blocks", "kv_cache_size_tokens", "enable_prefix_caching"})
	info.WithLabelValues(itoa(c.BlockTokens), itoa(c.blocks()), itoa(c.blocks()*c.BlockTokens), "True").Set(1)
	return info
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

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
