package runs

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"attache/internal/block"
	"attache/internal/slot"
)

// twin is the dumb index: how often each holder announced each block, and a walk along the chain for every slot.
type twin struct {
	held    map[Holder]map[block.Hash]int
	sets    map[slot.Slot]bool
	waiting []*twinOrphan
}

type twinOrphan struct {
	holder Holder
	parent block.Hash
	blocks []block.Hash
	gone   []bool
	again  bool
}

func newTwin() *twin {
	return &twin{held: map[Holder]map[block.Hash]int{}, sets: map[slot.Slot]bool{}}
}

func (w *twin) of(h Holder) map[block.Hash]int {
	if w.held[h] == nil {
		w.held[h] = map[block.Hash]int{}
	}
	return w.held[h]
}

func (w *twin) holds(s slot.Slot, b block.Hash) bool {
	for t := range tiers {
		if w.of(Holder{s, slot.Tier(t)})[b] > 0 {
			return true
		}
	}
	return false
}

func (w *twin) store(h Holder, parent block.Hash, blocks []block.Hash, again bool) Outcome {
	if len(blocks) == 0 {
		return Applied
	}
	if parent != 0 && !w.holds(h.Slot, parent) {
		w.waiting = append(w.waiting, &twinOrphan{h, parent, slices.Clone(blocks), make([]bool, len(blocks)), again})
		return Waiting
	}
	w.add(h, blocks, again)
	var queue []*twinOrphan
	ready := func(blocks []block.Hash) {
		for _, b := range blocks {
			w.waiting = slices.DeleteFunc(w.waiting, func(o *twinOrphan) bool {
				if o.holder.Slot == h.Slot && o.parent == b {
					queue = append(queue, o)
					return true
				}
				return false
			})
		}
	}
	for ready(blocks); len(queue) > 0; {
		o := queue[0]
		queue = queue[1:]
		if !w.holds(h.Slot, o.parent) { // removed again
			w.waiting = append(w.waiting, o)
			continue
		}
		held := w.of(o.holder)
		var gone []block.Hash
		for i, b := range o.blocks {
			if o.gone[i] && (!w.sets[h.Slot] && !o.again || held[b] == 0) {
				gone = append(gone, b)
			}
		}
		w.add(o.holder, o.blocks, o.again)
		for _, b := range gone {
			w.take(o.holder, b)
		}
		ready(o.blocks)
	}
	return Applied
}

func (w *twin) add(h Holder, blocks []block.Hash, again bool) {
	held := w.of(h)
	for _, b := range blocks {
		if again || w.sets[h.Slot] {
			held[b] = max(held[b], 1)
		} else {
			held[b]++
		}
	}
}

func (w *twin) take(h Holder, b block.Hash) {
	held := w.of(h)
	if held[b]--; held[b] <= 0 || w.sets[h.Slot] {
		delete(held, b)
	}
}

func (w *twin) storeKnown(h Holder, blocks []block.Hash) (unknown int) {
	for _, b := range blocks {
		if w.holds(h.Slot, b) {
			w.add(h, []block.Hash{b}, false)
		} else {
			unknown++
		}
	}
	return unknown
}

func (w *twin) remove(h Holder, blocks []block.Hash) {
	for _, b := range blocks {
		found := w.of(h)[b] > 0
		if found {
			w.take(h, b)
		}
		if found && !w.sets[h.Slot] {
			continue
		}
	orphans:
		for _, o := range w.waiting {
			for i := range o.blocks {
				if o.holder == h && o.blocks[i] == b && !o.gone[i] {
					o.gone[i] = true
					if !w.sets[h.Slot] {
						break orphans
					}
				}
			}
		}
	}
}

func (w *twin) clear(h Holder) {
	delete(w.held, h)
	w.waiting = slices.DeleteFunc(w.waiting, func(o *twinOrphan) bool { return o.holder == h })
}

// overlap goes on in the next tier where one ends.
func (w *twin) overlap(s slot.Slot, chain []block.Hash) (hit Hit) {
	hit.Slot = s
	for t, at := 0, 0; t < tiers; t++ {
		held := w.held[Holder{s, slot.Tier(t)}]
		for ; at < len(chain) && held[chain[at]] > 0; at++ {
			hit.Blocks[t]++
		}
	}
	return hit
}

// forest makes chains that branch off each other, of local hashes and of sequence hashes.
func forest(r *rand.Rand, n, length int) (local, chains [][]uint64) {
	for range n {
		var l []uint64
		if len(local) > 0 && r.IntN(4) > 0 {
			p := local[r.IntN(len(local))]
			l = slices.Clone(p[:r.IntN(len(p)+1)])
		}
		for range 1 + r.IntN(length) {
			l = append(l, r.Uint64())
		}
		local, chains = append(local, l), append(chains, chainOf(l))
	}
	return local, chains
}

const (
	scriptSlots  = 3
	scriptChains = 12
)

// script runs operations read from bytes on an index and on its twin, and compares them.
type script struct {
	t tester
	b []byte
	x *Index
	w *twin

	local, chains [][]uint64
}

func (s *script) next() int {
	if len(s.b) == 0 {
		return 0
	}
	n := int(s.b[0])
	s.b = s.b[1:]
	return n
}

// below returns a number below n, n up to 65536.
func (s *script) below(n int) int {
	if n <= 256 {
		return s.next() % n
	}
	return (s.next()<<8 | s.next()) % n
}

// engine is the engine hash of a block on a holder: workers use hashes of their own.
func (s *script) engine(h Holder, blocks ...block.Hash) []uint64 {
	return engineOf(blocks, uint64(h.Slot)+7)
}

func newScript(t tester, b []byte) *script {
	s := &script{t: t, b: b, w: newTwin()}
	s.x = New(roomy())
	r := rand.New(rand.NewPCG(uint64(s.next()), 1))
	length := []int{4, 30, 200, 900}[s.next()%4]
	s.local, s.chains = forest(r, scriptChains, length)
	for i := range slot.Slot(scriptSlots) {
		s.configure(i)
	}
	return s
}

func (s *script) configure(i slot.Slot) {
	settings := Settings{Sets: i%2 == 1, Blocks: [tiers]int{0, 300}}
	s.x.Configure(i, settings)
	s.w.sets[i] = settings.Sets
}

func (s *script) run() {
	for len(s.b) > 0 {
		s.step()
		s.query()
	}
	check(s.t, s.x)
	s.reload()
	for i := range slot.Slot(scriptSlots) {
		s.x.RemoveSlot(i)
	}
	for s.x.Tidy(3) {
	}
	check(s.t, s.x)
	if st := s.x.Stats(); st.Runs != 0 || st.Held != 0 || st.Blocks != 0 || st.Waiting != 0 || st.Retired != 0 {
		s.t.Errorf("after all slots were removed: %+v", st)
	}
}

func (s *script) step() {
	op := s.next()
	h := Holder{Slot: slot.Slot(s.below(scriptSlots))}
	if tier := s.next(); tier >= 128 {
		h.Tier = slot.Tier(tier % tiers)
	}
	c := s.next() % scriptChains
	chain, local := s.chains[c], s.local[c]
	from := s.below(len(chain))
	to := from + 1 + s.below(len(chain)-from)
	switch {
	case op < 130:
		for op >= 40 && from > 0 && !s.w.holds(h.Slot, chain[from-1]) {
			from-- // most have a parent
		}
		st := Stored{Root: from == 0, Engine: s.engine(h, chain[from:to]...), Hashes: local[from:to], Again: op%8 == 0}
		var parent block.Hash
		if from > 0 {
			parent = chain[from-1]
			st.Parent = s.engine(h, parent)[0]
		}
		if op%2 == 0 {
			st.Hashes, st.Chained = chain[from:to], true
		}
		if got, want := s.x.Store(h, st), s.w.store(h, parent, chain[from:to], st.Again); got != want {
			s.t.Errorf("store of [%d,%d) of chain %d for %v: outcome %d, want %d", from, to, c, h, got, want)
		}
	case op < 220:
		gone := slices.Clone(chain[from:to])
		switch op % 3 {
		case 0:
			slices.Reverse(gone)
		case 1:
			r := rand.New(rand.NewPCG(uint64(op), uint64(len(s.b))))
			r.Shuffle(len(gone), func(i, j int) { gone[i], gone[j] = gone[j], gone[i] })
			gone = append(gone[:(len(gone)+1)/2], uint64(op)) // holes, and one that never was
		}
		s.x.Remove(h, s.engine(h, gone...))
		s.w.remove(h, gone)
	case op < 240:
		got, want := s.x.StoreKnown(h, s.engine(h, chain[from:to]...)), s.w.storeKnown(h, chain[from:to])
		if got != want {
			s.t.Errorf("%d blocks unknown to slot %d, want %d", got, h.Slot, want)
		}
	case op < 244:
		s.x.Clear(h)
		s.w.clear(h)
	case op < 247:
		s.x.RemoveSlot(h.Slot)
		for t := range tiers {
			s.w.clear(Holder{h.Slot, slot.Tier(t)})
		}
		s.configure(h.Slot)
	case op < 252: // everywhere: runs become shorter than where others branch off
		for i := range slot.Slot(scriptSlots) {
			for t := range tiers {
				h := Holder{i, slot.Tier(t)}
				s.x.Remove(h, s.engine(h, chain[from:to]...))
				s.w.remove(h, chain[from:to])
			}
		}
	default:
		s.x.Tidy(1 + op%8)
	}
}

// query compares the overlaps of a chain, cut short or led astray.
func (s *script) query() {
	chain := slices.Clone(s.chains[s.next()%scriptChains])
	chain = chain[:1+s.below(len(chain))]
	if n := s.next(); n%4 == 0 {
		chain[n%len(chain)] = uint64(n) + 1
		chain = chain[:n%len(chain)+1]
	}
	s.compare(s.x, chain)
}

func (s *script) compare(x *Index, chain []block.Hash) {
	var o Overlap
	x.Overlap(chain, &o)
	slots := 0
	for i := range slot.Slot(scriptSlots) {
		want := s.w.overlap(i, chain)
		if want.Upto(slot.Remote) > 0 {
			slots++
		}
		if got := o.Of(i); got != want {
			s.t.Errorf("overlap of %d blocks: %+v, want %+v", len(chain), got, want)
		}
	}
	if slots != len(o.Hits) {
		s.t.Errorf("%d hits, want %d: %+v", len(o.Hits), slots, o.Hits)
	}
}

// reload saves the index, loads it, and compares all chains.
func (s *script) reload() {
	var b bytes.Buffer
	n, err := s.x.Freeze(nil).WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		s.t.Errorf("snapshot of %d bytes, said to be %d: %v", b.Len(), n, err)
	}
	x, err := Load(&b, roomy())
	if err != nil {
		s.t.Errorf("load: %v", err)
		return
	}
	x.Park()
	for i := range slot.Slot(scriptSlots) {
		x.Unpark(i, i)
	}
	x.DropParked()
	check(s.t, x)
	for _, chain := range s.chains {
		s.compare(x, chain)
	}
	if err := x.Dump(io.Discard); err != nil {
		s.t.Errorf("dump: %v", err)
	}
	for i := range slot.Slot(scriptSlots) {
		got, want := x.SlotStats(i), s.x.SlotStats(i)
		want.Waiting = 0
		if got != want {
			s.t.Errorf("slot %d after loading: %+v, want %+v", i, got, want)
		}
		for t := range tiers {
			h := Holder{i, slot.Tier(t)}
			sum := 0
			for _, n := range s.w.of(h) {
				sum += n
			}
			if want.Held[t] != len(s.w.of(h)) || want.Announced[t] != sum {
				s.t.Errorf("%v holds %d blocks, announced %d, want %d, %d", h, want.Held[t], want.Announced[t], len(s.w.of(h)), sum)
			}
		}
	}
}

func TestAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		newScript(t, rapid.SliceOfN(rapid.Byte(), 2, 1500).Draw(t, "script")).run()
	})
}

// TestAgainstTwinLong runs scripts longer than those that rapid draws.
func TestAgainstTwinLong(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			b := make([]byte, 8000)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			newScript(t, b).run()
		})
	}
}

func FuzzScript(f *testing.F) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 3))
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4000 {
			b = b[:4000]
		}
		newScript(t, b).run()
	})
}
