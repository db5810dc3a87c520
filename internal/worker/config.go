package worker

import (
	"time"

	"attache/internal/field"
)

// Config is how workers are watched.
type Config struct {
	// Health is the active check of every worker.
	Health HealthConfig `yaml:"health"`
	// Metrics is the reading of every engine's metrics.
	Metrics MetricsConfig `yaml:"metrics"`
	// Circuit takes workers out on which requests fail.
	Circuit CircuitConfig `yaml:"circuit"`
	// AckTimeout is how long a new worker waits for every connected Envoy to acknowledge its address before it is used
	// anyway. 0: it does not wait, and the first requests to it may be routed by Envoy's fallback policy.
	AckTimeout time.Duration `yaml:"ack_timeout"`
}

// HealthConfig is the active check.
type HealthConfig struct {
	// Path is asked by GET. Empty: /health, and /model_info on SGLang, whose /health generates a token.
	Path string `yaml:"path"`
	// Interval is the pause between two checks of one worker. A dead worker is found this late when no request meets it.
	Interval time.Duration `yaml:"interval"`
	// Timeout is how long an answer may take. Too short a value takes busy workers out.
	Timeout time.Duration `yaml:"timeout"`
	// Failures in a row make a worker unhealthy; a refused connection does so at once.
	Failures int `yaml:"failures"`
}

// MetricsConfig is the reading of metrics.
type MetricsConfig struct {
	// Busy is the pause between two readings while a worker has requests.
	Busy time.Duration `yaml:"busy_interval"`
	// Idle is the pause while it has none; nothing changes then, and reading costs engine and gateway alike.
	Idle time.Duration `yaml:"idle_interval"`
	// Timeout is how long a reading may take.
	Timeout time.Duration `yaml:"timeout"`
}

// CircuitConfig is when failing requests take a worker out.
type CircuitConfig struct {
	// Failures in a row open the circuit; an unreachable worker does so at once.
	Failures int `yaml:"failures"`
	// Pause is how long an opened circuit keeps requests away before one may try again; it doubles with every failed try.
	Pause time.Duration `yaml:"pause"`
	// MaxPause bounds the doubling.
	MaxPause time.Duration `yaml:"max_pause"`
}

// DefaultConfig finds a dead worker within a second or two and reads busy engines four times a second.
func DefaultConfig() Config {
	return Config{
		Health:     HealthConfig{Interval: time.Second, Timeout: time.Second, Failures: 2},
		Metrics:    MetricsConfig{Busy: 250 * time.Millisecond, Idle: 5 * time.Second, Timeout: 2 * time.Second},
		Circuit:    CircuitConfig{Failures: 3, Pause: time.Second, MaxPause: 30 * time.Second},
		AckTimeout: 2 * time.Second,
	}
}

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Check(c.Health.Path == "" || c.Health.Path[0] == '/', "health.path", c.Health.Path, `must be empty or begin with "/"`)
	check.Check(c.Health.Interval >= 50*time.Millisecond, "health.interval", c.Health.Interval, "must be at least 50ms")
	check.Check(c.Health.Timeout > 0, "health.timeout", c.Health.Timeout, "must be above 0")
	check.Check(c.Health.Failures > 0, "health.failures", c.Health.Failures, "must be at least 1")
	check.Check(c.Metrics.Busy >= 50*time.Millisecond, "metrics.busy_interval", c.Metrics.Busy, "must be at least 50ms")
	check.Check(c.Metrics.Idle >= c.Metrics.Busy, "metrics.idle_interval", c.Metrics.Idle, "must be at least busy_interval")
	check.Check(c.Metrics.Timeout > 0, "metrics.timeout", c.Metrics.Timeout, "must be above 0")
	check.Check(c.Circuit.Failures > 0, "circuit.failures", c.Circuit.Failures, "must be at least 1")
	check.Check(c.Circuit.Pause > 0, "circuit.pause", c.Circuit.Pause, "must be above 0")
	check.Check(c.Circuit.MaxPause >= c.Circuit.Pause, "circuit.max_pause", c.Circuit.MaxPause, "must be at least pause")
	check.Check(c.AckTimeout >= 0, "ack_timeout", c.AckTimeout, "must not be negative")
	return check.Err()
}
