package router

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"attache/indexer"
	"attache/indexer/events"
	"attache/internal/field"
	"attache/internal/prompt"
	"attache/scoring"
	"attache/scoring/queue"
)

// Config says which pools there are and how a request finds its worker in one.
type Config struct {
	// MaxInFlight is how many requests one worker may have in flight before it counts as saturated. When every candidate
	// is saturated a request is turned away with 429 and retry-after. 0: no limit, requests queue inside the engines.
	// Too low a value wastes batch size: engines batch up to 256 sequences. A worker may have a lower limit of its own, in the
	// workers file.
	MaxInFlight int `yaml:"max_in_flight"`
	// Saturation are the other limits of a worker.
	Saturation SaturationConfig `yaml:"saturation"`
	// Queue holds requests back while every candidate is saturated. Without one (limits.requests 0, the default) they are turned
	// away at once.
	Queue queue.Config `yaml:"queue"`
	// Affinity sends the requests of one session to the worker that answered it last.
	Affinity AffinityConfig `yaml:"affinity"`
	// RetryAfter is what a client that was turned away is told to wait; whole seconds, at least 1s.
	RetryAfter time.Duration `yaml:"retry_after"`
	// Alternatives is how many workers a decision names in order, the chosen one included: Envoy's retries go to the
	// second and third. 1 leaves retries to Envoy's own policy, which does not know who holds the prompt.
	Alternatives int `yaml:"alternatives"`
	// FeedbackTTL is how long a finished decision waits for Envoy's access log before it is forgotten. Too short a value
	// loses TTFT and usage of requests whose log is late; each waiting decision takes about 1 KB.
	FeedbackTTL time.Duration `yaml:"feedback_ttl"`
	// Recent is how many decisions the admin API remembers for explaining; each takes about 2 KB.
	Recent int `yaml:"recent"`
	// Tenants is how many tenants have metrics of their own in each pool; those that come later count together as "other". 0:
	// nobody is counted by tenant. Each costs a few series; keep it 0 where clients can name themselves anything.
	Tenants int `yaml:"tenants"`
	// Auto applies what the comparison of predicted with delivered tokens recommends, and the admin API shows: what is
	// remembered of a worker without events counts less the more of it turns out to be gone, and silent engines are asked
	// more often for missed events where some were found. Off: it is shown only.
	Auto bool `yaml:"auto"`
	// LearntDir is a folder in which what was learnt of the workers' speed is kept, in a file with the pool's name: after a
	// restart times are predicted as well as before. Empty: it is learnt anew, from the first fifty requests of each worker.
	LearntDir string `yaml:"learnt_dir"`
	// Snapshot is where what is known of the workers' caches is kept.
	Snapshot SnapshotConfig `yaml:"snapshot"`
	// BookingTTL is how long a request may run before its booking is given up, as if its end had been lost. Too short a value
	// makes workers with long answers look idle.
	BookingTTL time.Duration `yaml:"booking_ttl"`
	// Prompt is how a request's prompt is cut into blocks.
	Prompt prompt.Config `yaml:"prompt"`
	// Index is what is remembered of who holds which prefix.
	Index indexer.Config `yaml:"index"`
	// Events is how the engines' KV events are followed, in pools whose workers publish them.
	Events events.Config `yaml:"events"`
	// Scoring is how a worker is chosen; a pool may have its own.
	Scoring scoring.Config `yaml:"scoring"`
}

// DefaultConfig routes by prefix and load without any limit on admission.
func DefaultConfig() Config {
	return Config{
		MaxInFlight:  0,
		Queue:        queue.DefaultConfig(),
		Affinity:     AffinityConfig{Mode: affinityOff, TTL: 10 * time.Minute, Sessions: 100_000},
		RetryAfter:   time.Second,
		Alternatives: 3,
		FeedbackTTL:  time.Minute,
		BookingTTL:   time.Hour,
		Snapshot:     DefaultSnapshotConfig(),
		Recent:       200,
		Tenants:      100,
		Prompt:       prompt.DefaultConfig(),
		Index:        indexer.DefaultConfig(),
		Events:       events.DefaultConfig(),
		Scoring:      scoring.DefaultConfig(),
	}
}

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Check(c.MaxInFlight >= 0, "max_in_flight", c.MaxInFlight, "must be 0 (no limit) or more requests")
	check.Under("saturation", c.Saturation.Validate())
	check.Under("queue", c.Queue.Validate())
	check.Under("affinity", c.Affinity.Validate())
	check.Check(c.RetryAfter >= time.Second, "retry_after", c.RetryAfter, "must be at least 1s")
	check.Check(c.Alternatives >= 1 && c.Alternatives <= 16, "alternatives", c.Alternatives, "must be 1 to 16 workers")
	check.Check(c.FeedbackTTL >= time.Second, "feedback_ttl", c.FeedbackTTL, "must be at least 1s")
	check.Check(c.BookingTTL >= time.Minute, "booking_ttl", c.BookingTTL, "must be at least 1m")
	check.Check(c.Recent >= 0 && c.Recent <= 10000, "recent", c.Recent, "must be 0 to 10000 decisions")
	check.Check(c.Tenants >= 0 && c.Tenants <= 10000, "tenants", c.Tenants, "must be 0 (none) to 10000 tenants")
	check.Under("prompt", c.Prompt.Validate())
	check.Under("index", c.Index.Validate())
	check.Under("snapshot", c.Snapshot.Validate())
	check.Under("events", c.Events.Validate())
	check.Under("scoring", c.Scoring.Validate())
	return check.Err()
}

// PoolConfig is one pool: the workers that serve the same models with one tokenizer and one block size.
type PoolConfig struct {
	// Name is how the pool is called in metrics, in the dashboard and in Envoy's cluster names: letters, digits, "-", "_".
	Name string `yaml:"name"`
	// Models are the model names that requests may ask this pool for. "llama-*" takes all names that begin with "llama-";
	// an exact name wins over a prefix, a longer prefix over a shorter one. Empty: allowed only when there is one pool,
	// which then takes every model name.
	Models []string `yaml:"models"`
	// Aliases are further names: what the client writes, and the model name that the worker is sent instead. The
	// request's body is changed in that one place only.
	Aliases map[string]string `yaml:"aliases"`
	// Prompt is how the pool's engines make tokens of prompts.
	Prompt prompt.ModelConfig `yaml:"prompt"`
	// Events says where the pool's engines publish what they hold in their KV caches.
	Events events.PoolConfig `yaml:"events"`
	// Scoring replaces the router's scoring for this pool; unset: the router's.
	Scoring *scoring.Config `yaml:"scoring"`
}

// ValidatePools checks every pool, and that no two claim one model name.
func ValidatePools(pools []PoolConfig) error {
	var check field.Checker
	names, claims := map[string]int{}, map[string]string{}
	for i, p := range pools {
		at := fmt.Sprintf("[%d].", i)
		check.Check(validName(p.Name), at+"name", p.Name, `must be letters, digits, "-" or "_", at most 60 of them`)
		if first, taken := names[p.Name]; taken {
			check.Check(false, at+"name", p.Name, fmt.Sprintf("is already the name of pool %d; every pool needs its own", first))
		}
		names[p.Name] = i
		check.Check(len(pools) == 1 || len(p.Models)+len(p.Aliases) > 0, at+"models", nil,
			"must name at least one model, because there are several pools to tell apart")
		claim := func(path, model string) {
			owner, taken := claims[model]
			check.Check(!taken, path, model, fmt.Sprintf("is already claimed by pool %q", owner))
			claims[model] = p.Name
		}
		for j, model := range p.Models {
			path := fmt.Sprintf("%smodels[%d]", at, j)
			star := strings.IndexByte(model, '*')
			check.Check(model != "" && (star < 0 || star == len(model)-1), path, model,
				`must be a model name, or the beginning of one followed by a single "*"`)
			claim(path, model)
		}
		for _, alias := range sortedKeys(p.Aliases) {
			path := at + "aliases." + alias
			check.Check(p.Aliases[alias] != "", path, p.Aliases[alias], "must be the model name that the worker knows")
			claim(path, alias)
		}
		check.Under(at+"prompt", p.Prompt.Validate())
		check.Under(at+"events", p.Events.Validate())
		if p.Scoring != nil {
			check.Under(at+"scoring", p.Scoring.Validate())
		}
	}
	return check.Err()
}

func validName(s string) bool {
	if s == "" || len(s) > 60 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
