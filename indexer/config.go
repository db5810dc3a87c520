package indexer

import (
	"time"

	"attache/internal/field"
)

// Config bounds what is remembered.
type Config struct {
	// TTL is how long a worker is believed to hold a block after the last request with it was sent there, to the second.
	// 0: as long as the worker's capacity lasts. Too short a value loses the reuse of agents and people who pause: in public
	// traces nine tenths of all reuse comes within 10 minutes, nearly all within 30. Too long a value only hurts where
	// somebody else uses the same engines too, and fills their caches unseen.
	TTL time.Duration `yaml:"ttl"`
	// DefaultCapacity is how many blocks a worker is taken to hold while its engine does not tell (its metrics do, for vLLM
	// and SGLang): the tokens of its KV cache divided by the block size. Too low a value forgets prompts that are still
	// there and scatters long conversations; too high a value sends requests after blocks that are gone.
	DefaultCapacity int `yaml:"default_capacity"`
	// MaxBlocks bounds the memory of the index: blocks held over all workers of the pool, a block that two workers hold
	// counted twice. Each takes 60 to 75 bytes, half of that when many workers share it: 8388608 blocks are about 0.55 GiB.
	// Memory is taken as needed and kept for reuse. Too low a value forgets the least recently used blocks of all workers
	// early.
	MaxBlocks int `yaml:"max_blocks"`
}

// DefaultConfig fits workers of one or two large accelerators with blocks of 16 tokens.
func DefaultConfig() Config {
	return Config{
		TTL:             30 * time.Minute,
		DefaultCapacity: 25_000,
		MaxBlocks:       8 << 20,
	}
}

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Check(c.TTL == 0 || c.TTL >= time.Second, "ttl", c.TTL, "must be 0 (no limit) or at least 1s")
	check.Check(c.TTL <= 1000*time.Hour, "ttl", c.TTL, "must be at most 1000h")
	check.Check(c.DefaultCapacity >= 1, "default_capacity", c.DefaultCapacity, "must be at least 1 block")
	check.Check(c.MaxBlocks >= 1 && c.MaxBlocks <= 1<<30, "max_blocks", c.MaxBlocks, "must be 1 to 1073741824 blocks")
	return check.Err()
}
