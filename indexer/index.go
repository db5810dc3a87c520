package indexer

import (
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
	start time.Time

	mu    sync.RWMutex // guards table
	table *table
}

// step is how many blocks are added or taken away before others get their turn: the lock is held for about 0.1 ms.
const step = 1024

// New makes an empty index. The configuration must have been validated; now is the clock that blocks age by.
func New(cfg Config, now func() time.Time, reg prometheus.Registerer) (*Index, error) {
	x := &Index{now: now, start: now(), table: newTable(cfg)}
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
//
// within[slot] is the greatest age, in seconds, at which a block still counts for that slot; 0 or beyond the slice: the
// time to live alone. A few seconds leave what was just routed there, which is what has to be added to the contents that
// an engine itself reports: prompts that share a beginning and come at once meet before its first report arrives. Ages
// are in whole seconds of the index's clock, so that a block counts up to one second longer or shorter than said.
func (x *Index) Overlap(chain []block.Hash, within []uint32, dst []int32) []int32 {
	now := x.second()
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.table.overlap(chain, now, within, dst)
}

// Remember notes that a decision sent the prompt of this chain to the slot. chain must begin with a prompt's first block
// and is not kept. While a long unseen chain is added others get their turn, and see its first part only.
func (x *Index) Remember(s slot.Slot, chain []block.Hash) {
	if len(chain) == 0 || s == slot.None {
		return
	}
	now := x.second()
	// Bounded: were others to evict as fast as this adds, it must still end.
	for more, added := true, 0; more && added < len(chain); added += step {
		more = x.change(func(t *table) bool { return t.remember(s, chain, now, step) })
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

// SetCapacity says how many blocks the slot's engine can hold; what is remembered above that is forgotten, the least
// recently used first. 0 or less: not known, the configured default.
func (x *Index) SetCapacity(s slot.Slot, blocks int) {
	if s == slot.None {
		return
	}
	if blocks <= 0 {
		blocks = x.table.defaultCapacity
	}
	for more := true; more; {
		more = x.change(func(t *table) bool { return t.setCapacity(s, blocks, step) })
	}
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
	EvictedByClear    uint64 // the worker restarted or went away
}

// Stats returns the figures.
func (x *Index) Stats() Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	t := x.table
	return Stats{
		Held: t.held, Prefixes: t.first.used(),
		EvictedByCapacity: t.evicted[byCapacity], EvictedByTTL: t.evicted[byTTL],
		EvictedByBound: t.evicted[byBound], EvictedByClear: t.evicted[byClear],
	}
}
