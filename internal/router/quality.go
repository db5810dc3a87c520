package router

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/scoring"
)

// quality are the figures that tell how good decisions are. docs/operations.md says what to do about each.
type quality struct {
	tenantPrompt   *prometheus.CounterVec   // prompt tokens by pool and tenant
	tenantCached   *prometheus.CounterVec   // cached prompt tokens by pool, tenant and stage
	tenantMeasured *prometheus.CounterVec   // prompt tokens of requests whose engine reported what it reused, by pool and tenant
	misses         *prometheus.HistogramVec // |predicted - observed| / observed of engines' TTFT, by pool
	regret         *prometheus.HistogramVec // seconds by pool; see scoring.Scorer.Regret
	recentMiss     *prometheus.Desc         // median and ninth decile of misses, by pool
	hotSpot        *prometheus.Desc         // by pool; see heat.factor
	router         *Router
}

func newQuality(reg prometheus.Registerer, r *Router) *quality {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_router_" + name, Help: help}, append([]string{"pool", "tenant"}, labels...))
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "attache_router_" + name, Help: help, Buckets: buckets}, []string{"pool"})
	}
	q := &quality{
		tenantPrompt: counter("tenant_prompt_tokens_total", "Prompt tokens of decided requests, as estimated or counted here, by tenant; "+
			`"other" are the tenants beyond router.tenants.`),
		tenantCached: counter("tenant_cached_tokens_total", "Cached prompt tokens by tenant: available (the best any eligible worker "+
			"offered), captured (the chosen worker's), delivered (what engines reported in usage).", "stage"),
		tenantMeasured: counter("tenant_measured_prompt_tokens_total", "Prompt tokens, as engines count them, of requests whose engine "+
			"reported what it reused, by tenant: the base of delivered."),
		misses: histogram("ttft_error", "How far the predicted time to first token of the engine was off, as a share of the observed one; "+
			"streams that the chosen worker answered at the first attempt.", []float64{.01, .02, .05, .1, .2, .3, .5, .75, 1, 2, 5, 10}),
		regret: histogram("regret_seconds", "What the chosen worker cost more than the best one would have, priced again when the outcome was "+
			"known, in seconds; policy time only.", []float64{0, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}),
		recentMiss: prometheus.NewDesc("attache_router_ttft_error_recent",
			"Quantiles of attache_router_ttft_error over the last five minutes, of at most 512 requests.", []string{"pool", "quantile"}, nil),
		hotSpot: prometheus.NewDesc("attache_router_hot_spot_factor", "Prompt tokens to compute that were sent in the last minute to the worker "+
			"that got most, over the mean of all workers: 1 is even.", []string{"pool"}, nil),
		router: r,
	}
	reg.MustRegister(q.tenantPrompt, q.tenantCached, q.tenantMeasured, q.misses, q.regret, q)
	for _, p := range r.pools {
		q.misses.WithLabelValues(p.name)
		q.regret.WithLabelValues(p.name)
		p.tenants.make = func(tenant string) *tenantTokens { return q.tokensOf(p.name, tenant) }
	}
	return q
}

// tokensOf makes a tenant's series in a pool.
func (q *quality) tokensOf(pool, tenant string) *tenantTokens {
	return &tenantTokens{
		prompt:    q.tenantPrompt.WithLabelValues(pool, tenant),
		available: q.tenantCached.WithLabelValues(pool, tenant, "available"),
		captured:  q.tenantCached.WithLabelValues(pool, tenant, "captured"),
		delivered: q.tenantCached.WithLabelValues(pool, tenant, "delivered"),
		measured:  q.tenantMeasured.WithLabelValues(pool, tenant),
	}
}

// Describe implements prometheus.Collector for what is worked out when somebody looks.
func (q *quality) Describe(ch chan<- *prometheus.Desc) {
	ch <- q.recentMiss
	ch <- q.hotSpot
}

// Collect works the gauges out. Those of pools that had nothing to do lately are left out.
func (q *quality) Collect(ch chan<- prometheus.Metric) {
	now, set := q.router.now(), q.router.workers.Set()
	for _, p := range q.router.pools {
		if recent := p.misses.quantiles(now, .5, .9); recent != nil {
			ch <- prometheus.MustNewConstMetric(q.recentMiss, prometheus.GaugeValue, recent[0], p.name, "0.5")
			ch <- prometheus.MustNewConstMetric(q.recentMiss, prometheus.GaugeValue, recent[1], p.name, "0.9")
		}
		if factor, ok := p.heat.factor(set.Pool(p.name), now); ok {
			ch <- prometheus.MustNewConstMetric(q.hotSpot, prometheus.GaugeValue, factor, p.name)
		}
	}
}

// decided takes in where a request was sent.
func (q *quality) decided(rec *record, now time.Time) {
	rec.pool.heat.add(rec.slot, rec.promptTokens-rec.captured, now)
	rec.share = rec.pool.tenants.of(rec.tenant)
	if t := rec.share; t != nil {
		t.prompt.Add(float64(rec.promptTokens))
		t.available.Add(float64(rec.available))
		t.captured.Add(float64(rec.captured))
	}
}

// finished takes in how it went.
func (q *quality) finished(rec *record, o *Outcome) {
	if t := rec.share; t != nil && o.CachedKnown {
		t.delivered.Add(float64(max(o.CachedTokens, 0)))
		t.measured.Add(float64(max(o.PromptTokens, 0)))
	}
	if o.Status != 200 || o.Broken || o.Attempts != 1 || o.Served != rec.named[0].Addr {
		return
	}
	known := scoring.Hindsight{Policy: rec.policy, CachedKnown: o.CachedKnown && o.PromptTokens > 0}
	if known.CachedKnown {
		known.CachedTokens = rec.delivered(o)
	}
	if rec.timed(o) && o.EngineTTFT > 0 {
		known.EngineTTFT = o.EngineTTFT
		share := math.Abs(rec.booking.PredictedTTFT.Seconds()/o.EngineTTFT.Seconds() - 1)
		q.misses.WithLabelValues(rec.pool.name).Observe(share)
		rec.pool.misses.add(q.router.now(), share)
	}
	if seconds, ok := rec.pool.scorer.Regret(&rec.booking, rec.ranked, known); ok {
		q.regret.WithLabelValues(rec.pool.name).Observe(seconds)
	}
}
