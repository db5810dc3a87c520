package scoring

import "time"

// Hindsight is what became known of a request that the chosen slot answered.
type Hindsight struct {
	Policy       string        // as in Demand
	EngineTTFT   time.Duration // as in Outcome; 0 not known
	CachedTokens int           // of the prompt, that the engine took from its cache, on the scale of Demand.PromptTokens
	CachedKnown  bool
}

// Regret is how many seconds more the chosen candidate cost than the best of those that were remembered, in hindsight: ranked is
// what Pick appended, the chosen one first, and each of it is priced again with what became known since.
//
//	H = r*(queue + prefill + decode + evict) + room     of each candidate, by its terms at the decision
//	prefill = k*T(u, c) * (1 + again + alpha*n)         of the chosen one, anew: c is what was delivered, u the rest of the prompt
//	r = observed / (queue + k*T(u, c))                  of the chosen one, kept within 0.1 and 10; 1 where nothing was observed
//
//	regret = H of the chosen - lowest H                 never below 0
//
// The engines count as having been as fast as this one showed itself, and what nobody has seen stays as it was believed: what the
// others hold, and what was booked on them. So regret says what it cost to be wrong about the chosen slot's cache, and what was given
// up on purpose, by sessions and chance. It is 0 while predictions hold, however slow all engines are. Candidates beyond a limit,
// and those that a rule passed over, do not count: they could not be chosen.
//
// ok is false when there is nothing to say: another policy decided, neither figure is known, or the request moved.
func (s *Scorer) Regret(b *Booking, ranked []Ranked, h Hindsight) (seconds float64, ok bool) {
	if b.scorer == nil {
		return 0, false
	}
	policy, priced := b.tuning.policyOf(h.Policy).(*timePolicy)
	if !priced || len(ranked) == 0 || h.EngineTTFT <= 0 && !h.CachedKnown || s.movedOn(b) {
		return 0, false
	}
	chosen := ranked[0].Terms
	k := 1.0
	if raw := b.ahead + b.own; raw > 0 {
		k = b.PredictedTTFT.Seconds() / raw
	}
	own := k * b.own
	if h.CachedKnown {
		cached := min(max(h.CachedTokens, 0), b.prompt)
		own = k * b.tuning.speed.Prefill(b.prompt-cached, cached)
		chosen.Prefill = own * policy.slowed(chosen.InFlight)
	}
	r := 1.0
	if expected := chosen.Queue + own; h.EngineTTFT > 0 && expected > 0 {
		r = min(max(h.EngineTTFT.Seconds()/expected, fastest), slowest)
	}
	cost := func(t *Terms) float64 { return r*(t.Queue+t.Prefill+t.Decode+t.Evict) + t.Room }
	best := cost(&chosen)
	for i := 1; i < len(ranked); i++ {
		if t := &ranked[i].Terms; t.rung() == 0 {
			best = min(best, cost(t))
		}
	}
	return cost(&chosen) - best, true
}

// movedOn reports whether a booking left the slot that was chosen.
func (s *Scorer) movedOn(b *Booking) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.moved
}
