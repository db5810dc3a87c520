//go:build race

package bubble

// Raced is whether the race detector is on. Then sync.Pool forgets at random, so that allocations cannot be counted.
const Raced = true
