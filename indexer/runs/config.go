package runs

import (
	"attache/internal/field"
)

// Config bounds what an index may hold.
type Config struct {
	// MaxBytes bounds the memory of the index. A held block takes 30 to 45 bytes, more where prompts are only a few blocks
	// long; 1 GiB is enough for about 25 million. When it is reached, the least recently used runs are forgotten for all
	// their holders: their workers look colder than they are. Too low a value costs reuse, nothing else.
	MaxBytes field.Bytes `yaml:"max_bytes"`
	// MaxOrphans bounds the blocks, over all slots, that wait for a parent which is not known. They wait after events were
	// lost; the oldest go first. 0: none waits.
	MaxOrphans int `yaml:"max_orphans"`
	// MaxSlots bounds the slot numbers, which are dense: events of slots from there on are refused.
	MaxSlots int `yaml:"max_slots"`
}

// DefaultConfig fits hundreds of workers.
func DefaultConfig() Config {
	return Config{MaxBytes: field.GiB, MaxOrphans: 1 << 14, MaxSlots: 1 << 16}
}

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Check(c.MaxBytes >= field.MiB, "max_bytes", int64(c.MaxBytes), "must be at least 1MiB")
	check.Check(c.MaxOrphans >= 0, "max_orphans", c.MaxOrphans, "must be 0 (none) or more blocks")
	check.Check(c.MaxSlots >= 1 && c.MaxSlots <= 1<<20, "max_slots", c.MaxSlots, "must be 1 to 1048576")
	return check.Err()
}

// presizeLimit is how many blocks room is made for at most when a holder is new: a quarter of all memory.
func (c Config) presizeLimit() int { return int(c.MaxBytes) / 4 / (2 * entryBytes) }
