package quality

import (
	"fmt"
	"math"
)

// Target is one thing that is aimed at, and what was measured.
type Target struct {
	Name      string  `json:"name"`
	Value     float64 `json:"value"`
	AtLeast   bool    `json:"at_least"` // Threshold is a lower bound, not an upper one
	Threshold float64 `json:"threshold"`
	Where     string  `json:"where,omitempty"` // the scenario of a worst case, the policy that is best tuned
	Pass      bool    `json:"pass"`
}

// Bound is the threshold as one reads it: "<= 0.95".
func (t *Target) Bound() string {
	sign := "<= "
	if t.AtLeast {
		sign = ">= "
	}
	return sign + fixed(t.Threshold, digits(t.Threshold))
}

// Measured is the value with decimals enough to see on which side of the bound it is.
func (t *Target) Measured() string {
	if t.Threshold >= 100 {
		return fixed(t.Value, 0)
	}
	return fixed(t.Value, 4)
}

// digits is how many decimals a threshold needs.
func digits(v float64) int {
	n := 0
	for ; n < 3 && math.Abs(v-math.Round(v*math.Pow10(n))/math.Pow10(n)) > 1e-9; n++ {
	}
	return n
}

// judge collects targets.
type judge struct{ targets []Target }

// most wants a value to be at most so much. NaN fails.
func (j *judge) most(name string, value, threshold float64, where string) {
	j.targets = append(j.targets, Target{name, value, false, threshold, where, value <= threshold})
}

// least wants a value to be at least so much.
func (j *judge) least(name string, value, threshold float64) {
	j.targets = append(j.targets, Target{name, value, true, threshold, "", value >= threshold})
}

// The policies that targets speak of.
const (
	ours     = "time"
	dynamo1  = "dynamo"
	dynamo4  = "dynamo:prefill_scale=4"
	dynamo16 = "dynamo:prefill_scale=16"
	robin    = "round-robin"
	ideal    = "time:true_caches=true"
)

// dynamos are what Dynamo is tuned over.
var dynamos = []string{dynamo1, dynamo4, dynamo16}

// mockerTargets are those of the engines of Dynamo's replay.
func mockerTargets(r *Results) []Target {
	var j judge
	for _, m := range []struct {
		scenario             string
		first, sixteen, tpot float64
	}{
		{ticksX2, .77, .96, .85}, {ticksX4, .69, .94, .95}, {jitterX2, .905, 1, .85}, {syntheticX1, .935, .995, .90},
	} {
		j.most(m.scenario+": mean TTFT / Dynamo's default", r.Ratio(TTFTMean, m.scenario, ours, dynamo1), m.first, "")
		j.most(m.scenario+": mean TTFT / Dynamo at 16", r.Ratio(TTFTMean, m.scenario, ours, dynamo16), m.sixteen, "")
		j.most(m.scenario+": p99 TTFT / Dynamo at 16", r.Ratio(TTFTP99, m.scenario, ours, dynamo16), 1.02, "")
		j.most(m.scenario+": p99 TPOT / Dynamo at 16", r.Ratio(TPOTP99, m.scenario, ours, dynamo16), m.tpot, "")
	}
	j.most("closed loop: mean TTFT / tuned Dynamo", r.Geomean(TTFTMean, ours, r.Tuned(dynamos, group(agentic)), group(agentic)), .85,
		r.Tuned(dynamos, group(agentic)))
	j.most("small caches: mean TTFT / tuned Dynamo", r.Geomean(TTFTMean, ours, r.Tuned(dynamos, group(small)), group(small)), .95,
		r.Tuned(dynamos, group(small)))
	return j.targets
}

// secondTargets are those of the 27 scenarios.
func secondTargets(r *Results) []Target {
	var j judge
	tuned := r.Tuned(dynamos, all)
	j.most("27 scenarios: mean TTFT / Dynamo's default", r.Geomean(TTFTMean, ours, dynamo1, all), .63, "")
	j.most("27 scenarios: mean TTFT / tuned Dynamo", r.Geomean(TTFTMean, ours, tuned, all), .93, tuned)
	j.most("27 scenarios: p99 TPOT / tuned Dynamo", r.Geomean(TPOTP99, ours, tuned, all), .80, tuned)
	for _, base := range []string{dynamo1, tuned} {
		j.most("outside collapse: p99 TTFT / "+base, r.Geomean(TTFTP99, ours, base, steady), 1, "")
		worst, where := r.Worst(TTFTMean, ours, base, steady)
		j.most("outside collapse, worst: mean TTFT / "+base, worst, 1.05, where)
	}
	j.least("reuse captured, agentic", r.Captured(ours, group(agentic)), .95)
	j.least("reuse captured, conversation", r.Captured(ours, group(conversation1, conversation4)), .88)
	tuned = r.Tuned(dynamos, group(agentic))
	j.most("closed loop: mean TTFT / tuned Dynamo", r.Geomean(TTFTMean, ours, tuned, group(agentic)), .85, tuned)
	large := both(group(agentic), func(s *Scenario) bool { return s.Cluster.Workers == 16 })
	j.most("closed loop, 16 workers: mean TTFT / round robin", r.Geomean(TTFTMean, ours, robin, large), 1./6, "")
	j.most("closed loop, 16 workers: mean E2E / round robin", r.Geomean(E2EMean, ours, robin, large), .5, "")
	j.least("simulated / real time, one core", r.speed(ours, group(conversation1, conversation4)), 2000)
	return j.targets
}

// speed is the highest ratio of simulated to real time; the highest, because others use the machine, too.
func (r *Results) speed(policy string, which Which) float64 {
	best := 0.0
	for i := range r.Scenarios {
		if s := &r.Scenarios[i]; which(s) && s.Cluster.Workers == 8 {
			for _, row := range r.at[[2]string{s.Name, policy}] {
				best = max(best, row.SimulatedS/row.WallS)
			}
		}
	}
	return best
}

// variantTargets say what knowing less costs.
func variantTargets(r *Results) []Target {
	var j judge
	for _, v := range variants {
		if v == ideal {
			continue
		}
		_, where := r.Worst(TTFTMean, v, ideal, all)
		j.most(fmt.Sprintf("%s: mean TTFT / %s", v, ideal), r.Geomean(TTFTMean, v, ideal, all), 1.03, "worst in "+where)
	}
	for _, v := range []string{"time:speed_error=0.5", "time:speed_error=2", "time:lag=1s"} {
		worst, where := r.Worst(TTFTMean, v, ours, all)
		j.most(fmt.Sprintf("%s, worst: mean TTFT / %s", v, ours), worst, 1.05, where)
	}
	return j.targets
}

// replicaTargets say what it costs that several decide. The recording with ticks is in the table only: that a dozen requests come in
// one instant, and then none for three seconds, is its clock's doing.
func replicaTargets(r *Results) []Target {
	var j judge
	natural := func(s *Scenario) bool { return s.Name != ticksX2 }
	worst, where := r.Worst(TTFTMean, fourReplicas, ours, both(natural, steady))
	j.most("4 replicas: mean TTFT / one", r.Geomean(TTFTMean, fourReplicas, ours, natural), 1.05, "worst before collapse "+fixed(worst, 3)+" in "+where)
	j.most("4 replicas: mean E2E / one", r.Geomean(E2EMean, fourReplicas, ours, natural), 1.05, "")
	j.most("8 replicas: mean TTFT / one", r.Geomean(TTFTMean, "time:replicas=8", ours, both(natural, steady)), 1.05, "")
	j.most("4 replicas: mean TTFT / 4 that tell each other nothing", r.Geomean(TTFTMean, fourReplicas, fourAlone, both(natural, steady)), .9, "")
	return j.targets
}

// clusterTargets: unequal and changing clusters are no exception.
func clusterTargets(r *Results) []Target {
	var j judge
	tuned := r.Tuned(dynamos, all)
	for _, base := range []string{dynamo1, tuned} {
		worst, where := r.Worst(TTFTMean, ours, base, all)
		j.most("worst: mean TTFT / "+base, worst, 1.05, where)
	}
	return j.targets
}

// comparisonTargets: what routing and the engines' caches do alone, they do better together.
func comparisonTargets(r *Results) []Target {
	var j judge
	for _, base := range []string{robin, leastLoad, ours + ":reuse=false"} {
		worst, where := r.Worst(TTFTMean, ours, base, all)
		j.most("worst: mean TTFT / "+base, worst, .5, where)
	}
	worst, where := r.Worst(TTFTMean, ours, r.Tuned(dynamos, all), all)
	j.most("worst: mean TTFT / tuned Dynamo", worst, 1.05, where)
	return j.targets
}

// holdingTargets: what is advised helps under overload, and does no harm elsewhere.
func holdingTargets(r *Results) []Target {
	var j judge
	j.most("overload: mean TTFT / none held back", r.Geomean(TTFTMean, advised, ours, group(overload)), .6, "")
	for _, m := range []struct {
		metric Metric
		most   float64
	}{{TTFTMean, 1.03}, {E2EMean, 1.03}, {TPOTP99, 1.35}} {
		worst, where := r.Worst(m.metric, advised, ours, all)
		j.most("worst: "+m.metric.Title+" / none held back", worst, m.most, where)
	}
	return j.targets
}

// ciTargets hold what was reached, with a little room.
func ciTargets(r *Results) []Target {
	var j judge
	j.most("mean TTFT / Dynamo's default", r.Geomean(TTFTMean, ours, dynamo1, all), .60, "")
	j.most("mean TTFT / Dynamo at 16", r.Geomean(TTFTMean, ours, dynamo16, all), .93, "")
	worst, where := r.Worst(TTFTMean, ours, dynamo16, all)
	j.most("worst: mean TTFT / Dynamo at 16", worst, 1.03, where)
	j.most("p99 TPOT / Dynamo at 16", r.Geomean(TPOTP99, ours, dynamo16, all), .92, "")
	j.most("as production knows it: mean TTFT / "+ours, r.Geomean(TTFTMean, production, ours, all), 1.05, "")
	j.least("reuse captured, agentic", r.Captured(ours, group(agentic)), .95)
	return j.targets
}
