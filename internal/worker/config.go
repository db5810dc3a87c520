package worker

import (
	"fmt"
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
	// Flap holds back workers that come and go.
	Flap FlapConfig `yaml:"flap"`
	// Registration is for workers that register themselves, with attache join or by the admin API.
	Registration RegistrationConfig `yaml:"registration"`
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
	// Canary asks engines for a token while nothing else shows that they make any.
	Canary CanaryConfig `yaml:"canary"`
}

// CanaryConfig is a request that finds engines that answer health checks and generate nothing.
type CanaryConfig struct {
	// Interval is how long no request may have succeeded on a worker before it is asked to complete a few characters by one token, with
	// each health check until it does. A failure counts as a failed check. 0: off. A short value costs steps of idle engines.
	Interval time.Duration `yaml:"interval"`
	// Timeout is how long the token may take. It waits in the engine's queue like any other: a value below the longest wait there takes
	// busy workers out.
	Timeout time.Duration `yaml:"timeout"`
	// Model is the name that is asked for. Empty: the name that the engine tells.
	Model string `yaml:"model"`
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

// FlapConfig is when a worker that comes and goes is held back: it is suspect until it has been left alone for a while, unless no
// other worker of its pool is ready.
type FlapConfig struct {
	// Changes between ready and not ready within the window hold a worker back. A restart makes two of them. 0: never.
	Changes int `yaml:"changes"`
	// Window is the time in which changes are counted.
	Window time.Duration `yaml:"window"`
	// Pause is how long a worker is held back at first; it doubles each time that the worker flaps again within a window of its return.
	Pause time.Duration `yaml:"pause"`
	// MaxPause bounds the doubling.
	MaxPause time.Duration `yaml:"max_pause"`
}

// RegistrationConfig is for workers that register themselves.
type RegistrationConfig struct {
	// TokenFile is a file with the token that workers show, one line of at least 16 characters. It is read again while attache runs, so
	// that it can be changed, and never shown. Whoever knows it can have requests sent anywhere. Empty: workers cannot register.
	TokenFile string `yaml:"token_file"`
	// TTL is how long a worker stays without a heartbeat; it is told to send one every third of that. Too short a value loses workers
	// whenever the network or a gateway pauses; a dead one is out of rotation by its health check long before.
	TTL time.Duration `yaml:"ttl"`
	// MaxWorkers is how many workers may be registered at the same time; one more is refused.
	MaxWorkers int `yaml:"max_workers"`
}

// Enabled reports whether workers may register.
func (c RegistrationConfig) Enabled() bool { return c.TokenFile != "" }

// minToken is how long a token must be at least: nobody guesses 16 characters over a network.
const minToken = 16

// ReadToken reads a token file. Errors never show what it holds.
func ReadToken(path string) (string, error) {
	token, err := field.ReadKey(path)
	if err == nil && len(token) < minToken {
		return "", fmt.Errorf("must hold a token of at least %d characters", minToken)
	}
	return token, err
}

// DefaultConfig finds a dead worker within a second or two and reads busy engines four times a second.
func DefaultConfig() Config {
	return Config{
		Health:       HealthConfig{Interval: time.Second, Timeout: time.Second, Failures: 2, Canary: CanaryConfig{Timeout: 10 * time.Second}},
		Metrics:      MetricsConfig{Busy: 250 * time.Millisecond, Idle: 5 * time.Second, Timeout: 2 * time.Second},
		Circuit:      CircuitConfig{Failures: 3, Pause: time.Second, MaxPause: 30 * time.Second},
		AckTimeout:   2 * time.Second,
		Flap:         FlapConfig{Changes: 6, Window: time.Minute, Pause: 10 * time.Second, MaxPause: 5 * time.Minute},
		Registration: RegistrationConfig{TTL: 15 * time.Second, MaxWorkers: 1000},
	}
}

// maxModelName bounds the name of a model.
const maxModelName = 256

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Check(c.Health.Path == "" || c.Health.Path[0] == '/', "health.path", c.Health.Path, `must be empty or begin with "/"`)
	check.Check(c.Health.Interval >= 50*time.Millisecond, "health.interval", c.Health.Interval, "must be at least 50ms")
	check.Check(c.Health.Timeout > 0, "health.timeout", c.Health.Timeout, "must be above 0")
	check.Check(c.Health.Failures > 0, "health.failures", c.Health.Failures, "must be at least 1")
	canary := c.Health.Canary
	check.Check(canary.Interval == 0 || canary.Interval >= time.Second, "health.canary.interval", canary.Interval, "must be 0 (off) or at least 1s")
	check.Check(canary.Timeout > 0, "health.canary.timeout", canary.Timeout, "must be above 0")
	check.Check(len(canary.Model) <= maxModelName, "health.canary.model", canary.Model, "must be a model's name")
	check.Check(c.Metrics.Busy >= 50*time.Millisecond, "metrics.busy_interval", c.Metrics.Busy, "must be at least 50ms")
	check.Check(c.Metrics.Idle >= c.Metrics.Busy, "metrics.idle_interval", c.Metrics.Idle, "must be at least busy_interval")
	check.Check(c.Metrics.Timeout > 0, "metrics.timeout", c.Metrics.Timeout, "must be above 0")
	check.Check(c.Circuit.Failures > 0, "circuit.failures", c.Circuit.Failures, "must be at least 1")
	check.Check(c.Circuit.Pause > 0, "circuit.pause", c.Circuit.Pause, "must be above 0")
	check.Check(c.Circuit.MaxPause >= c.Circuit.Pause, "circuit.max_pause", c.Circuit.MaxPause, "must be at least pause")
	check.Check(c.AckTimeout >= 0, "ack_timeout", c.AckTimeout, "must not be negative")
	check.Check(c.Flap.Changes == 0 || c.Flap.Changes >= 2 && c.Flap.Changes <= 100, "flap.changes", c.Flap.Changes, "must be 0 (never) or 2 to 100 changes")
	check.Check(c.Flap.Window > 0, "flap.window", c.Flap.Window, "must be above 0")
	check.Check(c.Flap.Pause > 0, "flap.pause", c.Flap.Pause, "must be above 0")
	check.Check(c.Flap.MaxPause >= c.Flap.Pause, "flap.max_pause", c.Flap.MaxPause, "must be at least pause")
	if c.Registration.TokenFile != "" {
		_, err := ReadToken(c.Registration.TokenFile)
		check.Check(err == nil, "registration.token_file", c.Registration.TokenFile, fmt.Sprint(err))
	}
	ttl := c.Registration.TTL
	check.Check(ttl >= time.Second && ttl <= time.Hour, "registration.ttl", ttl, "must be 1s to 1h")
	check.Check(c.Registration.MaxWorkers >= 1 && c.Registration.MaxWorkers <= 10_000, "registration.max_workers", c.Registration.MaxWorkers,
		"must be 1 to 10000 workers")
	return check.Err()
}
