package pages

import (
	"math/rand/v2"

	"attache/internal/slot"
)

// Joiner knows the pages of one worker, all tiers of it, and finds the blocks that they make. It is not for concurrent use,
// and must not be called from the functions that it calls.
type Joiner struct {
	cfg        Config
	width      int // pages of a block
	tokenBytes int // of a block

	table  table
	chunks []*chunk
	free   uint32 // the first of the free lines
	trees  trees

	pages   int // remembered, those that wait included
	waiting int
	lines   int
	blocks  [tiers]int // complete
	lowest  slot.Tier  // that was ever used
	bytes   int        // of table, chunks and trees
	counts  counters

	// All below is for the call at hand.

	stored   func(Blocks)
	removed  func(slot.Tier, []uint64)
	out      Blocks          // what was not yet given to stored
	outLast  uint32          // the line of its last block
	gone     [tiers][]uint64 // what was not yet given to removed
	stack    []move
	before   []tierSet // of the blocks that flip looks at
	compared int       // how many of them were looked at again

	// Methods as values, made once.

	giveFunc, takeFunc, noteFunc, compareFunc func(uint32, tierSet)
}

// New makes an empty Joiner. An error says what is wrong with the configuration.
func New(cfg Config) (*Joiner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	j := &Joiner{cfg: cfg, width: cfg.Block / cfg.Page, tokenBytes: 4 * cfg.Block}
	j.giveFunc, j.takeFunc, j.noteFunc, j.compareFunc = j.giveAll, j.takeAll, j.note, j.compare
	j.table.secret = rand.Uint64() | 1
	j.Clear()
	return j, nil
}

// Clear forgets all pages and gives their memory back. The counters stay. No block is reported as removed: whoever is told
// of the blocks is to be cleared, too.
func (j *Joiner) Clear() {
	j.table = table{secret: j.table.secret, first: slotsFor(min(j.cfg.Expect, j.cfg.Limit))}
	j.chunks, j.free, j.trees = nil, 0, trees{}
	j.pages, j.waiting, j.lines, j.blocks, j.lowest = 0, 0, 0, [tiers]int{}, slot.Device
	j.bytes = tableBytes + joinerBytes
}

// EveryTier as the tier of Remove stands for all tiers.
const EveryTier = ^slot.Tier(0)

func tierOf(t int) slot.Tier { return slot.Tier(t) }

// Stored is the announcement of consecutive pages of one prompt on one tier.
type Stored struct {
	Tier slot.Tier
	// Root says that the first page begins a prompt, of the namespace that Seed (block.Seed) stands for. Otherwise Parent is the
	// key of the page before it; the parent may lie on any tier.
	Root   bool
	Seed   uint64
	Parent uint64
	// Pages are the engine's keys, Tokens the ids of all pages: Config.Page for each.
	Pages  []uint64
	Tokens []uint32
	// Again says that the engine did not make these pages now, but reports on our request what it holds: pages that are
	// already held are not counted once more.
	Again bool
}

// batch is how many pages are looked up ahead.
const batch = 64

// Store notes pages. Blocks that become complete on a tier are given to stored before Store returns, each only when it was not
// before. Those that are no longer, as their slowest page came to a higher tier, are given to removed by tier; the keys are
// valid during the call only. Malformed announcements are counted and ignored. Nothing of e is kept.
func (j *Joiner) Store(e Stored, stored func(Blocks), removed func(t slot.Tier, keys []uint64)) {
	if int(e.Tier) >= tiers || len(e.Tokens) != len(e.Pages)*j.cfg.Page {
		j.counts.Malformed++
		return
	}
	j.stored, j.removed = stored, removed
	j.lowest = max(j.lowest, e.Tier)
	j.makeRoom(len(e.Pages))
	c := cursor{root: e.Root, before: e.Parent}
	if !e.Root && len(e.Pages) > 0 {
		c.at = j.lookup(e.Parent)
	}
	for keys, tokens := e.Pages, e.Tokens; len(keys) > 0; {
		n := min(len(keys), batch)
		j.table.warm(keys[:n])
		j.storeSome(&e, &c, keys[:n], tokens[:n*j.cfg.Page])
		keys, tokens = keys[n:], tokens[n*j.cfg.Page:]
	}
	j.flush()
	j.stored, j.removed = nil, nil
}

// cursor is the page of an announcement behind which the next one comes.
type cursor struct {
	root    bool   // there is none: a prompt begins
	before  uint64 // its key
	at      place  // noPlace when it is not known
	refused bool   // there was no room for it: what is behind it is refused, too
}

// storeSome notes some pages of an announcement, and moves c behind them.
func (j *Joiner) storeSome(e *Stored, c *cursor, keys []uint64, tokens []uint32) {
	for i := 0; i < len(keys); {
		if hit := j.lookup(keys[i]); hit != noPlace {
			j.hold(hit, e.Tier, !e.Again)
			*c = cursor{before: keys[i], at: hit}
			i++
			continue
		}
		room := j.room(c, len(keys)-i)
		if room == 0 {
			j.counts.Refused++
			*c = cursor{before: keys[i], refused: true}
			i++
			continue
		}
		l := j.lineFor(e, c)
		n := j.fill(l, e.Tier, keys[i:], tokens[i*j.cfg.Page:], room)
		h := j.line(l)
		*c = cursor{before: keys[i+n-1], at: placeOf(l, int(h.n)-1)}
		if int(h.n) == j.width {
			j.giveAll(l, j.completeOn(h))
		}
		for _, key := range keys[i : i+n] {
			if len(j.trees.byParent) == 0 {
				break
			}
			j.settle(key)
		}
		i += n
	}
}

// room returns how many of n new pages may be taken.
func (j *Joiner) room(c *cursor, n int) int {
	n = min(n, j.cfg.Limit-j.pages)
	switch {
	case c.refused:
		return 0
	case !c.root && (c.at == noPlace || j.line(c.at.line()).waits):
		return j.makeRoomToWait(n, c.at)
	default:
		return n
	}
}

// lineFor returns the line where the next page of an announcement comes to stand.
func (j *Joiner) lineFor(e *Stored, c *cursor) uint32 {
	switch {
	case c.root:
		l := j.newLine()
		j.line(l).seed = e.Seed
		return l
	case c.at == noPlace:
		return j.newTree(c.before)
	default:
		return j.lineAfter(c.at)
	}
}

// hold notes that a known page is held on a tier, or once more.
func (j *Joiner) hold(at place, t slot.Tier, count bool) {
	h := j.line(at.line())
	bit := uint64(1) << at.offset()
	if h.held[t]&bit == 0 {
		j.flip(at, 1<<t)
		return
	}
	if !count || j.cfg.Sets {
		return
	}
	if e := j.extraOf(at, t, true); *e < ^uint8(0) {
		*e++
	} else {
		j.counts.Saturated++
	}
}

// Remove notes that pages are no longer held on a tier, or one copy less of each; EveryTier stands for all tiers that hold
// them. The blocks that were complete and are no longer are given to removed by tier, before Remove returns; their keys are
// valid during the call only. Those that become complete on a lower tier, where their slowest page now lies, are given to
// stored. Pages that are not held are counted and ignored. pages is not kept.
func (j *Joiner) Remove(t slot.Tier, pages []uint64, stored func(Blocks), removed func(t slot.Tier, keys []uint64)) {
	first, last := t, t
	if t == EveryTier {
		first, last = slot.Device, slot.Remote
	} else if int(t) >= tiers {
		j.counts.Malformed++
		return
	}
	j.stored, j.removed = stored, removed
	ended := uint32(0) // a line that lost its last page: trimmed when the keys leave it
	for i, key := range pages {
		if i%batch == 0 {
			j.table.warm(pages[i:min(i+batch, len(pages))])
		}
		at := j.lookup(key)
		if ended != 0 && at.line() != ended {
			j.trim(ended) // if it forgets the page at at, nobody held that
			ended = 0
		}
		if at == noPlace || !j.release(at, first, last) {
			j.counts.Unknown++
			continue
		}
		if h := j.line(at.line()); at.offset() == int(h.n)-1 {
			ended = at.line()
		}
	}
	if ended != 0 {
		j.trim(ended)
	}
	j.flush()
	j.stored, j.removed = nil, nil
}

// release takes one copy of a page from each of some tiers, and reports whether one of them held it.
func (j *Joiner) release(at place, first, last slot.Tier) (held bool) {
	h := j.line(at.line())
	bit := uint64(1) << at.offset()
	last = min(last, j.lowest)
	lost := tierSet(0)
	for t := first; t <= last; t++ {
		if h.held[t]&bit == 0 {
			continue
		}
		held = true
		if e := j.extraOf(at, t, false); e != nil && *e > 0 {
			*e--
			continue
		}
		lost |= 1 << t
	}
	if lost != 0 {
		j.flip(at, lost)
	}
	return held
}
