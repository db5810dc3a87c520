package yardstick

import (
	"slices"

	"attache/internal/block"
)

// Event is what one engine announces: that it holds consecutive blocks of a prompt, or that it gave blocks up.
type Event struct {
	Worker int
	Remove bool
	// Root says that the first block begins a prompt; Parent is otherwise the engine's hash of the block before it. Stores only.
	Root   bool
	Parent uint64
	// Engine are the engine's hashes of the blocks; Local the hashes of their tokens alone, and Chain the sequence hashes, for
	// those that find them in their events. Removes have the first only.
	Engine []uint64
	Local  []uint64
	Chain  []block.Hash
}

// Input is one run. Phases follow each other: all stores, all queries, all removes, a quarter of the queries.
type Input struct {
	Workers int
	Stores  []Event
	Removes []Event
	// Queries are chains of prompts; Locals the hashes of the same prompts before they were chained, for indexes or
	// measurements that chain them.
	Queries [][]block.Hash
	Locals  [][]uint64
	// AfterStores and AfterRemoves are what Sum must find. 0 when not known.
	AfterStores, AfterRemoves uint64
}

// Again are the queries that are asked after the removes.
func (in *Input) Again() [][]block.Hash { return in.Queries[:len(in.Queries)/4] }

// Sum is what a hit adds to the checksum of a phase, which is the sum over all queries and workers, modulo 2^64.
func Sum(worker, blocks int) uint64 { return uint64(worker+1) * uint64(blocks) }

// Changes are the removes, and the stores that bring back what they took: applied again and again after the stores, they
// keep a writer busy for ever.
func (in *Input) Changes() []Event {
	type block struct {
		worker int
		hash   uint64
	}
	taken := map[block]bool{}
	for _, e := range in.Removes {
		taken[block{e.Worker, e.Engine[0]}] = true
	}
	changes := slices.Clone(in.Removes)
	for _, e := range in.Stores {
		if taken[block{e.Worker, e.Engine[len(e.Engine)-1]}] {
			changes = append(changes, e)
		}
	}
	return changes
}

// Blocks is how many blocks the events tell of.
func Blocks(events []Event) (n int) {
	for i := range events {
		n += len(events[i].Engine)
	}
	return n
}

// Mix scatters the bits of a number: the step of splitmix64, of which all inputs are made.
func Mix(z uint64) uint64 {
	z += 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Chain makes the sequence hashes of local hashes.
func Chain(local []uint64) []block.Hash {
	chain := make([]block.Hash, 0, len(local))
	return AppendChain(chain, local)
}

// AppendChain appends the sequence hashes of a prompt, given by its local hashes, to an empty chain.
func AppendChain(chain []block.Hash, local []uint64) []block.Hash {
	var parent block.Hash
	for i, l := range local {
		parent = block.Next(parent, l, i == 0)
		chain = append(chain, parent)
	}
	return chain
}

// Engine makes a worker's own hashes of a chain; salt 0 keeps them equal.
func Engine(chain []block.Hash, salt uint64) []uint64 {
	if salt == 0 {
		return chain
	}
	engine := make([]uint64, len(chain))
	for i, h := range chain {
		engine[i] = Mix(h ^ salt)
	}
	return engine
}
