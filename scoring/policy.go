package scoring

import (
	"slices"
	"strconv"
	"strings"
)

// Unit is what the figures of Terms count.
type Unit uint8

// The units of the policies.
const (
	None          Unit = iota // nothing: the policy does not compare
	Seconds                   // time; preble
	Blocks                    // dynamo: blocks of the KV cache
	Requests                  // in flight: least-load, power-of-two, session
	Turns                     // round-robin: number of the candidate's last turn
	Tokens                    // uncached prompt tokens: token-load, sticky
	TokenRequests             // lmetric: uncached prompt tokens times requests
	Shares                    // weighted, blend-3-2-2: what is missing to the best of all scores, 0 to 1
	HeldTokens                // tokens in the KV cache: sglang-cache-aware for a prompt that nobody holds
	Order                     // chwbl: place in the order of the key's hashes, 0 to 1
)

// units are the names, as the page and the API show them, and how many decimals are worth reading.
var units = [...]struct {
	name     string
	decimals int
}{
	{"none", 0}, {"s", 3}, {"blocks", 1}, {"requests", 0}, {"turns", 0}, {"tokens", 0}, {"tokens x requests", 0}, {"of 1", 3},
	{"tokens held", 0}, {"in hash order", 3},
}

// String names the unit.
func (u Unit) String() string { return units[u].name }

// Terms is a cost and its parts. Queue, Prefill, Decode, Evict, Room and Requests add up to Total, up to rounding, in Unit; for
// Turns, HeldTokens, Order and None they are 0.
type Terms struct {
	Queue    float64 // work booked before this request; dynamo counts it into Prefill
	Prefill  float64 // computing this prompt; in Shares: the part that is not cached
	Decode   float64 // answering
	Evict    float64 // computing again what this request pushes out of the cache
	Room     float64 // waiting for KV memory; in Shares: memory that is in use
	Requests float64 // requests in flight, weighted
	Total    float64
	Tie      float64 // decides between equal totals: lower wins
	// What the parts were made from, for showing.
	CachedTokens int
	InFlight     int // booked here, or seen in the engine and not booked here
	Unit         Unit
	// Passed says that the rule passes the candidate over, whatever it costs: it comes after all others. No policy passes all over.
	Passed bool
	// Saturated: the slot is beyond a limit; any other comes before it.
	Saturated bool
}

// Part is one named part of a cost.
type Part struct {
	Name  string
	Value float64
}

// Parts lists the parts of the total in the order of the formula, those that the policy knows; what is nothing for most
// policies or requests only where it is not nothing.
func (t Terms) Parts() []Part {
	var parts []Part
	seldom := func(name string, v float64) {
		if v != 0 {
			parts = append(parts, Part{name, v})
		}
	}
	switch t.Unit {
	case Seconds:
		parts = []Part{{"queue", t.Queue}, {"prefill", t.Prefill}, {"decode", t.Decode}}
		seldom("evict", t.Evict)
		seldom("room", t.Room)
		seldom(Requests.String(), t.Requests)
	case Blocks:
		parts = []Part{{"prefill", t.Prefill}, {"decode", t.Decode}, {Requests.String(), t.Requests}}
	case Requests:
		parts = []Part{{Requests.String(), t.Requests}}
	case Tokens, TokenRequests:
		parts = []Part{{"queue", t.Queue}, {"prefill", t.Prefill}}
	case Shares:
		parts = []Part{{"uncached", t.Prefill}, {"queue", t.Queue}}
		seldom("load", t.Requests)
		seldom("memory", t.Room)
	case None, Turns, HeldTokens, Order:
	}
	return parts
}

// String explains the cost: "0.390 s (queue 0.210, prefill 0.150, decode 0.030)".
func (t Terms) String() string {
	var b strings.Builder
	unit := units[t.Unit]
	total := strconv.FormatFloat(t.Total, 'f', unit.decimals, 64)
	switch t.Unit {
	case None:
		b.WriteString("nothing")
	case Turns:
		b.WriteString("last turn " + total)
	case Requests:
		b.WriteString(total + " in flight")
	case HeldTokens, Order:
		b.WriteString(total + " " + unit.name)
	case Seconds, Blocks, Tokens, TokenRequests, Shares:
		b.WriteString(total + " " + unit.name + " (")
		for i, p := range t.Parts() {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(p.Name + " " + strconv.FormatFloat(p.Value, 'f', unit.decimals, 64))
		}
		b.WriteByte(')')
	}
	if t.Passed {
		b.WriteString(", passed over")
	}
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
		x.Terms[i].inFlight(&x.Candidates[i], l)
		x.Terms[i].Tie = float64(l.PrefillTokens)
	}
}

// inFlight makes the requests in flight the cost.
func (t *Terms) inFlight(c *Candidate, l *Load) {
	t.Requests = float64(l.InFlight)
	t.Total = t.Requests
	t.shown(c, l, Requests)
}

// powerOfTwo draws two candidates, two different ones if there are, and sends to the one with fewer requests in flight.
type powerOfTwo struct{}

func (powerOfTwo) Name() string { return namePowerOfTwo }

func (powerOfTwo) Score(x *Contest) {
	n := float64(len(x.Loads))
	first, second := int(x.Draws[0]*n), int(x.Draws[1]*(n-1))
	if second >= first {
		second++
	}
	for i, l := range x.Loads {
		t := &x.Terms[i]
		t.inFlight(&x.Candidates[i], l)
		t.Passed = i != first && i != second
	}
}

// session sends to the slot where the request's session was answered before; a new one like least-load. Which session was
// answered where is for the caller to know.
type session struct{ leastLoad }

func (session) Name() string { return nameSession }

func (p session) Score(x *Contest) {
	p.leastLoad.Score(x)
	bound := slices.ContainsFunc(x.Candidates, func(c Candidate) bool { return c.Bound })
	for i := range x.Candidates {
		x.Terms[i].Passed = bound && !x.Candidates[i].Bound
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
