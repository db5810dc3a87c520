package block

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestAppendBlocks cuts a stream of tokens anywhere: together the parts make the chain that the whole makes.
func TestAppendBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOf(rapid.Uint32()).Draw(t, "tokens")
		size := rapid.IntRange(1, 9).Draw(t, "block size")
		seed := rapid.Uint64().Draw(t, "seed")

		var chainer Chainer
		chainer.Reset(4*size, seed, nil)
		chainer.Write(portableBytes(all, nil))

		var chain []Hash
		var rest []uint32
		for left := all; len(left) > 0; {
			n := rapid.IntRange(1, len(left)).Draw(t, "cut")
			rest = append(rest, left[:n]...)
			chain = AppendBlocks(chain, rest, size, seed)
			rest = rest[len(rest)/size*size:]
			left = left[n:]
		}
		if !slices.Equal(chain, chainer.Sum()) {
			t.Fatalf("in parts %x, whole %x", chain, chainer.Sum())
		}
		var chained []Hash
		for i, local := range AppendLocals(nil, all, size, seed) {
			chained = append(chained, Next(append([]Hash{0}, chained...)[i], local, i == 0))
		}
		if !slices.Equal(chained, chainer.Sum()) {
			t.Fatalf("from local hashes %x, whole %x", chained, chainer.Sum())
		}
	})
}

func TestBothWaysToReadTokens(t *testing.T) {
	ids := []uint32{0, 1, 0x01020304, 1<<32 - 1}
	if got, want := tokenBytes(ids, nil), portableBytes(ids, nil); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

func BenchmarkAppendBlocks(b *testing.B) {
	ids := make([]uint32, 100_000)
	for i := range ids {
		ids[i] = uint32(i * 7919 % 128_000)
	}
	for _, size := range []int{16, 32, 64} {
		b.Run(fmt.Sprintf("tokens per block=%d", size), func(b *testing.B) {
			var chain []Hash
			b.ReportAllocs()
			for b.Loop() {
				chain = AppendBlocks(chain[:0], ids, size, 1337)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)/size), "ns/block")
		})
	}
}
