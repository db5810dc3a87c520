package events

import "attache/internal/slot"

// largePages are an engine's pages that are several blocks of the pool. Pages that begin alike have their first blocks in
// common, and such a block is held as long as one of them is. So its key is not made of the page's hash but of what stands
// before it in the page, and of the page before: the index then counts how many pages announced it. What a page's keys are must
// be remembered, because a removal tells the hash alone.
type largePages map[uint64]*largePage

type largePage struct {
	keys []uint64 // of its blocks, in order
	held [slot.Remote + 1]uint32
}

// lastKey is the key of a page's last block, which no other page has.
func lastKey(page uint64) uint64 { return pieceKey(page, 0) }

// add notes a page on a tier. locals are those of its blocks, before is the key of the block before it, 0 for none.
func (all largePages) add(page uint64, tier slot.Tier, locals []uint64, before uint64) *largePage {
	p := all[page]
	if p == nil {
		p = &largePage{keys: make([]uint64, len(locals))}
		last := len(locals) - 1
		for i, local := range locals[:last] {
			before = pieceKey(before^pieceKey(local, 0), 1)
			p.keys[i] = before
		}
		p.keys[last] = lastKey(page)
		all[page] = p
	}
	p.held[tier]++
	return p
}

// drop takes one copy of a page from a tier, and returns the keys of its blocks; nil when it is not there.
func (all largePages) drop(page uint64, tier slot.Tier) []uint64 {
	p := all[page]
	if p == nil || p.held[tier] == 0 {
		return nil
	}
	p.held[tier]--
	if p.held == [slot.Remote + 1]uint32{} {
		delete(all, page)
	}
	return p.keys
}

// pieces is how many blocks a page is.
func (a *applier) pieces() int { return max(1, a.page/a.block) }

// storedKeys are the keys of the blocks of pages that are announced.
func (a *applier) storedKeys(pages []uint64, tier slot.Tier, locals []uint64, before uint64) []uint64 {
	pieces := a.pieces()
	if pieces == 1 {
		return pages
	}
	if a.large == nil {
		a.large = largePages{}
	}
	from := len(a.keys)
	for i, page := range pages {
		a.keys = append(a.keys, a.large.add(page, tier, locals[i*pieces:(i+1)*pieces], before).keys...)
		before = lastKey(page)
	}
	return a.keys[from:len(a.keys):len(a.keys)]
}

// removed notes that pages are gone from a tier.
func (a *applier) removed(pages []uint64, tier slot.Tier) {
	keys := pages
	if a.pieces() > 1 {
		from := len(a.keys)
		for _, page := range pages {
			a.keys = append(a.keys, a.large.drop(page, tier)...)
		}
		keys = a.keys[from:len(a.keys):len(a.keys)]
	}
	a.changes = append(a.changes, change{kind: remove, tier: tier, keys: keys})
}

// removedAll notes that pages are gone from every tier.
func (a *applier) removedAll(pages []uint64) {
	if a.pieces() == 1 {
		a.changes = append(a.changes, change{kind: removeAll, keys: pages})
		return
	}
	for t := slot.Device; t <= slot.Remote; t++ {
		a.removed(pages, t)
	}
}

// mostLarge bounds what is remembered: what the engine has room for on its device, and as much again on lower tiers.
func (a *applier) mostLarge() int {
	const least, unknown = 1 << 12, 1 << 20
	if a.room == 0 {
		return unknown
	}
	return max(least, 4*a.room/a.pieces())
}

// moved notes that pages that are on some tier are on another as well.
func (a *applier) moved(pages []uint64, tier slot.Tier) {
	keys := pages
	if a.pieces() > 1 {
		from := len(a.keys)
		for _, page := range pages {
			if p := a.large[page]; p != nil {
				p.held[tier]++
				a.keys = append(a.keys, p.keys...)
			}
		}
		keys = a.keys[from:len(a.keys):len(a.keys)]
	}
	a.changes = append(a.changes, change{kind: move, tier: tier, keys: keys})
}
