package indexer

import (
	"slices"
	"testing"
	"time"
)

func TestTop(t *testing.T) {
	x, c := newIndex(t, Config{DefaultCapacity: 1 << 20, MaxBlocks: 1 << 20, TTL: time.Minute})
	long, short, fork := chainOf(1, 20_000), chainOf(2, 5), append(chainOf(1, 3), chainOf(3, 4)...)
	x.Remember(0, chainOf(4, 50_000)) // past its time when it is asked for
	c.Time = c.Add(time.Minute)
	x.Remember(0, long)
	x.Remember(1, chainOf(5, 9))
	c.Time = c.Add(7 * time.Second)
	x.Remember(0, short)
	x.Remember(0, fork)
	want := []Prefix{
		{Hash: fork[6], Blocks: 7}, {Hash: short[4], Blocks: 5}, {Hash: long[len(long)-1], Blocks: len(long), Age: 7 * time.Second},
	}
	for n := range 5 {
		if got := x.Top(0, n); !slices.Equal(got, want[:min(n, 3)]) {
			t.Errorf("top %d: %v, want %v", n, got, want[:min(n, 3)])
		}
	}
	if got := x.Top(77, 3); len(got) != 0 {
		t.Errorf("a slot never seen: %v", got)
	}
}

// TestTopWhileBlocksMove lets others change the list between the steps of a walk: what stays in its place, and what moves, is
// all found.
func TestTopWhileBlocksMove(t *testing.T) {
	tab := newTable(Config{DefaultCapacity: 1000, MaxBlocks: 1000})
	chains := make([][]uint64, 8)
	for i := range chains {
		chains[i] = chainOf(uint64(i), 10+i)
		tab.remember(0, chains[i], uint32(i), 100, new(Mark))
	}
	w := walk{slot: 0}
	for i := 0; tab.walkOn(&w, 10, 7); i++ {
		if i%4 == 0 { // slower than the walk
			tab.refresh(0, chains[i/4*5%len(chains)], uint32(10+i), 100)
		}
	}
	found := map[uint64]int{}
	for _, p := range w.top(100) {
		found[p.Hash] = p.Blocks
	}
	for i, chain := range chains {
		if got := found[chain[len(chain)-1]]; got != len(chain) {
			t.Errorf("prompt %d: %d blocks found, want %d", i, got, len(chain))
		}
	}
	if len(found) != len(chains) {
		t.Errorf("%d prefixes found, want %d", len(found), len(chains))
	}
}

// BenchmarkTop looks at a slot of 100,000 blocks in 200 prompts.
func BenchmarkTop(b *testing.B) {
	x, _ := newIndex(b, Config{DefaultCapacity: 100_000, MaxBlocks: 1 << 20})
	for i := range 200 {
		x.Remember(0, chainOf(uint64(i), 500))
	}
	b.ReportAllocs()
	for b.Loop() {
		x.Top(0, 50)
	}
}
