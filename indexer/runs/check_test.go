package runs

import "slices"

// tester is what check needs of a test, plain or random.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
}

// check verifies what must hold of an index between calls: every figure that is kept by adding and subtracting equals what
// a walk over everything finds.
func check(t tester, x *Index) {
	t.Helper()
	refs := map[*set]int{x.sets.empty: 1}
	bytes, blocks, live := indexBytes+x.view.Load().bytes(), 0, 0
	held := make([]int, len(x.owners))
	for id, state := range x.runs {
		r := state.run
		if r == nil {
			continue
		}
		live++
		blocks += len(r.hashes)
		bytes += x.runSize(r, state.room)
		if int(r.id) != id || len(r.hashes) == 0 || len(r.hashes) > state.room || x.table.get(r.hashes[0]) != r {
			t.Errorf("run %d of number %d, %d blocks with room for %d, is not where its first hash leads", id, r.id, len(r.hashes), state.room)
		}
		last := -1
		var before *set
		r.each(func(from, to int, s *set) {
			if from <= last || from >= to || s == before || x.sets.intern(s.words) != s {
				t.Errorf("run %d: piece %d to %d out of order, equal to its neighbour, or of a set that is not the one", id, from, to)
			}
			last, before = from, s
			refs[s]++
			s.each(func(bit int) { held[bit] += to - from })
		})
		if before == x.sets.empty {
			t.Errorf("run %d ends with blocks that nobody holds", id)
		}
	}
	n := 0
	x.table.each(func(*run) { n++ })
	if live != x.live || blocks != x.blocks || n != live {
		t.Errorf("%d runs and %d blocks counted, %d and %d found, %d in the table", x.live, x.blocks, live, blocks, n)
	}
	checkSets(t, x, refs)
	bytes += stateBytes*cap(x.runs) + 4*cap(x.free) + 8*(cap(x.workers)+cap(x.parked))
	bytes += 4 * (cap(x.reclaim.evicted[0]) + cap(x.reclaim.evicted[1]))
	for i := range x.table.parts {
		bytes += x.table.parts[i].Load().bytes()
	}
	allHeld, allStale := 0, 0
	for bit, h := range x.owners {
		if h == nil {
			continue
		}
		bytes += holderBytes + h.engine.bytes()
		live, stale, announced := checkMap(t, x, h)
		if live != h.held || stale != h.stale || announced != h.announced || held[bit] != h.held {
			t.Errorf("%v: %d held, %d stale, %d announced; found %d, %d, %d, and %d in runs",
				h.Holder, h.held, h.stale, h.announced, live, stale, announced, held[bit])
		}
		allHeld, allStale = allHeld+h.held, allStale+h.stale
	}
	if allHeld != x.held || allStale != x.stale {
		t.Errorf("%d held and %d stale in all, found %d and %d", x.held, x.stale, allHeld, allStale)
	}
	waiting := 0
	for o := x.waiting.oldest; o != nil; o = o.next {
		bytes += o.bytes()
		waiting += len(o.Engine)
	}
	for _, w := range slices.Concat(x.workers, x.parked) {
		if w != nil {
			bytes += workerBytes
			for _, o := range w.orphans.all {
				waiting -= len(o.Engine)
			}
		}
	}
	if waiting != 0 {
		t.Errorf("the slots' lists of orphans differ from that of all by %d blocks", waiting)
	}
	if bytes != x.bytes {
		t.Errorf("%d bytes accounted, %d found", x.bytes, bytes)
	}
}

func checkSets(t tester, x *Index, refs map[*set]int) {
	t.Helper()
	bytes, n, unused := memoBytes+8*len(x.sets.buckets), 0, 0
	for _, s := range x.sets.buckets {
		for ; s != nil; s = s.next {
			bytes += s.bytes()
			n++
			if s.refs == 0 {
				unused++
			}
			if s.refs != refs[s] {
				t.Errorf("set %x used %d times, counted %d", s.words, refs[s], s.refs)
			}
		}
	}
	if bytes != x.sets.bytes || n != x.sets.n || unused != x.sets.unused {
		t.Errorf("sets: %d bytes, %d sets, %d unused accounted; found %d, %d, %d", x.sets.bytes, x.sets.n, x.sets.unused, bytes, n, unused)
	}
}

// checkMap looks at all keys of a holder's map.
func checkMap(t tester, x *Index, h *holder) (live, stale, announced int) {
	t.Helper()
	n := 0
	for i := range h.engine.parts {
		p := &h.engine.parts[i]
		in := 0
		for _, e := range p.slots {
			if e.place == 0 {
				continue
			}
			in++
			announced += e.place.count()
			if h.engine.get(e.key) != e.place {
				t.Errorf("%v: key %x is not found", h.Holder, e.key)
			}
			if r := x.runs[e.place.run()].run; r == nil {
				stale++
			} else if live++; e.place.offset() >= len(r.hashes) {
				t.Errorf("%v: key %x leads behind the end of a run", h.Holder, e.key)
			}
		}
		if in != p.n {
			t.Errorf("%v: %d keys in a part that counts %d", h.Holder, in, p.n)
		}
		n += in
	}
	if n != h.engine.n {
		t.Errorf("%v: %d keys in a map that counts %d", h.Holder, n, h.engine.n)
	}
	return live, stale, announced
}
