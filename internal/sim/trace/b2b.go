package trace

import (
	"fmt"
	"math/rand/v2"
)

// B2BOptions describe customers with long prompts of their own and a few users each. Those of DefaultB2B are the
// shared-prefix workload that llm-d publishes.
type B2BOptions struct {
	BlockTokens int // the engines' blocks
	// Groups have a system prompt each, of System tokens; each of Users in it always asks the same question of Question tokens.
	Groups, Users, System, Question int
	Output                          int     // tokens
	Rate                            float64 // requests per second, at random (Poisson)
	Horizon                         float64 // seconds
	Seed                            uint64
}

// DefaultB2B are 150 groups of 5 users, a system prompt of 6,000 tokens and questions of 1,200. Rate is left to be chosen.
func DefaultB2B() B2BOptions {
	return B2BOptions{BlockTokens: 64, Groups: 150, Users: 5, System: 6000, Question: 1200, Output: 1000, Horizon: 300}
}

// B2B generates an open loop. A block that is partly system prompt belongs to the question.
func B2B(o B2BOptions) (*Workload, error) {
	if err := checkPoisson(o.Rate, o.Horizon, o.BlockTokens); err != nil {
		return nil, err
	}
	if o.Groups < 1 || o.Users < 1 || o.System < 0 || o.Question < 1 || o.Output < 1 || max(o.System, o.Question, o.Output) > maxTokens/2 {
		return nil, fmt.Errorf("%d groups, %d users, %d system, %d question and %d output tokens: at least 1 (system 0), at most %d tokens expected",
			o.Groups, o.Users, o.System, o.Question, o.Output, maxTokens/2)
	}
	w := &Workload{BlockTokens: o.BlockTokens}
	random := rand.New(rand.NewPCG(o.Seed, 0))
	shared, own := o.System/o.BlockTokens, (o.System+o.Question)/o.BlockTokens-o.System/o.BlockTokens
	prompts := make([][]int32, o.Groups*o.Users)
	for g := range o.Groups {
		system, err := w.newIDs(shared)
		if err != nil {
			return nil, err
		}
		for u := range o.Users {
			question, err := w.newIDs(own)
			if err != nil {
				return nil, err
			}
			prompts[g*o.Users+u] = append(system[:shared:shared], question...)
		}
	}
	for at := random.ExpFloat64() / o.Rate; at <= o.Horizon; at += random.ExpFloat64() / o.Rate {
		user := random.IntN(len(prompts))
		w.Heads = append(w.Heads, w.newRequest(Request{
			Arrival: seconds(at), Prompt: o.System + o.Question, Output: o.Output, IDs: prompts[user], Session: user,
		}))
	}
	return w, nil
}
