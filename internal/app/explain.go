package app

import (
	"context"
	"errors"

	"attache/extproc"
	"attache/internal/admin"
	"attache/internal/hints"
	"attache/internal/router"
	"attache/internal/slot"
	"attache/scoring"
)

// Explain shows what would become of a request. A policy that is asked for beside it counts whatever clients are believed.
func (s *source) Explain(ctx context.Context, q admin.Question) (*admin.Explanation, error) {
	cfg := s.configured.Config().ExtProc
	req, err := cfg.Understand(&extproc.Preview{Path: q.Path, Headers: q.Headers, Body: q.Body})
	if err == nil && q.Policy != "" {
		err = askFor(req, q.Policy)
	}
	var x *router.Explanation
	if err == nil {
		x, err = s.router.Explain(ctx, req, router.AllPolicies())
	}
	var refused *extproc.RefusedError
	switch {
	case errors.As(err, &refused):
		return nil, &admin.RefusedError{Status: refused.Status, Body: refused.Body}
	case err != nil:
		refused = extproc.RefusalOf(err)
		return nil, &admin.RefusedError{Status: refused.Status, Body: refused.Body}
	}
	return explanation(x), nil
}

// askFor makes a request ask for a policy, written as in the header x-attache-policy.
func askFor(req *router.Request, policy string) error {
	var said hints.Headers
	var asked hints.Hints
	said.Add([]byte("x-attache-policy"), []byte(policy))
	said.Read(&asked, hints.GroupPolicy, false)
	if !scoring.Known(asked.Policy) || len(asked.Problems.All()) > 0 {
		return extproc.BadPolicy(policy, scoring.Policies())
	}
	req.Hints.Policy, req.Hints.Weights = asked.Policy, asked.Weights
	return nil
}

func explanation(x *router.Explanation) *admin.Explanation {
	a := &admin.Explanation{
		At: x.At.UTC(), Pool: x.Pool, Model: x.Model, SentModel: x.Sent, Policy: x.Policy, Why: x.Sentence(),
		PromptTokens: x.PromptTokens, BlockTokens: x.BlockTokens, Rung: x.Rung, RungReason: x.Reason, Available: x.Available, Captured: x.Captured,
		Hints: x.Hints, Queue: admin.QueuePlace{
			Waits: x.Wait.Waits, Class: x.Wait.Class, Ahead: x.Wait.Ahead, Waiting: x.Wait.InQueue, Capacity: x.Wait.Capacity,
		},
	}
	if x.Refusal != nil {
		a.Refusal = &admin.Refusal{Status: extproc.RefusalOf(x.Refusal).Status, Message: x.Refusal.Error()}
	} else {
		first := &x.Candidates[0]
		a.Chosen, a.Rank, a.PredictedTTFTS = first.Worker, first.Rank, admin.Seconds(first.TTFT)
	}
	for i := range x.Candidates {
		a.Candidates = append(a.Candidates, contender(&x.Candidates[i]))
	}
	for _, e := range x.Excluded {
		a.Excluded = append(a.Excluded, admin.Excluded{Worker: e.Worker, Address: e.Address, Reason: e.Reason.String(), Text: e.Reason.Words(), Detail: e.Detail})
	}
	for i := range x.Others {
		o, c := &x.Others[i], contender(&x.Others[i].Contender)
		a.Others = append(a.Others, admin.OtherChoice{
			Policy: o.Policy, Worker: c.Worker, Rank: c.Rank, Same: o.Same, CachedTokens: c.CachedTokens, PredictedTTFTS: c.PredictedTTFTS,
			Total: c.Total, Unit: c.Unit,
		})
	}
	for _, p := range x.Wrong {
		a.IgnoredHints = append(a.IgnoredHints, admin.IgnoredHint{Hint: p.Kind.String(), Reason: p.Reason.Text()})
	}
	return a
}

func contender(c *router.Contender) admin.Contender {
	a := admin.Contender{
		Worker: c.Worker, Address: c.Address, Rank: c.Rank, CachedTokens: c.CachedTokens, Doubt: c.Doubt, Evidence: string(c.Mode),
		TierBlocks: admin.Tiers{Device: c.Tiers[slot.Device], Host: c.Tiers[slot.Host], Disk: c.Tiers[slot.Disk], Remote: c.Tiers[slot.Remote]},
		InFlight:   c.Load.InFlight, QueueS: admin.Known(c.Load.QueueSeconds), PrefillTokens: c.Load.PrefillTokens,
		SpeedFactor: admin.Known(c.Load.SpeedFactor), Bound: c.Bound, Saturated: c.Terms.Saturated, Passed: c.Terms.Passed, Preference: c.Preference,
		PredictedTTFTS: admin.Seconds(c.TTFT), Unit: c.Terms.Unit.String(),
	}
	if c.Terms.Unit != scoring.None {
		a.Total = admin.Known(c.Terms.Total)
	}
	for _, t := range c.Terms.Parts() {
		a.Terms = append(a.Terms, admin.Term{Name: t.Name, Value: admin.Known(t.Value)})
	}
	return a
}
