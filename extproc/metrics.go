package extproc

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/hints"
)

// metrics are the figures of the ext_proc server.
type metrics struct {
	streams  *prometheus.CounterVec // streams begun, by request body mode
	answers  *prometheus.CounterVec // requests answered by us, by status
	skipped  *prometheus.CounterVec // inference requests routed by load only, by reason
	hints    *prometheus.CounterVec // hints that were not taken, by kind and reason
	held     prometheus.Counter
	panics   prometheus.Counter
	protocol prometheus.Counter // messages that are no ProcessingRequest
}

func newMetrics(reg prometheus.Registerer, open func() float64) *metrics {
	m := &metrics{
		streams: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_extproc_streams_total",
			Help: "ext_proc streams begun, one per request, by the gateway's request body mode."}, []string{"mode"}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_extproc_answers_total",
			Help: "Requests answered here instead of by a worker, by HTTP status."}, []string{"status"}),
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_extproc_unread_bodies_total",
			Help: "Inference requests routed by load only, because the body was malformed or not to be had."}, []string{"reason"}),
		hints: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_extproc_hints_ignored_total",
			Help: "Hints of clients that were not taken: not believed (untrusted), or not understood."}, []string{"hint", "reason"}),
		held: prometheus.NewCounter(prometheus.CounterOpts{Name: "attache_extproc_held_total",
			Help: "Requests for which the gateway was asked to wait longer than its message timeout; those in full duplex need not ask."}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{Name: "attache_extproc_panics_total",
			Help: "Streams ended by a panic of their handler; each is a bug."}),
		protocol: prometheus.NewCounter(prometheus.CounterOpts{Name: "attache_extproc_undecodable_total",
			Help: "Streams ended because a message was no ext_proc message or too large."}),
	}
	for _, reason := range []string{"malformed", "no_body"} {
		m.skipped.WithLabelValues(reason)
	}
	for _, mode := range []bodyMode{modeBuffered, modeFullDuplex} {
		m.streams.WithLabelValues(mode.String())
	}
	for _, status := range []int{400, 404, 413, 429, 503} {
		m.answers.WithLabelValues(strconv.Itoa(status))
	}
	reg.MustRegister(m.streams, m.answers, m.skipped, m.hints, m.held, m.panics, m.protocol,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "attache_extproc_open_streams",
			Help: "ext_proc streams open now: requests under way."}, open))
	return m
}

func (m *metrics) stream(mode bodyMode) { m.streams.WithLabelValues(mode.String()).Inc() }
func (m *metrics) refused(status int)   { m.answers.WithLabelValues(strconv.Itoa(status)).Inc() }
func (m *metrics) unread(reason string) { m.skipped.WithLabelValues(reason).Inc() }

func (m *metrics) hintIgnored(p hints.Problem) {
	m.hints.WithLabelValues(p.Kind.String(), p.Reason.String()).Inc()
}
