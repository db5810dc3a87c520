package indexer

import "github.com/prometheus/client_golang/prometheus"

// metrics shows an index's Stats; they are read when somebody looks, so that requests pay nothing for them.
type metrics struct {
	index     *Index
	held      *prometheus.Desc // blocks over all slots
	prefixes  *prometheus.Desc // different blocks
	evicted   *prometheus.Desc // blocks by reason
	corrected *prometheus.Desc // reports by direction
}

func newMetrics(x *Index) *metrics {
	return &metrics{
		index: x,
		held: prometheus.NewDesc("attache_indexer_held_blocks",
			"Blocks that workers are believed to hold; a block that two workers hold counts twice.", nil, nil),
		prefixes: prometheus.NewDesc("attache_indexer_prefixes",
			"Different blocks, and thereby prefixes, that workers are believed to hold.", nil, nil),
		evicted: prometheus.NewDesc("attache_indexer_evicted_blocks_total",
			"Blocks believed gone: capacity (the worker's cache was full), ttl (not asked for in time), bound (the index was "+
				"full), feedback (the engine was found to have lost them), cleared (the worker restarted or went away).",
			[]string{"reason"}, nil),
		corrected: prometheus.NewDesc("attache_indexer_corrections_total",
			"Engines' reports of reused tokens that changed what is believed of a worker: over (it held less than was "+
				"predicted), under (it held what had been believed gone).", []string{"direction"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.held
	ch <- m.prefixes
	ch <- m.evicted
	ch <- m.corrected
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.index.Stats()
	ch <- prometheus.MustNewConstMetric(m.held, prometheus.GaugeValue, float64(s.Held))
	ch <- prometheus.MustNewConstMetric(m.prefixes, prometheus.GaugeValue, float64(s.Prefixes))
	for _, e := range []struct {
		reason string
		blocks uint64
	}{
		{"capacity", s.EvictedByCapacity}, {"ttl", s.EvictedByTTL},
		{"bound", s.EvictedByBound}, {"feedback", s.EvictedByFeedback}, {"cleared", s.EvictedByClear},
	} {
		ch <- prometheus.MustNewConstMetric(m.evicted, prometheus.CounterValue, float64(e.blocks), e.reason)
	}
	ch <- prometheus.MustNewConstMetric(m.corrected, prometheus.CounterValue, float64(s.CorrectedOver), "over")
	ch <- prometheus.MustNewConstMetric(m.corrected, prometheus.CounterValue, float64(s.CorrectedUnder), "under")
}
