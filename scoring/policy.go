package scoring

import (
	"strconv"
	"strings"

	"attache/internal/slot"
)

// Demand is what a request asks for.
type Demand struct {
	PromptTokens int // as estimated or counted; 0: not known, then only load decides
	BlockTokens  int // tokens per block
}

// Candidate is a slot that may serve the request, with what others know of it.
type Candidate struct {
	Slot             slot.Slot
	CachedTokens     int     // leading prompt tokens that it is believed to hold
	Doubt            float64 // share of them, 0 to 1, that is not to be counted on: slower to reach, or known from a stale source
	EngineRunning    int     // requests in its batch, as the engine said last
	EngineWaiting    int     // requests queued inside the engine, as it said last
	KVCapacityTokens int     // size of its KV cache; 0 not known
}

// counted is how many cached tokens are worth as much as ones that are held on the device for sure.
func (c *Candidate) counted() int {
	if c.Doubt == 0 {
		return c.CachedTokens
	}
	return int(float64(c.CachedTokens) * (1 - min(max(c.Doubt, 0), 1)))
}

// Load is what is booked on one slot, at one moment.
type Load struct {
	InFlight      int     // requests booked and not ended
	QueueSeconds  float64 // predicted time to work off the booked prefill
	PrefillTokens int     // uncached prompt tokens booked and, by the clock of predicted work, not computed yet
	ContextTokens int     // prompt tokens of the requests in flight
	ContextBlocks int     // the same in blocks, every request rounded up
	LastTurn      uint64  // number of the decision that chose the slot last; 0 never
}

// Situation is what all candidates of one decision have in common.
type Situation struct {
	SpeedFactor      float64 // k: observed prefill time over estimated
	MinPrefillTokens int     // least Load.PrefillTokens of all candidates
}

// Policy says what it costs to send a request to a candidate; the lowest Total wins, then the lowest Tie, then chance.
// Implementations are pure and safe for concurrent use.
type Policy interface {
	// Name is what the configuration calls the policy.
	Name() string
	// Cost must not depend on anything but its arguments.
	Cost(d Demand, c Candidate, l Load, at Situation) Terms
}

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

// Terms is a cost and its parts. Queue, Prefill, Decode and Requests add up to Total, up to rounding, in Unit; for Turns
// and None they are 0.
type Terms struct {
	Queue    float64 // work booked before this request; dynamo counts it into Prefill
	Prefill  float64 // computing this prompt
	Decode   float64 // answering
	Requests float64 // requests in flight, weighted
	Total    float64
	Tie      float64 // decides between equal totals: lower wins
	// What the parts were made from, for showing.
	CachedTokens int
	InFlight     int // booked here, or seen in the engine and not booked here
	Unit         Unit
}

// Part is one named part of a cost.
type Part struct {
	Name  string
	Value float64
}

// Parts lists the parts of the total in the order of the formula, those that the policy knows, zeros included.
func (t Terms) Parts() []Part {
	switch t.Unit {
	case Seconds:
		return []Part{{"queue", t.Queue}, {"prefill", t.Prefill}, {"decode", t.Decode}}
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
func foreign(c Candidate, l Load) int { return max(0, c.EngineRunning+c.EngineWaiting-l.InFlight) }

// leastLoad sends to the slot with the fewest requests in flight, then to the one with the least booked prefill. Only our
// own count: figures of the engines stand still between two scrapes, and all gateways would run to the same slot.
type leastLoad struct{}

func (leastLoad) Name() string { return nameLeastLoad }

func (leastLoad) Cost(_ Demand, c Candidate, l Load, _ Situation) Terms {
	n := float64(l.InFlight)
	return Terms{
		Requests: n, Total: n, Tie: float64(l.PrefillTokens),
		CachedTokens: c.CachedTokens, InFlight: l.InFlight + foreign(c, l), Unit: Requests,
	}
}

// roundRobin sends to the slot whose last turn is the longest ago: with candidates that stay the same that is one after
// the other, and one that is new comes next.
type roundRobin struct{}

func (roundRobin) Name() string { return nameRoundRobin }

func (roundRobin) Cost(_ Demand, c Candidate, l Load, _ Situation) Terms {
	return Terms{
		Total: float64(l.LastTurn), CachedTokens: c.CachedTokens, InFlight: l.InFlight + foreign(c, l), Unit: Turns,
	}
}

// random leaves everything to chance: all costs are equal.
type random struct{}

func (random) Name() string { return nameRandom }

func (random) Cost(_ Demand, c Candidate, l Load, _ Situation) Terms {
	return Terms{CachedTokens: c.CachedTokens, InFlight: l.InFlight + foreign(c, l)}
}
