package pages

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"attache/internal/block"
	"attache/internal/slot"
)

// twin is the dumb Joiner. A page is named by the text of its prompt up to its end: "3:7.1.4." is of the third namespace.
type twin struct {
	cfg   Config
	pages map[string]*twinPage
	exact bool // forgets what the Joiner does; otherwise nothing
}

type twinPage struct {
	before string // "" for the first of a prompt
	counts [tiers]int
}

func (p *twinPage) held() bool { return p.counts != [tiers]int{} }

// best is the highest tier that holds the page; tiers when none does.
func (p *twinPage) best() int {
	for t, n := range p.counts {
		if n > 0 {
			return t
		}
	}
	return tiers
}

func (w *twin) store(tier slot.Tier, names []string, again bool) {
	for _, name := range names {
		p := w.pages[name]
		if p == nil {
			p = &twinPage{before: pageBefore(name, w.cfg.Page)}
			w.pages[name] = p
		}
		if again || w.cfg.Sets {
			p.counts[tier] = max(p.counts[tier], 1)
		} else {
			p.counts[tier]++
		}
	}
}

func (w *twin) remove(tier slot.Tier, names []string) (unknown int) {
	for _, name := range names {
		p, found := w.pages[name], false
		for t := range tiers {
			if p == nil || tier != EveryTier && int(tier) != t || p.counts[t] == 0 {
				continue
			}
			found = true
			if p.counts[t]--; w.cfg.Sets {
				p.counts[t] = 0
			}
		}
		if !found {
			unknown++
		}
	}
	w.forget()
	return unknown
}

// forget forgets the pages that are not held and that no page needs.
func (w *twin) forget() {
	if !w.exact {
		return
	}
	needed := map[string]int{}
	for _, p := range w.pages {
		needed[p.before]++
	}
	for name, p := range w.pages {
		for p != nil && !p.held() && needed[name] == 0 {
			delete(w.pages, name)
			needed[p.before]--
			name, p = p.before, w.pages[p.before]
		}
	}
}

// known are the pages of which all before them are remembered: the others have no place.
func (w *twin) known() map[string]bool {
	known := map[string]bool{"": true}
	for name := range w.pages {
		var path []string
		for at := name; ; at = w.pages[at].before {
			is, seen := known[at]
			if !seen && w.pages[at] != nil {
				path = append(path, at)
				continue
			}
			for _, name := range path {
				known[name] = is
			}
			break
		}
	}
	return known
}

// blocks are those that are complete on a tier, by key.
func (w *twin) blocks(t slot.Tier) map[uint64]implied {
	found, known := map[uint64]implied{}, w.known()
	for name := range w.pages {
		if strings.Count(name, ".")%w.cfg.Block != 0 || w.exact && !known[name] {
			continue
		}
		if !w.complete(name, t) {
			continue
		}
		tokens := tokensOf(name)
		b := implied{root: len(tokens) == w.cfg.Block}
		seed := block.Seed("", "")
		if b.root {
			seed = seedOf(name)
		} else {
			b.parent = keyOf(cut(name, w.cfg.Block))
		}
		var bytes []byte
		for _, id := range tokens[len(tokens)-w.cfg.Block:] {
			bytes = binary.LittleEndian.AppendUint32(bytes, id)
		}
		b.local = block.Local(bytes, seed)
		found[keyOf(name)] = b
	}
	return found
}

// complete says whether the block that ends with a page is complete on a tier: if all its pages are held there; or if all are
// held there or above, and one not above. A Joiner that forgot where else a page lies may give the block on for a lower tier
// than need be, so a twin that forgets nothing does without the last condition.
func (w *twin) complete(name string, t slot.Tier) bool {
	allThere, allUpto, oneNotAbove := true, true, false
	for range w.cfg.Block / w.cfg.Page {
		p := w.pages[name]
		if p == nil {
			return false
		}
		best := p.best()
		allThere = allThere && p.counts[t] > 0
		allUpto = allUpto && best <= int(t)
		oneNotAbove = oneNotAbove || best == int(t)
		name = p.before
	}
	return allThere || allUpto && (oneNotAbove || !w.exact)
}

func (w *twin) waiting() (n int) {
	known := w.known()
	for name := range w.pages {
		if !known[name] {
			n++
		}
	}
	return n
}

// implied is a block as what was emitted says.
type implied struct {
	root   bool
	parent uint64
	local  uint64
}

func keyOf(name string) uint64 { return xxh3.HashString(name) }

func seedOf(name string) uint64 {
	space, _, _ := strings.Cut(name, ":")
	return block.Seed("model", space)
}

func tokensOf(name string) (ids []uint32) {
	_, text, _ := strings.Cut(name, ":")
	for word := range strings.SplitSeq(strings.TrimSuffix(text, "."), ".") {
		id, _ := strconv.Atoi(word)
		ids = append(ids, uint32(id))
	}
	return ids
}

// cut takes the last n tokens away.
func cut(name string, n int) string {
	for range n {
		name = name[:strings.LastIndexAny(name[:len(name)-1], ".:")+1]
	}
	return name
}

// pageBefore is the page before a page, "" for the first.
func pageBefore(name string, page int) string {
	if name = cut(name, page); strings.HasSuffix(name, ":") {
		return ""
	}
	return name
}

// forest makes prompts that branch off each other, as the names of their pages.
func forest(r *rand.Rand, page, n, length int) (prompts [][]string) {
	for i := range n {
		var p []string
		at := fmt.Sprint(i%2, ":")
		if i > 1 && r.IntN(5) > 0 {
			other := prompts[r.IntN(len(prompts))]
			if p = slices.Clone(other[:r.IntN(len(other)+1)]); len(p) > 0 {
				at = p[len(p)-1]
			}
		}
		for range 1 + r.IntN(length) {
			for range page {
				at += fmt.Sprint(r.IntN(3), ".")
			}
			p = append(p, at)
		}
		prompts = append(prompts, p)
	}
	return prompts
}

const scriptPrompts = 10

// script runs operations read from bytes on a Joiner and on its twin, and compares what they say.
type script struct {
	t tester
	b []byte
	j *Joiner
	w *twin

	prompts [][]string
	implied [tiers]map[uint64]implied
	stored  func(Blocks) // where else emitted blocks go; nil: nowhere
	removed func(slot.Tier, []uint64)
}

func (s *script) next() int {
	if len(s.b) == 0 {
		return 0
	}
	n := int(s.b[0])
	s.b = s.b[1:]
	return n
}

func newScript(t tester, b []byte, exact bool) *script {
	s := &script{t: t, b: b}
	shape := [...][2]int{{1, 4}, {1, 16}, {2, 8}, {4, 32}, {1, 64}, {3, 3}, {1, 1}, {2, 4}}[s.next()%8]
	mode := s.next()
	cfg := Config{Page: shape[0], Block: shape[1], Limit: 1 << 20, Waiting: 1 << 20, Sets: mode%2 == 1, Expect: mode / 2}
	if !exact {
		cfg.Limit, cfg.Waiting = 1+s.next()%100, s.next()%30
	}
	s.w = &twin{cfg: cfg, pages: map[string]*twinPage{}, exact: exact}
	r := rand.New(rand.NewPCG(uint64(s.next()), 1))
	s.prompts = forest(r, cfg.Page, scriptPrompts, 2*cfg.Block/cfg.Page+4)
	var err error
	if s.j, err = New(cfg); err != nil {
		t.Fatalf("%v", err)
	}
	s.clear()
	return s
}

func (s *script) clear() {
	for t := range tiers {
		s.implied[t] = map[uint64]implied{}
	}
	s.w.pages = map[string]*twinPage{}
}

func (s *script) run() {
	for len(s.b) > 0 {
		s.step()
		s.compare()
	}
	for _, p := range s.prompts {
		for range 300 { // as many copies as there can be
			s.remove(EveryTier, p)
			if s.j.Stats().Pages == 0 {
				break
			}
		}
	}
	s.compare()
	if st := s.j.Stats(); st.Pages != 0 || st.Lines != 0 || st.Waiting != 0 {
		s.t.Errorf("after everything was removed: %+v", st)
	}
}

func (s *script) step() {
	op := s.next()
	tier := slot.Device
	if n := s.next(); n >= 160 {
		tier = slot.Tier(n % tiers)
	}
	p := s.prompts[s.next()%len(s.prompts)]
	from := s.next() % len(p)
	to := from + 1 + s.next()%(len(p)-from)
	switch {
	case op < 150:
		for op >= 30 && from > 0 && s.w.pages[p[from-1]] == nil {
			from-- // most have a parent
		}
		s.store(tier, p, from, to, op%8 == 0)
	case op < 250:
		gone := slices.Clone(p[from:to])
		switch op % 4 {
		case 0:
			slices.Reverse(gone)
		case 1:
			r := rand.New(rand.NewPCG(uint64(op), uint64(len(s.b))))
			r.Shuffle(len(gone), func(i, j int) { gone[i], gone[j] = gone[j], gone[i] })
			gone = append(gone[:(len(gone)+1)/2], "0:99.99.99.99.") // holes, and one that never was
		case 2:
			slices.Reverse(gone)
			tier = EveryTier
		}
		s.remove(tier, gone)
	case op < 252:
		s.j.Clear()
		s.clear()
		if s.removed != nil {
			s.removed(EveryTier, nil)
		}
	default:
		before := s.j.Stats().Malformed
		s.j.Store(Stored{Tier: tier, Root: true, Pages: []uint64{1}, Tokens: make([]uint32, s.w.cfg.Page+1)}, nil, nil)
		s.j.Store(Stored{Tier: 4, Root: true}, nil, nil)
		s.j.Remove(4, []uint64{1}, nil, nil)
		if s.j.Stats().Malformed != before+3 {
			s.t.Errorf("malformed calls are not counted")
		}
	}
}

func (s *script) store(tier slot.Tier, p []string, from, to int, again bool) {
	e := Stored{Tier: tier, Root: from == 0, Again: again, Seed: seedOf(p[0])}
	if from > 0 {
		e.Parent = keyOf(p[from-1])
		e.Seed = 12345 // of no meaning
	}
	for _, name := range p[from:to] {
		e.Pages = append(e.Pages, keyOf(name))
		ids := tokensOf(name)
		e.Tokens = append(e.Tokens, ids[len(ids)-s.w.cfg.Page:]...)
	}
	s.j.Store(e, s.gained, s.lost)
	s.w.store(tier, p[from:to], again)
}

func (s *script) gained(b Blocks) {
	if len(b.Keys) == 0 || len(b.Keys) != len(b.Locals) {
		s.t.Fatalf("%d keys and %d locals", len(b.Keys), len(b.Locals))
	}
	root, parent := b.Root, b.Parent
	for i, key := range b.Keys {
		if _, is := s.implied[b.Tier][key]; is {
			s.t.Errorf("block %x is stored twice on %v", key, b.Tier)
		}
		s.implied[b.Tier][key] = implied{root, parent, b.Locals[i]}
		root, parent = false, key
	}
	if s.stored != nil {
		s.stored(b)
	}
}

func (s *script) lost(t slot.Tier, keys []uint64) {
	for _, key := range keys {
		if _, is := s.implied[t][key]; !is {
			s.t.Errorf("block %x is removed from %v, where it was not", key, t)
		}
		delete(s.implied[t], key)
	}
	if s.removed != nil {
		s.removed(t, keys)
	}
}

func (s *script) remove(tier slot.Tier, names []string) {
	var keys []uint64
	for _, name := range names {
		keys = append(keys, keyOf(name))
	}
	before := s.j.Stats().Unknown
	s.j.Remove(tier, keys, s.gained, s.lost)
	unknown := s.w.remove(tier, names)
	if got := int(s.j.Stats().Unknown - before); s.w.exact && got != unknown {
		s.t.Errorf("%d removals of unknown pages, want %d", got, unknown)
	}
}

func (s *script) compare() {
	check(s.t, s.j)
	for t := range tiers {
		want := s.w.blocks(slot.Tier(t))
		for key, got := range s.implied[t] {
			if w, is := want[key]; !is || w != got {
				s.t.Errorf("block %x on tier %d: %+v, want %+v, %v", key, t, got, w, is)
			}
		}
		if s.w.exact && len(want) != len(s.implied[t]) {
			s.t.Errorf("%d blocks on tier %d, want %d", len(s.implied[t]), t, len(want))
		}
	}
	if st := s.j.Stats(); s.w.exact && (st.Pages != len(s.w.pages) || st.Waiting != s.w.waiting()) {
		s.t.Errorf("%d pages and %d waiting, want %d and %d", st.Pages, st.Waiting, len(s.w.pages), s.w.waiting())
	}
}

func TestAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		newScript(t, rapid.SliceOfN(rapid.Byte(), 3, 300).Draw(t, "script"), true).run()
	})
}

// TestLimits compares with a twin that has no limits: what is held here is held there.
func TestLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		newScript(t, rapid.SliceOfN(rapid.Byte(), 3, 300).Draw(t, "script"), false).run()
	})
}

func randomScript(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	b[0] = byte(seed)
	return b
}

// TestAgainstTwinLong runs scripts longer than those that rapid draws.
func TestAgainstTwinLong(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			newScript(t, randomScript(seed, 800), seed%3 > 0).run()
		})
	}
}

func FuzzScript(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomScript(seed, 100), seed%3 > 0)
	}
	f.Fuzz(func(t *testing.T, b []byte, exact bool) {
		newScript(t, b[:min(len(b), 300)], exact).run()
	})
}
