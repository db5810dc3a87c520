package scoring

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// runners is a contest with the candidates that are still in it: policies as people tell them, one sentence after the other.
type runners struct {
	*Contest

	left []int
}

// those keeps the ones for which a sentence is true; if it is for none, all are kept.
func (f runners) those(is func(c *Candidate, l *Load) bool) runners {
	kept := runners{Contest: f.Contest}
	for _, i := range f.left {
		if is(&f.Candidates[i], f.Loads[i]) {
			kept.left = append(kept.left, i)
		}
	}
	if kept.left == nil {
		return f
	}
	return kept
}

// least keeps the ones with the lowest value.
func (f runners) least(of func(c *Candidate, l *Load) float64) runners {
	lowest := math.Inf(1)
	for _, i := range f.left {
		lowest = min(lowest, of(&f.Candidates[i], f.Loads[i]))
	}
	return f.those(func(c *Candidate, l *Load) bool { return of(c, l) == lowest })
}

// any reports whether a sentence is true for one of them.
func (f runners) any(is func(c *Candidate, l *Load) bool) bool {
	return slices.ContainsFunc(f.left, func(i int) bool { return is(&f.Candidates[i], f.Loads[i]) })
}

// lowest and highest are the extreme values.
func (f runners) lowest(of func(c *Candidate, l *Load) float64) float64 {
	i := f.least(of).left[0]
	return of(&f.Candidates[i], f.Loads[i])
}

func (f runners) highest(of func(c *Candidate, l *Load) float64) float64 {
	return -f.lowest(func(c *Candidate, l *Load) float64 { return -of(c, l) })
}

func inFlightOf(_ *Candidate, l *Load) float64 { return float64(l.InFlight) }
func bookedOf(_ *Candidate, l *Load) float64   { return float64(l.PrefillTokens) }
func cachedOf(c *Candidate, _ *Load) float64   { return float64(c.counted()) }
func missingOf(c *Candidate, _ *Load) float64  { return -float64(c.counted()) }
func isBound(c *Candidate, _ *Load) bool       { return c.Bound }
func fewest(f runners) runners                 { return f.least(inFlightOf) }
func (f runners) toCompute(c *Candidate, _ *Load) float64 {
	return max(1, float64(f.Demand.PromptTokens)-float64(c.counted()))
}
func (f runners) spread() (least, most float64) { return f.lowest(inFlightOf), f.highest(inFlightOf) }
func (f runners) tokens(c *Candidate, l *Load) float64 {
	return float64(l.PrefillTokens) + f.toCompute(c, l)
}

// told are the policies in these words.
var told = map[string]func(f runners) runners{
	nameLMetric: func(f runners) runners {
		return f.least(func(c *Candidate, l *Load) float64 { return f.tokens(c, l) * float64(l.InFlight+1) })
	},
	nameTokenLoad: func(f runners) runners { return fewest(f.least(f.tokens)) },
	nameSticky: func(f runners) runners {
		full := f.Demand.PromptTokens / max(f.Demand.BlockTokens, 1)
		warm := func(c *Candidate, _ *Load) bool {
			return full > 0 && 5*(c.counted()/max(f.Demand.BlockTokens, 1)) >= 4*full
		}
		cold := func(c *Candidate, l *Load) bool { return !warm(c, l) }
		if f.any(warm) && f.any(cold) && f.those(warm).lowest(bookedOf) > f.those(cold).lowest(bookedOf)+1000 {
			return f.least(f.tokens)
		}
		return f.those(warm).least(f.tokens)
	},
	nameLeastLoad: func(f runners) runners { return fewest(f).least(bookedOf) },
	nameSession:   func(f runners) runners { return fewest(f.those(isBound)).least(bookedOf) },
	nameSGLangCacheAware: func(f runners) runners {
		least, most := f.spread()
		switch {
		case most-least > 64 && 2*most > 3*least:
			return fewest(f)
		case 10*f.highest(cachedOf) > 3*float64(f.Demand.PromptTokens):
			return f.least(missingOf)
		}
		return f.least(func(c *Candidate, _ *Load) float64 { return float64(c.KVHeldTokens) })
	},
	nameAIBrixPrefix: func(f runners) runners {
		limit := busiest(f.Loads) + rounding
		good := func(c *Candidate, l *Load) bool { return c.counted() > 0 && float64(l.InFlight) <= limit }
		if least, most := f.spread(); most-least > 8 || !f.any(good) {
			return fewest(f)
		}
		return fewest(f.those(good).least(f.toCompute))
	},
	namePreble: func(f runners) runners {
		load := func(_ *Candidate, l *Load) float64 { return l.QueueSeconds + float64(.02*float64(l.InFlight)) }
		longest := f.highest(cachedOf)
		if 2*longest > float64(f.Demand.PromptTokens) {
			warm := f.least(missingOf)
			if warm.lowest(load) <= 2*f.lowest(load)+qwen.Prefill(f.Demand.PromptTokens, 0) {
				return warm.least(load)
			}
			return f.least(load)
		}
		return f.least(func(c *Candidate, l *Load) float64 {
			return load(c, l) + qwen.Prefill(f.Demand.PromptTokens-c.counted(), c.counted())
		})
	},
}

// TestAsTold compares the winners of the policies, before chance, with those of the same rules in plain words.
func TestAsTold(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Sticky.TauTokens = 1000
	all := cfg.policies(qwen)
	rapid.Check(t, func(t *rapid.T) {
		x := drawContest(t, rapid.IntRange(1, 8).Draw(t, "candidates"))
		everybody := make([]int, len(x.Loads))
		few := rapid.SampledFrom([]int{1, 5, 20, 100}).Draw(t, "apart")
		for i, l := range x.Loads {
			everybody[i] = i
			l.InFlight %= few
			x.Candidates[i].CachedTokens = min(x.Candidates[i].CachedTokens, x.Demand.PromptTokens)
		}
		for name, rule := range told {
			clear(x.Terms)
			all[name].Score(x)
			var got []int
			best := first(x.Terms)
			for i := range x.Terms {
				if !before(&x.Terms[best], &x.Terms[i]) {
					got = append(got, i)
				}
			}
			if want := rule(runners{x, everybody}).left; !slices.Equal(got, want) {
				t.Fatalf("%s: candidates %v win with %v, want %v", name, got, x.Terms, want)
			}
		}
	})
}
