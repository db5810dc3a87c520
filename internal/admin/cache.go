package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Caches is what is known of the engines' KV caches, and from where.
type Caches interface {
	// Feeds are the feeds of KV events of all workers.
	Feeds() []Feed
	// Indexes are what is remembered, by pool.
	Indexes() []Index
	// Prefixes are the n most recently used prefixes of each rank of a worker; none when the worker is not known.
	Prefixes(worker string, n int) []WorkerPrefixes
}

// Tiers are blocks by the memory of the engine that they lie in.
type Tiers struct {
	Device int `json:"device"`
	Host   int `json:"host"`
	Disk   int `json:"disk"`
	Remote int `json:"remote"`
}

// Add returns the sum of both.
func (t Tiers) Add(o Tiers) Tiers {
	return Tiers{t.Device + o.Device, t.Host + o.Host, t.Disk + o.Disk, t.Remote + o.Remote}
}

// Overlap is how a worker's overlap with a prompt is known.
type Overlap struct {
	// Mode is "exact" (by the engine's events, from its start), "partial" (by its events since some moment, and our own
	// decisions) or "approximate" (by our own decisions alone). Of several data-parallel ranks it is the worst.
	Mode string `json:"mode"`
	// State is that of the worker's feed of KV events, of several the worst; "" when it has none. Reason and Since are that
	// feed's.
	State  string    `json:"state"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	// Feeds is how many there are, one for each rank, and Live how many of them apply every batch as it comes.
	Feeds int `json:"feeds"`
	Live  int `json:"live"`
	// HeldBlocks are those that its events say it holds, of all ranks together.
	HeldBlocks Tiers `json:"held_blocks"`
}

// The states of a feed. What each means, and what to do, is in docs/operations.md.
const (
	feedConnecting = "connecting"
	feedReplaying  = "replaying"
	feedLive       = "live"
	feedGap        = "gap"
	feedStale      = "stale"
)

// trouble orders the states: the higher, the worse. One that is not known here is worse than live.
func trouble(state string) int {
	if state == feedLive {
		return -1
	}
	return slices.Index([]string{feedReplaying, feedGap, feedConnecting, feedStale}, state) + 1
}

// Feed is the stream of KV events of one data-parallel rank of a worker. Counts are since the feed began, and called as the
// metrics are: gaps_total is attache_events_gaps_total.
type Feed struct {
	Worker string `json:"worker"`
	Pool   string `json:"pool"`
	Rank   int    `json:"rank"`
	// Endpoint is where it connects to, Replay where it asks for what it missed; "" when it cannot.
	Endpoint string `json:"endpoint"`
	Replay   string `json:"replay"`
	// State is "connecting", "replaying", "live", "gap" or "stale", Reason a sentence that says why; "" for nothing to say.
	State  string    `json:"state"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	// Mode is what the rank's overlap is known by: "exact", "partial" or "approximate".
	Mode string `json:"mode"`
	// Epoch counts the lives of the engine's publisher that were seen, from 1.
	Epoch uint64 `json:"epoch"`
	// Sequence is the number of the last batch applied; unknown before the first.
	Sequence Figure `json:"sequence"`
	// Digest names that batch by its bytes, 16 hexadecimal digits: followers of one engine that are at one batch have the same.
	// "" before the first, and where events are pulled.
	Digest string `json:"digest"`
	// Complete says that every batch since the engine's start was applied.
	Complete bool `json:"complete"`
	// HeardAgeS is how long ago the engine was last heard of: a batch, or an answer that nothing was missed.
	HeardAgeS Figure `json:"heard_age_s"`
	// LagS is how old the last batch was when it had been applied, by the engine's clock and ours.
	LagS Figure `json:"lag_s"`
	// PageTokens is the size of the engine's own blocks; unknown before the first event.
	PageTokens Figure `json:"page_tokens"`
	// HeldBlocks are those it holds, in blocks of the pool's size; WaitingBlocks those whose parent is not known.
	HeldBlocks    Tiers `json:"held_blocks"`
	WaitingBlocks int   `json:"waiting_blocks"`

	Batches       uint64 `json:"batches_total"`
	Received      uint64 `json:"received_total"` // events
	ReceivedBytes uint64 `json:"received_bytes_total"`
	Repeated      uint64 `json:"repeated_total"`
	Gaps          uint64 `json:"gaps_total"`
	GapsClosed    uint64 `json:"gaps_closed_total"`
	Missed        uint64 `json:"missed_total"`
	Cleared       uint64 `json:"cleared_total"`
	Restarts      uint64 `json:"restarts_total"`
	Replays       uint64 `json:"replays_total"`
	ReplaysFailed uint64 `json:"replays_failed_total"`
	Unreadable    uint64 `json:"unreadable_total"`
	Drifts        uint64 `json:"drifts_total"`
	// Ignored are events that are left out of the index, by reason; those that occurred, most frequent first.
	Ignored []Tally `json:"ignored_total"`
}

// Index is what is remembered of the caches of one pool's workers. The names are those of the metrics attache_index_ and
// attache_indexer_.
type Index struct {
	Pool    string      `json:"pool"`
	Index   IndexTold   `json:"index"`
	Indexer IndexerSent `json:"indexer"`
}

// IndexTold is what engines said by their KV events.
type IndexTold struct {
	Bytes         int `json:"bytes"`
	MaxBytes      int `json:"max_bytes"`   // bounds Bytes: router.events.index.max_bytes
	Held          int `json:"held_blocks"` // a block that two engines hold counts twice
	Blocks        int `json:"blocks"`      // different ones
	Runs          int `json:"runs"`        // unbranched stretches that they lie in
	Sets          int `json:"sets"`        // different sets of holders
	WaitingBlocks int `json:"waiting_blocks"`
	StaleKeys     int `json:"stale_keys"`      // engines' names of evicted blocks that still take memory
	Retired       int `json:"retired_holders"` // cleared, but their memory is not yet given back

	Stored         uint64 `json:"stored_blocks_total"`
	Removed        uint64 `json:"removed_blocks_total"`
	Unknown        uint64 `json:"unknown_blocks_total"`
	Evicted        uint64 `json:"evicted_blocks_total"` // by MaxBytes
	Refused        uint64 `json:"refused_blocks_total"` // no room for them within MaxBytes
	Orphans        uint64 `json:"orphan_blocks_total"`
	Adopted        uint64 `json:"adopted_blocks_total"`
	DroppedOrphans uint64 `json:"dropped_orphan_blocks_total"`
	MovedKeys      uint64 `json:"moved_keys_total"`
	SharedKeys     uint64 `json:"shared_keys_total"`
	Malformed      uint64 `json:"malformed_total"`
}

// IndexerSent is what our own decisions sent where.
type IndexerSent struct {
	Held      int `json:"held_blocks"`
	MaxBlocks int `json:"max_blocks"` // bounds Held: router.index.max_blocks
	Prefixes  int `json:"prefixes"`   // different blocks among them
	// Evicted are blocks believed gone, Corrections reports of engines that changed what is believed, by reason and direction.
	Evicted     []Tally `json:"evicted_blocks_total"`
	Corrections []Tally `json:"corrections_total"`
}

// WorkerPrefixes are the most recently used prefixes that one data-parallel rank of a worker is believed to hold.
type WorkerPrefixes struct {
	Worker   string   `json:"worker"`
	Pool     string   `json:"pool"`
	Rank     int      `json:"rank"`
	Prefixes []Prefix `json:"prefixes"`
}

// Prefix is a prompt's beginning.
type Prefix struct {
	// Hash is the sequence hash of its last block, which stands for all of them: 16 hexadecimal digits.
	Hash   string `json:"hash"`
	Blocks int    `json:"blocks"`
	Tokens int    `json:"tokens"`
	// AgeS is how long ago a request used it, in whole seconds.
	AgeS Figure `json:"age_s"`
}

// Overlaps are what the feeds of each worker amount to, by pool and name of the worker; Mode is left for the caller, who also
// knows of the ranks without a feed.
func Overlaps(feeds []Feed) map[[2]string]Overlap {
	all := map[[2]string]Overlap{}
	for i := range feeds {
		f := &feeds[i]
		o := all[[2]string{f.Pool, f.Worker}]
		o.Feeds++
		if f.State == feedLive {
			o.Live++
		}
		o.HeldBlocks = o.HeldBlocks.Add(f.HeldBlocks)
		if o.State == "" || trouble(f.State) > trouble(o.State) {
			o.State, o.Reason, o.Since = f.State, f.Reason, f.Since
		}
		all[[2]string{f.Pool, f.Worker}] = o
	}
	return all
}

const (
	// patience is how long a feed may take to be live again before somebody should look.
	patience = time.Minute
	// maxWarnings bounds the warnings of feeds: a broken network breaks all of them.
	maxWarnings = 8
)

// FeedWarnings says, in a sentence for each, which feeds need somebody and what to do: those that are stale, and those that are
// not live for a minute. Feeds of workers that are not ready are left out: the worker is the trouble.
func FeedWarnings(feeds []Feed, workers []Worker, now time.Time) []string {
	ready := map[[2]string]bool{}
	for _, w := range workers {
		ready[[2]string{w.Pool, w.Name}] = w.State == "ready"
	}
	bad := slices.DeleteFunc(slices.Clone(feeds), func(f Feed) bool {
		trouble := f.State == feedStale || f.State != feedLive && now.Sub(f.Since) > patience
		return !trouble || !ready[[2]string{f.Pool, f.Worker}]
	})
	slices.SortStableFunc(bad, func(a, b Feed) int {
		return trouble(b.State) - trouble(a.State)
	})
	var warnings []string
	for _, f := range bad[:min(len(bad), maxWarnings)] {
		warnings = append(warnings, f.warning())
	}
	if more := len(bad) - len(warnings); more > 0 {
		warnings = append(warnings, fmt.Sprintf("%d more feeds of KV events are not live: see attache dump or /api/v1/feeds", more))
	}
	return warnings
}

// warning is what is wrong with the feed and what to do about it.
func (f *Feed) warning() string {
	name := f.Worker
	if f.Rank > 0 {
		name = fmt.Sprintf("%s, rank %d", f.Worker, f.Rank)
	}
	what, todo := "has been "+f.State, ""
	switch f.State {
	case feedStale:
		what = "has not been trustworthy"
		todo = "compare what the engine publishes with prompt.block_tokens and with the worker's events in the configuration, " +
			"or turn its events off"
	case feedConnecting:
		what = "has not been connected"
		if !strings.Contains(f.Reason, f.Endpoint) {
			what += " to " + f.Endpoint
		}
		todo = "check that the engine publishes there (vLLM: --kv-events-config) and that the port is open from here"
	case feedReplaying, feedGap:
		what = "has not caught up"
		todo = fmt.Sprintf("check that the engine answers at %s, and whether it is overloaded", cmp.Or(f.Replay, f.Endpoint))
	}
	s := fmt.Sprintf("%s: its feed of KV events %s", name, what)
	if !f.Since.IsZero() {
		s += " since " + f.Since.UTC().Format("2006-01-02 15:04:05 UTC") // not for how long: the sentence stays the same
	}
	if f.Reason != "" {
		s += " (" + f.Reason + ")"
	}
	if f.Mode == "approximate" {
		s += "; it is routed by attache's own decisions"
	}
	return s + "; " + todo
}
