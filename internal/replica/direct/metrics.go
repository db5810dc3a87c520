package direct

import "github.com/prometheus/client_golang/prometheus"

// metrics are the figures of a node.
type metrics struct {
	refused                prometheus.Counter
	cut, sent, received    *prometheus.CounterVec
	addresses, subscribers *prometheus.Desc
	node                   *Node
}

// figures are those of one pool.
type figures struct{ cut, sent, received prometheus.Counter }

func newMetrics(reg prometheus.Registerer, of *Node) (*metrics, error) {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_replica_direct_" + name, Help: help}, []string{"pool"})
	}
	m := &metrics{
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "attache_replica_direct_refused_total",
			Help: "Connections that were not let in: a wrong token, no greeting of a replica, or too many."}),
		cut:      counter("cut_total", "Replicas that were cut off because they were too slow."),
		sent:     counter("sent_bytes_total", "Bytes sent to replicas that follow this one, all together."),
		received: counter("received_bytes_total", "Bytes received from the replicas that are followed."),
		addresses: prometheus.NewDesc("attache_replica_direct_addresses",
			"Addresses of replicas: following (its records come), beginning, failing, elsewhere (it does not have this pool), itself, twice (followed under another).",
			[]string{"pool", "state"}, nil),
		subscribers: prometheus.NewDesc("attache_replica_direct_subscribers", "Replicas that follow this one.", []string{"pool"}, nil),
		node:        of,
	}
	for _, c := range []prometheus.Collector{m.refused, m.cut, m.sent, m.received, m} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) of(pool string) figures {
	return figures{m.cut.WithLabelValues(pool), m.sent.WithLabelValues(pool), m.received.WithLabelValues(pool)}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.addresses
	ch <- m.subscribers
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, l := range m.node.links() {
		ch <- prometheus.MustNewConstMetric(m.subscribers, prometheus.GaugeValue, float64(l.hub.count()), l.pool)
		var counts [states]int
		if f := l.following.Load(); f != nil {
			counts = f.counts()
		}
		for s, n := range counts {
			ch <- prometheus.MustNewConstMetric(m.addresses, prometheus.GaugeValue, float64(n), l.pool, state(s).String())
		}
	}
}
