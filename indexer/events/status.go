package events

import (
	"slices"
	"time"

	"attache/internal/slot"
)

// State is where a feed stands.
type State string

// The states; the package documentation draws how they follow each other.
const (
	Connecting State = "connecting" // there is no connection to the engine's publisher
	Replaying  State = "replaying"  // connected; what was published before is being asked for
	Live       State = "live"       // every batch is applied as it comes
	Gap        State = "gap"        // batches were lost, and are being asked for
	Stale      State = "stale"      // what comes, or does not come, cannot be trusted
)

// States are all states, for metrics that want to show zeros.
func States() []State { return []State{Connecting, Replaying, Live, Gap, Stale} }

// Mode is how a slot's overlap is known.
type Mode string

// The modes.
const (
	// Approximate: by our own decisions alone.
	Approximate Mode = "approximate"
	// Partial: what the index credits is there, but the stream was joined in the middle, so more may be.
	Partial Mode = "partial"
	// Exact: by the engine's own events, from the first on.
	Exact Mode = "exact"
)

// Worse tells whether less is known in a mode than in another.
func (m Mode) Worse(than Mode) bool {
	order := []Mode{Approximate, Partial, Exact}
	return slices.Index(order, m) < slices.Index(order, than)
}

// Evidence is what the index is worth for a slot.
type Evidence struct {
	Mode Mode
	// Lost is since when the stream is broken off; zero while it is not.
	Lost time.Time
}

// Status is a feed as people see it. It is a copy.
type Status struct {
	Pool, Worker string
	Slot         slot.Slot
	Rank         int
	Endpoint     string // where it connects to
	Replay       string // "" none
	State        State
	Reason       string // why it is in this state, a sentence; "" for nothing to say
	Since        time.Time
	Mode         Mode
	// Epoch counts the lives of the engine's publisher that were seen, from 1; 0 before the first.
	Epoch uint64
	// Sequence is the number of the last batch applied; Known is false before the first.
	Sequence uint64
	Known    bool
	// Digest names that batch by its bytes (XXH3): followers of one engine that are at one batch have the same. 0 where events
	// are pulled.
	Digest uint64
	// Complete says that every batch since the engine's start was applied.
	Complete bool
	// Heard is when the engine was last heard of: a batch, or an answer that nothing was missed.
	Heard time.Time
	// Lag is how old the last live batch was when it had been applied, by the engine's clock and ours.
	Lag time.Duration
	// PageTokens is the size of the engine's blocks, 0 not known yet.
	PageTokens int
	Counts     Counts
	// Held are blocks of the pool's size by tier, indexed by slot.Tier; Waiting blocks whose parent is not known.
	Held    [4]int
	Waiting int
}

// Counts count since the feed began.
type Counts struct {
	Batches, Events uint64
	Bytes           uint64 // of batches
	Repeated        uint64 // batches that had been applied already
	Gaps            uint64 // times that batches were missing
	Missed          uint64 // batches that were found only when the silent engine was asked
	Closed          uint64 // gaps that a replay closed
	Cleared         uint64 // times that all that was known of the rank was given up
	Restarts        uint64 // of the engine's publisher
	Replays         uint64 // asked for
	FailedReplays   uint64
	Unreadable      uint64 // batches or events that could not be read
	Drifts          uint64 // times that more blocks were counted than the engine has
	Ignored         [ignoredReasons]uint64
}
