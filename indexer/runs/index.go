package runs

import (
	"math/rand/v2"
	"sync/atomic"

	"attache/internal/block"
	"attache/internal/slot"
)

// Index is which holder holds which blocks, for one pool.
//
// Overlap may be called by any goroutine at any time. Every other method is the writer's: the caller makes one call at a
// time. Nobody waits for anybody.
type Index struct {
	cfg   Config
	table table                // the runs by their first hash
	view  atomic.Pointer[view] // whom the bits of sets stand for

	// All below is the writer's.

	secret  uint64
	sets    sets
	runs    []runState // by number
	free    []uint32   // numbers that nothing leads to
	painter painter
	own     []block.Hash // of the event at hand
	one     [1]uint64

	workers  []*worker // by slot
	parked   []*worker // by what the slot was; see park.go
	owners   []*holder // by bit
	freeBits []int
	// Bits whose holders are gone but which sets still contain: those waiting for a round of Tidy, and those of the round
	// under way, which has reached the run tidyHand.
	retired, tidying []uint64
	pendingBits      int
	tidyHand         int

	bytes   int // all memory; see Stats
	blocks  int // hashes in runs
	live    int // runs
	held    int // over all holders
	stale   int // keys of engine maps that lead to evicted runs
	waiting orphanList
	reclaim reclaim
	counts  counters
}

// New makes an empty index. The configuration must have been validated.
func New(cfg Config) *Index {
	x := &Index{cfg: cfg, secret: rand.Uint64() | 1}
	x.bytes = indexBytes + x.table.init(rand.Uint64()|1)
	x.sets.init()
	x.publishView()
	return x
}

// indexBytes stand for the Index itself and for small change that is not accounted for one by one.
const indexBytes = 4096

// Settings say what is known of a slot's engine.
type Settings struct {
	// Sets makes an announcement of a block that is already held change nothing, and its first removal final. Otherwise
	// announcements are counted, and a block is held until it was removed as often: what vLLM needs, where a hash may lie in
	// several physical blocks. An engine that repeats announcements without a copy needs Sets.
	Sets bool
	// Blocks is how many blocks the engine can hold on each tier, indexed by slot.Tier; 0 when not known. It makes room
	// from the start, which saves a third of the memory and of the time of growing up to it.
	Blocks [tiers]int
}

// Configure says how to treat a slot from now on. Call it before the slot's first event.
func (x *Index) Configure(s slot.Slot, to Settings) {
	if !x.valid(Holder{Slot: s}) {
		return
	}
	w := x.worker(s)
	w.sets = to.Sets
	for t, n := range to.Blocks {
		w.expected[t] = min(max(n, 0), x.cfg.presizeLimit())
	}
}

// Stored is the announcement of consecutive blocks of one prompt.
type Stored struct {
	// Root says that the first block begins a prompt. Otherwise Parent is the engine's hash of the block before it.
	Root   bool
	Parent uint64
	// Engine are the engine's own hashes of the blocks: any numbers that the same worker uses again for the same blocks.
	Engine []uint64
	// Hashes are our hashes of the same blocks, as many. They are local hashes (block.Local) that the index chains to the
	// parent, or sequence hashes if Chained; 0 is not a sequence hash, and blocks from one on are left out.
	Hashes  []uint64
	Chained bool
	// Again says that the engine did not make these blocks now, but reports on our request what it holds: blocks that are
	// already held are not counted once more.
	Again bool
}

// Outcome says what became of an announcement.
type Outcome uint8

const (
	// Applied announcements are visible to readers.
	Applied Outcome = iota
	// Waiting announcements have a parent that the slot does not hold. They are kept, and applied when it appears.
	Waiting
	// Refused announcements were dropped, as a whole or from some block on: malformed, or no memory could be freed for
	// them. The blocks are not held, and those that follow them will be orphans.
	Refused
)

func (x *Index) valid(h Holder) bool {
	return uint64(h.Slot) < uint64(x.cfg.MaxSlots) && int(h.Tier) < tiers
}

// Store notes that a holder holds more blocks. The parent may lie on any tier of the slot. Neither slice of s is kept.
func (x *Index) Store(h Holder, s Stored) Outcome {
	if !x.valid(h) || len(s.Engine) != len(s.Hashes) {
		x.counts.Malformed++
		return Refused
	}
	if len(s.Engine) == 0 {
		return Applied
	}
	w, o := x.holder(h)
	out := x.store(w, o, s)
	switch {
	case out == Waiting:
		x.keep(w, o, s)
	case len(w.orphans.all) > 0:
		x.adopt(w, s.Engine)
	}
	return out
}

// store applies an announcement whose parent is known. Blocks are placed in the run of their parent, or in runs of their
// own when another run continues there.
func (x *Index) store(w *worker, o *holder, s Stored) Outcome {
	r, at := (*run)(nil), 0
	if !s.Root {
		p := x.resolve(w, o, s.Parent)
		if p == 0 {
			return Waiting
		}
		r, at = x.runs[p.run()].run, p.offset()
		r.touch() // making room must not take it away
	}
	own := x.chain(s, r, at)
	at++
	for i := 0; i < len(own); {
		if !x.makeRoom() || r != nil && x.runs[r.id].run == nil {
			x.counts.RefusedBlocks += uint64(len(own) - i)
			return Refused
		}
		if r != nil {
			r = x.runs[r.id].run // making room may have tidied it
		}
		next, first, n := x.place(o, w.sets || s.Again, r, at, s.Engine[i:], own[i:])
		r, at, i = next, first+n, i+n
	}
	x.counts.StoredBlocks += uint64(len(own))
	x.sets.sweep()
	return Applied
}

// resolve returns the place of a block that the slot holds on some tier, the announcing one before the others; 0 when it
// holds none. A child may be announced on a tier that its parent has left.
func (x *Index) resolve(w *worker, o *holder, engine uint64) place {
	if p := x.placeIn(o, engine); p != 0 {
		return p
	}
	for _, other := range w.tiers {
		if other != nil && other != o {
			if p := x.placeIn(other, engine); p != 0 {
				return p
			}
		}
	}
	return 0
}

// placeIn returns where a holder's block lies; 0 when it holds no such block.
func (x *Index) placeIn(o *holder, engine uint64) place {
	p := o.engine.get(engine)
	if p == 0 || x.runs[p.run()].run == nil {
		return 0
	}
	return p
}

// chain returns the sequence hashes of an announcement; the parent is block at of r. The slice is valid until the next
// call.
func (x *Index) chain(s Stored, r *run, at int) []block.Hash {
	own := s.Hashes
	if !s.Chained {
		own = x.own[:0]
		var parent block.Hash
		if r != nil {
			parent = r.hashes[at]
		}
		for i, local := range s.Hashes {
			parent = block.Next(parent, local, r == nil && i == 0)
			own = append(own, parent)
		}
		x.own = own
	}
	for i, h := range own {
		if h == 0 {
			return own[:i]
		}
	}
	return own
}

// batch is how many blocks are placed at once at most: a longer event in several steps, with a look at the memory between.
const batch = 64

// place puts the first blocks of own where they belong: behind block at-1 of r, or anywhere when r is nil. It returns the
// run that they are in now, the offset of the first, and how many they are: at least one.
func (x *Index) place(o *holder, plain bool, r *run, at int, engine []uint64, own []block.Hash) (*run, int, int) {
	var hashes []block.Hash
	var n int
	switch {
	case r != nil && at < len(r.hashes) && r.hashes[at] == own[0]:
		// The run goes on as the announcement does.
		hashes, n = r.hashes, min(matched(r.hashes[at:], own), batch)
	default:
		if next := x.table.get(own[0]); next != nil {
			r, at = next, 0
			hashes, n = r.hashes, min(matched(r.hashes, own), batch)
			break
		}
		if r == nil || at != len(r.hashes) || at >= maxRun {
			r, at = x.newRun(), 0 // a branch, or the run is full
		}
		// Any block may begin a run already: one that outlived the blocks before it.
		for n = 1; n < min(len(own), maxRun-at, batch) && x.table.get(own[n]) == nil; {
			n++
		}
		hashes = extend(r.hashes, own[:n])
	}
	moved := x.enter(o, plain, r, at, engine[:n])
	x.paint(r, hashes, at, at+n, o, true)
	for _, p := range moved {
		x.unpaint(o, p)
	}
	return x.runs[r.id].run, at, n
}

// enter notes in the holder's engine map where consecutive blocks of r lie, the first at offset at. Every block that is held
// has exactly one key there. It returns the places that keys led to before: the engine gave one hash to two prompts, of
// which only the latter can be followed.
func (x *Index) enter(o *holder, plain bool, r *run, at int, engine []uint64) (moved []place) {
	o.engine.warm(engine)
	for i, key := range engine {
		ref := o.engine.ref(key)
		if ref == nil {
			ref = x.enterKey(o, key)
		}
		to, before := placeOf(r.id, at+i), *ref
		switch {
		case before.same(to) && before != 0:
			if !plain && before.count() < maxCount {
				*ref += onePlace
				o.announced++
			}
			continue
		case r.heldBy(o.bit, at+i):
			x.counts.Shared++
			if before == 0 {
				*ref = to
				part, slot, _ := o.engine.find(key)
				o.engine.remove(part, slot)
			}
			continue
		case before == 0:
		case x.runs[before.run()].run == nil:
			x.unstale(o, 1)
		default:
			moved = append(moved, before)
			x.counts.Moved++
		}
		o.announced += 1 - before.count()
		*ref = to
	}
	return moved
}

// unpaint takes one block from a holder whose engine map no longer leads to it.
func (x *Index) unpaint(o *holder, p place) {
	if r := x.runs[p.run()].run; r != nil && p.offset() < len(r.hashes) {
		x.paint(r, r.hashes, p.offset(), p.offset()+1, o, false)
	}
}

// StoreKnown notes that a holder holds blocks which the slot holds on another tier, for engines that announce a move by
// hash alone. It returns how many of them the slot does not hold: those are left out.
func (x *Index) StoreKnown(h Holder, engine []uint64) (unknown int) {
	if !x.valid(h) {
		x.counts.Malformed++
		return len(engine)
	}
	w, o := x.holder(h)
	for i := 0; i < len(engine); {
		p := x.resolve(w, o, engine[i])
		if p == 0 || !x.makeRoom() || x.runs[p.run()].run == nil {
			unknown++
			i++
			continue
		}
		n := 1
		for n < batch && i+n < len(engine) && x.resolve(w, o, engine[i+n]).same(p+place(n)) {
			n++
		}
		r := x.runs[p.run()].run
		x.enter(o, w.sets, r, p.offset(), engine[i:i+n])
		x.paint(r, r.hashes, p.offset(), p.offset()+n, o, true)
		x.counts.StoredBlocks += uint64(n)
		i += n
	}
	x.counts.UnknownBlocks += uint64(unknown)
	x.sets.sweep()
	return unknown
}

// Remove notes that a holder no longer holds these blocks, or one copy less of each. Hashes that it does not hold are
// counted and ignored. engine is not kept.
func (x *Index) Remove(h Holder, engine []uint64) {
	w := x.known(h.Slot)
	if w == nil || int(h.Tier) >= tiers {
		x.counts.UnknownBlocks += uint64(len(engine))
		return
	}
	if len(w.orphans.all) > 0 {
		engine = x.removeWaiting(w, h.Tier, engine)
	}
	o := w.tiers[h.Tier]
	if o == nil {
		x.counts.UnknownBlocks += uint64(len(engine))
		return
	}
	for len(engine) > 0 {
		n := min(len(engine), batch)
		x.remove(w, o, engine[:n])
		engine = engine[n:]
	}
	x.sets.sweep()
}

// remove takes blocks from a holder. Neighbours in a run are gathered, whichever end they come from, and painted once.
func (x *Index) remove(w *worker, o *holder, engine []uint64) {
	var id uint32
	low, high := 0, 0 // blocks of run id that are to be painted
	flush := func() {
		if low < high {
			r := x.runs[id].run
			x.paint(r, r.hashes, low, high, o, false)
		}
	}
	o.engine.warm(engine)
	for _, key := range engine {
		part, i, ok := o.engine.find(key)
		if !ok {
			x.counts.UnknownBlocks++
			continue
		}
		p := part.slots[i].place
		x.counts.RemovedBlocks++
		if p.count() > 1 && !w.sets {
			part.slots[i].place -= onePlace
			o.announced--
			continue
		}
		o.engine.remove(part, i)
		o.announced -= p.count()
		if x.runs[p.run()].run == nil {
			x.unstale(o, 1)
			continue
		}
		switch at := p.offset(); {
		case low < high && p.run() == id && at == low-1:
			low--
		case low < high && p.run() == id && at == high:
			high++
		default:
			flush()
			id, low, high = p.run(), at, at+1
		}
	}
	flush()
}
