package indexer

import (
	"testing"

	"pgregory.net/rapid"

	"attache/internal/block"
)

// TestHeadsAgainstAMap does to the table and to a map what is drawn. Hashes are few, and so are the places of the table:
// they meet in every way.
func TestHeadsAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes slab
		table, dumb := newHeads(), map[block.Hash]int32{}
		table.secret = rapid.SampledFrom([]uint64{1, 3, table.secret}).Draw(t, "secret")
		// With the secret 1 the hash is the place: the same part, and homes next to one another, before and behind its end.
		low := rapid.Uint64Range(0, 40)
		hashes := rapid.Custom(func(t *rapid.T) block.Hash { return (low.Draw(t, "place") - 20) << 46 >> 8 })
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			hash := hashes.Draw(t, "hash")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				if id := dumb[hash]; id != 0 {
					table.replace(hash, id, 0)
					delete(dumb, hash)
				}
			case 1:
				if id := dumb[hash]; id != 0 {
					by := nodes.get()
					nodes.at(by).hash = hash
					table.replace(hash, id, by)
					dumb[hash] = by
				}
			default:
				id := nodes.get()
				nodes.at(id).hash = hash
				want := dumb[hash]
				if want == 0 {
					want, dumb[hash] = id, id
				}
				if got := table.findOrPut(hash, id, &nodes); got != want {
					t.Fatalf("put %x: got node %d, want %d", hash, got, want)
				}
			}
			for place := range uint64(41) {
				hash := (place - 20) << 46 >> 8
				if got := table.find(hash, &nodes); got != dumb[hash] {
					t.Fatalf("%x: got node %d, want %d", hash, got, dumb[hash])
				}
			}
		}
		if table.used() != len(dumb) {
			t.Fatalf("%d used, want %d", table.used(), len(dumb))
		}
	})
}

// TestHeadsAreSpread puts hashes that differ in few bits: no part gets far more than its share.
func TestHeadsAreSpread(t *testing.T) {
	var nodes slab
	for _, shift := range []int{0, 20, 40, 48} {
		table := newHeads()
		for i := range uint64(1 << 14) {
			id := nodes.get()
			nodes.at(id).hash = i << shift
			table.findOrPut(i<<shift, id, &nodes)
		}
		for i := range table.parts {
			if n := table.parts[i].used; n > 8*(1<<14)>>partBits {
				t.Errorf("bits from %d on: part %d has %d of %d", shift, i, n, 1<<14)
			}
		}
	}
}
