package virtual

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"attache/internal/sim"
	"attache/internal/sim/trace"
)

// DynamoMocker is the profile whose passes and cache are those of the engines in ai-dynamo's offline replay.
const DynamoMocker = "dynamo-mocker"

// mockedTokens is the KV memory of DynamoMocker in tokens.
const mockedTokens = 1 << 20

// Config describes a cluster. The zero value of a field that is not named otherwise is its default.
type Config struct {
	// Workers is how many there are, those of Changes included. At least 1.
	Workers int
	// Profile is one of Profiles; empty is DynamoMocker.
	Profile string
	// KVTokens is the KV memory of a worker in tokens; 0 is that of the profile.
	KVTokens int
	// MaxTokens is the token budget of a pass, MaxSeqs how many requests run at once on a worker. 0 is 8192 and 256.
	MaxTokens, MaxSeqs int
	// KV multiplies the KV memory: 4 stands for a tier of host memory of three times the size that is read back for free.
	// 0 is 1. Decode steps of DynamoMocker count with the memory without it.
	KV float64
	// Speeds are how fast each worker is: passes of one with 0.5 take twice as long. Empty: all 1.
	Speeds []float64
	// Changes are when workers come and go, in any order.
	Changes []Change
	// Lag delays Router.Stored, Removed and Outputs.
	Lag time.Duration
	// NoReuse turns the engines' prefix caches off: each prompt is computed whole, and nothing is told of caches.
	NoReuse bool
	// SharedCache lets all workers read one cache of prompts, as large as all their memories together. What is there is read
	// for free, but takes memory of the worker that uses it. It is a bound for what routing can get out of caches, as long as
	// memory is not scarce; what routers are told of caches means nothing then.
	SharedCache bool
}

// Change is a worker that comes (Up) or fails. A worker whose first change is to come is not there from the start.
type Change struct {
	At     time.Duration
	Worker int
	Up     bool
}

// Profiles are the names that Config.Profile may have, the default first.
func Profiles() []string { return append([]string{DynamoMocker}, sim.Profiles()...) }

// maxBlocks bounds the memory of a worker in blocks.
const maxBlocks = 1 << 26

// filled checks a configuration and puts defaults in.
func (c Config) filled(w *trace.Workload) (Config, error) {
	if c.Profile == "" {
		c.Profile = DynamoMocker
	}
	kv := mockedTokens
	if c.Profile != DynamoMocker {
		_, n, known := sim.ModelOf(c.Profile)
		if !known {
			return c, fmt.Errorf("profile %q: one of %q expected", c.Profile, Profiles())
		}
		kv = n
	}
	c.KVTokens, c.MaxTokens, c.MaxSeqs = orDefault(c.KVTokens, kv), orDefault(c.MaxTokens, 8192), orDefault(c.MaxSeqs, 256)
	c.KV = orDefault(c.KV, 1)
	if len(c.Speeds) == 0 {
		c.Speeds = slices.Repeat([]float64{1}, max(0, c.Workers))
	}
	switch blocks := float64(c.KVTokens) * c.KV / float64(w.BlockTokens); {
	case c.Workers < 1 || c.Workers > 1<<16:
		return c, fmt.Errorf("%d workers: between 1 and %d expected", c.Workers, 1<<16)
	case w.BlockTokens < 1:
		return c, fmt.Errorf("a workload with blocks of %d tokens: at least 1 expected", w.BlockTokens)
	case !(blocks >= 1 && blocks <= maxBlocks) || c.KVTokens < w.BlockTokens:
		return c, fmt.Errorf("KV memory of %d tokens times %v, blocks of %d: between 1 and %d blocks expected", c.KVTokens, c.KV, w.BlockTokens, maxBlocks)
	case c.MaxSeqs < 1 || c.MaxTokens <= c.MaxSeqs:
		return c, fmt.Errorf("%d tokens and %d sequences in a pass: at least 1 sequence and more tokens than sequences expected", c.MaxTokens, c.MaxSeqs)
	case len(c.Speeds) != c.Workers:
		return c, fmt.Errorf("%d speeds for %d workers: one each expected", len(c.Speeds), c.Workers)
	case c.NoReuse && c.SharedCache:
		return c, errors.New("a shared cache without reuse: one of the two expected")
	case c.Lag < 0:
		return c, fmt.Errorf("lag %v: must not be negative", c.Lag)
	}
	for i, s := range c.Speeds {
		if !(s >= 1e-6 && s <= 1e6) || math.IsNaN(s) {
			return c, fmt.Errorf("speed %v of worker %d: between 1e-6 and 1e6 expected", s, i)
		}
	}
	err := c.checkChanges()
	return c, err
}

// checkChanges sorts the changes and checks that workers come and go in turn.
func (c *Config) checkChanges() error {
	c.Changes = slices.Clone(c.Changes)
	slices.SortStableFunc(c.Changes, func(a, b Change) int { return int(max(-1, min(1, a.At-b.At))) })
	last := map[int]bool{}
	for _, ch := range c.Changes {
		if ch.Worker < 0 || ch.Worker >= c.Workers || ch.At < 0 {
			return fmt.Errorf("change at %v of worker %d: there are %d workers, and time begins at 0", ch.At, ch.Worker, c.Workers)
		}
		if up, before := last[ch.Worker]; before && up == ch.Up {
			return fmt.Errorf("worker %d at %v: two changes after each other to up %v", ch.Worker, ch.At, ch.Up)
		}
		last[ch.Worker] = ch.Up
	}
	return nil
}

func orDefault[T int | float64](v, otherwise T) T {
	if v == 0 {
		return otherwise
	}
	return v
}
