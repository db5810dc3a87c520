package sim

import (
	"container/list"

	"attache/internal/block"
	"attache/internal/slot"
)

// tier is a memory below the device's: what is evicted above comes here, and the oldest goes when there is no room. A block
// that is found here is brought back up, and stays here as well unless a block has one place only.
//
// Not safe for concurrent use.
type tier struct {
	name  slot.Tier
	room  int
	order list.List // of lowered; the oldest is in front
	at    map[block.Hash]*list.Element
}

// lowered is a block in a lower tier.
type lowered struct {
	hash  block.Hash
	block *Block // nil when nobody wants to know
}

// newTiers are the lower tiers of a configuration, nearest first.
func newTiers(cfg *Config) []*tier {
	var tiers []*tier
	for _, t := range []*tier{{name: slot.Host, room: cfg.HostBlocks}, {name: slot.Disk, room: cfg.DiskBlocks}} {
		if t.room > 0 {
			t.at = make(map[block.Hash]*list.Element)
			tiers = append(tiers, t)
		}
	}
	return tiers
}

// use makes a block the newest, and reports whether it is there.
func (t *tier) use(h block.Hash) bool {
	e, ok := t.at[h]
	if ok {
		t.order.MoveToBack(e)
	}
	return ok
}

// add puts a block in that is not there. The caller has made room.
func (t *tier) add(l lowered) { t.at[l.hash] = t.order.PushBack(l) }

func (t *tier) full() bool { return t.order.Len() == t.room }

// drop takes a block out and reports whether it was there.
func (t *tier) drop(h block.Hash) bool {
	e, ok := t.at[h]
	if ok {
		t.order.Remove(e)
		delete(t.at, h)
	}
	return ok
}

// dropOldest takes the oldest block out. There is one.
func (t *tier) dropOldest() lowered {
	l := t.order.Remove(t.order.Front()).(lowered) //nolint:forcetypeassert // the list holds nothing else
	delete(t.at, l.hash)
	return l
}

// blocks are what it holds, the oldest first.
func (t *tier) blocks(yield func(*Block)) {
	for e := t.order.Front(); e != nil; e = e.Next() {
		yield(e.Value.(lowered).block) //nolint:forcetypeassert // the list holds nothing else
	}
}

func (t *tier) clear() {
	t.order.Init()
	clear(t.at)
}

// Seconds to bring the KV of a token back to the device: 256 KiB (64 layers of 8 heads of 128, keys and values, 2 bytes each)
// over PCIe at 50 GB/s, and from NVMe at 6 GB/s. Config.Speed divides them as it divides the rest.
const (
	hostPerToken = 256 << 10 / 50e9
	diskPerToken = 256 << 10 / 6e9
)

// perToken is what a token of this tier costs to use.
func (t *tier) perToken() float64 {
	if t.name == slot.Host {
		return hostPerToken
	}
	return diskPerToken
}
