package queue

import "time"

// Request is what the queue knows of a request.
type Request struct {
	// Class is the class it belongs to, as Queue.ClassOf says.
	Class Class
	// Lane groups requests that compete for the same workers: 0 for those that may go anywhere, else any key of the one
	// worker, or the subset of workers, that the request is bound to. A request that finds no room holds up its lane only.
	Lane uint64
	// Tier is the strict priority: any request of a higher tier goes before all of lower ones.
	Tier uint32
	// Priority moves a request inside its class: a jump of so many seconds (fcfs, lcfs, edf), or a weight of 1 + Priority
	// (wspt). Below 0 it counts as 0, above Config.MaxPriority as that.
	Priority float64
	// Flow is who asks, a tenant or a program, for classes that are fair among flows. Empty is a flow as well.
	Flow string
	// PromptTokens is the length of the prompt, for the limits.
	PromptTokens int
	// UncachedTokens is what the best candidate would have to compute of it: the cost in the round robin of the classes.
	UncachedTokens int
	// Work is the processing time that wspt orders by, in a unit of at least 1 that the owner keeps to for a class:
	// uncached tokens, or milliseconds of predicted prefill. 0: UncachedTokens.
	Work float64
	// BodyBytes is the memory that the waiting request holds.
	BodyBytes int64
	// SLO is how soon after its arrival the first token is wanted, for edf. 0: ClassConfig.DefaultSLO.
	SLO time.Duration
	// Deadline is when waiting becomes pointless whatever the limits say, in time since the start. 0: never.
	Deadline time.Duration
}

// cost is what serving the request takes from its class's deficit, in tokens.
func (r *Request) cost() int64 { return max(1, int64(r.UncachedTokens)) }

// Entry is a request in the queue. Its fields are for reading.
type Entry[T any] struct {
	// Value is the owner's.
	Value T
	// Request is as it was pushed.
	Request Request
	// Arrival is when it was pushed, in time since the start.
	Arrival time.Duration

	expires time.Duration // 0: never
	rank    rank
	number  uint64   // counts pushes
	line    *line[T] // nil: it has left

	inLine, inExpiry, inVictims int
}

// Waiting reports whether the entry is in the queue still.
func (e *Entry[T]) Waiting() bool { return e.line != nil }

// Expires is when the entry will have waited as long as it may; false: never.
func (e *Entry[T]) Expires() (at time.Duration, ok bool) { return e.expires, e.expires > 0 }

// before is the order inside a line: the higher tier, then the policy's rank, then arrival, then the order of pushes.
func (e *Entry[T]) before(other *Entry[T]) bool {
	switch {
	case e.Request.Tier != other.Request.Tier:
		return e.Request.Tier > other.Request.Tier
	case e.rank != other.rank:
		return e.rank.before(other.rank)
	case e.Arrival != other.Arrival:
		return e.Arrival < other.Arrival
	}
	return e.number < other.number
}

func (e *Entry[T]) place() *int { return &e.inLine }

// byExpiry orders entries by when they have waited too long.
type byExpiry[T any] struct{ *Entry[T] }

func (e byExpiry[T]) before(other byExpiry[T]) bool {
	if e.expires != other.expires {
		return e.expires < other.expires
	}
	return e.number < other.number
}

func (e byExpiry[T]) place() *int { return &e.inExpiry }

// byWorth orders entries by who is given up first: the lowest tier, in it the last arrival, which has waited least.
type byWorth[T any] struct{ *Entry[T] }

func (e byWorth[T]) before(other byWorth[T]) bool {
	if e.Request.Tier != other.Request.Tier {
		return e.Request.Tier < other.Request.Tier
	}
	return e.number > other.number
}

func (e byWorth[T]) place() *int { return &e.inVictims }
