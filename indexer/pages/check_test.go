package pages

// tester is what a check needs of a test, plain or random.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// check verifies what must hold between calls: every figure that is kept by adding and subtracting equals what a walk over
// everything finds, every page is found by its key, and no page is remembered that nothing needs.
func check(t tester, j *Joiner) {
	t.Helper()
	free := map[uint32]bool{}
	for l := j.free; l != 0; l = j.line(l).younger {
		if free[l] {
			t.Fatalf("line %d is free twice", l)
		}
		free[l] = true
	}
	pages, waiting, lines, bytes, roots, blocks := 0, 0, 0, tableBytes+joinerBytes, 0, [tiers]int{}
	for c, chunk := range j.chunks {
		bytes += chunkLines*lineBytes + 8*len(chunk.keys) + len(chunk.tokens) + len(chunk.extra)
		for i := range chunkLines {
			l := uint32(c<<chunkBits + i)
			if l == 0 || free[l] {
				continue
			}
			lines++
			h := j.line(l)
			pages += int(h.n - h.from)
			if h.waits {
				waiting += int(h.n - h.from)
				if h.base == 0 {
					roots++
				}
			}
			checkLine(t, j, l)
			for tier, on := 0, j.completeOn(h); tier < tiers; tier++ {
				blocks[tier] += int(on >> tier & 1)
			}
		}
	}
	entries := 0
	for i := range j.table.parts {
		p := &j.table.parts[i]
		bytes += len(p.slots) * slotBytes
		n := 0
		for _, e := range p.slots {
			if e == 0 {
				continue
			}
			n++
			if at := j.lookup(j.keyAt(e.place())); at != e.place() {
				t.Errorf("slot with place %x: its key is found at %x", e.place(), at)
			}
		}
		if n != p.n {
			t.Errorf("%d entries in a part that counts %d", n, p.n)
		}
		entries += n
	}
	young := uint32(0)
	for l := j.trees.oldest; l != 0; l = j.line(l).younger {
		roots--
		bytes += treeBytes
		found := 0
		for _, other := range j.trees.byParent[j.line(l).seed] {
			if other == l {
				found++
			}
		}
		if h := j.line(l); found != 1 || h.older != young || !h.waits || h.base != 0 {
			t.Errorf("tree %d: %d times in the list of those that wait for its parent", l, found)
		}
		young = l
	}
	if roots != 0 || young != j.trees.youngest {
		t.Errorf("%d trees are not in the list by age, or in it and no trees", roots)
	}
	if entries != pages || pages != j.pages || waiting != j.waiting || lines != j.lines || blocks != j.blocks || bytes != j.bytes {
		t.Errorf("%d pages, %d waiting, %d lines, %d blocks, %d bytes counted; found %d (%d in the table), %d, %d, %d, %d",
			j.pages, j.waiting, j.lines, j.blocks, j.bytes, pages, entries, waiting, lines, blocks, bytes)
	}
	if pages > j.cfg.Limit || waiting > j.cfg.Waiting {
		t.Errorf("%d pages and %d waiting: more than allowed", pages, waiting)
	}
	if len(j.out.Keys) != 0 || j.stored != nil || j.removed != nil {
		t.Errorf("something of the last call is left")
	}
}

func checkLine(t tester, j *Joiner, l uint32) {
	t.Helper()
	h := j.line(l)
	if h.n <= h.from || int(h.n) > j.width {
		t.Fatalf("line %d has pages %d to %d", l, h.from, h.n)
	}
	all := uint64(0)
	for tier, held := range h.held {
		all |= held
		if held != 0 && tierOf(tier) > j.lowest {
			t.Errorf("line %d holds %b on tier %d, which was never used", l, held, tier)
		}
		if held&^span(int(h.from), int(h.n)) != 0 {
			t.Errorf("line %d holds %b on tier %d, its pages are %d to %d", l, held, tier, h.from, h.n)
		}
	}
	for i := int(h.from); i < int(h.n); i++ {
		at := placeOf(l, i)
		if j.lookup(j.keyAt(at)) != at {
			t.Errorf("page %d of line %d is not found", i, l)
		}
		for tier := range tiers {
			if e := j.extraOf(at, tierOf(tier), false); e != nil && *e > 0 && h.held[tier]>>i&1 == 0 {
				t.Errorf("page %d of line %d: copies of what is not held", i, l)
			}
		}
	}
	needed := h.nexts != 0
	for _, first := range []uint32{h.branches, h.nexts} {
		before := uint32(0)
		for c := first; c != 0; c = j.line(c).younger {
			b := j.line(c)
			if b.base != l || b.older != before || b.waits != h.waits || (b.from > 0) != (first == h.branches) {
				t.Errorf("line %d is not linked as its base, %d, says", c, l)
			}
			if b.from <= h.from && b.from > 0 || b.from > h.n || b.from == 0 && int(h.n) < j.width {
				t.Errorf("line %d goes on at page %d of line %d, which has %d to %d", c, b.from, l, h.from, h.n)
			}
			needed = needed || b.from == h.n
			before = c
		}
		if h.branches == h.nexts {
			break // both are empty
		}
	}
	if !needed && all>>(h.n-1) == 0 {
		t.Errorf("the last page of line %d is remembered, but nothing needs it", l)
	}
}
