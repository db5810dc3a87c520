package scoring

import (
	"slices"
	"time"
)

// Policies are the names of all policies, in the order of the documentation.
func Policies() []string { return slices.Clone(policies) }

// Policies that want something of their caller: bindings of sessions (Candidate.Bound), names that last (Candidate.ID).
const (
	PolicySession = nameSession
	PolicyCHWBL   = nameCHWBL
)

// Deciding is the name of the policy that decides on a request which asks for one; "" asks for none.
func (s *Scorer) Deciding(asked string) string { return s.tuning.Load().policyOf(asked).Name() }

// Foresee is the time to first token that is expected if the request is sent to a candidate now: what is booked there, then its
// own prefill. It is the PredictedTTFT of the booking that Pick would make there.
func (s *Scorer) Foresee(d *Demand, c *Candidate) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, left := s.calibration.factor(), 0.0
	if int(c.Slot) < len(s.loads) && s.loads[c.Slot] != nil {
		l := s.loads[c.Slot]
		s.update(l)
		k, left = l.SpeedFactor, l.left
	}
	own := s.tuning.Load().speed.Prefill(max(d.PromptTokens-c.CachedTokens, 0), c.CachedTokens)
	return time.Duration(k * (left + own) * float64(time.Second))
}

// Known reports whether there is a policy of that name.
func Known(policy string) bool { return slices.Contains(policies, policy) }
