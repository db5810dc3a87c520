package replica

import "github.com/prometheus/client_golang/prometheus"

// metrics are the figures of one pool; the registerer brings the pool's label.
type metrics struct {
	sent, received, records, snapshots, failures prometheus.Counter
	gaps, refused, unknown, expired              prometheus.Counter
	applied                                      [kinds]prometheus.Counter
	up                                           prometheus.Gauge
	peers                                        *prometheus.Desc
	dropped                                      *prometheus.Desc
	of                                           *Pool
}

func newMetrics(reg prometheus.Registerer, of *Pool) (*metrics, error) {
	m := &metrics{
		up: prometheus.NewGauge(prometheus.GaugeOpts{Name: "attache_replica_up", Help: "1 while the other replicas can be told and heard, else 0: then each decides by itself."}),
		peers: prometheus.NewDesc("attache_replica_peers", "Other replicas that are heard; whole is whether all that they have under way is known here.",
			[]string{"whole"}, nil),
		dropped: prometheus.NewDesc("attache_replica_dropped_deltas_total", "Changes that could not be sent in time; a snapshot follows.", nil, nil),
		of:      of,
	}
	var all []prometheus.Collector
	counter := func(to *prometheus.Counter, name, help string) {
		*to = prometheus.NewCounter(prometheus.CounterOpts{Name: "attache_replica_" + name, Help: help})
		all = append(all, *to)
	}
	counter(&m.sent, "sent_bytes_total", "Bytes sent to the other replicas.")
	counter(&m.received, "received_bytes_total", "Bytes received from the other replicas.")
	counter(&m.records, "records_total", "Records sent to the other replicas.")
	counter(&m.snapshots, "snapshots_total", "Times that all that is under way was sent: to replicas that came, or that had missed something.")
	counter(&m.failures, "send_failures_total", "Times that nothing could be sent.")
	counter(&m.gaps, "gaps_total", "Times that records of another replica were missing.")
	counter(&m.refused, "unreadable_records_total", "Records of other replicas that could not be read.")
	counter(&m.unknown, "unknown_chains_total", "Requests of other replicas whose prompts' beginnings are not known here: they count as load alone.")
	counter(&m.expired, "expired_total", "Replicas that were not heard for a lease.")
	applied := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_replica_applied_total", Help: "What other replicas told, by kind."}, []string{"kind"})
	for k := Booked; k < kinds; k++ {
		m.applied[k] = applied.WithLabelValues(k.String())
	}
	for _, c := range append(all, applied, m.up, m) {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.peers
	ch <- m.dropped
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	whole, part := 0, 0
	for _, p := range m.of.Peers() {
		if p.Whole {
			whole++
		} else {
			part++
		}
	}
	ch <- prometheus.MustNewConstMetric(m.peers, prometheus.GaugeValue, float64(whole), "true")
	ch <- prometheus.MustNewConstMetric(m.peers, prometheus.GaugeValue, float64(part), "false")
	ch <- prometheus.MustNewConstMetric(m.dropped, prometheus.CounterValue, float64(m.of.outbox.lost()))
}
