package replica

import (
	"time"

	"attache/internal/field"
)

// Config is how replicas tell each other what they decide.
type Config struct {
	// Batch is how long decisions are gathered before they are sent to the other replicas. Two replicas that decide within this
	// time, and the time on the way, do not see each other's decisions. Shorter costs more messages: every replica sends at most
	// one per batch and pool, and reads those of the others half as often again. 0: each at once.
	Batch time.Duration `yaml:"batch"`
	// Heartbeat is how often a replica with nothing to tell is heard.
	Heartbeat time.Duration `yaml:"heartbeat"`
	// Lease is how long a replica that is not heard counts: after that its requests are no load any more. Too short a value
	// forgets replicas that pause; too long a value keeps what a dead one had under way.
	Lease time.Duration `yaml:"lease"`
	// Handover is how long, at most, the requests that a replica leaves running when it is stopped count as load at the others.
	Handover time.Duration `yaml:"handover"`
}

// DefaultConfig gathers for four milliseconds and forgets after five seconds.
func DefaultConfig() Config {
	return Config{Batch: 4 * time.Millisecond, Heartbeat: time.Second, Lease: 5 * time.Second, Handover: 30 * time.Second}
}

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Check(c.Batch >= 0 && c.Batch <= time.Second, "batch", c.Batch, "must be 0s to 1s")
	check.Check(c.Heartbeat >= 10*time.Millisecond && c.Heartbeat <= time.Minute, "heartbeat", c.Heartbeat, "must be 10ms to 1m")
	check.Check(c.Lease >= 2*c.Heartbeat, "lease", c.Lease, "must be at least twice heartbeat")
	check.Check(c.Handover >= 0 && c.Handover <= time.Hour, "handover", c.Handover, "must be 0s to 1h")
	return check.Err()
}
