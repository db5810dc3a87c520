package router

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

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
//	exact         the ledger; and what is on its way there, which the engine will hold soon
//	partial       whichever knows of more
//	approximate   the index
//
// An engine's blocks are matched by their tokens: of a prompt whose tokens are not known the ledger says nothing, and of one whose
// tokens are known in part only, as with an image in it, no more than of that part.
//
// In every mode decisions are remembered, and what is on its way to a slot that is followed, so that changing from one to another
// loses nothing.

// held is what is known of one chain, by slot. Reused from request to request.
type held struct {
	told   runs.Overlap // by engines
	places []int32      // by slot, its place in told.Hits plus 1
	sent   []int32      // by slot, leading blocks remembered
	flying []int32      // by slot, leading blocks on their way
	flown  uint64       // how many flights had been added by then
	chain  *prompt.Chain
}

// look asks all memories.
func (h *held) look(p *pool, chain *prompt.Chain) {
	h.chain = chain
	p.ledger.Overlap(chain.Hashes[:named(chain)], &h.told)
	h.sent = p.index.Overlap(chain.Hashes, h.sent)
	h.flying, h.flown = p.flights.overlap(chain.Hashes, p.ledger.Emptied, 0, h.flying)
	clear(h.places)
	for i, hit := range h.told.Hits {
		h.places = put(h.places, hit.Slot, int32(i)+1)
	}
}

// named is how many leading blocks of a chain engines have in common with us.
func named(c *prompt.Chain) int {
	if c.Rung == prompt.Approximate {
		return 0
	}
	return c.Own
}

// put sets an element of a slice that is as long as it needs to be.
func put[T any](by []T, s slot.Slot, v T) []T {
	if int(s) >= len(by) {
		by = append(by, make([]T, int(s)+1-len(by))...)
	}
	by[s] = v
	return by
}

// at is an element of a slice by slot; 0 beyond its end.
func at(by []int32, s slot.Slot) int {
	if int(s) >= len(by) {
		return 0
	}
	return int(by[s])
}

// of is how many leading blocks a slot holds, and what share of them is not to be counted on: those on lower tiers are worth
// less than those on the device, and what a broken stream said loses weight.
func (h *held) of(p *pool, cfg *events.Config, s slot.Slot, now time.Time) (blocks int, doubt float64) {
	e := p.ledger.Evidence(s)
	sure, own := at(h.sent, s), named(h.chain)
	switch {
	case e.Mode == events.Approximate || own == 0:
		return sure, p.doubt(s)
	case e.Mode == events.Exact && own == len(h.chain.Hashes):
		sure = at(h.flying, s)
	}
	place := at(h.places, s)
	if place == 0 {
		return sure, 0
	}
	hit := h.told.Hits[place-1]
	blocks = hit.Upto(slot.Remote)
	if sure >= blocks {
		return sure, 0
	}
	worth := float64(hit.Blocks[slot.Device]) + cfg.HostCredit*float64(hit.Blocks[slot.Host]) +
		cfg.DiskCredit*float64(hit.Blocks[slot.Disk]) + cfg.RemoteCredit*float64(hit.Blocks[slot.Remote])
	worth = max(worth*cfg.Discount(e, now), float64(sure))
	return blocks, 1 - worth/float64(blocks)
}

// compete joins what is known of every rank that may serve into plain numbers.
func (a *attempt) compete(now time.Time) {
	p, s, h := a.pool, a.scratch, &a.req.Hints
	dst, capped := s.candidates[:0], false
	block := s.chain.BlockTokens
	hashed, flies := p.scorer.Deciding(s.demand.Policy) == scoring.PolicyCHWBL, flies(&s.chain)
	for _, w := range s.eligible {
		stats, slots, traits := w.Stats(), w.Slots(), &w.Traits
		preference := 0.0
		if h.Preferred[0].Name != "" {
			preference = preferenceOf(w, h)
		}
		own := (traits.MaxInFlight + len(slots) - 1) / len(slots) // its ranks share the limit
		capped = capped || own > 0
		for _, n := range slots {
			if h.Ranked && n != rankSlot(w, h.Rank) {
				continue
			}
			cached, doubt := a.cached(n, now)
			dst = append(dst, scoring.Candidate{})
			c := &dst[len(dst)-1]
			c.Slot, c.CachedTokens, c.Doubt, c.Tiers = n, cached, doubt, s.held.tiers(n)
			c.EngineRunning, c.EngineWaiting, c.EngineKVUse = stats.Running/len(slots), stats.Waiting/len(slots), stats.KVUsage
			c.Stale = now.Sub(stats.At) > staleStats
			c.KVCapacityTokens = stats.Blocks * stats.BlockTokens / len(slots)
			if p.modeOf(n) == events.Exact {
				c.KVHeldTokens, c.Live = p.ledger.OnDevice(n)*block, flies
			}
			if hashed {
				c.ID = xxh3.HashStringSeed(w.Endpoint, uint64(w.Rank(n)))
			}
			c.MaxInFlight, c.Preference = own, preference
			c.BatchTokens, c.Memory, c.Distance = traits.BatchTokens, traits.MemoryBytes, traits.Distance
		}
	}
	s.candidates = dst
	if capped && s.demand.Limits == nil {
		s.demand.Limits = &a.limits // so that it is asked whether there is room
	}
}

// cached is how many tokens of the prompt a slot need not compute, and what share of them is not to be counted on.
func (a *attempt) cached(s slot.Slot, now time.Time) (tokens int, doubt float64) {
	blocks, doubt := a.held.of(a.pool, &a.settings.Events, s, now)
	size := a.chain.BlockTokens
	most := max(0, (a.chain.Tokens-1)/size*size) // engines compute the last token of a prompt, whatever they hold
	return min(blocks*size, most), doubt
}

// catchUp takes in what was sent on its way since the last look. The flights' picking must be held.
func (a *attempt) catchUp(now time.Time) {
	h, p := &a.held, a.pool
	before := h.flown
	h.flying, h.flown = p.flights.overlap(a.chain.Hashes, p.ledger.Emptied, before, h.flying)
	if h.flown == before {
		return
	}
	for i := range a.candidates {
		if c := &a.candidates[i]; at(h.flying, c.Slot)*a.chain.BlockTokens > c.CachedTokens {
			c.CachedTokens, c.Doubt = a.cached(c.Slot, now)
		}
	}
}

// staleStats is how old an engine's figures may be before they are not used.
const staleStats = 10 * time.Second

// follows reports whether the slot's events will tell when all of a chain has been computed there.
func (p *pool) follows(chain *prompt.Chain, s slot.Slot) bool {
	return flies(chain) && p.modeOf(s) == events.Exact
}

// flies reports whether engines that tell of their caches can tell of a whole chain.
func flies(chain *prompt.Chain) bool {
	return len(chain.Hashes) > 0 && named(chain) == len(chain.Hashes)
}

// tiers is where the blocks that a slot's engine says it holds lie.
func (h *held) tiers(s slot.Slot) (blocks [slot.Remote + 1]int32) {
	if place := at(h.places, s); place > 0 {
		copy(blocks[:], h.told.Hits[place-1].Blocks[:])
	}
	return blocks
}

// sweeping is how often the flights of all pools are looked at.
const sweeping = 50 * time.Millisecond

// sweepFlights ends flights until ctx ends.
func (r *Router) sweepFlights(ctx context.Context) {
	tick := time.NewTicker(sweeping)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, p := range r.pools {
			if p.flights.count() > 0 {
				p.flights.sweep(p.ledger, r.now(), r.settings.Load().Events.Speculation)
			}
		}
	}
}

// runLedgers follows the engines of all pools until ctx ends.
func (r *Router) runLedgers(ctx context.Context) (wait func()) {
	var running sync.WaitGroup
	running.Go(func() { r.sweepFlights(ctx) })
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

// PendingReplays is how many workers' events have not been caught up with since the start, and how many workers' prompts have not
// been brought back; after a bounded time 0.
func (r *Router) PendingReplays() (n int) {
	set, now := r.workers.Set(), r.now()
	for _, p := range r.pools {
		n += p.ledger.Pending()
		if now.Sub(r.begun) < r.settings.Load().Events.ReadyWait {
			n += p.memories.of(func(m recollection) bool {
				return slices.ContainsFunc(set.Eligible(p.name), func(w *worker.Worker) bool { return w.Endpoint == m.addr })
			})
		}
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
