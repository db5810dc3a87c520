package runs

import (
	"io"
	"slices"

	"attache/internal/packed"
	"attache/internal/slot"
)

// A snapshot is, numbers as unsigned varints unless said otherwise:
//
//	"attache runs" and the version, one byte
//	slots:   how many; each its number, 1 if Settings.Sets, Settings.Blocks by tier
//	holders: how many; each its slot and its tier
//	sets:    how many; each how many holders, and their numbers as differences
//	runs:    how many; each how many hashes, the hashes (8 bytes, little-endian), how many pieces,
//	         and for each piece its length and the number of its set
//	maps:    for each holder how many keys; each the key (8 bytes), the run's number, the offset, and the count
//	XXH3-64 of all before it (8 bytes)
//
// Holders, sets and runs are numbered in the order in which they stand. Set 0 is the empty one.
const (
	snapshotMagic   = "attache runs"
	snapshotVersion = 1
)

// Frozen is an index at one moment, ready to be written while the index goes on. It shares the runs of the index, and has
// its own copy of the engine maps.
type Frozen struct {
	settings []frozenSettings
	holders  []Holder
	maps     []engineMap
	number   []uint32 // by bit: of the holder, plus 1; 0: not in use
	runs     []*run
	runOf    []uint32 // by run id: its place among those written, plus 1; 0: evicted, or nobody in the snapshot holds it
}

type frozenSettings struct {
	Settings

	slot int
}

// Freeze captures the index. It copies the engine maps, 21 to 32 bytes a held block, and a pointer per run: about 10 ms
// for a million blocks. What waits for a parent is left out, and so are parked slots and those that wanted is
// false of; nil: none. The writer's.
func (x *Index) Freeze(wanted func(slot.Slot) bool) *Frozen {
	f := &Frozen{number: make([]uint32, len(x.owners)), runOf: make([]uint32, len(x.runs))}
	for s, w := range x.workers {
		if w != nil && (wanted == nil || wanted(slot.Slot(s))) {
			f.settings = append(f.settings, frozenSettings{Settings{Sets: w.sets, Blocks: w.expected}, s})
		}
	}
	for bit, h := range x.owners {
		if h == nil || h.parked || wanted != nil && !wanted(h.Slot) {
			continue
		}
		f.holders = append(f.holders, h.Holder)
		f.number[bit] = uint32(len(f.holders))
		m := h.engine
		for i := range m.parts {
			m.parts[i].slots = slices.Clone(m.parts[i].slots)
		}
		f.maps = append(f.maps, m)
	}
	for _, state := range x.runs {
		if state.run != nil {
			f.runs = append(f.runs, state.run)
		}
	}
	return f
}

// WriteTo writes the snapshot. Any goroutine may call it, once.
func (f *Frozen) WriteTo(w io.Writer) (int64, error) {
	e := packed.NewWriter(w)
	e.Raw([]byte(snapshotMagic))
	e.Raw([]byte{snapshotVersion})
	e.Number(len(f.settings))
	for _, s := range f.settings {
		e.Number(s.slot)
		e.Flag(s.Sets)
		for _, n := range s.Blocks {
			e.Number(n)
		}
	}
	e.Number(len(f.holders))
	for _, h := range f.holders {
		e.Number(int(h.Slot))
		e.Number(int(h.Tier))
	}
	numbers := f.writeSets(e)
	kept := f.keepHeld(numbers)
	e.Number(len(kept))
	for _, r := range kept {
		e.Number(len(r.hashes))
		for _, h := range r.hashes {
			e.Word(h)
		}
		e.Number(r.pieces())
		r.each(func(from, to int, s *set) {
			e.Number(to - from)
			e.Number(numbers[s])
		})
	}
	for i := range f.maps {
		f.writeMap(e, &f.maps[i])
	}
	return e.Close()
}

// keepHeld returns the runs of which a holder in the snapshot holds something, and numbers them.
func (f *Frozen) keepHeld(numbers map[*set]int) []*run {
	kept := make([]*run, 0, len(f.runs))
	for _, r := range f.runs {
		held := false
		r.each(func(_, _ int, s *set) { held = held || numbers[s] != 0 })
		f.runOf[r.id] = 0
		if held {
			kept = append(kept, r)
			f.runOf[r.id] = uint32(len(kept))
		}
	}
	return kept
}

// writeSets writes the sets in use and returns their numbers.
func (f *Frozen) writeSets(e *packed.Writer) map[*set]int {
	numbers := map[*set]int{}
	members := [][]uint32{{}}
	for _, r := range f.runs {
		r.each(func(_, _ int, s *set) {
			if _, ok := numbers[s]; ok {
				return
			}
			var in []uint32
			s.each(func(bit int) {
				if n := f.number[bit]; n != 0 {
					in = append(in, n-1)
				}
			})
			if numbers[s] = 0; len(in) > 0 {
				slices.Sort(in)
				numbers[s] = len(members)
				members = append(members, in)
			}
		})
	}
	e.Number(len(members))
	for _, in := range members {
		e.Number(len(in))
		before := uint32(0)
		for _, n := range in {
			e.Number(int(n - before))
			before = n
		}
	}
	return numbers
}

func (f *Frozen) writeMap(e *packed.Writer, m *engineMap) {
	n := 0
	each := func(do func(entry, uint32)) {
		for i := range m.parts {
			for _, en := range m.parts[i].slots {
				if en.place == 0 {
					continue
				}
				if r := f.runOf[en.place.run()]; r != 0 {
					do(en, r-1)
				}
			}
		}
	}
	each(func(entry, uint32) { n++ })
	e.Number(n)
	each(func(en entry, run uint32) {
		e.Word(en.key)
		e.Number(int(run))
		e.Number(en.place.offset())
		e.Number(en.place.count())
	})
}
