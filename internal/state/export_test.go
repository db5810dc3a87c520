package state

import "time"

// NewMemoryAt is NewMemory with a clock of the test's.
func NewMemoryAt(cfg Config, now func() time.Time) *Memory { return newMemory(cfg, now) }
