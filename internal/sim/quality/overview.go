package quality

import (
	"fmt"
)

// part is a table with a title.
type part struct {
	title string
	table table
}

// Base is the policy that ratios are to if none is said: Dynamo with its defaults, or the first.
func (r *Results) Base() string {
	if r.Has(dynamo1) {
		return dynamo1
	}
	return r.Policies[0]
}

// overview compares the policies over all scenarios.
func (r *Results) overview() []part {
	base := r.Base()
	parts := []part{r.ratios(fmt.Sprintf("Ratios to %s, geometric means over %d scenarios of means over %d seeds; worst outside collapse",
		base, len(r.Scenarios), r.Seeds), base)}
	if r.Has(dynamo1) {
		tuned := r.Tuned(dynamos, all)
		p := r.ratios("Ratios to tuned Dynamo, which is "+tuned+", the best of its scales 1, 4 and 16 over all scenarios; in each: to the best of them in each scenario",
			tuned)
		p.table[0] = append(p.table[0], "in_each")
		for i, policy := range r.Policies {
			p.table[i+1] = append(p.table[i+1], fixed(r.TunedEach(TTFTMean, policy, dynamos, all), 3))
		}
		parts = append(parts, p)
	}
	return append(parts, r.reuse(), r.groups(base))
}

// ratios to one policy.
func (r *Results) ratios(title, base string) part {
	t := table{{"policy", "ttft_mean", "min..max", "ttft_p50", "ttft_p99", "tpot_p99", "e2e_mean", "worst", "in"}}
	for _, policy := range r.Policies {
		least, most := r.Spread(TTFTMean, policy, base, all)
		worst, where := r.Worst(TTFTMean, policy, base, steady)
		t.add(policy, fixed(r.Geomean(TTFTMean, policy, base, all), 3), fixed(least, 3)+".."+fixed(most, 3),
			fixed(r.Geomean(TTFTP50, policy, base, all), 3), fixed(r.Geomean(TTFTP99, policy, base, all), 3),
			fixed(r.Geomean(TPOTP99, policy, base, all), 3), fixed(r.Geomean(E2EMean, policy, base, all), 3), fixed(worst, 3), where)
	}
	return part{title, t}
}

// reuse is what was to be had of caches, and what was had.
func (r *Results) reuse() part {
	t := table{{"policy", "available", "captured", "delivered", "of_shared_cache", "regret", "in"}}
	for _, policy := range r.Policies {
		cells := []string{policy}
		for _, tokens := range []func(*Row) float64{
			func(x *Row) float64 { return float64(x.Available) / float64(x.Asked) },
			func(x *Row) float64 { return float64(x.Captured) / float64(x.Asked) },
			func(x *Row) float64 { return float64(x.Delivered) / float64(x.Asked) },
		} {
			cells = append(cells, fixed(r.average(policy, tokens), 3))
		}
		captured := "-"
		if r.Has(SharedCache) {
			captured = fixed(r.Captured(policy, all), 3)
		}
		regret, where := r.Regret(policy, steady)
		t.add(append(cells, captured, fixed(regret, 3), where)...)
	}
	return part{"Reuse, in shares of all prompt tokens, means over scenarios; regret: the highest ratio of mean TTFT to the best policy's, outside collapse", t}
}

// average is the mean over scenarios and seeds.
func (r *Results) average(policy string, of func(*Row) float64) float64 {
	sum := 0.0
	for i := range r.Scenarios {
		sum += r.Mean(r.Scenarios[i].Name, policy, of)
	}
	return sum / float64(len(r.Scenarios))
}

// groups are ratios of mean TTFT and shares of reuse by group of scenarios.
func (r *Results) groups(base string) part {
	var names []string
	seen := map[string]bool{}
	for i := range r.Scenarios {
		if name := r.Scenarios[i].Group; !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	t := table{append([]string{"policy", "outside collapse"}, names...)}
	for _, policy := range r.Policies {
		cells := []string{policy, fixed(r.Geomean(TTFTMean, policy, base, steady), 3)}
		for _, name := range names {
			cell := fixed(r.Geomean(TTFTMean, policy, base, group(name)), 3)
			if r.Has(SharedCache) {
				cell += " (" + fixed(r.Captured(policy, group(name)), 2) + ")"
			}
			cells = append(cells, cell)
		}
		t.add(cells...)
	}
	title := "Mean TTFT as a ratio to " + base + " by group"
	if r.Has(SharedCache) {
		title += "; in brackets reuse as a share of the shared cache's"
	}
	return part{title, t}
}

// targetTable lists targets.
func targetTable(targets []Target) table {
	t := table{{"target", "bound", "measured", "", "where"}}
	for i := range targets {
		x := &targets[i]
		verdict := "pass"
		if !x.Pass {
			verdict = "FAIL"
		}
		t.add(x.Name, x.Bound(), x.Measured(), verdict, x.Where)
	}
	return t
}
