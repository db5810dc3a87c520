package scoring

import "math"

// dynamoWeights are the parameters of Dynamo's cost, with its letters.
type dynamoWeights struct {
	credit  float64 // c: per device block
	decay   float64 // d: of the device credit, by excess prefill
	scale   float64 // s: of prefill
	host    float64 // wh: per host block
	disk    float64 // wd: per disk block
	shared  float64 // m: per block of a shared pool
	request float64 // r: per active request
}

// dynamoInput is what Dynamo knows of one worker for one request, with its letters.
type dynamoInput struct {
	block  float64 // B: tokens per block
	prompt float64 // L: prompt tokens
	active float64 // A: prefill tokens booked on the worker
	least  float64 // Amin: the least A of all eligible workers
	cached float64 // effective cached tokens

	device float64 // D: leading blocks in device memory
	host   float64 // H: blocks in host memory that extend D
	disk   float64 // K: blocks on disk or beyond that extend D + H
	shared float64 // X: blocks of a shared pool from D on

	activeBlocks   float64 // blocks of running requests
	newBlocks      float64 // blocks of this prompt that are not among them
	activeRequests float64
	preferred      float64 // sum of the weights of preferred taints

	unknown    bool // the worker has no load entry
	noTracking bool // prefill load is not tracked
	decodePool bool // the worker only decodes
}

// effectiveBlocks is what all tiers together are worth in device blocks.
func (w *dynamoWeights) effectiveBlocks(in *dynamoInput) float64 {
	return in.device + w.host*in.host + w.disk*in.disk
}

// cost is the linear cost, in blocks; prefill, decode and requests are its parts before the factor of the taints.
//
//	R      = ceil(L / B)
//	decay  = 1 / (1 + d * (max(0, A - Amin) / B) / R)      1 when d is 0 or prefill is not tracked
//	credit = c*decay*D + wh*H + wd*K + m*X
//	rawP   = (A + max(0, L - cached) + cached) / B         L / B without a load entry, 0 when not tracked
//	cost   = s*max(0, rawP - credit) + active blocks + new blocks + r*active requests
//
// For a worker that only decodes, with prefill not tracked and c above 0, the credit comes off the blocks instead.
func (w *dynamoWeights) cost(in *dynamoInput) (total, prefill, decode, requests float64) {
	decay := 1.0
	if w.decay != 0 && !in.noTracking {
		if blocks := math.Ceil(in.prompt / in.block); blocks > 0 {
			decay = 1 / (1 + w.decay*(max(0, in.active-in.least)/in.block)/blocks)
		}
	}
	credit := w.credit*decay*in.device + w.host*in.host + w.disk*in.disk + w.shared*in.shared
	raw := 0.0
	switch {
	case in.noTracking:
	case in.unknown:
		raw = in.prompt / in.block
	default:
		raw = (in.active + max(0, in.prompt-in.cached) + in.cached) / in.block
	}
	decode = in.activeBlocks + in.newBlocks
	requests = w.request * in.activeRequests
	if in.decodePool && in.noTracking && w.credit > 0 {
		decode = max(0, decode-credit)
	} else {
		prefill = w.scale * max(0, raw-credit)
	}
	total = (prefill + decode + requests) * math.Exp(-math.Tanh(in.preferred))
	return total, prefill, decode, requests
}

// dynamoPolicy fills in what is known here. Its differences from a Dynamo router beside its own workers:
//
//   - Booked prefill is what the clock of predicted work has left where nobody tells of first tokens; Dynamo holds it until it
//     sees them.
type dynamoPolicy struct{ weights dynamoWeights }

func (*dynamoPolicy) Name() string { return nameDynamo }

func (p *dynamoPolicy) Score(x *Contest) {
	d := x.Demand
	size, least := max(d.BlockTokens, 1), math.MaxInt
	for _, l := range x.Loads {
		least = min(least, l.PrefillTokens)
	}
	for i, l := range x.Loads {
		c, t := &x.Candidates[i], &x.Terms[i]
		overlap := c.counted() / size
		t.Total, t.Prefill, t.Decode, t.Requests = p.weights.cost(&dynamoInput{
			block:          float64(size),
			prompt:         float64(d.PromptTokens),
			active:         float64(l.PrefillTokens),
			least:          float64(least),
			cached:         float64(overlap * size),
			device:         float64(overlap),
			activeBlocks:   float64(l.ActiveBlocks),
			newBlocks:      float64(max(0, d.blocks()-l.SharedBlocks)),
			activeRequests: float64(l.InFlight),
		})
		t.shown(c, l, Blocks)
	}
}
