package scoring

import (
	"math"

	"attache/internal/slot"
)

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

	noTracking bool // prefill load is not tracked
	decodePool bool // the worker only decodes
}

// effectiveBlocks is what all tiers together are worth in device blocks.
func (w *dynamoWeights) effectiveBlocks(in *dynamoInput) float64 {
	return in.device + w.host*in.host + w.disk*in.disk
}

// cost is the linear cost, in blocks, and its parts: prefill, decode and requests.
//
//	R      = ceil(L / B)
//	decay  = 1 / (1 + d * (max(0, A - Amin) / B) / R)      1 when d is 0 or prefill is not tracked
//	credit = c*decay*D + wh*H + wd*K + m*X
//	rawP   = (A + max(0, L - cached) + cached) / B         0 when not tracked
//	cost   = s*max(0, rawP - credit) + active blocks + new blocks + r*active requests
//	cost  *= exp(-tanh(sum of the weights of preferred taints))
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
	if !in.noTracking {
		raw = (in.active + max(0, in.prompt-in.cached) + in.cached) / in.block
	}
	decode = in.activeBlocks + in.newBlocks
	requests = w.request * in.activeRequests
	if in.decodePool && in.noTracking && w.credit > 0 {
		decode = max(0, decode-credit)
	} else {
		prefill = w.scale * max(0, raw-credit)
	}
	if in.preferred != 0 {
		taints := math.Exp(-math.Tanh(in.preferred))
		prefill, decode, requests = prefill*taints, decode*taints, requests*taints
	}
	return prefill + decode + requests, prefill, decode, requests
}

// dynamoPolicy fills in what is known here. Its differences from a Dynamo router beside its own workers:
//
//   - Booked prefill is what the clock of predicted work has left where nobody tells of first tokens; Dynamo holds it until it
//     sees them.
//   - Every slot has a load entry; Dynamo knows workers without one, for which nothing is booked.
//   - Blocks that answers grow by are not counted; Dynamo counts them on demand only.
type dynamoPolicy struct {
	weights  dynamoWeights
	tracking bool // booked prefill counts
	treeSize bool // ties go to the slot that holds the fewest blocks
}

func (*dynamoPolicy) Name() string { return nameDynamo }

func (p *dynamoPolicy) Score(x *Contest) {
	d := x.Demand
	w, tracking := p.overridden(d.Dynamo)
	size, least := max(d.BlockTokens, 1), math.MaxInt
	for _, l := range x.Loads {
		least = min(least, l.PrefillTokens)
	}
	for i, l := range x.Loads {
		c, t := &x.Candidates[i], &x.Terms[i]
		in := dynamoInput{
			block:          float64(size),
			prompt:         float64(d.PromptTokens),
			active:         float64(l.PrefillTokens),
			least:          float64(least),
			activeBlocks:   float64(l.ActiveBlocks),
			newBlocks:      float64(max(0, d.blocks()-l.SharedBlocks)),
			activeRequests: float64(l.InFlight),
			preferred:      c.Preference,
			noTracking:     !tracking,
			decodePool:     c.Decode,
		}
		in.overlap(c, size)
		in.cached = math.Round(in.block * w.effectiveBlocks(&in))
		t.Total, t.Prefill, t.Decode, t.Requests = w.cost(&in)
		if p.treeSize {
			t.Tie = float64(c.KVHeldTokens / size)
		}
		t.shown(c, l, Blocks)
	}
}

// overridden are the weights for one request. What is nonsense, below 0 or not a number, replaces nothing.
func (p *dynamoPolicy) overridden(o *DynamoOverride) (w dynamoWeights, tracking bool) {
	w, tracking = p.weights, p.tracking
	if o == nil {
		return w, tracking
	}
	replace := func(weight, by *float64) {
		if by != nil && *by >= 0 && *by <= mostWeight {
			*weight = *by
		}
	}
	replace(&w.credit, o.OverlapScoreCredit)
	replace(&w.scale, o.PrefillLoadScale)
	replace(&w.shared, o.SharedCacheMultiplier)
	if o.TrackPrefillTokens != nil {
		tracking = *o.TrackPrefillTokens
	}
	return w, tracking
}

// overlap fills in the blocks that the candidate holds, by tier. Where the tiers are not known, what is to be counted on takes
// the place of device blocks; where more is believed to be held than the tiers tell of, the rest was just computed there.
func (in *dynamoInput) overlap(c *Candidate, size int) {
	if c.tiersKnown() {
		in.device, in.host = float64(c.Tiers[slot.Device]), float64(c.Tiers[slot.Host])
		in.disk = float64(c.Tiers[slot.Disk] + c.Tiers[slot.Remote])
		if c.Doubt == 0 {
			in.device += max(0, float64(c.CachedTokens/size)-in.device-in.host-in.disk)
		}
	} else {
		in.device = float64(c.counted() / size)
	}
	in.shared = max(0, float64(c.SharedTokens/size)-in.device)
}
