package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"attache/indexer/events"
	"attache/indexer/runs"
	"attache/internal/block"
	"attache/internal/sim"
	"attache/internal/slot"
)

// watch judges one rank after another until ctx ends.
func (w *world) watch(ctx context.Context) {
	for ctx.Err() == nil {
		for _, n := range w.nodes {
			for rank := range n.slots {
				if _, fault := w.judge(n, rank); fault != "" {
					w.fail(n, rank, fault)
				}
				pause(ctx, 3*time.Millisecond)
			}
		}
	}
}

// fail ends the run.
func (w *world) fail(n *node, rank int, fault string) {
	w.t.Errorf("%s, rank %d: %s\n%s", n.name, rank, fault, w.journal.of(n.name, 60))
	w.failed(fmt.Errorf("%s, rank %d", n.name, rank))
}

// judge compares what the index says of a rank with what its engine holds, if they can be compared: the feed is live, has applied the
// engine's last batch, and nothing happened meanwhile. It returns whether they were, and what is wrong.
func (w *world) judge(n *node, rank int) (compared bool, fault string) {
	e, judged := n.running()
	if !judged {
		return false, ""
	}
	l := n.gateway.ledger()
	before := e.Contents(rank)
	if before.Pending > 0 || before.Blocks[0] == nil {
		return false, ""
	}
	began, there := n.feeds()[rank]
	if !there || !current(began, before, n) {
		return false, ""
	}
	index := w.credits(l, n, rank)
	ended, there := n.feeds()[rank]
	after := e.Contents(rank)
	same, judged := n.running()
	if !there || !judged || same != e || n.gateway.ledger() != l || before.Epoch != after.Epoch || after.Pending > 0 || !current(ended, after, n) ||
		began.Sequence != ended.Sequence || began.Since != ended.Since || began.Counts.Cleared != ended.Counts.Cleared ||
		began.Counts.Restarts != ended.Counts.Restarts || began.Complete != ended.Complete {
		return false, ""
	}
	w.tally.add("judged", 1)
	if ended.Complete {
		w.tally.add("judged exact", 1)
	}
	held := w.held(n, &after)
	for i, p := range w.corpus {
		if fault := compare(index[i], on(p.chain(n.pool), &held), ended.Complete); fault != "" {
			return true, fmt.Sprintf("prompt %d: %s; %s, mode %s, at batch %d (known: %v) of epoch %d (%q)", i, fault, ended.State, ended.Mode,
				ended.Sequence, ended.Known, ended.Epoch, ended.Reason)
		}
	}
	if ended.Complete {
		return true, n.count(ended, &after)
	}
	return true, ""
}

// current says whether a feed is live and has applied the last batch of an engine.
func current(s events.Status, c sim.Contents, n *node) bool {
	if s.State != events.Live {
		return false
	}
	if !s.Known {
		return c.Sequence == 0
	}
	if n.pulled() {
		return s.Sequence+1 == c.Sequence && n.heard(s)
	}
	return s.Sequence+1 == c.Sequence && s.Digest == c.Digest
}

// credits asks the index for every prompt.
func (w *world) credits(l *events.Ledger, n *node, rank int) []runs.Hit {
	all := make([]runs.Hit, len(w.corpus))
	var o runs.Overlap
	for i, p := range w.corpus {
		l.Overlap(p.chain(n.pool), &o)
		all[i] = o.Of(n.slots[rank])
	}
	return all
}

// tiers are blocks of a pool's size by tier.
type tiers [slot.Disk + 1]map[block.Hash]bool

// held are the blocks of the pool's size that an engine holds, as far as prompts have them: those all of whose pages it holds on a
// tier, and those that it has all pages of, on the tier of the slowest.
func (w *world) held(n *node, c *sim.Contents) (all tiers) {
	for t := range all {
		all[t] = make(map[block.Hash]bool)
	}
	for _, p := range w.corpus {
		pages := p.chain(n.page)
		for i, h := range p.chain(n.pool) {
			whole, slowest := [slot.Disk + 1]bool{true, true, true}, 0
			for at := i * n.pool; at < (i+1)*n.pool; at += min(n.page, n.pool) {
				best := len(all)
				for t := len(all) - 1; t >= 0; t-- {
					if at/n.page < len(pages) && c.Blocks[t][pages[at/n.page]] > 0 {
						best = t
					} else {
						whole[t] = false
					}
				}
				slowest = max(slowest, best)
			}
			for t := range all {
				if whole[t] || t == slowest {
					all[t][h] = true
				}
			}
		}
	}
	return all
}

// on says for each block of a chain on which tiers it is held.
func on(chain []block.Hash, held *tiers) [][slot.Disk + 1]bool {
	all := make([][slot.Disk + 1]bool, len(chain))
	for i, h := range chain {
		for t := range held {
			all[i][t] = held[t][h]
		}
	}
	return all
}

// compare holds the guarantee: no credit for what is not held, and if the history is complete, all that is reachable. Who knows a
// part only may miss that a page is on a higher tier as well.
func compare(hit runs.Hit, held [][slot.Disk + 1]bool, exact bool) (fault string) {
	var want [4]int32
	at := 0
	for t := range int(slot.Disk) + 1 {
		for at < len(held) && held[at][t] {
			want[t]++
			at++
		}
	}
	if exact && hit.Blocks != want {
		return fmt.Sprintf("credited %v, held %v", hit.Blocks, want)
	}
	at = 0
	for t, blocks := range hit.Blocks {
		for range blocks {
			if t > int(slot.Disk) || at >= len(held) || !slices.Contains(held[at][:t+1], true) {
				return fmt.Sprintf("credited %v, but block %d is not on tier %d: %v", hit.Blocks, at, t, held)
			}
			at++
		}
	}
	return ""
}

// count compares how many blocks there are, also those that no prompt reaches.
func (n *node) count(s events.Status, c *sim.Contents) (fault string) {
	if n.page != n.pool {
		return "" // pages that make no whole block are not in the index, and blocks that pages have in common once
	}
	if s.Waiting > 0 {
		return "" // blocks whose parent is gone: nothing reaches them
	}
	for t, blocks := range c.Blocks {
		if want := len(blocks); s.Held[t] != want {
			return fmt.Sprintf("%d blocks on tier %d, the engine holds %d (%d waiting)", s.Held[t], t, want, s.Waiting)
		}
	}
	return ""
}

// unknown counts blocks of an engine that belong to no prompt: there must be none, or the comparison is worth little.
func (w *world) unknown(n *node, c *sim.Contents) (blocks int) {
	known := map[block.Hash]bool{}
	for _, p := range w.corpus {
		for _, h := range p.chain(n.page) {
			known[h] = true
		}
	}
	for _, held := range c.Blocks {
		for h := range held {
			if !known[h] {
				blocks++
			}
		}
	}
	return blocks
}
