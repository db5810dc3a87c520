package queue

import (
	"math"
	"time"
)

// Reconfigure orders and limits by another valid configuration from now on. Whoever waits goes on to wait, for as long as was said
// when it came, whatever the new limits are; in the class of the same name, or where there is none in that which its size gives it
// now. What flows attained is kept, and so is how fast requests were served; what classes had saved is not.
func (q *Queue[T]) Reconfigure(now time.Duration, cfg Config) {
	before := q.classes
	waiting := q.Drain(RejectedShuttingDown) // nobody is told: they come back
	next := New[T](cfg)
	q.cfg, q.classes, q.byName, q.costs, q.rounds = next.cfg, next.classes, next.byName, next.costs, next.rounds
	for _, was := range before {
		if number, ok := q.byName[was.cfg.Name]; ok {
			q.classes[number].rate = was.rate
		}
	}
	q.flows.limit(now, next.flows.most, next.flows.halfLife)
	for _, d := range waiting {
		e := d.Entry
		e.Request.Class = q.ClassOf(before[e.Request.Class].cfg.Name, e.Request.UncachedTokens)
		c := q.classes[e.Request.Class]
		e.rank = c.rank(&c.cfg, &e.Request, bounded(e.Request.Priority, q.cfg.MaxPriority), e.Arrival.Seconds())
		if e.expires > 0 {
			q.expiry.push(byExpiry[T]{e})
		}
		q.account(e)
		c.insert(e, &q.flows)
	}
}

// limit changes how many flows are remembered, and for how long, while none of them waits.
func (s *flows[T]) limit(now time.Duration, most int, halfLife time.Duration) {
	keep := math.Exp2(-s.halfLives(now))
	for _, f := range s.byName {
		f.service *= keep
	}
	s.others.service *= keep
	s.idle.rebuild()
	s.base, s.most, s.halfLife = now, most, halfLife
	for len(s.byName) > most {
		least := s.idle[0]
		s.idle.remove(least)
		delete(s.byName, least.name)
	}
}
