package router

import (
	"slices"
	"sort"
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
// A flight ends when the events have caught up with it, or a moment after its request ended, whether they have or not.
type flights struct {
	mu      sync.Mutex
	byFirst map[block.Hash][]*flight // by the first block, oldest first
	bySlot  map[slot.Slot][]*flight  // those that the events have not caught up with, oldest first
	n       int
}

// follower is told how far the engine of a prompt under way has got: it holds that many leading blocks, and whether that is all.
// Its methods are called without a lock.
type follower interface{ stored(blocks int, all bool) }

// flight is one prompt on its way.
type flight struct {
	slot     slot.Slot
	chain    []block.Hash
	follower follower
	ended    time.Time // of the request; zero before
	life     uint64    // how often the slot had been emptied by then
}

// maxFlights bounds how many flights of prompts with one beginning are looked at: the newest. The older ones are about to be told
// by events.
const maxFlights = 256

// add notes that a prompt was sent to a slot. The chain is kept.
func (f *flights) add(s slot.Slot, chain []block.Hash, by follower) *flight {
	if len(chain) == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byFirst == nil {
		f.byFirst, f.bySlot = map[block.Hash][]*flight{}, map[slot.Slot][]*flight{}
	}
	x := &flight{slot: s, chain: chain, follower: by}
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

// told looks how far the events of a slot have got with the prompts on their way there.
func (f *flights) told(l *events.Ledger, s slot.Slot) {
	f.mu.Lock()
	waiting := slices.Clone(f.bySlot[s])
	f.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	var told runs.Overlap
	var done []*flight
	for _, x := range waiting {
		l.Overlap(x.chain, &told)
		held := told.Of(s).Upto(slot.Remote)
		x.follower.stored(held, held >= len(x.chain))
		if held >= len(x.chain) {
			done = append(done, x)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bySlot[s] = slices.DeleteFunc(f.bySlot[s], func(x *flight) bool { return slices.Contains(done, x) })
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

// overlap sets dst by slot to how many leading blocks of chain are on their way there. emptied says how often a slot was: then
// flights that had ended before have nothing there any more.
func (f *flights) overlap(chain []block.Hash, emptied func(slot.Slot) uint64, dst []int32) []int32 {
	dst = dst[:0]
	if len(chain) == 0 {
		return dst
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.byFirst[chain[0]] {
		if !x.ended.IsZero() && x.life != emptied(x.slot) {
			continue
		}
		if n := common(x.chain, chain); int(x.slot) >= len(dst) || n > dst[x.slot] {
			dst = put(dst, x.slot, n)
		}
	}
	return dst
}

// common is how many leading blocks two chains share. A hash names all before it, so that bisection finds it.
func common(a, b []block.Hash) int32 {
	n := min(len(a), len(b))
	if a[n-1] == b[n-1] {
		return int32(n)
	}
	return int32(sort.Search(n, func(i int) bool { return a[i] != b[i] }))
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
	over := map[*flight]bool{}
	for _, x := range all {
		l.Overlap(x.chain, &told)
		if told.Of(x.slot).Upto(slot.Remote) >= len(x.chain) {
			over[x] = true
			x.follower.stored(len(x.chain), true)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	gone := func(x *flight) bool { return over[x] || !x.ended.IsZero() && now.Sub(x.ended) >= linger }
	f.n -= weed(f.byFirst, gone)
	weed(f.bySlot, gone)
}

// weed takes flights out of lists, and empty lists away; it returns how many flights those were.
func weed[K comparable](lists map[K][]*flight, gone func(*flight) bool) (n int) {
	for key, list := range lists {
		kept := slices.DeleteFunc(list, gone)
		n += len(list) - len(kept)
		if len(kept) == 0 {
			delete(lists, key)
		} else {
			lists[key] = kept
		}
	}
	return n
}

// count is how many there are.
func (f *flights) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}
