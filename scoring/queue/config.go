package queue

import (
	"fmt"
	"strings"
	"time"

	"attache/internal/field"
)

// Config says who may wait while every candidate is saturated, for how long, and in which order they are served.
type Config struct {
	// Limits are those of the whole queue. With limits.requests 0, the default, there is no queue: what finds no room is
	// refused at once.
	Limits Limits `yaml:"limits"`
	// Classes share the workers in proportion to their quanta. Empty: one class "default", first come, first served.
	Classes []ClassConfig `yaml:"classes"`
	// Buckets give a class to requests that do not name one, by how many of their tokens would have to be computed; the first
	// that fits counts. Empty, or none fits: the first class.
	Buckets []Bucket `yaml:"buckets"`
	// MaxPriority is the highest priority that counts: seconds of a jump ahead, or a weight of 1 + max_priority for wspt. 0:
	// priorities do not count. It bounds how long anybody is held up by the priorities of others, so it should not be
	// above the time that clients wait.
	MaxPriority float64 `yaml:"max_priority"`
	// Evict lets a request of a higher strict tier take the place of one of a lower tier, the last arrival of the lowest, when
	// a limit is reached. False: whoever waits may stay.
	Evict bool `yaml:"evict"`
	// Fairness is for the classes that are fair among flows.
	Fairness FairnessConfig `yaml:"fairness"`
}

// ClassConfig is one class of requests.
type ClassConfig struct {
	// Name is what requests and buckets call it.
	Name string `yaml:"name"`
	// Policy orders the class: "fcfs" (first come, first served), "lcfs" (last come, first served: under overload some are
	// served soon instead of all late), "wspt" (weighted shortest processing time: short prompts first, which gives the
	// lowest mean wait) or "edf" (earliest deadline of the first token first).
	Policy string `yaml:"policy"`
	// Quantum is how many uncached tokens the class may send per round of the round robin between classes. Only proportions
	// matter for shares; the larger the quanta, the longer the bursts of one class.
	Quantum int `yaml:"quantum"`
	// Ageing keeps wspt and lcfs from starving anybody. wspt: the time in which waiting counts as much as being half as long.
	// lcfs: requests that arrive within one such time are served last first, and earlier ones before them. 0: none, then
	// under overload long prompts (wspt) or early ones (lcfs) wait until they expire. Too short a value makes both fcfs.
	Ageing time.Duration `yaml:"ageing"`
	// DefaultSLO is the time to first token that edf assumes for requests which do not say theirs. Below what others ask for
	// it puts the silent ones first.
	DefaultSLO time.Duration `yaml:"default_slo"`
	// Fair lets the flows (tenants, programs) of the class take turns, the one that attained least first, and the policy
	// order the requests of one flow only. False: flows do not matter.
	Fair bool `yaml:"fair"`
	// Limits are the class's own, besides those of the whole queue.
	Limits Limits `yaml:"limits"`
}

// Bucket maps requests by size.
type Bucket struct {
	// UpTo is the most uncached tokens of the bucket. 0: any number, for the last one.
	UpTo int `yaml:"up_to"`
	// Class is the name of the class.
	Class string `yaml:"class"`
}

// FairnessConfig is how flows are remembered.
type FairnessConfig struct {
	// Flows is how many flows are told apart at most. Beyond it the idle flow that attained least is forgotten; when all of
	// them wait, further ones share one place. Each takes about 150 bytes and its name.
	Flows int `yaml:"flows"`
	// HalfLife is the time after which a token served counts half. Too long a value makes a tenant pay for a burst long after
	// it; too short a value forgets who sends most.
	HalfLife time.Duration `yaml:"half_life"`
}

// DefaultConfig has no queue: set limits.requests for one. Its other values are for when there is one.
func DefaultConfig() Config {
	return Config{
		Limits:      Limits{MaxWait: 30 * time.Second},
		MaxPriority: 60,
		Fairness:    FairnessConfig{Flows: 1024, HalfLife: time.Minute},
	}
}

// DefaultClass is what a class is that says nothing of itself.
func DefaultClass() ClassConfig {
	return ClassConfig{Name: "default", Policy: "fcfs", Quantum: 512, Ageing: time.Minute, DefaultSLO: 5 * time.Second}
}

// UnmarshalYAML reads a class over the default one.
func (c *ClassConfig) UnmarshalYAML(unmarshal func(any) error) error {
	type plain ClassConfig
	p := plain(DefaultClass())
	if err := unmarshal(&p); err != nil {
		return err
	}
	*c = ClassConfig(p)
	return nil
}

// Enabled reports whether there is a queue.
func (c Config) Enabled() bool { return c.Limits.Requests > 0 }

const maxClasses = 64

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	c.Limits.check(&check, "limits")
	check.Check(len(c.Classes) <= maxClasses, "classes", len(c.Classes), "must be at most 64")
	names := map[string]bool{}
	for i, class := range c.Classes {
		path := fmt.Sprintf("classes[%d]", i)
		check.Check(!names[class.Name], path+".name", class.Name, "must be a name that no class before it has")
		names[class.Name] = true
		check.Under(path, class.validate())
	}
	if len(c.Classes) == 0 {
		names[DefaultClass().Name] = true
	}
	for i, b := range c.Buckets {
		path := fmt.Sprintf("buckets[%d]", i)
		check.Check(names[b.Class], path+".class", b.Class, "must be the name of a class")
		last := i == len(c.Buckets)-1
		check.Check(b.UpTo > 0 || b.UpTo == 0 && last, path+".up_to", b.UpTo, "must be above 0 tokens, or 0 (any) in the last bucket")
		if i > 0 && b.UpTo != 0 {
			check.Check(b.UpTo > c.Buckets[i-1].UpTo, path+".up_to", b.UpTo, "must be above that of the bucket before it")
		}
	}
	check.Check(c.MaxPriority >= 0 && c.MaxPriority <= 1e6, "max_priority", c.MaxPriority, "must be 0 to 1000000")
	check.Check(c.Fairness.Flows >= 1 && c.Fairness.Flows <= 1<<20, "fairness.flows", c.Fairness.Flows, "must be 1 to 1048576")
	check.Check(c.Fairness.HalfLife >= time.Second && c.Fairness.HalfLife <= 24*time.Hour, "fairness.half_life",
		c.Fairness.HalfLife, "must be 1s to 24h")
	return check.Err()
}

func (c ClassConfig) validate() error {
	var check field.Checker
	known := make([]string, len(policies))
	for i, p := range policies {
		known[i] = p.name
	}
	check.Check(c.Name != "" && len(c.Name) <= 63, "name", c.Name, "must be 1 to 63 bytes")
	check.Check(policyOf(c.Policy) != nil, "policy", c.Policy, "must be one of "+strings.Join(known, ", "))
	check.Check(c.Quantum >= 1 && c.Quantum <= 1<<30, "quantum", c.Quantum, "must be 1 to 1073741824 tokens")
	check.Check(c.Ageing == 0 || c.Ageing >= time.Millisecond && c.Ageing <= time.Hour, "ageing", c.Ageing,
		"must be 0 (none) or 1ms to 1h")
	check.Check(c.DefaultSLO > 0 && c.DefaultSLO <= time.Hour, "default_slo", c.DefaultSLO, "must be above 0s, at most 1h")
	c.Limits.check(&check, "limits")
	return check.Err()
}
