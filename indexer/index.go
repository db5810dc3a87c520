package indexer

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/block"
	"attache/internal/slot"
)

// Index is what we remember of who holds which prefix, for one pool. Safe for concurrent use: overlaps are looked up side
// by side, changes one at a time.
type Index struct {
	now   func() time.Time
	start time.Time // long before it was made: what is restored is older than that

	mu    sync.RWMutex // guards table
	table *table
}

// step is how many blocks are added or taken away before others get their turn: the lock is held for about 0.1 ms.
const step = 1024

// New makes an empty index. The configuration must have been validated; now is the clock that blocks age by.
func New(cfg Config, now func() time.Time, reg prometheus.Registerer) (*Index, error) {
	x := &Index{now: now, start: now().Add(-past), table: newTable(cfg)}
	if err := reg.Register(newMetrics(x)); err != nil {
		return nil, err
	}
	return x, nil
}

// change makes one step of a change with the lock held; step says whether more are needed.
func (x *Index) change(step func(*table) (more bool)) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return step(x.table)
}

// second is the age of the index in whole seconds: block ages need no more, and fit in 4 bytes that way.
func (x *Index) second() uint32 { return uint32(max(x.now().Sub(x.start), 0) / time.Second) }

// Overlap returns how many leading blocks of chain each slot is believed to hold, indexed by slot: as many elements as
// slots are known here, 0 for those that hold nothing. dst is overwritten and, when it is large enough, returned.
// A chain that nobody holds costs one look-up.
func (x *Index) Overlap(chain []block.Hash, dst []int32) []int32 {
	now := x.second()
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.table.overlap(chain, now, dst)
}

// Remember notes that a decision sent the prompt of this chain to the slot. chain must begin with a prompt's first block
// and is not kept. While a long unseen chain is added others get their turn, and see its first part only. What the slot was
// believed to hold of it until then is returned, for Correct.
func (x *Index) Remember(s slot.Slot, chain []block.Hash) Mark {
	if len(chain) == 0 || s == slot.None {
		return Mark{}
	}
	now := x.second()
	var before, later Mark
	more := x.change(func(t *table) bool { return t.remember(s, chain, now, step, &before) })
	// Bounded: were others to evict as fast as this adds, it must still end.
	for added := step; more && added < len(chain); added += step {
		more = x.change(func(t *table) bool { return t.remember(s, chain, now, step, &later) })
	}
	return before
}

// Correct takes in how many leading blocks of a remembered prompt the engine found in its cache, as it reported after the
// decision that m is of: blocks that it must have lost are forgotten, and the slot's capacity is learnt (feedback.go says
// how). It must be called for requests that were answered by the slot and read the cache, at most once each; in which
// order they come, and how late, does not matter: what was touched after the decision stays. A mark of before the slot was
// cleared does nothing.
func (x *Index) Correct(m Mark, delivered int) {
	now := x.second()
	var l loss
	lost := x.change(func(t *table) (lost bool) {
		t.now = max(t.now, now)
		l, lost = t.judge(&m, delivered)
		return lost
	})
	if !lost {
		return
	}
	for more := true; more; {
		x.mu.RLock()
		more = x.table.count(&l, 8*step)
		x.mu.RUnlock()
	}
	surplus := 0
	x.change(func(t *table) bool { surplus = t.shrink(&m, &l); return false })
	for surplus > 0 {
		x.change(func(t *table) bool { surplus = t.giveUp(&l, surplus, step); return false })
	}
}

// Touch makes what the slot holds of chain as fresh as if it had been remembered now, and adds nothing: an engine keeps
// the blocks of a request while it runs, and takes their last use to be its end. It is meant to be called at every
// request's end, and every few seconds for those in flight: once per second a prompt costs a walk over its blocks, every
// further time in that second, or where another has touched its beginning, a few look-ups.
func (x *Index) Touch(s slot.Slot, chain []block.Hash) {
	now := x.second()
	for more, done := len(chain) > 0, 0; more && done < len(chain); done += 8 * step {
		more = x.change(func(t *table) bool { return t.refresh(s, chain, now, 8*step) })
	}
}

// SetCapacity says how many blocks the slot's engine can hold, by its own figure; what is remembered above that is
// forgotten, the least recently used first. 0 or less: not known, the configured default. Reports may teach that it holds
// fewer, as when others use it, too; saying the same figure again does not undo that, another figure does.
func (x *Index) SetCapacity(s slot.Slot, blocks int) {
	if s == slot.None {
		return
	}
	for more := true; more; {
		more = x.change(func(t *table) bool { return t.setCapacity(s, max(blocks, 0), step) })
	}
}

// Capacity is how many blocks the slot is taken to have room for; learnt says that reports made it differ from what the
// engine or the configuration tell.
func (x *Index) Capacity(s slot.Slot) (blocks int, learnt bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if id := x.table.owner(s); id != 0 {
		return x.table.owners[id].capacity, x.table.taught[id].learnt
	}
	return x.table.defaultCapacity, false
}

// Clear forgets all that the slot holds, and its capacity: its engine restarted, or the slot is free for another worker.
// From the first moment on nothing of it is seen; the memory comes back piece by piece before Clear returns.
func (x *Index) Clear(s slot.Slot) {
	var former uint32
	more := x.change(func(t *table) bool { former = t.detach(s); return former != 0 })
	for more {
		more = x.change(func(t *table) bool { return t.drain(former, step) })
	}
}

// Top returns the n most recently used prefixes that the slot is believed to hold, the freshest first and the longest first
// among equally fresh ones; of a prompt and its beginning only the prompt. It looks at all that the slot holds, in pieces
// between which others get their turn: what changes meanwhile may or may not be seen.
func (x *Index) Top(s slot.Slot, n int) []Prefix {
	if n <= 0 {
		return nil
	}
	w := x.walkAll(s)
	return w.top(n)
}

// walkAll passes over all that a slot holds, in pieces.
func (x *Index) walkAll(s slot.Slot) walk {
	now := x.second()
	w := walk{slot: s, seen: make([]sight, 0, x.Held(s))}
	for more := true; more; {
		w.seen = slices.Grow(w.seen, 4*step) // not while the lock is held
		x.mu.RLock()
		more = x.table.walkOn(&w, now, 4*step)
		x.mu.RUnlock()
	}
	return w
}

// Held is how many blocks the slot is remembered to hold, those included whose time to live has passed unnoticed.
func (x *Index) Held(s slot.Slot) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.table.heldBy(s)
}

// Stats are the index's figures since its start.
type Stats struct {
	Held     int // blocks over all slots; a block that two slots hold counts twice
	Prefixes int // different blocks among them
	// Blocks believed gone, by reason.
	EvictedByCapacity uint64 // the worker's own cache was full
	EvictedByTTL      uint64 // not asked for in time
	EvictedByBound    uint64 // the index was full
	EvictedByFeedback uint64 // the worker's engine was found to have lost them
	EvictedByClear    uint64 // the worker restarted or went away
	// Reports that changed what is believed of a worker.
	CorrectedOver  uint64 // it held less than was predicted
	CorrectedUnder uint64 // it held what had been believed gone
}

// Stats returns the figures.
func (x *Index) Stats() Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	t := x.table
	return Stats{
		Held: t.held, Prefixes: t.first.used(),
		EvictedByCapacity: t.evicted[byCapacity], EvictedByTTL: t.evicted[byTTL],
		EvictedByBound: t.evicted[byBound], EvictedByFeedback: t.evicted[byFeedback], EvictedByClear: t.evicted[byClear],
		CorrectedOver: t.corrected[over], CorrectedUnder: t.corrected[under],
	}
}
