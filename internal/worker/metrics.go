package worker

import "github.com/prometheus/client_golang/prometheus"

// metrics are the registry's figures. Workers are labels: their number is bounded by the configuration.
type metrics struct {
	states   *prometheus.GaugeVec   // 1 for the state a worker is in
	checks   *prometheus.CounterVec // health checks by result
	readings *prometheus.CounterVec // metrics readings by result
	canaries *prometheus.CounterVec // tokens asked for by result
	flaps    *prometheus.CounterVec // workers held back because they flapped
	changes  prometheus.Counter
	badFiles prometheus.Counter

	sourceWorkers *prometheus.GaugeVec   // workers that a source of discovery named last
	sourceErrors  *prometheus.CounterVec // times that a source could not be read
}

// sourceAge is of sources that are read again and again. It is worked out when it is asked for.
var sourceAge = prometheus.NewDesc("attache_discovery_age_seconds",
	"Time since a source of discovery was last read with success; its workers are those of that time.", []string{"pool", "source"}, nil)

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "attache_worker_state",
			Help: "1 for the state that a worker is in."}, []string{"pool", "worker", "state"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_worker_health_checks_total",
			Help: "Health checks of workers, by result."}, []string{"result"}),
		readings: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_worker_metrics_readings_total",
			Help: "Readings of engines' metrics, by result."}, []string{"result"}),
		canaries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_worker_canaries_total",
			Help: "Tokens that idle workers were asked for to see whether they generate, by result."}, []string{"result"}),
		flaps: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_worker_flaps_total",
			Help: "Times that a worker was held back because it came and went."}, []string{"pool"}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{Name: "attache_worker_sets_total",
			Help: "Worker sets published: each is a change of who serves or how."}),
		badFiles: prometheus.NewCounter(prometheus.CounterOpts{Name: "attache_worker_bad_files_total",
			Help: "Times that a watched workers file was bad and the last good list was kept."}),
		sourceWorkers: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "attache_discovery_workers",
			Help: "Workers that a source of discovery named last."}, []string{"pool", "source"}),
		sourceErrors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_discovery_errors_total",
			Help: "Times that a source of discovery could not be read and its last list was kept."}, []string{"pool", "source"}),
	}
	for _, result := range []string{"ok", "failed"} {
		m.checks.WithLabelValues(result)
		m.canaries.WithLabelValues(result)
		m.readings.WithLabelValues(result)
	}
	reg.MustRegister(m.states, m.checks, m.readings, m.canaries, m.flaps, m.changes, m.badFiles, m.sourceWorkers, m.sourceErrors)
	return m
}

// touch shows a source's figures before there is anything to count.
func (m *metrics) touch(s *source) {
	m.sourceWorkers.WithLabelValues(s.pool, s.label())
	m.sourceErrors.WithLabelValues(s.pool, s.label())
}

func result(ok bool) string {
	if ok {
		return "ok"
	}
	return "failed"
}
