package runs

import "attache/internal/field"

// The bound. When the memory in use exceeds Config.MaxBytes, the next store first makes room:
//
//   - runs whose holders are gone are tidied;
//   - the least recently used runs go, whoever holds them. Recent is, approximately, what a query or a store touched since
//     the hand of a clock last passed: the hand goes round the runs, spares each once for a store and twice for a query,
//     and takes the first that it need not spare; after 256 it takes the least used of them;
//   - engine maps lose the keys that lead to such runs, part by part, once these are a sixteenth of all keys.
//
// The number of an evicted run is given to no other until every map has been purged, so a key never leads to a wrong run.
//
// The work per store is bounded. Should it not suffice, the store is refused: the bound holds, except for what a batch of
// 64 blocks may add (less than Overrun).
const (
	// Overrun is by how much memory may exceed Config.MaxBytes for a moment.
	Overrun = 2 * field.MiB

	reclaimWork = 1 << 16 // looks at runs, or at a few keys, in one go: 1 to 2 ms
	maxLooks    = 256     // runs that the hand spares in a row at most
	keysPerLook = 8
)

// reclaim is where the writer is in making room.
type reclaim struct {
	hand      int         // the run that the clock looks at next
	bit, part int         // the part of an engine map that is purged next
	evicted   [2][]uint32 // numbers of runs evicted since the round of purging began, and since the one before
}

func (x *Index) limit() int { return int(x.cfg.MaxBytes) }

// memory is all that is in use: what is accounted where it changes, and the holder sets.
func (x *Index) memory() int { return x.bytes + x.sets.bytes }

// makeRoom brings the memory under the bound and says whether it is.
func (x *Index) makeRoom() bool {
	if x.memory() <= x.limit() {
		return true
	}
	for work := 0; x.memory() > x.limit() && work < reclaimWork; {
		switch {
		case x.pendingBits > 0 || x.tidying != nil:
			x.Tidy(maxLooks)
			work += maxLooks
		case x.stale > 0 && x.stale*16 >= x.held+x.stale:
			work += x.purgeNext()
		case x.live > 0:
			work += x.evictNext()
		case x.waiting.oldest != nil:
			x.dropOrphan(x.waiting.oldest)
			work++
		default:
			return false
		}
	}
	return x.memory() <= x.limit()
}

// evictNext moves the hand to the next run to go, and returns how many it looked at.
func (x *Index) evictNext() (looks int) {
	c := &x.reclaim
	var least *run // used least of those that were spared
	leastUsed := uint32(0)
	for looks < reclaimWork {
		if c.hand++; c.hand >= len(x.runs) {
			c.hand = 0
		}
		looks++
		r := x.runs[c.hand].run
		if r == nil {
			continue
		}
		used := r.used.Load()
		if used == 0 {
			least = r
			break
		}
		if least == nil || used < leastUsed {
			least, leastUsed = r, used
		}
		if looks >= maxLooks {
			break
		}
		r.used.Store(used - 1)
	}
	if least != nil {
		x.evict(least)
	}
	return looks
}

// evict takes a run from readers and from all holders. The keys that lead to it stay behind, stale.
func (x *Index) evict(r *run) {
	r.each(func(from, to int, s *set) {
		s.each(func(bit int) {
			if h := x.owners[bit]; h != nil {
				h.held -= to - from
				h.stale += to - from
				x.held -= to - from
				x.stale += to - from
				x.counts.EvictedBlocks += uint64(to - from)
			}
		})
		x.sets.release(s)
	})
	state := &x.runs[r.id]
	x.bytes -= x.runSize(r, state.room)
	x.blocks -= len(r.hashes)
	x.live--
	*state = runState{}
	x.bytes += x.table.put(r.hashes[0], nil)
	x.sets.sweep()
	list := &x.reclaim.evicted[0]
	before := cap(*list)
	*list = append(*list, r.id)
	x.bytes += 4 * (cap(*list) - before)
}

// purgeNext takes the stale keys from one part of one holder's map, and gives back the memory they had. It returns the
// work in looks.
func (x *Index) purgeNext() (work int) {
	c := &x.reclaim
	for ; c.bit < len(x.owners); c.bit, c.part = c.bit+1, 0 {
		h := x.owners[c.bit]
		if h == nil || h.stale == 0 {
			work++
			continue
		}
		if c.part < len(h.engine.parts) {
			p := &h.engine.parts[c.part]
			c.part++
			return work + 1 + x.purge(h, p)/keysPerLook
		}
	}
	// The round is over: nothing leads to what was evicted before it.
	c.bit, c.part = 0, 0
	for _, id := range c.evicted[1] {
		x.release(id)
	}
	x.bytes -= 4 * cap(c.evicted[1])
	c.evicted[0], c.evicted[1] = nil, c.evicted[0]
	return work + 1
}

// purge takes the stale keys from a part of a holder's map, and returns how many keys it looked at.
func (x *Index) purge(h *holder, p *enginePart) (looked int) {
	looked = len(p.slots)
	if p.n == 0 {
		return looked
	}
	keys, stale, announced := p.n, 0, 0
	for _, e := range p.slots {
		if e.place != 0 && x.runs[e.place.run()].run == nil {
			stale++
			announced += e.place.count()
		}
	}
	if stale == 0 {
		return looked
	}
	size := min(len(p.slots), entriesFor(keys-stale))
	x.bytes += h.engine.rebuild(p, size, func(at place) bool { return x.runs[at.run()].run != nil })
	x.unstale(h, stale)
	h.announced -= announced
	return looked
}

// unstale notes that stale keys are gone from a map.
func (x *Index) unstale(h *holder, n int) {
	h.stale -= n
	x.stale -= n
}

// enterKey returns where the place of a key stands in a holder's map, as engineMap.ref does, making room if need be.
func (x *Index) enterKey(h *holder, key uint64) *place {
	for {
		if ref := h.engine.ref(key); ref != nil {
			return ref
		}
		x.growEngine(h, key)
	}
}

// growEngine makes room for a key in its part of a holder's map.
func (x *Index) growEngine(h *holder, key uint64) {
	p, _ := h.engine.locate(key)
	if h.stale > 0 && p.n > minEntries {
		if x.purge(h, p); !p.full() {
			return
		}
	}
	size := h.engine.larger(p, key)
	if x.memory()+entryBytes*(size-len(p.slots)) > x.limit() {
		size = min(size, len(p.slots)+smallStep)
	}
	x.bytes += h.engine.rebuild(p, size, nil)
}
