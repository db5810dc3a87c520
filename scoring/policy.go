package scoring

import (
	"strconv"
	"strings"
)

// Unit is what the figures of Terms count.
type Unit uint8

// The units of the policies.
const (
	None     Unit = iota // nothing: the policy does not compare
	Seconds              // time
	Blocks               // dynamo: blocks of the KV cache
	Requests             // least-load
	Turns                // round-robin: number of the candidate's last turn
)

// String names the unit.
func (u Unit) String() string {
	return [...]string{"none", "s", "blocks", "requests", "turns"}[u]
}

// Terms is a cost and its parts. Queue, Prefill, Decode, Evict, Room and Requests add up to Total, up to rounding, in Unit; for
// Turns and None they are 0.
type Terms struct {
	Queue    float64 // work booked before this request; dynamo counts it into Prefill
	Prefill  float64 // computing this prompt
	Decode   float64 // answering
	Evict    float64 // computing again what this request pushes out of the cache
	Room     float64 // waiting for KV memory
	Requests float64 // requests in flight, weighted
	Total    float64
	Tie      float64 // decides between equal totals: lower wins
	// What the parts were made from, for showing.
	CachedTokens int
	InFlight     int // booked here, or seen in the engine and not booked here
	Unit         Unit
	// Saturated: the slot is beyond a limit; any other comes before it.
	Saturated bool
}

// Part is one named part of a cost.
type Part struct {
	Name  string
	Value float64
}

// Parts lists the parts of the total in the order of the formula, those that the policy knows; what a request would do to a
// KV cache only where that is not nothing.
func (t Terms) Parts() []Part {
	switch t.Unit {
	case Seconds:
		parts := []Part{{"queue", t.Queue}, {"prefill", t.Prefill}, {"decode", t.Decode}}
		if t.Evict != 0 {
			parts = append(parts, Part{"evict", t.Evict})
		}
		if t.Room != 0 {
			parts = append(parts, Part{"room", t.Room})
		}
		return parts
	case Blocks:
		return []Part{{"prefill", t.Prefill}, {"decode", t.Decode}, {Requests.String(), t.Requests}}
	case Requests:
		return []Part{{Requests.String(), t.Requests}}
	case None, Turns:
	}
	return nil
}

// String explains the cost: "0.390 s (queue 0.210, prefill 0.150, decode 0.030)".
func (t Terms) String() string {
	var b strings.Builder
	decimals := 3
	switch t.Unit {
	case None:
		return "nothing"
	case Turns:
		return "last turn " + strconv.FormatFloat(t.Total, 'f', 0, 64)
	case Requests:
		return strconv.FormatFloat(t.Total, 'f', 0, 64) + " in flight"
	case Seconds:
		b.WriteString(strconv.FormatFloat(t.Total, 'f', decimals, 64) + " s (")
	case Blocks:
		decimals = 1
		b.WriteString(strconv.FormatFloat(t.Total, 'f', decimals, 64) + " blocks (")
	}
	for i, p := range t.Parts() {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(p.Name + " " + strconv.FormatFloat(p.Value, 'f', decimals, 64))
	}
	b.WriteByte(')')
	return b.String()
}

// foreign is how many requests the engine has that nobody booked here: those of other gateways. The engine's figures are
// up to a scrape interval old, so that requests that ended since then count as foreign, too; they weigh little.
func foreign(c *Candidate, l *Load) int {
	if c.Stale {
		return 0
	}
	return max(0, c.EngineRunning+c.EngineWaiting-l.InFlight)
}

// shown fills in what the parts were made from.
func (t *Terms) shown(c *Candidate, l *Load, unit Unit) {
	t.CachedTokens, t.InFlight, t.Unit = c.CachedTokens, l.InFlight+foreign(c, l), unit
}

// leastLoad sends to the slot with the fewest requests in flight, then to the one with the least booked prefill. Only our
// own count: figures of the engines stand still between two scrapes, and all gateways would run to the same slot.
type leastLoad struct{}

func (leastLoad) Name() string { return nameLeastLoad }

func (leastLoad) Score(x *Contest) {
	for i, l := range x.Loads {
		t := &x.Terms[i]
		t.Requests = float64(l.InFlight)
		t.Total, t.Tie = t.Requests, float64(l.PrefillTokens)
		t.shown(&x.Candidates[i], l, Requests)
	}
}

// roundRobin sends to the slot whose last turn is the longest ago: with candidates that stay the same that is one after
// the other, and one that is new comes next.
type roundRobin struct{}

func (roundRobin) Name() string { return nameRoundRobin }

func (roundRobin) Score(x *Contest) {
	for i, l := range x.Loads {
		t := &x.Terms[i]
		t.Total = float64(l.LastTurn)
		t.shown(&x.Candidates[i], l, Turns)
	}
}

// random leaves everything to chance: all costs are equal.
type random struct{}

func (random) Name() string { return nameRandom }

func (random) Score(x *Contest) {
	for i, l := range x.Loads {
		x.Terms[i].shown(&x.Candidates[i], l, None)
	}
}
