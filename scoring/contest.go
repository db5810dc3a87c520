package scoring

import (
	"time"

	"attache/internal/block"
	"attache/internal/slot"
)

// Demand is what a request asks for.
type Demand struct {
	PromptTokens int // as estimated or counted; 0: not known, then only load decides
	BlockTokens  int // tokens per block
	// OutputTokens is how long the answer is expected to be; 0: as long as answers were in the mean.
	OutputTokens int
	// Chain are the sequence hashes of the prompt's full blocks; what requests in flight share of it is counted once. Empty: not
	// known. It is not kept.
	Chain []block.Hash
	// Key is what requests that belong together have in common, for policies that hash: 0 none.
	Key uint64
	// Policy replaces the scorer's policy for this request; "" does not. An unknown name counts as none.
	Policy string
	// Limits are what a slot may have booked and still take the request; nil: none.
	Limits *Limits
	// Sticky: a candidate that the request's session is bound to is taken if it is within the limits, whatever it costs.
	Sticky bool
	// Dynamo replaces some weights of policy dynamo for this request; nil none.
	Dynamo *DynamoOverride
}

// Limits say when a slot is saturated, beside its own limit (Candidate.MaxInFlight): a request that finds all candidates saturated is better held back, and sent late to the
// one that is best then. Zero fields do not limit.
type Limits struct {
	InFlight      int           // requests
	PrefillTokens int           // uncached prompt tokens that are not computed yet
	KVShare       float64       // of the KV cache: prompts and answers in flight, the new one included
	TTFT          time.Duration // predicted time to first token; an idle slot is never saturated by it
}

// saturated reports whether a slot with this load can take the request now. own is how long its prefill would take there.
func (m *Limits) saturated(d *Demand, c *Candidate, l *Load, own float64) bool {
	size := max(d.BlockTokens, 1)
	return c.full(l) || m.InFlight > 0 && l.InFlight >= m.InFlight ||
		m.PrefillTokens > 0 && l.PrefillTokens > 0 && l.PrefillTokens+d.PromptTokens-c.CachedTokens > m.PrefillTokens ||
		m.KVShare > 0 && c.KVCapacityTokens > 0 && l.InFlight > 0 &&
			float64((l.ActiveBlocks+d.blocks()-l.SharedBlocks)*size+l.OutputTokens) > m.KVShare*float64(c.KVCapacityTokens) ||
		m.TTFT > 0 && l.QueueSeconds > 0 && l.QueueSeconds+own > m.TTFT.Seconds()
}

// blocks is how many full blocks the prompt has.
func (d *Demand) blocks() int { return d.PromptTokens / max(d.BlockTokens, 1) }

// Candidate is a slot that may serve the request, with what others know of it.
type Candidate struct {
	Slot         slot.Slot
	CachedTokens int     // leading prompt tokens that it is believed to hold, on whatever tier
	Doubt        float64 // share of them, 0 to 1, that is not to be counted on: slower to reach, or known from a stale source
	// Tiers is in which tiers these blocks lie, in blocks that follow upon each other; all zero: not known, then all count as on
	// the device.
	Tiers [slot.Remote + 1]int32
	// SharedTokens are leading prompt tokens that lie in a pool from which every engine can load.
	SharedTokens int

	// What the engine said last. Stale: so long ago that it is not to be used.
	EngineRunning int     // requests in its batch
	EngineWaiting int     // requests queued inside it
	EngineKVUse   float64 // share of its KV cache that running requests hold, 0 to 1
	Stale         bool

	KVCapacityTokens int // size of its KV cache; 0 not known
	KVHeldTokens     int // tokens in its KV cache, as its events tell; 0 not known
	// Live says that the end of this prompt's prefill on the slot will be told (Booking.Prefilled). Policies that count tokens
	// then have it booked until it is; for those in seconds the clock of predicted work releases it anyway, or Prefilled before.
	Live bool
	// Bound says that the request's session was answered here before.
	Bound bool
	// MaxInFlight is how many requests the slot may have booked and still take one, whatever the demand's limits; 0 no limit of
	// its own.
	MaxInFlight int
	// Preference is the sum of the weights of preferred taints that the worker has: above 0 it is preferred, below avoided.
	Preference float64
	// Decode says that the worker only decodes: others compute its prompts.
	Decode bool
	// ID is a hash that names the worker and rank in all gateways and after a restart, for policies that hash; 0 not known, then
	// the number of the slot is hashed.
	ID uint64

	// How large the worker is, for policy weighted; 0 not known: as large as the largest.
	BatchTokens int     // tokens per step of its engine at most
	Memory      float64 // bytes of accelerator memory
	Distance    float64 // from the gateway, in any unit; 0: nearest
}

// tiersKnown reports whether anybody said in which tiers the cached blocks lie.
func (c *Candidate) tiersKnown() bool { return c.Tiers != [slot.Remote + 1]int32{} }

// full reports whether the slot has as many requests as it may have by itself.
func (c *Candidate) full(l *Load) bool { return c.MaxInFlight > 0 && l.InFlight >= c.MaxInFlight }

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
	PrefillTokens int     // uncached prompt tokens booked and not computed yet: as told, or by the clock of predicted work
	ContextTokens int     // prompt tokens of the requests in flight
	ContextBlocks int     // the same in full blocks of each
	ActiveBlocks  int     // the same, but prefixes that requests share once
	OutputTokens  int     // tokens that the answers in flight are expected to have in the end
	SharedBlocks  int     // leading blocks of this request's prompt that requests in flight hold already
	LastTurn      uint64  // number of the decision that chose the slot last; 0 never
	SpeedFactor   float64 // k: observed prefill time over estimated, on this slot
	// EvictionBlocks is how many of the blocks that the request would push out of the cache will be asked for again; RoomSeconds
	// how long it would wait for KV memory, CrowdSeconds how much the memory that is left worries, long before it runs out. They
	// are filled in only for policies that want them.
	EvictionBlocks float64
	RoomSeconds    float64
	CrowdSeconds   float64
}

// Contest is what a policy decides by: one request, and those that may serve it. Candidates, Loads and Terms belong together
// by index.
type Contest struct {
	Demand     *Demand
	Candidates []Candidate
	Loads      []*Load
	Terms      []Terms    // the result
	Draws      [2]float64 // drawn from [0, 1)
}

// Policy says what it costs to send a request to each candidate: of those that are not passed over the lowest Total wins, then
// the lowest Tie, then chance.
// Implementations are pure and safe for concurrent use.
type Policy interface {
	// Name is what the configuration calls the policy.
	Name() string
	// Score fills in all Terms, which come zeroed. It must not depend on anything but the contest, and must not change the rest
	// of it.
	Score(c *Contest)
}
