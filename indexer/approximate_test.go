package indexer

import (
	"bytes"
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"attache/internal/slot"
)

// twin is the dumb second implementation: every slot's blocks as one slice, freshest first, and overlaps by walking.
type twin struct {
	cfg    Config
	now    uint32
	blocks map[slot.Slot][]held
	taught map[slot.Slot]*taught // what is believed of a slot's capacity: twin_feedback_test.go
}

type held struct {
	hash uint64
	at   uint32
}

func newTwin(cfg Config) *twin {
	return &twin{cfg: cfg, blocks: map[slot.Slot][]held{}, taught: map[slot.Slot]*taught{}}
}

func (w *twin) capacity(s slot.Slot) int { return w.of(s).capacity }

func (w *twin) setCapacity(s slot.Slot, blocks int) {
	if o := w.of(s); o.figure != blocks {
		o.figure, o.capacity, o.run = blocks, blocks, 0
	}
	w.drop(s, len(w.blocks[s])-w.capacity(s), true)
}

// drop gives up the oldest n blocks; those that went for want of room are remembered.
func (w *twin) drop(s slot.Slot, n int, room bool) {
	for range n {
		last := len(w.blocks[s]) - 1
		o := w.of(s)
		o.gone++
		if room {
			o.left[w.blocks[s][last].hash] = o.gone
		}
		w.blocks[s] = w.blocks[s][:last]
	}
}

func (w *twin) remember(s slot.Slot, chain []uint64, budget int) (more bool) {
	chain = chain[:min(len(chain), w.capacity(s), w.cfg.MaxBlocks)]
	holds := func(h uint64) bool {
		return slices.ContainsFunc(w.blocks[s], func(b held) bool { return b.hash == h })
	}
	n := 0
	for n < len(chain) && holds(chain[n]) {
		n++
	}
	now := chain[:min(n+budget, len(chain))]
	var list []held
	for _, h := range now {
		list = append(list, held{h, w.now})
	}
	for _, b := range w.blocks[s] {
		if !slices.Contains(now, b.hash) {
			list = append(list, b)
		}
	}
	w.blocks[s] = list
	w.drop(s, len(list)-w.capacity(s), true)
	for over := w.total() - w.cfg.MaxBlocks; over > 0; over = w.total() - w.cfg.MaxBlocks {
		victim, spare := w.stalest(s, len(now))
		w.drop(victim, min(over, spare, boundBatch), false)
	}
	return len(now) < len(chain)
}

// touch moves what is held of chain to the front, but leaves what was touched in this second where it is.
func (w *twin) touch(s slot.Slot, chain []uint64) {
	list := w.blocks[s]
	place := func(h uint64) int { return slices.IndexFunc(list, func(b held) bool { return b.hash == h }) }
	to := 0
	for _, h := range chain {
		from := place(h)
		if from < 0 || !w.alive(list[from]) {
			return
		}
		if list[from].at < w.now {
			list = slices.Insert(slices.Delete(list, from, from+1), to, held{h, w.now})
			from = to
		}
		to = from + 1
	}
}

func (w *twin) total() (n int) {
	for _, b := range w.blocks {
		n += len(b)
	}
	return n
}

// stalest follows the rule of the real one; the slots of the tests make their owners in ascending order.
func (w *twin) stalest(s slot.Slot, keep int) (victim slot.Slot, spare int) {
	oldest := ^uint32(0)
	for v := range slot.Slot(slots) {
		n := len(w.blocks[v])
		if v == s {
			n -= keep
		}
		if n > 0 && w.blocks[v][len(w.blocks[v])-1].at < oldest {
			oldest, victim, spare = w.blocks[v][len(w.blocks[v])-1].at, v, n
		}
	}
	return victim, spare
}

func (w *twin) overlap(s slot.Slot, chain []uint64) (n int32) {
	for _, h := range chain {
		if !slices.ContainsFunc(w.blocks[s], func(b held) bool {
			return b.hash == h && w.alive(b)
		}) {
			return n
		}
		n++
	}
	return n
}

// alive reports whether the block's time to live has not passed.
func (w *twin) alive(b held) bool { return w.cfg.TTL == 0 || b.at+uint32(w.cfg.TTL.Seconds()) >= w.now }

const slots = 5

// path turns symbols into a chain: a hash names its symbol and all before it. parents learns who stands before whom.
func path(symbols []byte, parents map[uint64]uint64) []uint64 {
	chain, parent := make([]uint64, len(symbols)), uint64(0)
	for i, c := range symbols {
		hi, lo := bits.Mul64(parent^uint64(c+1)*0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
		chain[i] = hi ^ lo ^ uint64(i)
		parents[chain[i]] = parent
		parent = chain[i]
	}
	return chain
}

// TestAgainstTwin runs random scripts on the table and on the twin, with either a time to live or a tight global bound:
// when expired blocks are freed is nobody's business, but decides whom the bound hits.
func TestAgainstTwin(t *testing.T) {
	for name, cfg := range map[string]Config{
		"capacity": {DefaultCapacity: 12, MaxBlocks: 1 << 20},
		"ttl":      {DefaultCapacity: 40, MaxBlocks: 1 << 20, TTL: 20 * time.Second},
		"bound":    {DefaultCapacity: 30, MaxBlocks: 45},
		"tiny":     {DefaultCapacity: 3, MaxBlocks: 4},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { script(t, cfg) })
		})
	}
}

func script(t *rapid.T, cfg Config) {
	tab, dumb := newTable(cfg), newTwin(cfg)
	for s := range slot.Slot(slots) {
		tab.ownerOf(s)
	}
	parents := map[uint64]uint64{}
	branchy := rapid.SliceOfN(rapid.ByteRange(0, 2), 0, 14)
	anyPath := rapid.Custom(func(t *rapid.T) []byte {
		if rapid.Bool().Draw(t, "branchy") {
			return branchy.Draw(t, "symbols")
		}
		talk := byte(rapid.IntRange(3, 6).Draw(t, "talk")) // long, and drawn again
		return bytes.Repeat([]byte{talk}, rapid.IntRange(8, 14).Draw(t, "blocks"))
	})
	anySlot := rapid.Custom(func(t *rapid.T) slot.Slot { return slot.Slot(rapid.IntRange(0, slots-1).Draw(t, "slot")) })
	var (
		dst     []int32
		pending []*twinMark
	)
	t.Repeat(map[string]func(*rapid.T){
		"remember": func(t *rapid.T) {
			s, chain := anySlot.Draw(t, "s"), path(anyPath.Draw(t, "path"), parents)
			budget := rapid.IntRange(1, 15).Draw(t, "budget")
			if len(chain) == 0 {
				return
			}
			var m, later Mark
			want := dumb.mark(s, chain)
			for target := &m; tab.remember(s, chain, dumb.now, budget, target); target = &later {
			}
			if cfg.TTL == 0 {
				if broken := want.compare(&m); broken != "" {
					t.Fatal(broken)
				}
				pending = append(pending, want)
			}
			for dumb.remember(s, chain, budget) {
			}
		},
		"again": func(t *rapid.T) { // what was decided long ago, reported as lost or as there
			s, chain := anySlot.Draw(t, "s"), path(anyPath.Draw(t, "path"), parents)
			for range rapid.IntRange(1, 3).Draw(t, "times") {
				if len(chain) == 0 || cfg.TTL != 0 {
					return
				}
				dumb.now += uint32(rapid.IntRange(0, 9).Draw(t, "seconds"))
				m := dumb.mark(s, chain)
				tab.remember(s, chain, dumb.now, len(chain), &m.real)
				if broken := m.compare(&m.real); broken != "" {
					t.Fatal(broken)
				}
				dumb.remember(s, chain, len(chain))
				delivered := rapid.SampledFrom([]int{0, 3, 14}).Draw(t, "delivered")
				correct(tab, &m.real, dumb.now, delivered, rapid.IntRange(1, 5).Draw(t, "budget"))
				dumb.correct(m, delivered)
			}
		},
		"report": func(t *rapid.T) { // of any decision, at any time, and perhaps wrong
			if len(pending) == 0 {
				return
			}
			m := pending[rapid.IntRange(0, len(pending)-1).Draw(t, "decision")]
			delivered := rapid.SampledFrom([]int{0, 0, 2, 7, 14}).Draw(t, "delivered")
			correct(tab, &m.real, dumb.now, delivered, rapid.IntRange(1, 5).Draw(t, "budget"))
			dumb.correct(m, delivered)
		},
		"top": func(t *rapid.T) {
			s, n := anySlot.Draw(t, "s"), rapid.IntRange(1, 6).Draw(t, "n")
			w := walk{slot: s}
			for tab.walkOn(&w, dumb.now, rapid.IntRange(1, 9).Draw(t, "budget")) {
			}
			if got, want := w.top(n), dumb.top(s, n, parents); !slices.Equal(got, want) {
				t.Fatalf("slot %d: top %d are %x, want %x", s, n, got, want)
			}
		},
		"touch": func(t *rapid.T) {
			s, chain := anySlot.Draw(t, "s"), path(anyPath.Draw(t, "path"), parents)
			budget := rapid.IntRange(1, 15).Draw(t, "budget")
			for tab.refresh(s, chain, dumb.now, budget) {
			}
			dumb.touch(s, chain)
		},
		"capacity": func(t *rapid.T) {
			s, blocks := anySlot.Draw(t, "s"), rapid.IntRange(1, 2*cfg.DefaultCapacity).Draw(t, "blocks")
			for tab.setCapacity(s, blocks, 2) {
			}
			dumb.setCapacity(s, blocks)
		},
		"clear": func(t *rapid.T) { // owners come back in the same order only when a slot is set up again at once
			s := anySlot.Draw(t, "s")
			if cfg.MaxBlocks < 1<<20 {
				return
			}
			former := tab.detach(s)
			if got := tab.overlap(path([]byte{0}, parents), dumb.now, nil)[s]; got != 0 {
				t.Fatalf("a cleared slot still holds %d blocks", got)
			}
			for former != 0 && tab.drain(former, 3) {
			}
			delete(dumb.blocks, s)
			delete(dumb.taught, s)
		},
		"wait": func(t *rapid.T) { dumb.now += uint32(rapid.IntRange(0, 15).Draw(t, "seconds")) },
		"": func(t *rapid.T) {
			if broken := check(tab, parents); broken != "" {
				t.Fatal(broken)
			}
			chain := path(anyPath.Draw(t, "asked"), parents)
			dst = tab.overlap(chain, dumb.now, dst)
			for s := range slot.Slot(slots) {
				if want := dumb.overlap(s, chain); dst[s] != want {
					t.Fatalf("slot %d holds %d leading blocks of %x, want %d", s, dst[s], chain, want)
				}
				if cfg.TTL != 0 {
					continue
				}
				if got, want := tab.owners[tab.owner(s)].capacity, dumb.capacity(s); tab.owner(s) != 0 && got != want {
					t.Fatalf("slot %d: capacity %d, want %d", s, got, want)
				}
				if got := tab.list(s); !slices.Equal(got, dumb.blocks[s]) {
					t.Fatalf("slot %d holds %x, want %x", s, got, dumb.blocks[s])
				}
			}
		},
	})
}

// list is what the slot holds, freshest first.
func (t *table) list(s slot.Slot) (all []held) {
	for id := t.owners[t.owner(s)].head; id != 0; id = t.at(id).older {
		all = append(all, held{t.at(id).hash, t.at(id).at})
	}
	return all
}

// check verifies the links, the counts, and the invariant: in every list a parent stands before its children and is at
// least as fresh. It returns what is broken. parents may be nil: then only the links and counts are looked at.
func check(t *table, parents map[uint64]uint64) string {
	total := 0
	for i := range t.owners {
		o, seen, newer, at := &t.owners[i], map[uint64]bool{0: true}, int32(0), ^uint32(0)
		n := 0
		for id := o.head; id != 0; id = t.at(id).older {
			b, l := t.at(id), t.links(id)
			switch {
			case l.newer != newer || l.owner != uint32(i):
				return fmt.Sprintf("owner %d: node %d is linked to %d and owned by %d", i, id, l.newer, l.owner)
			case b.at > at:
				return fmt.Sprintf("owner %d: node %d is fresher than the one before", i, id)
			case parents != nil && !seen[parents[b.hash]]:
				return fmt.Sprintf("owner %d: block %x stands before its parent, or is held without it", i, b.hash)
			}
			seen[b.hash], newer, at = true, id, b.at
			if n++; n > o.held {
				return fmt.Sprintf("owner %d: more nodes than the %d held", i, o.held)
			}
		}
		if n != o.held || o.tail != newer {
			return fmt.Sprintf("owner %d: %d nodes ending in %d, want %d ending in %d", i, n, newer, o.held, o.tail)
		}
		if o.slot != slot.None && o.held > o.capacity {
			return fmt.Sprintf("slot %d: %d blocks held, capacity %d", o.slot, o.held, o.capacity)
		}
		total += n
	}
	listed, broken := 0, ""
	t.first.each(func(first int32) {
		hash, prev := t.at(first).hash, int32(0)
		if t.first.find(hash, &t.slab) != first {
			broken = fmt.Sprintf("%x is not found where it stands", hash)
		}
		for id := first; id != 0; prev, id = id, t.links(id).next {
			if t.links(id).prev != prev || t.at(id).hash != hash {
				broken = fmt.Sprintf("holders of %x: node %d has hash %x and is linked to %d", hash, id, t.at(id).hash, t.links(id).prev)
			}
			listed++
		}
	})
	if broken != "" {
		return broken
	}
	if total != t.held || listed != total || total > t.bound {
		return fmt.Sprintf("%d nodes in the lists of owners, %d in those of hashes, %d counted, bound %d", total, listed, t.held, t.bound)
	}
	return ""
}

// TestHashesThatLie feeds chains in which a hash does not name what is before it, repeats included: overlaps may be wrong,
// the lists may not.
func TestHashesThatLie(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := newTable(Config{DefaultCapacity: rapid.IntRange(1, 9).Draw(t, "capacity"), MaxBlocks: 12, TTL: 3 * time.Second})
		anyChain := rapid.SliceOfN(rapid.Uint64Range(1, 6), 1, 10)
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			s := slot.Slot(rapid.IntRange(0, 2).Draw(t, "slot"))
			chain := anyChain.Draw(t, "chain")
			var m Mark
			tab.remember(s, chain, uint32(i/4), rapid.IntRange(1, 10).Draw(t, "budget"), &m)
			m.at += uint32(rapid.IntRange(0, 9).Draw(t, "later"))
			correct(tab, &m, uint32(i/4), rapid.IntRange(0, 9).Draw(t, "delivered"), 2)
			w := walk{slot: s}
			for tab.walkOn(&w, uint32(i/4), 3) {
			}
			w.top(5)
			tab.refresh(s, anyChain.Draw(t, "touched"), uint32(i/4), rapid.IntRange(1, 10).Draw(t, "touches"))
			tab.overlap(anyChain.Draw(t, "asked"), uint32(i/4), nil)
			if broken := check(tab, nil); broken != "" {
				t.Fatalf("step %d: %s", i, broken)
			}
		}
	})
}
