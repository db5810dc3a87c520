package scoring

import "math"

// Rules of other gateways, to compare with. They are restatements of what those projects publish, over what is known here,
// and not the projects' code: a match is what the index knows, and a "history" is the KV cache.

// sglangCacheAware restates the cache_aware rule of SGLang's gateway, with the defaults of its command line: while loads are
// balanced the longest match, if it is worth it, and else who holds the least; when they are not, the fewest in flight.
//
//	imbalanced   max n - min n > 64 and max n > 1.5 * min n      least n
//	matched      longest match > 0.3 * prompt tokens             that one
//	else                                                         fewest tokens held
type sglangCacheAware struct{}

func (sglangCacheAware) Name() string { return nameSGLangCacheAware }

const (
	sglangThreshold = .3
	sglangAbsolute  = 64
	sglangRelative  = 1.5
)

func (sglangCacheAware) Score(x *Contest) {
	least, most := inFlightRange(x.Loads)
	longest := longestMatch(x.Candidates)
	imbalanced := most-least > sglangAbsolute && float64(most) > sglangRelative*float64(least)
	matched := float64(longest) > sglangThreshold*float64(x.Demand.PromptTokens)
	for i, l := range x.Loads {
		c, t := &x.Candidates[i], &x.Terms[i]
		switch {
		case imbalanced:
			t.inFlight(c, l)
		case matched:
			t.Prefill = uncached(x.Demand, c)
			t.Total, t.Passed = t.Prefill, c.counted() < longest
			t.shown(c, l, Tokens)
		default:
			t.Total = float64(c.KVHeldTokens)
			t.shown(c, l, HeldTokens)
		}
	}
}

// aibrixPrefix restates AIBrix' prefix-cache rule: the longest match among those that are not far busier than others.
//
//	max n - min n > 8                                                      least n
//	somebody has a match, and n <= mean n + standard deviation of n        the longest of these, ties least n
//	else                                                                   least n
type aibrixPrefix struct{}

func (aibrixPrefix) Name() string { return nameAIBrixPrefix }

const (
	aibrixImbalance  = 8
	aibrixDeviations = 1
)

func (aibrixPrefix) Score(x *Contest) {
	least, most := inFlightRange(x.Loads)
	limit := busiest(x.Loads)
	fits := func(i int) bool {
		return x.Candidates[i].counted() > 0 && float64(x.Loads[i].InFlight) <= limit+rounding
	}
	matched := false
	for i := range x.Loads {
		matched = matched || most-least <= aibrixImbalance && fits(i)
	}
	for i, l := range x.Loads {
		c, t := &x.Candidates[i], &x.Terms[i]
		if !matched {
			t.inFlight(c, l)
			continue
		}
		t.Prefill, t.Tie = uncached(x.Demand, c), float64(l.InFlight)
		t.Total, t.Passed = t.Prefill, !fits(i)
		t.shown(c, l, Tokens)
	}
}

// busiest is how many requests in flight are not too many: the mean and one standard deviation.
func busiest(loads []*Load) float64 {
	sum, squares, n := 0.0, 0.0, float64(len(loads))
	for _, l := range loads {
		sum += float64(l.InFlight)
		squares += float64(l.InFlight) * float64(l.InFlight)
	}
	mean := sum / n
	return mean + aibrixDeviations*math.Sqrt(max(0, squares/n-mean*mean))
}

// blend restates the weighted scorers of the Gateway API inference extension and llm-d with their usual weights:
//
//	score = 3 * matched blocks / blocks of the prompt + 2 * queue score + 2 * (1 - share of the KV cache in use)
//	queue score = (max waiting - waiting) / (max waiting - min waiting)      1 if all are equal
//	cost  = 1 - score / 7
//
// Waiting and in use are what the engines say; those of which nothing fresh is known count as idle.
type blend struct{}

func (blend) Name() string { return nameBlend }

const blendPrefix, blendQueue, blendMemory = 3. / 7, 2. / 7, 2. / 7

func (blend) Score(x *Contest) {
	least, most := math.MaxInt, 0
	for i := range x.Candidates {
		w := waiting(&x.Candidates[i])
		least, most = min(least, w), max(most, w)
	}
	size := max(x.Demand.BlockTokens, 1)
	for i, l := range x.Loads {
		c, t := &x.Candidates[i], &x.Terms[i]
		t.Prefill = blendPrefix * (1 - fraction(float64(c.counted()/size), float64(x.Demand.PromptTokens/size)))
		t.Queue = blendQueue * fraction(float64(waiting(c)-least), float64(most-least))
		if !c.Stale {
			t.Room = blendMemory * fraction(c.EngineKVUse, 1)
		}
		t.Total = t.Prefill + t.Queue + t.Room
		t.shown(c, l, Shares)
	}
}

// waiting is how many requests an engine has queued, as far as that is fresh.
func waiting(c *Candidate) int {
	if c.Stale {
		return 0
	}
	return c.EngineWaiting
}

// preble restates Preble's E2 in a simpler form, in seconds: exploit the longest match when it is more than half of the prompt,
// unless its worker has far more to do than another; else explore.
//
//	load     = Q + 0.02 * n
//	exploit  longest match > rest of the prompt: least load among those with the longest match,
//	         if that load <= 2 * least load of all + T(L, 0); else the least load of all
//	explore  least load + T(u, c)
type preble struct{ speed Speed }

func (*preble) Name() string { return namePreble }

const (
	prebleRequest = .02 // seconds per request in flight
	prebleRatio   = 2
)

func (p *preble) Score(x *Contest) {
	longest, d := longestMatch(x.Candidates), x.Demand
	exploit := longest > d.PromptTokens-longest
	least, leastWarm, whole := math.Inf(1), math.Inf(1), 0.0
	for i, l := range x.Loads {
		c, t := &x.Candidates[i], &x.Terms[i]
		t.Queue, t.Requests = l.QueueSeconds, prebleRequest*float64(l.InFlight)
		t.Total = t.Queue + t.Requests
		t.shown(c, l, Seconds)
		least = min(least, t.Total)
		if c.counted() == longest && t.Total < leastWarm {
			leastWarm, whole = t.Total, l.SpeedFactor*p.speed.Prefill(d.PromptTokens, 0)
		}
	}
	stay := leastWarm <= prebleRatio*least+whole
	for i, l := range x.Loads {
		c, t := &x.Candidates[i], &x.Terms[i]
		if exploit {
			t.Passed = stay && c.counted() < longest
			continue
		}
		t.Prefill = l.SpeedFactor * p.speed.Prefill(d.PromptTokens-c.counted(), c.counted())
		t.Total += t.Prefill
	}
}

// longestMatch is the most that any candidate has cached of the prompt, in tokens to count on.
func longestMatch(candidates []Candidate) (tokens int) {
	for i := range candidates {
		tokens = max(tokens, candidates[i].counted())
	}
	return tokens
}

// inFlightRange are the fewest and the most requests in flight.
func inFlightRange(loads []*Load) (least, most int) {
	least = math.MaxInt
	for _, l := range loads {
		least, most = min(least, l.InFlight), max(most, l.InFlight)
	}
	return least, most
}
