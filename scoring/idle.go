package scoring

import "slices"

// idle mirrors what lies in a slot's KV cache without a request that needs it, oldest first, as an engine with an LRU cache keeps
// it: how many blocks were released at which time. Which ones they are is not known here, and need not be.
//
// The zero idle is empty. Not safe for concurrent use.
type idle struct {
	layers []layer // by time
	first  int     // those before are gone
	blocks int     // in all layers
}

// layer are the blocks released at about the same time.
type layer struct {
	at     float64 // as exact as reuse remembers it, so that what it remembers of a layer is not before it
	blocks int
}

// grain is how many seconds are one layer.
const grain = 1.0

// mostLayers bounds the memory for a cache whose size is not known, which nothing is evicted from: more than an hour of layers.
const mostLayers = 4096

// add puts blocks that were released now at the end.
func (d *idle) add(now float64, blocks int) {
	if blocks <= 0 {
		return
	}
	d.blocks += blocks
	now = float64(float32(now))
	if n := len(d.layers); n > d.first && now-d.layers[n-1].at < grain {
		d.layers[n-1].blocks += blocks
		return
	}
	if d.first > 64 && d.first > len(d.layers)/2 {
		d.layers = slices.Delete(d.layers, 0, d.first)
		d.first = 0
	}
	d.layers = append(d.layers, layer{now, blocks})
	if len(d.layers)-d.first > mostLayers { // the oldest two become one
		d.layers[d.first+1].blocks += d.layers[d.first].blocks
		d.first++
	}
}

// take takes blocks that were released at some time out, because a request uses them again; where fewer are left of that time
// than there should be, older ones.
func (d *idle) take(at float64, blocks int) {
	next, _ := slices.BinarySearchFunc(d.layers[d.first:], at, func(l layer, at float64) int {
		if l.at <= at {
			return -1
		}
		return 1
	})
	for i := d.first + next - 1; i >= d.first && blocks > 0; i-- {
		n := min(d.layers[i].blocks, blocks)
		d.layers[i].blocks -= n
		d.blocks -= n
		blocks -= n
	}
}

// fit evicts the oldest until there are no more than so many.
func (d *idle) fit(most int) {
	for surplus := d.blocks - max(most, 0); surplus > 0; {
		l := &d.layers[d.first]
		n := min(l.blocks, surplus)
		l.blocks -= n
		d.blocks -= n
		surplus -= n
		if l.blocks == 0 {
			d.first++
		}
	}
}

// loss is how many of the n oldest blocks are expected to be asked for again.
func (d *idle) loss(n int, now float64, r *reuse) (blocks float64) {
	for i := d.first; i < len(d.layers) && n > 0; i++ {
		m := min(d.layers[i].blocks, n)
		if m > 0 {
			blocks += float64(m) * r.again(now-d.layers[i].at)
		}
		n -= m
	}
	return blocks
}
