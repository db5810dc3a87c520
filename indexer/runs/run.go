package runs

import (
	"slices"
	"sync/atomic"

	"attache/internal/block"
)

// run is an unbranched stretch of chains and who holds which of its blocks. Readers see it: apart from used it never
// changes, the writer replaces it whole. Only its array of hashes is shared by its successors, which write behind what
// this one shows.
type run struct {
	hashes []block.Hash
	set    *set     // who holds the blocks before the first of rest
	rest   *[]piece // where that changes; nil: nowhere
	id     uint32
	used   atomic.Uint32 // how often the hand of the clock will spare it: see bound.go
}

// piece says who holds the blocks of a run from one offset up to the next piece.
type piece struct {
	from uint32
	set  *set
}

const (
	maxRun     = 512 // blocks: longer runs look up faster, but a hole in one is costlier to paint
	runBytes   = 48
	restBytes  = 24
	pieceBytes = 16
	stateBytes = 16
)

// How often the hand of the clock spares a run that was just stored to, and one that was just asked for.
const (
	usedStored = 1
	usedAsked  = 2
)

// touch keeps the run in memory for more turns of the clock. It writes only when there is something to change: a line
// that every reader writes would be passed between the processors' caches.
func (r *run) touch() {
	if r.used.Load() != usedAsked {
		r.used.Store(usedAsked)
	}
}

func (r *run) pieces() int {
	if r.rest == nil {
		return 1
	}
	return 1 + len(*r.rest)
}

// at returns who holds a block.
func (r *run) at(offset int) *set {
	s := r.set
	if r.rest != nil {
		for _, p := range *r.rest {
			if int(p.from) > offset {
				break
			}
			s = p.set
		}
	}
	return s
}

// heldBy says whether the holder with the bit holds a block, which may lie behind the end.
func (r *run) heldBy(bit, offset int) bool { return offset < len(r.hashes) && r.at(offset).has(bit) }

// each calls f with every stretch of blocks [from, to) that the same holders hold, in order.
func (r *run) each(f func(from, to int, s *set)) {
	from, s := 0, r.set
	if r.rest != nil {
		for _, p := range *r.rest {
			f(from, int(p.from), s)
			from, s = int(p.from), p.set
		}
	}
	f(from, len(r.hashes), s)
}

// matched is how many leading hashes of a run are the chain's, given that the first is. As a hash names all before it, the
// last one speaks for the whole run, and a binary search finds where the two part.
func matched(hashes, chain []block.Hash) int {
	n := min(len(hashes), len(chain))
	if hashes[n-1] == chain[n-1] {
		return n
	}
	low, high := 1, n-1 // those before low are equal, that at high is not
	for low < high {
		if mid := int(uint(low+high) >> 1); hashes[mid] == chain[mid] {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// runState is what the writer knows of the run with a number.
type runState struct {
	run  *run // nil: the number is free, or its run was evicted
	room int  // blocks that the array of hashes has space for: a shortened run may show less of it
}

// newRun makes a run without blocks. The caller replaces it by one with blocks before anything else happens.
func (x *Index) newRun() *run {
	var id uint32
	if n := len(x.free); n > 0 {
		id, x.free = x.free[n-1], x.free[:n-1]
	} else {
		id = uint32(len(x.runs))
		before := cap(x.runs)
		x.runs = append(x.runs, runState{})
		x.bytes += stateBytes * (cap(x.runs) - before)
	}
	r := &run{set: x.sets.empty, id: id}
	x.runs[id].run = r // keys that lead to it from now on are not stale
	return r
}

// release makes the number of a run available again.
func (x *Index) release(id uint32) {
	before := cap(x.free)
	x.free = append(x.free, id)
	x.bytes += 4 * (cap(x.free) - before)
}

// extend appends hashes to those of a run, in place when there is space behind them that no reader was ever shown.
func extend(hashes, more []block.Hash) []block.Hash {
	if n := len(hashes) + len(more); n > cap(hashes) {
		want := max(n, min(2*len(hashes), maxRun))
		if len(hashes) >= 64 {
			want = max(n, min(len(hashes)+len(hashes)/2, maxRun))
		}
		hashes = append(slices.Grow([]block.Hash(nil), want), hashes...)
	}
	return append(hashes, more...)
}

// painter gathers the pieces of a run while they change.
type painter struct {
	pieces  []piece
	changed int // blocks that the holder gained or lost
}

func (p *painter) put(from int, s *set) {
	if n := len(p.pieces); n == 0 || p.pieces[n-1].set != s {
		p.pieces = append(p.pieces, piece{uint32(from), s})
	}
}

// paint adds a holder to, or takes it from, the blocks [from, to) of r. hashes may be longer than those of r: nobody held the blocks behind.
func (x *Index) paint(r *run, hashes []block.Hash, from, to int, o *holder, add bool) {
	next := x.repaint(r, hashes, from, to, o.bit, add)
	x.replace(r, next)
	n := x.painter.changed
	if !add {
		n = -n
	}
	o.held += n
	x.held += n
}

// repaint returns the successor of r; r itself when nothing changes.
func (x *Index) repaint(r *run, hashes []block.Hash, from, to, bit int, add bool) *run {
	p := &x.painter
	p.pieces, p.changed = p.pieces[:0], 0
	stretch := func(a, b int, s *set) {
		if a >= b {
			return
		}
		if a < from {
			p.put(a, s)
		}
		if a < to && b > from {
			painted := x.sets.with(s, bit, add)
			if painted != s {
				p.changed += min(b, to) - max(a, from)
			}
			p.put(max(a, from), painted)
		}
		if b > to {
			p.put(max(a, to), s)
		}
	}
	if r.rest == nil {
		stretch(0, len(r.hashes), r.set)
	} else {
		r.each(stretch)
	}
	stretch(len(r.hashes), len(hashes), x.sets.empty)
	if p.changed == 0 {
		return r
	}
	return x.finish(r, hashes)
}

// finish makes the successor of r from the gathered pieces.
func (x *Index) finish(r *run, hashes []block.Hash) *run {
	pieces := x.painter.pieces
	if last := len(pieces) - 1; last >= 0 && pieces[last].set == x.sets.empty {
		// Nobody holds the end: it goes. What is appended later must not overwrite what readers see.
		n := int(pieces[last].from)
		hashes, pieces = hashes[:n:n], pieces[:last]
		if n > 0 && 2*n < x.runs[r.id].room {
			hashes = append(slices.Grow([]block.Hash(nil), n), hashes...)
		}
	}
	next := &run{hashes: hashes, id: r.id}
	next.used.Store(max(r.used.Load(), usedStored))
	if len(pieces) > 0 {
		next.set = pieces[0].set
	}
	if len(pieces) > 1 {
		rest := slices.Clone(pieces[1:])
		next.rest = &rest
	}
	return next
}

// replace publishes the successor of a run; one without blocks is the run's end.
func (x *Index) replace(before, r *run) {
	if before == r {
		return
	}
	state := &x.runs[r.id]
	if len(before.hashes) > 0 {
		x.bytes -= x.runSize(before, state.room)
		x.blocks -= len(before.hashes)
		before.each(func(_, _ int, s *set) { x.sets.release(s) })
	}
	if len(r.hashes) == 0 {
		*state = runState{}
		x.release(r.id)
		if len(before.hashes) > 0 {
			x.bytes += x.table.put(before.hashes[0], nil)
			x.live--
		}
		return
	}
	if len(before.hashes) == 0 {
		x.live++
	}
	if len(before.hashes) == 0 || &before.hashes[0] != &r.hashes[0] {
		state.room = cap(r.hashes)
	}
	r.each(func(_, _ int, s *set) { x.sets.retain(s) })
	state.run = r
	x.bytes += x.runSize(r, state.room)
	x.blocks += len(r.hashes)
	x.bytes += x.table.put(r.hashes[0], r)
}

// runSize is the memory of a run.
func (x *Index) runSize(r *run, room int) int {
	n := runBytes + 8*room
	if r.rest != nil {
		n += restBytes + pieceBytes*cap(*r.rest)
	}
	return n
}
