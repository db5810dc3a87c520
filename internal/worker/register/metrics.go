package register

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the figures of registrations.
type metrics struct {
	workers  prometheus.Gauge
	requests *prometheus.CounterVec // by what was wanted, and what came of it
	ended    prometheus.Counter
	storeUp  prometheus.Gauge
	bad      prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		workers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "attache_registered_workers",
			Help: "Workers that registered themselves and have not left."}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_registration_requests_total",
			Help: "What workers that register themselves asked for, by result."}, []string{"request", "result"}),
		ended: prometheus.NewCounter(prometheus.CounterOpts{Name: "attache_registration_leases_ended_total",
			Help: "Workers that are gone because no heartbeat came."}),
		storeUp: prometheus.NewGauge(prometheus.GaugeOpts{Name: "attache_registration_store_up",
			Help: "1 while the store of registrations can be reached."}),
		bad: prometheus.NewCounter(prometheus.CounterOpts{Name: "attache_registration_bad_records_total",
			Help: "Records in the store that could not be read."}),
	}
	for _, request := range []string{"register", "heartbeat", "drain", "deregister"} {
		for _, result := range []string{"ok", "refused"} {
			m.requests.WithLabelValues(request, result)
		}
	}
	m.storeUp.Set(1)
	reg.MustRegister(m.workers, m.requests, m.ended, m.storeUp, m.bad)
	return m
}

func (m *metrics) asked(request string, err error) {
	result := "ok"
	if refusal := (*RefusedError)(nil); errors.As(err, &refusal) {
		result = "refused"
	}
	m.requests.WithLabelValues(request, result).Inc()
}
