package quality

import (
	"math"
	"slices"
)

// Metric is a figure of a Row.
type Metric struct {
	Name  string // as in the table, with its unit
	Title string
	of    func(*Row) float64
}

// The metrics that ratios are made of. For all less is better.
var (
	TTFTMean = Metric{"ttft_mean_ms", "mean TTFT", func(r *Row) float64 { return r.TTFTMean }}
	TTFTP50  = Metric{"ttft_p50_ms", "p50 TTFT", func(r *Row) float64 { return r.TTFTP50 }}
	TTFTP90  = Metric{"ttft_p90_ms", "p90 TTFT", func(r *Row) float64 { return r.TTFTP90 }}
	TTFTP99  = Metric{"ttft_p99_ms", "p99 TTFT", func(r *Row) float64 { return r.TTFTP99 }}
	TPOTMean = Metric{"tpot_mean_ms", "mean TPOT", func(r *Row) float64 { return r.TPOTMean }}
	TPOTP99  = Metric{"tpot_p99_ms", "p99 TPOT", func(r *Row) float64 { return r.TPOTP99 }}
	E2EMean  = Metric{"e2e_mean_ms", "mean E2E", func(r *Row) float64 { return r.E2EMean }}
)

// latencies are the columns of tables.
var latencies = []Metric{TTFTMean, TTFTP50, TTFTP90, TTFTP99, TPOTMean, TPOTP99, E2EMean}

// Results are the rows of a Plan, to be asked.
type Results struct {
	Scenarios []Scenario
	Policies  []string
	Seeds     int
	Rows      []Row

	at map[[2]string][]Row // by scenario and policy: one row per seed
}

// NewResults arranges the rows of a plan.
func NewResults(p *Plan, rows []Row) *Results {
	r := &Results{Scenarios: p.Scenarios, Seeds: p.Seeds, Rows: rows, at: map[[2]string][]Row{}}
	for i := range p.Policies {
		r.Policies = append(r.Policies, p.Policies[i].Name)
	}
	for _, row := range rows {
		key := [2]string{row.Scenario, row.Policy}
		r.at[key] = append(r.at[key], row)
	}
	return r
}

// Has says whether a policy was run.
func (r *Results) Has(policy string) bool { return slices.Contains(r.Policies, policy) }

// Mean is a metric's mean over the seeds; NaN without rows.
func (r *Results) Mean(scenario, policy string, of func(*Row) float64) float64 {
	rows := r.at[[2]string{scenario, policy}]
	sum := 0.0
	for i := range rows {
		sum += of(&rows[i])
	}
	return sum / float64(len(rows))
}

// Range is the least and the most over the seeds.
func (r *Results) Range(scenario, policy string, of func(*Row) float64) (least, most float64) {
	least, most = math.Inf(1), math.Inf(-1)
	rows := r.at[[2]string{scenario, policy}]
	for i := range rows {
		least, most = min(least, of(&rows[i])), max(most, of(&rows[i]))
	}
	return least, most
}

// Ratio is a policy's mean against another's in one scenario.
func (r *Results) Ratio(m Metric, scenario, policy, base string) float64 {
	return r.Mean(scenario, policy, m.of) / r.Mean(scenario, base, m.of)
}

// Which chooses scenarios.
type Which func(*Scenario) bool

// all scenarios.
func all(*Scenario) bool { return true }

// steady are those outside collapse.
func steady(s *Scenario) bool { return !s.Collapse }

// group are those of some groups.
func group(names ...string) Which {
	return func(s *Scenario) bool { return slices.Contains(names, s.Group) }
}

// both must hold.
func both(a, b Which) Which { return func(s *Scenario) bool { return a(s) && b(s) } }

// Geomean is the geometric mean over scenarios of a policy's ratio to another; NaN without scenarios.
func (r *Results) Geomean(m Metric, policy, base string, which Which) float64 {
	sum, n := 0.0, 0
	for i := range r.Scenarios {
		if s := &r.Scenarios[i]; which(s) {
			sum += math.Log(r.Ratio(m, s.Name, policy, base))
			n++
		}
	}
	return math.Exp(sum / float64(n))
}

// Spread is the least and the most that Geomean would be with one seed only.
func (r *Results) Spread(m Metric, policy, base string, which Which) (least, most float64) {
	least, most = math.Inf(1), math.Inf(-1)
	for seed := range r.Seeds {
		sum, n := 0.0, 0
		for i := range r.Scenarios {
			s := &r.Scenarios[i]
			a, b := r.at[[2]string{s.Name, policy}], r.at[[2]string{s.Name, base}]
			if which(s) && seed < len(a) && seed < len(b) {
				sum += math.Log(m.of(&a[seed]) / m.of(&b[seed]))
				n++
			}
		}
		g := math.Exp(sum / float64(n))
		least, most = min(least, g), max(most, g)
	}
	return least, most
}

// Worst is the highest ratio to another policy, and where.
func (r *Results) Worst(m Metric, policy, base string, which Which) (ratio float64, scenario string) {
	for i := range r.Scenarios {
		if s := &r.Scenarios[i]; which(s) {
			if x := r.Ratio(m, s.Name, policy, base); x > ratio {
				ratio, scenario = x, s.Name
			}
		}
	}
	return ratio, scenario
}

// Tuned is the best of some policies by the geometric mean of their mean TTFT over scenarios: what an operator who tunes once for
// all would choose. Empty if none was run.
func (r *Results) Tuned(of []string, which Which) string {
	best, least := "", math.Inf(1)
	for _, policy := range of {
		if !r.Has(policy) {
			continue
		}
		if g := r.Geomean(TTFTMean, policy, of[0], which); g < least {
			best, least = policy, g
		}
	}
	return best
}

// TunedEach is Geomean against the best of some policies in each scenario by itself, which nobody could tune for.
func (r *Results) TunedEach(m Metric, policy string, of []string, which Which) float64 {
	sum, n := 0.0, 0
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		if !which(s) {
			continue
		}
		only := func(x *Scenario) bool { return x == s }
		sum += math.Log(r.Ratio(m, s.Name, policy, r.Tuned(of, only)))
		n++
	}
	return math.Exp(sum / float64(n))
}

// Captured is the mean over scenarios of a policy's hit rate as a share of the shared cache's.
func (r *Results) Captured(policy string, which Which) float64 {
	sum, n := 0.0, 0
	for i := range r.Scenarios {
		if s := &r.Scenarios[i]; which(s) {
			sum += r.Mean(s.Name, policy, hit) / r.Mean(s.Name, SharedCache, hit)
			n++
		}
	}
	return sum / float64(n)
}

// Hit is the mean hit rate.
func (r *Results) Hit(policy string, which Which) float64 {
	sum, n := 0.0, 0
	for i := range r.Scenarios {
		if s := &r.Scenarios[i]; which(s) {
			sum += r.Mean(s.Name, policy, hit)
			n++
		}
	}
	return sum / float64(n)
}

// Regret is the highest ratio of a policy's mean TTFT to that of the best policy of the same scenario, the reference excluded.
func (r *Results) Regret(policy string, which Which) (ratio float64, scenario string) {
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		if !which(s) {
			continue
		}
		best := math.Inf(1)
		for _, p := range r.Policies {
			if p != SharedCache {
				best = min(best, r.Mean(s.Name, p, TTFTMean.of))
			}
		}
		if x := r.Mean(s.Name, policy, TTFTMean.of) / best; x > ratio {
			ratio, scenario = x, s.Name
		}
	}
	return ratio, scenario
}

func hit(r *Row) float64 { return r.Hit }
