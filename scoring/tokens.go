package scoring

import "math"

// uncached is u, the prompt tokens that a candidate would have to compute: engines compute at least one.
func uncached(d *Demand, c *Candidate) float64 { return float64(max(1, d.PromptTokens-c.counted())) }

// lmetric multiplies what there is to compute by how many requests it delays; no weight is needed, because a scale of either
// factor cancels in comparison (LMetric, arXiv 2603.15202):
//
//	cost = (A + u) * (n + 1)      A: booked prompt tokens not computed yet, u: this prompt's, n: requests in flight
type lmetric struct{}

func (lmetric) Name() string { return nameLMetric }

func (lmetric) Score(x *Contest) {
	for i, l := range x.Loads {
		c, t := &x.Candidates[i], &x.Terms[i]
		n := float64(l.InFlight) + 1
		t.Queue, t.Prefill = float64(l.PrefillTokens)*n, uncached(x.Demand, c)*n
		t.Total = t.Queue + t.Prefill
		t.shown(c, l, TokenRequests)
	}
}

// tokenLoad sends where the fewest prompt tokens are left to compute, this prompt's among them; ties to the fewest in flight
// (least prefill work left; the token load of llm-d):
//
//	cost = A + u
type tokenLoad struct{}

func (tokenLoad) Name() string { return nameTokenLoad }

func (tokenLoad) Score(x *Contest) {
	for i, l := range x.Loads {
		x.Terms[i].toCompute(x.Demand, &x.Candidates[i], l)
		x.Terms[i].Tie = float64(l.InFlight)
	}
}

// toCompute makes the tokens left to compute the cost.
func (t *Terms) toCompute(d *Demand, c *Candidate, l *Load) {
	t.Queue, t.Prefill = float64(l.PrefillTokens), uncached(d, c)
	t.Total = t.Queue + t.Prefill
	t.shown(c, l, Tokens)
}

// StickyConfig are the parameters of policy "sticky".
type StickyConfig struct {
	// Threshold is the share of the prompt's full blocks, above 0 to 1, from which on a worker that holds them is warm. Low
	// values keep prompts that only share a system prompt together.
	Threshold float64 `yaml:"threshold"`
	// TauTokens is how many prompt tokens more than on the least busy cold worker may wait on the least busy warm one before
	// cold ones are allowed. The default is 15,928 tokens/s for 18 s, as llm-d has it, which is long for somebody who waits.
	// 0: as soon as a cold one is less busy.
	TauTokens float64 `yaml:"tau_tokens"`
}

// stickyPolicy stays with the warm candidates until they are saturated, and takes the least A + u of those that are allowed
// (llm-d's filter for prefix affinity):
//
//	warm      matched blocks >= threshold * full blocks of the prompt, at least one
//	allowed   the warm ones; all, if there are none or least A(warm) - least A(cold) > tau
type stickyPolicy struct{ StickyConfig }

func (*stickyPolicy) Name() string { return nameSticky }

func (p *stickyPolicy) Score(x *Contest) {
	warmest, coldest := math.Inf(1), math.Inf(1) // least A of each kind
	for i, l := range x.Loads {
		if a := float64(l.PrefillTokens); p.warm(x.Demand, &x.Candidates[i]) {
			warmest = min(warmest, a)
		} else {
			coldest = min(coldest, a)
		}
	}
	stay := !math.IsInf(warmest, 1) && !(warmest-coldest > p.TauTokens)
	for i, l := range x.Loads {
		c, t := &x.Candidates[i], &x.Terms[i]
		t.toCompute(x.Demand, c, l)
		t.Passed = stay && !p.warm(x.Demand, c)
	}
}

func (p *stickyPolicy) warm(d *Demand, c *Candidate) bool {
	size := max(d.BlockTokens, 1)
	full := d.PromptTokens / size
	return full > 0 && float64(c.counted()/size) >= p.Threshold*float64(full)-rounding
}
