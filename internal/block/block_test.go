package block

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

// ids are the token ids from..to as little-endian bytes.
func ids(from, to uint32) []byte {
	var b []byte
	for id := from; id <= to; id++ {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return b
}

// The vectors are Dynamo's: the base cases stand in its own tests, the local hashes with a namespace follow from its
// formulas. Chains of a namespace are our own from the second block on.
func TestDynamoVectors(t *testing.T) {
	for _, c := range []struct {
		name   string
		seed   uint64
		tokens []byte
		block  int
		locals []uint64
		seqs   []Hash
	}{
		{"1..12 in blocks of 4", 1337, ids(1, 12), 4,
			[]uint64{14643705804678351452, 16777012769546811212, 483935686894639516},
			[]Hash{14643705804678351452, 4945711292740353085, 12583592247330656132}},
		{"1..32 in blocks of 16", 1337, ids(1, 32), 16,
			[]uint64{16863443419780771464, 2287610619914608821},
			[]Hash{16863443419780771464, 12466389667045779788}},
		{"LoRA alpha-7b", 1337 + 723495307357892408, ids(1, 8), 4,
			[]uint64{16548428770143335509, 14084073444636004547},
			[]Hash{16548428770143335509, 0}},
		{"salt tenant-a", Seed("", "tenant-a"), ids(1, 8), 4,
			[]uint64{5738685477468498325, 11202231085456067787},
			[]Hash{5738685477468498325, 0}},
		{"both", Seed("", "tenant-a") + 723495307357892408, ids(1, 8), 4,
			[]uint64{14539708548553096745, 14603472935623368270},
			[]Hash{14539708548553096745, 0}},
		{"no complete block", 1337, ids(1, 3), 4, nil, nil},
	} {
		size := 4 * c.block
		for i, want := range c.locals {
			if got := Local(c.tokens[i*size:(i+1)*size], c.seed); got != want {
				t.Errorf("%s: local[%d] = %d, want %d", c.name, i, got, want)
			}
		}
		if len(c.seqs) > 1 && c.seed != Plain {
			c.seqs[1] = Next(c.seqs[0], Local(c.tokens[size:2*size], Plain), false)
		}
		var chain Chainer
		chain.Reset(size, c.seed, nil)
		chain.Write(c.tokens)
		if !slices.Equal(chain.Sum(), c.seqs) {
			t.Errorf("%s: chain %d, want %d", c.name, chain.Sum(), c.seqs)
		}
	}
}

func TestSeedKeepsNamespacesApart(t *testing.T) {
	if got := Seed("", ""); got != 1337 {
		t.Errorf("no namespace: seed %d, want 1337", got)
	}
	if got := Seed("", "tenant-a"); got != 1948188790972764086 {
		t.Errorf("salt: seed %d, want Dynamo's 1948188790972764086", got)
	}
	seen := map[uint64]string{}
	for _, c := range [][2]string{{"", ""}, {"x", ""}, {"", "x"}, {"x", "x"}, {"x", "y"}, {"y", "x"}} {
		seed := Seed(c[0], c[1])
		if other, taken := seen[seed]; taken {
			t.Errorf("model and salt %q have the seed of %s", c, other)
		}
		seen[seed] = strings.Join(c[:], "+")
	}
	if Seed("x", "") == 1337+xxh3.HashStringSeed("x", 0) {
		t.Error("a model has the seed of a LoRA adapter of the same name")
	}
}

func TestNextIsXXH3(t *testing.T) {
	if got := Next(1, 42, true); got != 42 {
		t.Errorf("the first block has the hash %d, want its local hash 42", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		parent, local := rapid.Uint64().Draw(t, "parent"), rapid.Uint64().Draw(t, "local")
		pair := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, parent), local)
		if got, want := Next(parent, local, false), xxh3.HashSeed(pair, 1337); got != want {
			t.Fatalf("%x, want %x", got, want)
		}
	})
}

// plainChain is the dumb twin of Chainer: it has the whole stream in hand.
func plainChain(stream []byte, size int, seed uint64) []Hash {
	var chain []Hash
	for i := 0; i+size <= len(stream); i += size {
		if i == 0 {
			chain = append(chain, Local(stream[:size], seed))
			continue
		}
		local := Local(stream[i:i+size], 1337)
		pair := binary.LittleEndian.AppendUint64(nil, chain[len(chain)-1])
		chain = append(chain, xxh3.HashSeed(binary.LittleEndian.AppendUint64(pair, local), 1337))
	}
	return chain
}

func TestCutsMakeNoDifference(t *testing.T) {
	var chain Chainer
	rapid.Check(t, func(t *rapid.T) {
		stream := rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(t, "stream")
		size := rapid.IntRange(1, 80).Draw(t, "size")
		seed := rapid.Uint64().Draw(t, "seed")
		before := rapid.SliceOfN(rapid.Uint64(), 0, 2).Draw(t, "before")
		chain.Reset(size, seed, slices.Clone(before))
		for rest := stream; len(rest) > 0; {
			n := rapid.IntRange(0, len(rest)).Draw(t, "cut")
			if rapid.Bool().Draw(t, "string") {
				chain.WriteString(string(rest[:n]))
			} else {
				chain.Write(rest[:n])
			}
			if rest = rest[n:]; n == 0 {
				chain.Write(rest[:1])
				rest = rest[1:]
			}
		}
		if want := slices.Concat(before, plainChain(stream, size, seed)); !slices.Equal(chain.Sum(), want) {
			t.Fatalf("chain %x, want %x", chain.Sum(), want)
		}
		if chain.Bytes() != len(stream) {
			t.Fatalf("%d bytes counted of %d", chain.Bytes(), len(stream))
		}
	})
}

func TestChainerAllocatesNothing(t *testing.T) {
	stream := make([]byte, 10_000)
	var chain Chainer
	dst := make([]Hash, 0, 200)
	chain.Reset(64, 1, dst)
	if n := testing.AllocsPerRun(10, func() {
		chain.Reset(64, 1, dst)
		chain.WriteString("user")
		chain.Write(stream)
	}); n != 0 {
		t.Errorf("%v allocations per stream", n)
	}
}

func BenchmarkChainer(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	stream := make([]byte, 256<<10)
	for i := range stream {
		stream[i] = byte(r.Uint32())
	}
	for _, c := range []struct {
		name  string
		write int
	}{{"whole", len(stream)}, {"cut", 4001}} {
		b.Run(c.name, func(b *testing.B) {
			var chain Chainer
			var dst []Hash
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			for b.Loop() {
				chain.Reset(64, 1337, dst[:0])
				for piece := range slices.Chunk(stream, c.write) {
					chain.Write(piece)
				}
				dst = chain.Sum()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(dst)), "ns/block")
		})
	}
}
