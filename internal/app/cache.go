package app

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"attache/indexer/events"
	"attache/internal/admin"
	"attache/internal/router"
	"attache/internal/slot"
	"attache/internal/worker"
)

func (s *source) Feeds() []admin.Feed {
	now := time.Now()
	var feeds []admin.Feed
	for _, f := range s.router.Feeds() {
		feeds = append(feeds, feed(&f, now))
	}
	return feeds
}

func feed(f *events.Status, now time.Time) admin.Feed {
	c := &f.Counts
	a := admin.Feed{
		Worker: f.Worker, Pool: f.Pool, Rank: f.Rank, Endpoint: f.Endpoint, Replay: f.Replay, State: string(f.State), Reason: f.Reason,
		Since: f.Since, Mode: string(f.Mode), Epoch: f.Epoch, Complete: f.Complete, WaitingBlocks: f.Waiting,
		HeldBlocks: admin.Tiers{Device: f.Held[slot.Device], Host: f.Held[slot.Host], Disk: f.Held[slot.Disk], Remote: f.Held[slot.Remote]},
		Batches:    c.Batches, Received: c.Events, ReceivedBytes: c.Bytes, Repeated: c.Repeated, Gaps: c.Gaps, GapsClosed: c.Closed,
		Missed: c.Missed, Cleared: c.Cleared, Restarts: c.Restarts, Replays: c.Replays, ReplaysFailed: c.FailedReplays,
		Unreadable: c.Unreadable, Drifts: c.Drifts,
	}
	if f.Known {
		a.Sequence = admin.Known(f.Sequence)
	}
	if f.Known && f.Digest != 0 {
		a.Digest = fmt.Sprintf("%016x", f.Digest)
	}
	if !f.Heard.IsZero() {
		a.HeardAgeS = admin.Seconds(now.Sub(f.Heard))
	}
	if f.Lag != 0 {
		a.LagS = admin.Seconds(f.Lag)
	}
	if f.PageTokens > 0 {
		a.PageTokens = admin.Known(f.PageTokens)
	}
	for reason, n := range c.Ignored {
		if n > 0 {
			a.Ignored = append(a.Ignored, admin.Tally{Name: events.Ignored(reason).String(), Total: n})
		}
	}
	slices.SortStableFunc(a.Ignored, func(x, y admin.Tally) int { return cmp.Compare(y.Total, x.Total) })
	return a
}

func (s *source) Indexes() []admin.Index {
	var all []admin.Index
	for _, v := range s.router.Indexes() {
		t, m := &v.Told, &v.Sent
		all = append(all, admin.Index{
			Pool: v.Pool,
			Index: admin.IndexTold{
				Bytes: t.Bytes, MaxBytes: v.MaxBytes, Held: t.Held, Blocks: t.Blocks, Runs: t.Runs, Sets: t.Sets, WaitingBlocks: t.Waiting,
				StaleKeys: t.Stale, Retired: t.Retired, Stored: t.StoredBlocks, Removed: t.RemovedBlocks, Unknown: t.UnknownBlocks,
				Evicted: t.EvictedBlocks, Refused: t.RefusedBlocks, Orphans: t.OrphanBlocks, Adopted: t.AdoptedBlocks,
				DroppedOrphans: t.DroppedOrphanBlocks, MovedKeys: t.Moved, SharedKeys: t.Shared, Malformed: t.Malformed,
			},
			Indexer: admin.IndexerSent{
				Held: m.Held, MaxBlocks: v.MaxBlocks, Prefixes: m.Prefixes,
				Evicted: []admin.Tally{{Name: "capacity", Total: m.EvictedByCapacity}, {Name: "ttl", Total: m.EvictedByTTL},
					{Name: "bound", Total: m.EvictedByBound}, {Name: "feedback", Total: m.EvictedByFeedback},
					{Name: "cleared", Total: m.EvictedByClear}},
				Corrections: []admin.Tally{{Name: "over", Total: m.CorrectedOver}, {Name: "under", Total: m.CorrectedUnder}},
			},
		})
	}
	return all
}

func (s *source) Prefixes(name string, n int) []admin.WorkerPrefixes {
	var ranks []admin.WorkerPrefixes
	for _, r := range s.router.Prefixes(name, n) {
		a := admin.WorkerPrefixes{Worker: name, Pool: r.Pool, Rank: r.Rank}
		for _, p := range r.Prefixes {
			a.Prefixes = append(a.Prefixes, admin.Prefix{
				Hash: fmt.Sprintf("%016x", p.Hash), Blocks: p.Blocks, Tokens: p.Blocks * r.BlockTokens, AgeS: admin.Seconds(p.Age),
			})
		}
		ranks = append(ranks, a)
	}
	return ranks
}

// ranks adds up what is known of a worker's data-parallel ranks: the least of the backlogs, the worst of the modes, and the sum of
// what is in flight and held.
func (s *source) ranks(w *worker.Worker) router.WorkerView {
	slots := w.Slots()
	sum := s.router.Worker(w.Pool, w.Name, slots[0])
	for _, n := range slots[1:] {
		v := s.router.Worker(w.Pool, w.Name, n)
		sum.InFlight += v.InFlight
		sum.HeldBlocks += v.HeldBlocks
		sum.Backlog = min(sum.Backlog, v.Backlog)
		if v.Mode.Worse(sum.Mode) {
			sum.Mode = v.Mode
		}
	}
	return sum
}
