package router

import (
	"errors"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/prompt"
	"attache/scoring/queue"
)

// metrics are the router's figures. Labels are few: pools come from the configuration, never from requests.
type metrics struct {
	requests   *prometheus.CounterVec // decisions by pool
	refused    *prometheus.CounterVec // requests that got no decision, by pool and reason
	dropped    *prometheus.CounterVec // those that found no room, by pool and reason in llm-d's words
	expired    *prometheus.CounterVec // bookings given up, by pool
	excluded   *prometheus.CounterVec // requests that some worker could not serve, by pool and reason
	waited     *prometheus.HistogramVec
	depth      *prometheus.Desc     // requests that wait, by pool
	seconds    prometheus.Histogram // time that Route took
	chains     *prometheus.CounterVec
	prompt     *prometheus.CounterVec   // prompt tokens by pool, as estimated or counted here
	cached     *prometheus.CounterVec   // cached prompt tokens by pool and stage: available, captured, delivered
	measured   *prometheus.CounterVec   // prompt tokens of requests whose engine reported what it reused, by pool
	ttft       *prometheus.HistogramVec // seconds by pool, as clients saw it
	engineTTFT *prometheus.HistogramVec // seconds by pool, of the serving attempt alone
	outcomes   *prometheus.CounterVec   // finished requests by pool and outcome
	retries    *prometheus.CounterVec   // attempts after the first, by pool
	reports    *prometheus.CounterVec   // reports that found no decision, by reason
	nowhere    *prometheus.CounterVec   // requests of other replicas at workers that are not known here, by pool
	unheard    prometheus.Counter       // decisions that ended without a report
	inFlight   *prometheus.Desc         // bookings by pool and worker
	sessions   *prometheus.Desc         // bound sessions by pool
	backlog    *prometheus.Desc         // seconds of booked prefill by pool and worker
	fidelity   *prometheus.Desc         // predicted against delivered
	snapshots  *prometheus.CounterVec   // by pool and what became of them
	snapshotAt *prometheus.GaugeVec     // Unix time of the last one that was saved, by pool
	router     *Router
}

var ttftBuckets = []float64{.005, .01, .02, .04, .06, .08, .1, .15, .25, .5, .75, 1, 2.5, 5, 10, 20, 40, 80, 160}

func newMetrics(reg prometheus.Registerer, r *Router) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_router_" + name, Help: help}, labels)
		reg.MustRegister(v)
		return v
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "attache_router_" + name, Help: help,
			Buckets: ttftBuckets}, []string{"pool"})
		reg.MustRegister(v)
		return v
	}
	m := &metrics{
		requests: counter("decisions_total", "Decisions made.", "pool"),
		refused: counter("refused_total", "Requests that got no decision: no_worker (503), shed (429), unknown_model (404), client_left, context_length (400).",
			"pool", "reason"),
		dropped: counter("dropped_total", "Requests that found no room on any worker, by what became of them; the reason is that of "+
			"the header x-llm-d-request-dropped-reason.", "pool", "reason"),
		expired:  counter("expired_total", "Requests that ran longer than booking_ttl and are not counted as load any more.", "pool"),
		waited:   histogram("queue_seconds", "Time that requests waited for a worker with room, in seconds; only those that had to."),
		depth:    prometheus.NewDesc("attache_router_queue_depth", "Requests that wait for a worker with room.", []string{"pool"}, nil),
		sessions: prometheus.NewDesc("attache_router_sessions", "Sessions that are bound to a worker.", []string{"pool"}, nil),
		excluded: counter("excluded_total", "Requests that at least one worker of the pool could not serve, by what kept it out: its health, or "+
			"what the request demands.", "pool", "reason"),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "attache_router_decision_seconds",
			Help:    "Time from a complete request to its decision, in seconds.",
			Buckets: []float64{1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, .1, 1, 10}}),
		prompt: counter("prompt_tokens_total", "Prompt tokens of decided requests, as estimated or counted here.", "pool"),
		cached: counter("cached_tokens_total", "Cached prompt tokens: available (the best any eligible worker offered), "+
			"captured (the chosen worker's), delivered (what engines reported in usage).", "pool", "stage"),
		measured: counter("measured_prompt_tokens_total",
			"Prompt tokens, as engines count them, of requests whose engine reported what it reused: the base of delivered.", "pool"),
		ttft: histogram("ttft_seconds", "Time to first token as clients see it, queue and retries included; streams only."),
		engineTTFT: histogram("engine_ttft_seconds",
			"Time from the end of the upload to the first token of the attempt that served; streams only."),
		outcomes: counter("outcomes_total", "Finished requests: ok, client_error (4xx), server_error (5xx), aborted (client left), "+
			"broken (worker died mid-answer).", "pool", "outcome"),
		retries: counter("retries_total", "Upstream attempts after the first.", "pool"),
		reports: counter("lost_reports_total", "Access-log reports that matched no decision of this replica.", "reason"),
		nowhere: counter("unplaced_total", "Requests of other replicas at workers that are not known here: do all replicas discover the same ones?", "pool"),
		unheard: prometheus.NewCounter(prometheus.CounterOpts{Name: "attache_router_unheard_total",
			Help: "Decisions that ended without an access-log report: is the access logger configured?"}),
		inFlight: prometheus.NewDesc("attache_router_in_flight", "Requests booked on a worker.", []string{"pool", "worker"}, nil),
		backlog: prometheus.NewDesc("attache_router_backlog_seconds",
			"Predicted time to work off the prefill that is booked on a worker, in seconds.", []string{"pool", "worker"}, nil),
		fidelity: prometheus.NewDesc("attache_router_prediction_share",
			"Tokens predicted to be cached against those that engines delivered, over some hundred requests: agreed (of those that were "+
				"either, the share that was both), kept (of the predicted, the share delivered), foreseen (of the delivered, the share predicted).",
			[]string{"pool", "worker", "rank", "share"}, nil),
		router: r,
	}
	m.chains = counter("chains_total", "Prompts by how their chain was made (exact, engine, approximate; none: only load "+
		"decided) and what kept it from a better one: see docs/operations.md for the reasons.", "pool", "rung", "reason")
	m.snapshots = counter("snapshots_total", "Snapshots of what workers hold: saved, failed to be; restored at the start, refused then.",
		"pool", "result")
	m.snapshotAt = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "attache_router_snapshot_timestamp_seconds",
		Help: "When the last snapshot of what workers hold was saved, in seconds since 1970."}, []string{"pool"})
	reg.MustRegister(m.seconds, m.unheard, m.snapshotAt, m)
	for _, p := range r.pools {
		c := &p.counters
		c.requests, c.prompt, c.waited = m.requests.WithLabelValues(p.name), m.prompt.WithLabelValues(p.name), m.waited.WithLabelValues(p.name)
		c.available, c.captured = m.cached.WithLabelValues(p.name, "available"), m.cached.WithLabelValues(p.name, "captured")
		for _, reason := range []string{"no_worker", "shed", "client_left", "context_length"} {
			m.refused.WithLabelValues(p.name, reason)
		}
		for why := Admitted + 1; why < exclusions; why++ {
			p.counters.excluded[why] = m.excluded.WithLabelValues(p.name, why.String())
		}
		for _, result := range []string{"saved", "failed", "restored", "refused"} {
			m.snapshots.WithLabelValues(p.name, result)
		}
		m.cached.WithLabelValues(p.name, "delivered")
		for _, outcome := range []string{"ok", "client_error", "server_error", "aborted", "broken"} {
			m.outcomes.WithLabelValues(p.name, outcome)
		}
	}
	return m
}

// Describe implements prometheus.Collector for the per-worker gauges.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.inFlight
	ch <- m.depth
	ch <- m.sessions
	ch <- m.backlog
	ch <- m.fidelity
}

// Collect reads the bookings when somebody looks, so that requests pay nothing for the gauges.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, p := range m.router.pools {
		ch <- prometheus.MustNewConstMetric(m.depth, prometheus.GaugeValue, float64(p.gate.depth()), p.name)
		ch <- prometheus.MustNewConstMetric(m.sessions, prometheus.GaugeValue, float64(p.sessions.count()), p.name)
	}
	for _, w := range m.router.workers.Set().All() {
		p := m.router.byName[w.Pool]
		if p == nil {
			continue
		}
		inFlight, backlog := 0, math.Inf(1)
		for rank, s := range w.Slots() {
			load := p.scorer.Load(s)
			inFlight, backlog = inFlight+load.InFlight, min(backlog, load.QueueSeconds)
			m.collectAccuracy(ch, p, w.Name, strconv.Itoa(rank), p.fidelities.of(s))
		}
		ch <- prometheus.MustNewConstMetric(m.inFlight, prometheus.GaugeValue, float64(inFlight), p.name, w.Name)
		ch <- prometheus.MustNewConstMetric(m.backlog, prometheus.GaugeValue, backlog, p.name, w.Name)
	}
}

func (m *metrics) collectAccuracy(ch chan<- prometheus.Metric, p *pool, worker, rank string, a Accuracy) {
	if a.Requests == 0 {
		return
	}
	for _, share := range []struct {
		name  string
		value float64
	}{{"agreed", a.Agreed}, {"kept", a.Kept}, {"foreseen", a.Foreseen}} {
		ch <- prometheus.MustNewConstMetric(m.fidelity, prometheus.GaugeValue, share.value, p.name, worker, rank, share.name)
	}
}

// chain counts how a prompt was cut. Requests of a pool differ little in that, so the series of each rung that was counted last is
// at hand.
func (m *metrics) chain(p *pool, c *prompt.Chain) {
	last := &p.counters.chains[c.Rung]
	cut := last.Load()
	if cut == nil || cut.why != c.Why {
		cut = &cutCounter{c.Why, m.chains.WithLabelValues(p.name, c.Rung.String(), string(c.Why))}
		last.Store(cut)
	}
	cut.prompts.Inc()
}

func (m *metrics) unplaced(pool string) { m.nowhere.WithLabelValues(pool).Inc() }

func (m *metrics) turnedAway(pool, reason string) { m.refused.WithLabelValues(pool, reason).Inc() }

// notPassed counts a request that did not get through the gate of its pool.
func (m *metrics) notPassed(pool string, err error) {
	var shed *ShedError
	var nobody *NoWorkerError
	var long *TooLongError
	switch {
	case errors.As(err, &shed):
		m.turnedAway(pool, "shed")
		m.dropped.WithLabelValues(pool, string(shed.Reason)).Inc()
	case errors.As(err, &long):
		m.turnedAway(pool, reasonOf(err))
	case errors.As(err, &nobody):
		m.turnedAway(pool, "no_worker")
		m.dropped.WithLabelValues(pool, string(queue.RejectedNoEndpoints)).Inc()
	default:
		m.turnedAway(pool, "client_left")
		m.dropped.WithLabelValues(pool, string(queue.RejectedContextCancelled)).Inc()
	}
}

func (m *metrics) decided(rec *record, took time.Duration) {
	c := &rec.pool.counters
	m.seconds.Observe((took - rec.waited).Seconds())
	if rec.waited > 0 {
		c.waited.Observe(rec.waited.Seconds())
	}
	c.requests.Inc()
	c.prompt.Add(float64(rec.promptTokens))
	c.available.Add(float64(rec.available))
	c.captured.Add(float64(rec.captured))
}

// counters are one pool's series of what every decision counts, looked up once.
type counters struct {
	requests, prompt, available, captured prometheus.Counter
	waited                                prometheus.Observer
	excluded                              [exclusions]prometheus.Counter
	chains                                [prompt.Rungs]atomic.Pointer[cutCounter]
}

// cutCounter counts the prompts that are cut in one way for one reason.
type cutCounter struct {
	why     prompt.Reason
	prompts prometheus.Counter
}

// exclude counts a request once for every reason for which workers could not serve it.
func (c *counters) exclude(x *excluded) {
	for why, n := range x {
		if n > 0 {
			c.excluded[why].Inc()
		}
	}
}

func (m *metrics) finished(rec *record, o *Outcome) {
	p := rec.pool.name
	m.outcomes.WithLabelValues(p, o.Verdict()).Inc()
	if o.Attempts > 1 {
		m.retries.WithLabelValues(p).Add(float64(o.Attempts - 1))
	}
	if o.CachedKnown {
		m.cached.WithLabelValues(p, "delivered").Add(float64(o.CachedTokens))
		m.measured.WithLabelValues(p).Add(float64(o.PromptTokens))
	}
	if rec.timed(o) {
		m.ttft.WithLabelValues(p).Observe(o.TTFT.Seconds())
		if o.EngineTTFT > 0 {
			m.engineTTFT.WithLabelValues(p).Observe(o.EngineTTFT.Seconds())
		}
	}
}

func (m *metrics) reported(reason string) { m.reports.WithLabelValues(reason).Inc() }

func (m *metrics) forgotten(n int) { m.unheard.Add(float64(n)) }
