package router

import (
	"slices"
	"sync"
	"time"

	"attache/indexer/events"
	"attache/indexer/runs"
	"attache/internal/block"
	"attache/internal/slot"
)

// flights are the prompts under way to slots whose engines tell what they hold, from the decision until the engine has said that
// it holds them: a burst of prompts that begin alike lands together. An engine keeps the blocks of a request as long as it
// works on it, so that what is counted here is there, or will be when the next one gets its turn.
//
// A flight ends when the events have caught up with it, or a moment after its request ended, whether they have or not. From then
// on only the events count: what they say was lost is not on its way any more.
type flights struct {
	// picking is held from the last look at what is on its way to the slots until the flight of whoever looked is added: of two
	// prompts that begin alike, one sees the other. It comes before mu and the scorer's lock.
	picking sync.Mutex

	mu      sync.Mutex               // guards what follows
	byFirst map[block.Hash][]*flight // by the first block, oldest first
	bySlot  map[slot.Slot][]*flight  // the same by slot, oldest first
	n       int
	added   uint64 // since the start
}

// follower is told how far the engine of a prompt under way has got: it holds that many leading blocks, and whether that is all.
// Its methods are called without a lock.
type follower interface{ stored(blocks int, all bool) }

// flight is one prompt on its way.
type flight struct {
	slot     slot.Slot
	chain    []block.Hash
	number   uint64    // how many had been added with it
	follower follower  // nil: nobody is told
	stored   bool      // the events have caught up with it
	ended    time.Time // of the request; zero before
	life     uint64    // how often the slot had been emptied by then
}

// maxFlights bounds how many flights of prompts with one beginning are looked at: the newest. The older ones are about to be told
// by events.
const maxFlights = 256

// add notes that a prompt is sent to a slot. The chain is kept.
func (f *flights) add(s slot.Slot, chain []block.Hash) *flight {
	if len(chain) == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byFirst == nil {
		f.byFirst, f.bySlot = map[block.Hash][]*flight{}, map[slot.Slot][]*flight{}
	}
	f.added++
	x := &flight{slot: s, chain: chain, number: f.added}
	list := f.byFirst[chain[0]]
	if len(list) >= maxFlights {
		list = slices.Delete(list, 0, 1)
		f.n--
	}
	f.byFirst[chain[0]] = append(list, x)
	f.bySlot[s] = append(f.bySlot[s], x)
	f.n++
	return x
}

// follow has a flight's follower told from now on.
func (f *flights) follow(x *flight, by follower) {
	if x == nil {
		return
	}
	f.mu.Lock()
	x.follower = by
	stored := x.stored
	f.mu.Unlock()
	if stored {
		by.stored(len(x.chain), true)
	}
}

// told looks how far the events of a slot have got with the prompts on their way there.
func (f *flights) told(l *events.Ledger, s slot.Slot) {
	f.mu.Lock()
	waiting := slices.Clone(f.bySlot[s])
	f.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	var told runs.Overlap
	for _, x := range waiting {
		l.Overlap(x.chain, &told)
		f.reached(x, told.Of(s).Upto(slot.Remote))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	stored := func(x *flight) bool { return x.stored }
	for _, x := range waiting {
		if first := x.chain[0]; x.stored {
			f.n -= weed(f.byFirst, first, stored)
		}
	}
	weed(f.bySlot, s, stored)
}

// reached notes that the events have got so far with a flight, and tells its follower.
func (f *flights) reached(x *flight, blocks int) {
	all := blocks >= len(x.chain)
	f.mu.Lock()
	x.stored = x.stored || all
	by := x.follower
	f.mu.Unlock()
	if by != nil {
		by.stored(min(blocks, len(x.chain)), all)
	}
}

// end notes that the request of a flight is over, when the slot had been emptied so often.
func (f *flights) end(x *flight, now time.Time, life uint64) {
	if x == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	x.ended, x.life = now, life
}

// overlap sets dst by slot to how many leading blocks of chain are on their way there, and returns how many flights had been added
// by then. With after, it brings up to date what it said when there were so many. emptied says how often a slot was: then flights
// that had ended before have nothing there any more.
func (f *flights) overlap(chain []block.Hash, emptied func(slot.Slot) uint64, after uint64, dst []int32) (flying []int32, added uint64) {
	if after == 0 {
		dst = dst[:0]
	}
	if len(chain) == 0 {
		return dst, 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range slices.Backward(f.byFirst[chain[0]]) {
		if x.number <= after {
			break
		}
		if x.stored || !x.ended.IsZero() && x.life != emptied(x.slot) {
			continue
		}
		if n := int32(block.Common(x.chain, chain)); int(x.slot) >= len(dst) || n > dst[x.slot] {
			dst = put(dst, x.slot, n)
		}
	}
	return dst, f.added
}

// sweep ends flights: those of requests that ended longer ago than linger, and those that the events have caught up with.
func (f *flights) sweep(l *events.Ledger, now time.Time, linger time.Duration) {
	f.mu.Lock()
	all := make([]*flight, 0, f.n)
	for _, list := range f.byFirst {
		all = append(all, list...)
	}
	f.mu.Unlock()
	var told runs.Overlap
	for _, x := range all {
		l.Overlap(x.chain, &told)
		if held := told.Of(x.slot).Upto(slot.Remote); held >= len(x.chain) {
			f.reached(x, held)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	gone := func(x *flight) bool { return x.stored || !x.ended.IsZero() && now.Sub(x.ended) >= linger }
	for first := range f.byFirst {
		f.n -= weed(f.byFirst, first, gone)
	}
	for s := range f.bySlot {
		weed(f.bySlot, s, gone)
	}
}

// weed takes flights out of a list, and the list away when it is empty; it returns how many flights those were.
func weed[K comparable](lists map[K][]*flight, key K, gone func(*flight) bool) (n int) {
	list := lists[key]
	kept := slices.DeleteFunc(list, gone)
	n = len(list) - len(kept)
	if len(kept) == 0 {
		delete(lists, key)
	} else {
		lists[key] = kept
	}
	return n
}

// count is how many there are.
func (f *flights) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}
