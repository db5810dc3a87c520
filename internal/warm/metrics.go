package warm

import "github.com/prometheus/client_golang/prometheus"

// metrics of a Keeper.
type metrics struct {
	sent, failed prometheus.Counter
	skipped      *prometheus.CounterVec
}

// Why a prompt was not sent.
const (
	skippedRoom   = "room"   // it, or an older one, was given up for want of room
	skippedWorker = "worker" // its worker could not take it just now
	skippedGone   = "gone"   // its worker is gone, or began anew with an empty cache
)

func newMetrics(reg prometheus.Registerer, k *Keeper) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "attache_warm_" + name, Help: help})
	}
	m := &metrics{
		sent:   counter("sent_total", "Kept prompts that were sent to their worker again, and answered."),
		failed: counter("failed_total", "Kept prompts that were sent to their worker again, and not answered with 200."),
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_warm_skipped_total",
			Help: "Kept prompts that were not sent again, by reason."}, []string{"reason"}),
	}
	for _, reason := range []string{skippedRoom, skippedWorker, skippedGone} {
		m.skipped.WithLabelValues(reason)
	}
	gauge := func(name, help string, value func(*schedule) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "attache_warm_" + name, Help: help}, func() float64 {
			k.mu.Lock()
			defer k.mu.Unlock()
			return float64(value(k.plan))
		})
	}
	reg.MustRegister(m.sent, m.failed, m.skipped,
		gauge("bytes", "Memory that kept prompts take.", func(s *schedule) int { return s.bytes }),
		gauge("prompts", "Prompts that are kept, those of running requests included.", func(s *schedule) int { return s.order.Len() }))
	return m
}
