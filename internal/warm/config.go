package warm

import (
	"fmt"
	"time"

	"attache/internal/field"
)

// Config says which prompts are kept in the caches of engines when their requests are over, and at what cost.
type Config struct {
	// Keepalive sends the prompt of a request again, for one token, to the worker that answered it, for as long as the request's hint
	// cache_control says: the engine's cache throws away what was used longest ago, so that it keeps what is sent again. Prompts stay in
	// attache's memory for that long. Off: such a hint binds the session, and nothing is sent.
	Keepalive bool `yaml:"keepalive"`
	// SpeculativePrefill computes the next turn's prompt ahead for chats whose hint of that name wants it: when the answer is over, the
	// conversation with it, without the model's thoughts, is sent to the worker that gave it, for one token. For that the answers of such
	// requests pass attache, piece by piece, which costs a message each. It needs xds.gateway.body_mode BUFFERED.
	SpeculativePrefill bool `yaml:"speculative_prefill"`
	// Interval is how often a prompt is sent again. Longer than it takes an engine to fill its cache once over is too long: then the
	// prompt is gone, and is computed as a whole each time. Too short costs a step of the engine per prompt and time.
	Interval time.Duration `yaml:"interval"`
	// MaxBytes is how much memory kept prompts take at most; the oldest ones are given up first. A prompt larger than that is not kept.
	MaxBytes field.Bytes `yaml:"max_bytes"`
	// MaxEntries is how many prompts are kept at most; the oldest ones are given up first.
	MaxEntries int `yaml:"max_entries"`
	// Concurrency is how many prompts are sent at the same time, to all workers together. What cannot be sent in time is sent later.
	Concurrency int `yaml:"concurrency"`
	// Timeout is how long an engine may take for one token; then the request is cut, and counts as failed.
	Timeout time.Duration `yaml:"timeout"`
	// APIKeyFile is a file with the key that engines demand, sent as "authorization: Bearer KEY". What clients send as their own is
	// never seen or kept. It is read at the start, and never shown. Empty: none is sent.
	APIKeyFile string `yaml:"api_key_file"`
}

// DefaultConfig keeps nothing.
func DefaultConfig() Config {
	return Config{Interval: time.Minute, MaxBytes: 64 * field.MiB, MaxEntries: 1000, Concurrency: 4, Timeout: 10 * time.Second}
}

// Enabled reports whether anything is kept.
func (c Config) Enabled() bool { return c.Keepalive || c.SpeculativePrefill }

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Check(c.Interval >= time.Second && c.Interval <= time.Hour, "interval", c.Interval, "must be 1s to 1h")
	check.Check(c.MaxBytes >= field.MiB && c.MaxBytes <= 64*field.GiB, "max_bytes", c.MaxBytes, "must be 1MiB to 64GiB")
	check.Check(c.MaxEntries >= 1 && c.MaxEntries <= 10_000, "max_entries", c.MaxEntries, "must be 1 to 10000 prompts")
	check.Check(c.Concurrency >= 1 && c.Concurrency <= 256, "concurrency", c.Concurrency, "must be 1 to 256 requests")
	check.Check(c.Timeout >= 100*time.Millisecond && c.Timeout <= 10*time.Minute, "timeout", c.Timeout, "must be 100ms to 10m")
	if c.APIKeyFile != "" {
		_, err := field.ReadKey(c.APIKeyFile)
		check.Check(err == nil, "api_key_file", c.APIKeyFile, fmt.Sprint(err))
	}
	return check.Err()
}
