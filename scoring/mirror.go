package scoring

import "attache/internal/slot"

// Mirror books a request that another gateway has sent to a slot, as Pick would have done: cached of its prompt tokens are believed
// to be there. With followed, somebody will tell when its prefill is over (Candidate.Live).
func (s *Scorer) Mirror(b *Booking, d *Demand, to slot.Slot, cached int, followed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.loadOf(to)
	now := s.update(l)
	l.SharedBlocks = 0
	s.active.shared(d.Chain, func(users []users, held int) {
		for _, u := range users {
			if u.slot == to {
				l.SharedBlocks = held
			}
		}
	})
	s.book(b, d, &Ranked{Slot: to, CachedTokens: cached, followed: followed}, now)
}
