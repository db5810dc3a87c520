package scoring

import "math"

// WeightedConfig are the weights of policy "weighted". Only their proportions matter.
type WeightedConfig struct {
	// Cache is the weight of how much of the prompt is cached.
	Cache float64 `yaml:"cache"`
	// Load is the weight of having few requests in flight for one's size.
	Load float64 `yaml:"load"`
	// Latency is the weight of a short predicted wait until the prompt's turn comes.
	Latency float64 `yaml:"latency"`
	// Batch is the weight, in a worker's size, of the tokens that its engine computes in one step.
	Batch float64 `yaml:"batch"`
	// Memory is the weight, in a worker's size, of its accelerator memory.
	Memory float64 `yaml:"memory"`
	// Distance is the weight, in a worker's size, of being near: a far one counts as a smaller one.
	Distance float64 `yaml:"distance"`
}

// weighted blends three scores between 0 and 1, higher being better, into the share that is missing to the best of all:
//
//	cost    = 1 - (wc*cache + wl*load + wt*latency) / (wc + wl + wt)
//
//	cache   = counted cached tokens / prompt tokens                  0 when the prompt is not known
//	load    = 1 - u / (largest u)      u = n / size                  n: requests in flight, also those of other gateways
//	latency = 1 - Q / (largest Q)                                    Q: predicted seconds to work off the booked prefill
//	size    = (wb*batch + wm*memory + wd*near) / (wb + wm + wd)      at least 1/20
//	batch   = tokens per step / (largest tokens per step)            1 when not known
//	memory  = accelerator bytes / (largest accelerator bytes)        1 when not known
//	near    = 1 - distance / (largest distance)
//
// All largest values are those among the candidates; where one is 0, everybody has it and scores 1. Ties go to the largest
// size.
type weighted struct{ WeightedConfig }

func (*weighted) Name() string { return nameWeighted }

func (p *weighted) Score(x *Contest) {
	var most sizes
	for i := range x.Candidates {
		c := &x.Candidates[i]
		most.batch, most.memory = max(most.batch, float64(c.BatchTokens)), max(most.memory, c.Memory)
		most.distance = max(most.distance, c.Distance)
	}
	fullest, latest := 0.0, 0.0
	for i, l := range x.Loads {
		c, t := &x.Candidates[i], &x.Terms[i]
		t.shown(c, l, Shares)
		size := p.size(c, &most)
		t.Requests, t.Tie = float64(t.InFlight)/size, -size
		fullest, latest = max(fullest, t.Requests), max(latest, l.QueueSeconds)
	}
	sum := p.Cache + p.Load + p.Latency
	for i, l := range x.Loads {
		t := &x.Terms[i]
		t.Prefill = p.Cache / sum * (1 - fraction(float64(x.Candidates[i].counted()), float64(x.Demand.PromptTokens)))
		t.Queue = p.Latency / sum * fraction(l.QueueSeconds, latest)
		t.Requests = p.Load / sum * fraction(t.Requests, fullest)
		t.Total = t.Prefill + t.Queue + t.Requests
	}
}

// sizes are the largest among the candidates.
type sizes struct{ batch, memory, distance float64 }

// leastSize keeps a small load on a far worker from looking endless.
const leastSize = .05

// size is how large a candidate is, against the largest.
func (p *weighted) size(c *Candidate, most *sizes) float64 {
	batch, memory := 1.0, 1.0
	if c.BatchTokens > 0 {
		batch = fraction(float64(c.BatchTokens), most.batch)
	}
	if c.Memory > 0 {
		memory = fraction(c.Memory, most.memory)
	}
	near := 1 - fraction(c.Distance, most.distance)
	return max(leastSize, (p.Batch*batch+p.Memory*memory+p.Distance*near)/(p.Batch+p.Memory+p.Distance))
}

// fraction is part of whole, between 0 and 1; of nothing it is 0.
func fraction(part, whole float64) float64 {
	if whole <= 0 || math.IsNaN(part) {
		return 0
	}
	return min(1, max(0, part/whole))
}
