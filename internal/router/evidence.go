package router

import (
	"context"
	"math"
	"strings"
	"sync"
	"time"

	"attache/indexer/events"
	"attache/indexer/runs"
	"attache/internal/prompt"
	"attache/internal/slot"
	"attache/internal/worker"
	"attache/scoring"
)

// What is known of who holds a prompt comes from two memories. The ledger knows what engines said; the index what we sent where.
// By slot, the ledger's evidence decides between them:
//
//	exact         the ledger; and of the index what was sent there a moment ago, which the engine will hold soon
//	partial       whichever knows of more
//	approximate   the index
//
// In every mode decisions are remembered, so that falling from one to another loses nothing.

// held is what both memories know of one chain, by slot. Reused from request to request.
type held struct {
	told   runs.Overlap // by engines
	places []int32      // by slot, its place in told.Hits plus 1
	within []uint32     // by slot, the greatest age in seconds of what is remembered
	sent   []int32      // by slot, leading blocks remembered
}

// look asks both memories.
func (h *held) look(p *pool, chain *prompt.Chain, eligible []*worker.Worker) {
	p.ledger.Overlap(chain.Hashes, &h.told)
	h.within = h.within[:0]
	for _, w := range eligible {
		for _, s := range w.Slots() {
			if p.ledger.Evidence(s).Mode == events.Exact {
				h.within = put(h.within, s, p.recent(s))
			}
		}
	}
	h.sent = p.index.Overlap(chain.Hashes, h.within, h.sent)
	clear(h.places)
	for i, hit := range h.told.Hits {
		h.places = put(h.places, hit.Slot, int32(i)+1)
	}
}

// put sets an element of a slice that is as long as it needs to be.
func put[T any](by []T, s slot.Slot, v T) []T {
	if int(s) >= len(by) {
		by = append(by, make([]T, int(s)+1-len(by))...)
	}
	by[s] = v
	return by
}

// of is how many leading blocks a slot holds, and what share of them is not to be counted on: those on lower tiers are worth
// less than those on the device, and what a broken stream said loses weight.
func (h *held) of(p *pool, cfg *events.Config, s slot.Slot, now time.Time) (blocks int, doubt float64) {
	remembered := 0
	if int(s) < len(h.sent) {
		remembered = int(h.sent[s])
	}
	e := p.ledger.Evidence(s)
	if e.Mode == events.Approximate || int(s) >= len(h.places) || h.places[s] == 0 {
		return remembered, 0
	}
	hit := h.told.Hits[h.places[s]-1]
	blocks = hit.Upto(slot.Remote)
	if remembered >= blocks {
		return remembered, 0
	}
	worth := float64(hit.Blocks[slot.Device]) + cfg.HostCredit*float64(hit.Blocks[slot.Host]) +
		cfg.DiskCredit*float64(hit.Blocks[slot.Disk]) + cfg.RemoteCredit*float64(hit.Blocks[slot.Remote])
	worth = max(worth*cfg.Discount(e, now), float64(remembered))
	return blocks, 1 - worth/float64(blocks)
}

// candidates joins what is known of every eligible rank into plain numbers.
func (r *Router) candidates(p *pool, s *scratch, now time.Time) []scoring.Candidate {
	dst := s.candidates[:0]
	block, tokens := s.chain.BlockTokens, s.chain.Tokens
	most := max(0, (tokens-1)/block*block) // engines compute the last token of a prompt, whatever they hold
	for _, w := range s.eligible {
		stats, slots := w.Stats(), w.Slots()
		for _, n := range slots {
			blocks, doubt := s.held.of(p, &r.cfg.Events, n, now)
			dst = append(dst, scoring.Candidate{
				Slot: n, CachedTokens: min(blocks*block, most), Doubt: doubt,
				EngineRunning: stats.Running / len(slots), EngineWaiting: stats.Waiting / len(slots),
				KVCapacityTokens: stats.Blocks * stats.BlockTokens / len(slots),
			})
		}
	}
	return dst
}

// recent is for how many seconds a prompt counts as held by a slot though its engine has not said so: as long as it may wait
// for its turn there.
func (p *pool) recent(s slot.Slot) uint32 {
	if by := p.recency.Load(); by != nil && int(s) < len(*by) {
		return (*by)[s]
	}
	return p.speculation
}

// refreshRecency looks at how long the slots' backlogs are.
func (p *pool) refreshRecency(set *worker.Set) {
	var by []uint32
	for _, w := range set.Pool(p.name) {
		for _, s := range w.Slots() {
			backlog := uint32(math.Ceil(min(p.scorer.Load(s).QueueSeconds, 3600)))
			by = put(by, s, max(p.speculation, backlog+1))
		}
	}
	for i := range by {
		by[i] = max(by[i], p.speculation)
	}
	p.recency.Store(&by)
}

// runLedgers follows the engines of all pools until ctx ends.
func (r *Router) runLedgers(ctx context.Context) (wait func()) {
	var running sync.WaitGroup
	for _, p := range r.pools {
		running.Go(func() {
			if err := p.ledger.Run(ctx); err != nil {
				r.log.Error("following engines' events ended", "pool", p.name, "error", err)
			}
		})
	}
	return running.Wait
}

// Feeds shows the feeds of KV events of all pools.
func (r *Router) Feeds() []events.Status {
	var all []events.Status
	for _, p := range r.pools {
		all = append(all, p.ledger.Status()...)
	}
	return all
}

// PendingReplays is how many workers' events have not been caught up with since the start; after a bounded time 0.
func (r *Router) PendingReplays() (n int) {
	for _, p := range r.pools {
		n += p.ledger.Pending()
	}
	return n
}

// modeOf is how the overlap of a slot is known.
func (p *pool) modeOf(s slot.Slot) events.Mode { return p.ledger.Evidence(s).Mode }

// namespace is the part of a chain's seed that the model's name stands for: none for the base model, whose events carry no name,
// and for an adapter its own. SGLang's clients may write base:adapter.
func namespace(model string, w *worker.Worker) string {
	if w.Serves(model) {
		return ""
	}
	if base, adapter, found := strings.Cut(model, ":"); found && w.Runs() == worker.SGLang && w.Serves(base) {
		return adapter
	}
	return model
}
