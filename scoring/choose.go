package scoring

import (
	"math"

	"attache/internal/slot"
)

// Ranked is one candidate after scoring.
type Ranked struct {
	Slot         slot.Slot
	followed     bool
	CachedTokens int
	Terms        Terms
}

// before orders candidates: those within the limits first, of these those that are not passed over, then lowest total, then
// lowest tie.
func before(a, b *Terms) bool {
	if x, y := a.rung(), b.rung(); x != y {
		return x < y
	}
	return a.Total < b.Total || a.Total == b.Total && a.Tie < b.Tie
}

// rung is 0 for candidates that costs decide between; higher ones come after all of a lower one.
func (t *Terms) rung() (rung int) {
	if t.Passed {
		rung = 1
	}
	if t.Saturated {
		rung += 2
	}
	return rung
}

// cheapest returns the index of the first in order. Among n equals each has a chance of 1/n.
func (s *Scorer) cheapest(terms []Terms) int {
	best, equals := 0, 1
	for i := 1; i < len(terms); i++ {
		switch {
		case before(&terms[i], &terms[best]):
			best, equals = i, 1
		case !before(&terms[best], &terms[i]):
			if equals++; s.rnd.IntN(equals) == 0 {
				best = i
			}
		}
	}
	return best
}

// choose picks one of the candidates and appends the best of them to dst, at most so many: the chosen one, then the others in
// order; those that are equal in an order that begins anywhere. The lock must be held.
func (s *Scorer) choose(d *Demand, candidates []Candidate, terms []Terms, dst []Ranked, most int) []Ranked {
	chosen := sticky(d, candidates, terms)
	if t := s.temperatureOf(d); chosen < 0 && t > 0 {
		chosen = softmax(terms, t, s.rnd.Float64())
	} else if chosen < 0 {
		chosen = s.cheapest(terms)
	}
	var space [Best]standing
	order := append(space[:0], standing{index: chosen})
	others := len(terms) - 1
	first := s.rnd.IntN(max(others, 1))
	for n := range others {
		i := chosen + 1 + first + n
		if first+n >= others {
			i -= others
		}
		if i >= len(terms) {
			i -= len(terms)
		}
		p := standing{terms[i].rung(), terms[i].Total, terms[i].Tie, i}
		if len(order) == most {
			if most == 1 || !p.before(&order[most-1]) {
				continue
			}
			order = order[:most-1]
		}
		at := len(order)
		order = append(order, p)
		for ; at > 1 && p.before(&order[at-1]); at-- {
			order[at] = order[at-1]
		}
		order[at] = p
	}
	for _, p := range order {
		dst = append(dst, Ranked{})
		r, c := &dst[len(dst)-1], &candidates[p.index]
		r.Slot, r.followed, r.CachedTokens, r.Terms = c.Slot, c.Live, c.CachedTokens, terms[p.index]
	}
	return dst
}

// standing is what a candidate's place in the order depends on, close together.
type standing struct {
	rung       int
	total, tie float64
	index      int
}

// before is the order of before.
func (p *standing) before(q *standing) bool {
	if p.rung != q.rung {
		return p.rung < q.rung
	}
	return p.total < q.total || p.total == q.total && p.tie < q.tie
}

// sticky is the candidate that is taken whatever it costs; -1: none.
func sticky(d *Demand, candidates []Candidate, terms []Terms) int {
	if d.Sticky {
		for i := range candidates {
			if candidates[i].Bound && !terms[i].Saturated {
				return i
			}
		}
	}
	return -1
}

// temperatureOf is how much chance decides on a request.
func (s *Scorer) temperatureOf(d *Demand) float64 {
	if d.Dynamo != nil && d.Dynamo.Temperature != nil {
		return *d.Dynamo.Temperature
	}
	return s.tuning.Load().temperature
}

// softmax draws an index with probability proportional to exp(-cost / ((highest - lowest) * temperature)); all equal when
// the costs are. u in [0, 1) decides: the first index whose cumulated probability reaches it. Only those of the lowest rung are
// drawn.
func softmax(terms []Terms, temperature, u float64) int {
	rung := math.MaxInt
	for i := range terms {
		rung = min(rung, terms[i].rung())
	}
	lowest, highest := math.Inf(1), math.Inf(-1)
	for i := range terms {
		if terms[i].rung() == rung {
			lowest = min(lowest, terms[i].Total)
			highest = max(highest, terms[i].Total)
		}
	}
	weight := func(t *Terms) float64 { // relative to the lowest cost: the quotient is the same, and nothing overflows
		switch {
		case t.rung() != rung:
			return 0
		case lowest == highest:
			return 1
		}
		return math.Exp((lowest - t.Total) / ((highest - lowest) * temperature))
	}
	sum := 0.0
	for i := range terms {
		sum += weight(&terms[i])
	}
	cumulated, last := 0.0, 0
	for i := range terms {
		w := weight(&terms[i])
		if w == 0 {
			continue
		}
		last = i
		if cumulated += w / sum; u <= cumulated {
			return i
		}
	}
	return last
}
