package indexer

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"attache/internal/slot"
)

// taught is what the twin believes of a slot's capacity.
type taught struct {
	capacity, figure    int
	run                 int
	lost, lostAge, when uint32
	gone                uint32
	left                map[uint64]uint32 // blocks that went for want of room: how many were gone then
}

func (w *twin) of(s slot.Slot) *taught {
	if w.taught[s] == nil {
		w.taught[s] = &taught{capacity: w.cfg.DefaultCapacity, left: map[uint64]uint32{}}
	}
	return w.taught[s]
}

// twinMark keeps everything: the age of every block, and the mark of the table beside it.
type twinMark struct {
	real      Mark
	slot      slot.Slot
	of        *taught // another one since the slot was cleared
	at        uint32
	held      int
	gone      uint32
	predicted int
	ages      []uint32 // of the leading blocks held
	short     bool     // a block is missing that went for want of room, or for which there never was
	evicted   uint32   // how many went since
}

func (w *twin) mark(s slot.Slot, chain []uint64) *twinMark {
	o := w.of(s)
	m := &twinMark{slot: s, of: o, at: w.now, held: len(w.blocks[s]), gone: o.gone}
	cut := min(len(chain), o.capacity, w.cfg.MaxBlocks)
	for _, h := range chain[:cut] {
		i := slices.IndexFunc(w.blocks[s], func(b held) bool { return b.hash == h })
		if i < 0 {
			break
		}
		m.ages = append(m.ages, w.blocks[s][i].at)
	}
	m.predicted = len(m.ages)
	if m.predicted < len(chain) {
		at, left := o.left[chain[m.predicted]]
		m.short, m.evicted = left, o.gone-at
		if m.predicted == cut {
			m.short, m.evicted = true, 0
		}
	}
	return m
}

// compare keeps the table's mark, and says where it differs. The table may have forgotten that a block went for want of
// room: then this mark forgets it, too.
func (m *twinMark) compare(got *Mark) string {
	m.real = *got
	if got.beyond < 0 {
		m.short = false
	}
	if got.Blocks() != m.predicted || int(got.held) != m.held || got.gone != m.gone {
		return fmt.Sprintf("mark %+v, want %+v", got, m)
	}
	if got.beyond >= 0 && (!m.short || uint32(got.beyond) != m.evicted) {
		return fmt.Sprintf("mark %+v tells of a block gone for want of room, want %+v", got, m)
	}
	for i := range m.ages {
		if at := got.touched(i); at != m.touched(i) || at > m.ages[i] {
			return fmt.Sprintf("mark %+v: block %d touched at %d, want %d", got, i, got, m.touched(i))
		}
	}
	return ""
}

// touched is the age of a block, from the fourth stretch of equal ages on that of the last.
func (m *twinMark) touched(i int) uint32 {
	stretches := slices.Compact(slices.Clone(m.ages[:i+1]))
	if len(stretches) < 4 {
		return m.ages[i]
	}
	return m.ages[len(m.ages)-1]
}

// correct is what Index.Correct does, in pieces of the budget.
func correct(t *table, m *Mark, now uint32, delivered, budget int) {
	t.now = max(t.now, now)
	l, lost := t.judge(m, delivered)
	if !lost {
		return
	}
	for t.count(&l, budget) {
	}
	for surplus := t.shrink(m, &l); surplus > 0; {
		surplus = t.giveUp(&l, surplus, budget)
	}
}

func (w *twin) correct(m *twinMark, delivered int) {
	o := w.of(m.slot)
	slack := 2 + m.predicted/16
	switch {
	case o != m.of:
	case delivered < m.predicted-slack:
		at := m.touched(min(delivered+slack, m.predicted-1))
		if m.at-at < settling || at <= o.lost && m.at <= o.when {
			return
		}
		o.lost, o.lostAge, o.when = at, m.at-at, w.now
		behind, upper := 0, m.held
		for _, b := range w.blocks[m.slot] {
			if b.at < at {
				behind++
			}
		}
		if behind > 0 {
			upper = max(m.held-behind-int(o.gone-m.gone), 0)
		}
		o.run = max(o.run, 0) + 1
		gain := gains[over][min(o.run, 3)-1]
		told := cmp.Or(o.figure, w.cfg.DefaultCapacity)
		if upper < o.capacity {
			o.capacity = min(max(o.capacity-int(gain*float64(o.capacity-upper)), told/shrinkage, 1), o.capacity)
		}
		surplus := max(int(gain*float64(behind)), len(w.blocks[m.slot])-o.capacity)
		w.drop(m.slot, max(min(surplus, behind), 0), true)
		o.capacity = max(o.capacity, len(w.blocks[m.slot]))
	case m.short && delivered > m.predicted+slack:
		most := cmp.Or(o.figure, max(min(growth*w.cfg.DefaultCapacity, w.cfg.MaxBlocks), w.cfg.DefaultCapacity))
		lower := min(max(m.held+int(m.evicted), delivered), most)
		if lower > o.capacity {
			o.run = min(o.run, 0) - 1
			o.capacity += max(int(gains[under][min(-o.run, 3)-1]*float64(lower-o.capacity)), 1)
		}
	case m.predicted > 0 && o.run > 0 && m.at-m.touched(m.predicted-1) >= o.lostAge:
		o.run = 0
	}
}

// top finds the prefixes that none other goes on from by looking at all pairs.
func (w *twin) top(s slot.Slot, n int, parents map[uint64]uint64) []Prefix {
	all := []Prefix{}
	for _, b := range w.blocks[s] {
		if !w.alive(b) || slices.ContainsFunc(w.blocks[s], func(c held) bool { return parents[c.hash] == b.hash && w.alive(c) }) {
			continue
		}
		p := Prefix{Hash: b.hash, Age: time.Duration(w.now-b.at) * time.Second}
		for h := b.hash; h != 0; h = parents[h] {
			p.Blocks++
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Prefix) int {
		return cmp.Or(cmp.Compare(a.Age, b.Age), cmp.Compare(b.Blocks, a.Blocks), cmp.Compare(a.Hash, b.Hash))
	})
	return all[:min(n, len(all))]
}
