package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

func TestDefaultsAreValid(t *testing.T) {
	cfg := DefaultConfig()
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	if cfg.Enabled() {
		t.Error("there is a queue by default")
	}
	cfg.Limits.Requests = 1
	if !cfg.Enabled() {
		t.Error("with a limit there is no queue")
	}
}

// TestAClassIsReadOverTheDefault: what a class does not say is as by default, and what it says to be 0 is 0.
func TestAClassIsReadOverTheDefault(t *testing.T) {
	cfg := DefaultConfig()
	err := yaml.UnmarshalWithOptions([]byte(`
limits: {requests: 500, body_bytes: 1GiB}
classes:
  - {name: interactive, policy: edf, quantum: 2048, fair: true}
  - {name: batch, policy: wspt, ageing: 0s, limits: {max_wait: 5m}}
buckets: [{up_to: 4000, class: interactive}, {class: batch}]
`), &cfg, yaml.Strict())
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	if c := cfg.Classes[0]; c.Ageing != DefaultClass().Ageing || c.DefaultSLO != DefaultClass().DefaultSLO || c.Quantum != 2048 || !c.Fair {
		t.Errorf("interactive is %+v", c)
	}
	if c := cfg.Classes[1]; c.Ageing != 0 || c.Quantum != DefaultClass().Quantum || c.Limits.MaxWait != 5*time.Minute {
		t.Errorf("batch is %+v", c)
	}
	if cfg.Limits.MaxWait != DefaultConfig().Limits.MaxWait {
		t.Errorf("max_wait is %v", cfg.Limits.MaxWait)
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		field string // "" for a valid one
		set   func(*Config)
	}{
		{"limits.requests", func(c *Config) { c.Limits.Requests = -1 }},
		{"limits.requests", func(c *Config) { c.Limits.Requests = 1e7 + 1 }},
		{"limits.prompt_tokens", func(c *Config) { c.Limits.PromptTokens = -1 }},
		{"limits.body_bytes", func(c *Config) { c.Limits.BodyBytes = -1 }},
		{"limits.max_wait", func(c *Config) { c.Limits.MaxWait = time.Microsecond }},
		{"limits.max_wait", func(c *Config) { c.Limits.MaxWait = 2 * time.Hour }},
		{"", func(c *Config) { c.Limits.MaxWait = 0 }},
		{"max_priority", func(c *Config) { c.MaxPriority = -1 }},
		{"max_priority", func(c *Config) { c.MaxPriority = 1e7 }},
		{"fairness.flows", func(c *Config) { c.Fairness.Flows = 0 }},
		{"fairness.half_life", func(c *Config) { c.Fairness.HalfLife = 0 }},
		{"classes[1].name", func(c *Config) { c.Classes[1].Name = c.Classes[0].Name }},
		{"classes[0].name", func(c *Config) { c.Classes[0].Name = "" }},
		{"classes[0].policy", func(c *Config) { c.Classes[0].Policy = "sjf" }},
		{"classes[0].quantum", func(c *Config) { c.Classes[0].Quantum = 0 }},
		{"classes[1].ageing", func(c *Config) { c.Classes[1].Ageing = -time.Second }},
		{"", func(c *Config) { c.Classes[1].Ageing = 0 }},
		{"classes[1].default_slo", func(c *Config) { c.Classes[1].DefaultSLO = 0 }},
		{"classes[1].limits.requests", func(c *Config) { c.Classes[1].Limits.Requests = -1 }},
		{"classes", func(c *Config) {
			for i := range maxClasses {
				class := DefaultClass()
				class.Name = strings.Repeat("x", i+1)[:min(i+1, 63)] + string(rune('a'+i%26))
				c.Classes = append(c.Classes, class)
			}
		}},
		{"buckets[0].class", func(c *Config) { c.Buckets = []Bucket{{UpTo: 1, Class: "nobody"}} }},
		{"buckets[0].up_to", func(c *Config) { c.Buckets = []Bucket{{Class: "a"}, {UpTo: 1, Class: "b"}} }},
		{"buckets[0].up_to", func(c *Config) { c.Buckets = []Bucket{{UpTo: -1, Class: "a"}} }},
		{"buckets[1].up_to", func(c *Config) { c.Buckets = []Bucket{{UpTo: 7, Class: "a"}, {UpTo: 7, Class: "b"}} }},
		{"", func(c *Config) { c.Buckets = []Bucket{{UpTo: 7, Class: "a"}, {UpTo: 8, Class: "b"}, {Class: "a"}} }},
		{"", func(c *Config) { c.Classes, c.Buckets = nil, []Bucket{{Class: "default"}} }},
	} {
		cfg := DefaultConfig()
		for _, name := range []string{"a", "b"} {
			class := DefaultClass()
			class.Name = name
			cfg.Classes = append(cfg.Classes, class)
		}
		c.set(&cfg)
		err := cfg.Validate()
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%+v: %v", cfg, err)
		case c.field != "" && (err == nil || !strings.HasPrefix(err.Error(), c.field+": ")):
			t.Errorf("%+v: %v, want an error of %s", cfg, err, c.field)
		}
	}
}
