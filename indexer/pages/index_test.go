package pages

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"attache/indexer/runs"
	"attache/internal/block"
	"attache/internal/field"
	"attache/internal/slot"
)

// TestAgainstIndex feeds what is emitted to the index that it is made for: its overlaps are those of the twin's blocks.
func TestAgainstIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		againstIndex(t, rapid.SliceOfN(rapid.Byte(), 3, 200).Draw(t, "script"))
	})
	for seed := range uint64(16) {
		againstIndex(t, randomScript(seed, 500))
	}
}

func againstIndex(t tester, b []byte) {
	s := newScript(t, b, true)
	index := s.feed()
	for len(s.b) > 0 {
		s.step()
		s.compareOverlaps(index)
	}
}

const worker = slot.Slot(2)

// feed makes an index that takes what is emitted from now on.
func (s *script) feed() *runs.Index {
	index := runs.New(runs.Config{MaxBytes: 64 * field.MiB, MaxOrphans: 1 << 20, MaxSlots: 4})
	s.stored = func(b Blocks) {
		index.Store(runs.Holder{Slot: worker, Tier: b.Tier},
			runs.Stored{Root: b.Root, Parent: b.Parent, Engine: b.Keys, Hashes: b.Locals})
	}
	s.removed = func(tier slot.Tier, keys []uint64) {
		if tier == EveryTier {
			index.RemoveSlot(worker)
			return
		}
		index.Remove(runs.Holder{Slot: worker, Tier: tier}, keys)
	}
	return index
}

// chain returns the hashes of a prompt's blocks, and their keys.
func (s *script) chain(p []string) (chain []block.Hash, keys []uint64) {
	perBlock := s.w.cfg.Block / s.w.cfg.Page
	for i := perBlock; i <= len(p); i += perBlock {
		ids := tokensOf(p[i-1])
		chain = block.AppendBlocks(chain, ids[len(ids)-s.w.cfg.Block:], s.w.cfg.Block, plainSeed)
		if i == perBlock {
			chain = block.AppendBlocks(nil, ids, s.w.cfg.Block, seedOf(p[0]))
		}
		keys = append(keys, keyOf(p[i-1]))
	}
	return chain, keys
}

// compareOverlaps asks for the overlap of every prompt, which goes on in the next tier where one ends.
func (s *script) compareOverlaps(index *runs.Index) {
	var held [tiers]map[uint64]implied
	for t := range tiers {
		held[t] = s.w.blocks(slot.Tier(t))
	}
	for _, p := range s.prompts {
		chain, keys := s.chain(p)
		want := runs.Hit{Slot: worker}
		for t, at := 0, 0; t < tiers; t++ {
			for ; at < len(keys); at++ {
				if _, is := held[t][keys[at]]; !is {
					break
				}
				want.Blocks[t]++
			}
		}
		var o runs.Overlap
		index.Overlap(chain, &o)
		if got := o.Of(worker); got != want {
			s.t.Errorf("overlap of %d blocks: %+v, want %+v", len(chain), got, want)
		}
	}
}

// TestTiersAgainstIndex lets an engine do what those with tiers do: a prompt is brought to the device from its beginning, copied
// to lower tiers, and leaves each tier from the ends of prompts. Then what is nearer to the beginning of a prompt is on no lower
// tier than what is behind it, and the overlap is all leading blocks of which the engine has all pages, wherever.
func TestTiersAgainstIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tiersAgainstIndex(t, rapid.SliceOfN(rapid.Byte(), 3, 200).Draw(t, "script"))
	})
	mixed := 0
	for seed := range uint64(24) {
		mixed += tiersAgainstIndex(t, randomScript(seed, 600))
	}
	if mixed < 1000 {
		t.Errorf("only %d blocks in overlaps had pages on different tiers", mixed)
	}
}

// tiersAgainstIndex returns how many blocks with pages on different tiers were in overlaps.
func tiersAgainstIndex(t tester, b []byte) (mixed int) {
	s := newScript(t, b, true)
	index := s.feed()
	for len(s.b) > 0 {
		p := s.prompts[s.next()%len(s.prompts)]
		n := 1 + s.next()%len(p)
		tier := slot.Tier(s.next() % tiers)
		switch op := s.next(); {
		case op < 60:
			s.store(slot.Device, p, 0, n, true)
		case op < 140:
			for i, name := range p[:n] { // what is above the tier is copied to it
				if w := s.w.pages[name]; w != nil && w.best() < int(tier) {
					s.store(tier, p, i, i+1, true)
				}
			}
		default:
			if op%2 == 0 {
				tier = slot.Device
			}
			var gone []string
			for _, name := range slices.Backward(p[n-1:]) {
				if w := s.w.pages[name]; w != nil && w.counts[tier] > 0 && s.mayLeave(name, tier, gone) {
					gone = append(gone, name)
				}
			}
			s.remove(tier, gone)
		}
		s.compare()
		mixed += s.compareTotals(index)
	}
	return mixed
}

// mayLeave says whether a page may leave a tier, when those that are gone already did: if then no page right behind it lies on a
// higher tier than its own best one.
func (s *script) mayLeave(name string, tier slot.Tier, gone []string) bool {
	best := func(p *twinPage, left bool) int {
		for t, n := range p.counts {
			if n > 0 && (!left || t != int(tier)) {
				return t
			}
		}
		return tiers
	}
	own := best(s.w.pages[name], true)
	for child, p := range s.w.pages {
		if p.before == name && best(p, slices.Contains(gone, child)) < own {
			return false
		}
	}
	return true
}

// compareTotals compares the overlap of every prompt, on all tiers together, with the leading blocks of which all pages are held.
// It returns in how many of them the pages lie on different tiers.
func (s *script) compareTotals(index *runs.Index) (mixed int) {
	perBlock := s.w.cfg.Block / s.w.cfg.Page
	for _, p := range s.prompts {
		want := 0
		for pages := range slices.Chunk(p[:len(p)/perBlock*perBlock], perBlock) {
			if slices.ContainsFunc(pages, func(name string) bool { return s.w.pages[name] == nil || !s.w.pages[name].held() }) {
				break
			}
			want++
			if s.w.pages[pages[0]].best() != s.w.pages[pages[perBlock-1]].best() {
				mixed++
			}
		}
		var o runs.Overlap
		chain, _ := s.chain(p)
		index.Overlap(chain, &o)
		if got := o.Of(worker).Upto(slot.Remote); got != want {
			s.t.Errorf("overlap of %d blocks: %d, want %d", len(chain), got, want)
		}
	}
	return mixed
}
