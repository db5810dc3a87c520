package scoring

import "github.com/prometheus/client_golang/prometheus"

// metrics are the scorer's figures.
type metrics struct {
	factor prometheus.GaugeFunc // k
	ratio  prometheus.Histogram // observed time to first token over predicted
}

func newMetrics(reg prometheus.Registerer, s *Scorer) (*metrics, error) {
	m := &metrics{
		factor: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "attache_scoring_speed_factor",
			Help: "How many times longer prefill takes than the speed model says, as learnt; 1 before anything was observed."},
			s.SpeedFactor),
		ratio: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "attache_scoring_ttft_ratio",
			Help:    "Observed time to first token of the engine as a multiple of the predicted one.",
			Buckets: []float64{.1, .2, .3, .5, .7, .85, 1, 1.2, 1.5, 2, 3, 5, 10, 30}}),
	}
	for _, c := range []prometheus.Collector{m.factor, m.ratio} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
