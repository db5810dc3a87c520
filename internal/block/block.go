// Package block names stretches of a prompt, so that a prefix which two requests share is found by comparing integers.
//
// A prompt is cut into pieces of one size. Local hashes one piece alone; Next chains it to all pieces before it, and the
// result, a sequence hash, stands for the whole prefix: two prompts agree in sequence hash i only if they agree in all
// their first i+1 pieces. Chainer does both over a stream of bytes.
//
// The formulas and seeds are those of Dynamo's router (its documentation calls them block hash and sequence hash), so
// that chains over token ids can be compared with what Dynamo computes. The package is a leaf.
package block

import (
	"math/bits"

	"github.com/zeebo/xxh3"
)

// Hash is a chained sequence hash: it names a block and everything before it.
type Hash = uint64

// The seeds of XXH3-64. Dynamo's are 1337 for blocks and chains, 0 for the name of a LoRA adapter and 1 for a cache salt.
// Model names have one of their own, so that a model and an adapter of the same name stay apart.
const (
	chainSeed = 1337
	saltSeed  = 1
	modelSeed = 2
)

// Seed is the seed of one namespace: prompts of different models or cache salts share no block, as their KV caches share
// none. It is
//
//	S = 1337 (+ xxh3_64(salt, 1) if there is a salt) (+ xxh3_64(model, 2) if there is a model)
//
// modulo 2^64. An empty string counts as absent. The base model of a pool has none: engines tell of its blocks without a
// name.
//
// Only the first block of a prompt is hashed with the seed of its namespace, all others with Plain: chaining carries the
// namespace on. Dynamo hashes every block with it; but engines tell the salt with the first block alone (vLLM), and whoever
// learns of a later block without the one before must be able to hash it all the same.
func Seed(model, salt string) uint64 {
	seed := uint64(chainSeed)
	if salt != "" {
		seed += xxh3.HashStringSeed(salt, saltSeed)
	}
	if model != "" {
		seed += xxh3.HashStringSeed(model, modelSeed)
	}
	return seed
}

// Plain is the seed of every block that is not the first of its prompt.
const Plain = uint64(chainSeed)

// Local hashes one piece without what stands before it: xxh3_64(piece, seed). For token ids the piece is the ids of the
// block, 4 bytes each, little-endian.
func Local(piece []byte, seed uint64) uint64 { return xxh3.HashSeed(piece, seed) }

// Next chains a piece to its parent, the sequence hash of the piece before:
//
//	seq[0] = local[0]
//	seq[i] = xxh3_64(LE64(seq[i-1]) || LE64(local[i]), 1337)
//
// The first piece has no parent; parent is ignored then. The namespace enters through the first local alone.
func Next(parent Hash, local uint64, first bool) Hash {
	if first {
		return local
	}
	return link(parent, local)
}

// link is XXH3-64 of 16 bytes with the seed 1337, in registers: each link waits for the one before, so the detour through
// memory that a general hash function needs would double the time of a chain. The constants are the words at 24, 32, 40
// and 48 of XXH3's default secret, combined in pairs and with the seed as its algorithm says for 9 to 16 bytes.
func link(parent Hash, local uint64) Hash {
	const (
		flipLow  = (0x1f67b3b7a4a44072 ^ 0x78e5c0cc4ee679cb) + chainSeed
		flipHigh = (0x2172ffcc7dd05a82 ^ 0x8e2443f7744608b8) - chainSeed
	)
	low, high := parent^flipLow, local^flipHigh
	upper, lower := bits.Mul64(low, high)
	h := 16 + bits.ReverseBytes64(low) + high + (upper ^ lower) // 16: the length
	h ^= h >> 37
	h *= 0x165667919e3779f9
	return h ^ h>>32
}
