package prompt

import "github.com/prometheus/client_golang/prometheus"

// collector shows what a Keyer with a model has seen, when somebody looks.
type collector struct {
	keyer                                                   *Keyer
	loaded, trusted, lookups, tokens, bytes, evicted, count *prometheus.Desc
}

func newCollector(k *Keyer) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("attache_prompt_"+name, help, labels, nil)
	}
	return &collector{
		keyer:   k,
		loaded:  desc("model_loaded", "1 when the pool's model folder has been read."),
		trusted: desc("counts_trusted", "1 while tokens and their counts agree with the engines'; 0: prompts are cut by length."),
		lookups: desc("memo_lookups_total", "Prompts by whether a beginning of theirs had been seen before: hit, miss.", "result"),
		tokens: desc("memo_tokens_total", "Tokens of exact prompts: known (remembered from earlier prompts), made (tokenized).",
			"source"),
		bytes:   desc("memo_bytes", "Memory in which beginnings of prompts are remembered, in bytes; see router.prompt.memo_bytes."),
		evicted: desc("memo_evictions_total", "Beginnings of prompts that were forgotten for want of memory."),
		count:   desc("counts_total", "Token counts compared with the engines': agree, differ.", "result"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.loaded, c.trusted, c.lookups, c.tokens, c.bytes, c.evicted, c.count} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	var stats memoStats
	var bytes int
	e := c.keyer.exact.Load()
	if e != nil {
		stats, bytes = e.texts.memo.snapshot()
	}
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(c.loaded, boolean(e != nil))
	gauge(c.trusted, boolean(c.keyer.trusted()))
	gauge(c.bytes, float64(bytes))
	counter(c.lookups, stats.hits, "hit")
	counter(c.lookups, stats.misses, "miss")
	counter(c.tokens, stats.reused, "known")
	counter(c.tokens, stats.tokens-stats.reused, "made")
	counter(c.evicted, stats.evicted)
	agreed, differed := c.keyer.check.Totals()
	counter(c.count, agreed, "agree")
	counter(c.count, differed, "differ")
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
