package state

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The calls, as labels.
const (
	opAppend     = "append"
	opEnd        = "end"
	opRead       = "read"
	opSave       = "save"
	opLoad       = "load"
	opDelete     = "delete"
	opPut        = "put"
	opRemove     = "remove"
	opMembers    = "members"
	opAcquire    = "acquire"
	opRelease    = "release"
	opSaveFenced = "save_fenced"
	opPing       = "ping"
)

var ops = []string{opAppend, opEnd, opRead, opSave, opLoad, opDelete, opPut, opRemove, opMembers, opAcquire, opRelease, opSaveFenced, opPing}

// metrics of a Redis.
type metrics struct {
	seconds *prometheus.HistogramVec
	errors  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, w *watch) *metrics {
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "attache_redis_command_seconds",
			Help:    "What calls to Redis took, failed ones included; reads that wait for records are left out.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 12)}, []string{"op"}), // 0.1 ms to 2.4 s
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_redis_errors_total",
			Help: "Calls to Redis that failed."}, []string{"op"}),
	}
	for _, op := range ops {
		m.seconds.WithLabelValues(op)
		m.errors.WithLabelValues(op)
	}
	reg.MustRegister(m.seconds, m.errors,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "attache_redis_up",
			Help: "Whether Redis answered when it was last asked: 1 or 0."}, func() float64 {
			if w.now().Up {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "attache_redis_round_trip_seconds",
			Help: "How long Redis' last answer to a ping took."}, func() float64 { return w.now().RoundTrip.Seconds() }))
	return m
}

// observe counts a call; took is 0 for one whose time is not counted. One that its caller gave up is no failure of Redis.
func (m *metrics) observe(op string, took time.Duration, err error) {
	if took > 0 {
		m.seconds.WithLabelValues(op).Observe(took.Seconds())
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		m.errors.WithLabelValues(op).Inc()
	}
}
