// Package config is the one YAML file: it composes the Config of every package, fills in defaults, and refuses what is
// wrong with file, line, field and rule.
//
// Every default is good; an empty file is a valid one. Unknown keys are errors, because a misspelt key that is ignored is
// a setting that silently does not hold.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"attache/extproc"
	"attache/internal/admin"
	"attache/internal/field"
	"attache/internal/replica"
	"attache/internal/replica/direct"
	"attache/internal/router"
	"attache/internal/state"
	"attache/internal/tracing"
	"attache/internal/warm"
	"attache/internal/worker"
	"attache/internal/worker/discovery/dns"
	"attache/internal/worker/discovery/kubernetes"
	"attache/xds"
)

// Config is the whole file.
type Config struct {
	// Replica names this process among several: it appears in decision ids, metrics and the admin API. Empty: the host's
	// name. Two replicas of one name take each other's access-log reports for their own.
	Replica string `yaml:"replica"`
	// Pools are the groups of workers, each serving one set of models. The first is the default pool: it takes requests
	// that name no model, and is where Envoy sends everything while attache is away.
	Pools []Pool `yaml:"pools"`
	// Workers is how workers are watched: health checks, metrics, circuit breaking; and whether they may register themselves.
	Workers worker.Config `yaml:"workers"`
	// Router is how a worker is chosen.
	Router router.Config `yaml:"router"`
	// Redis is where replicas share their state; without it each is on its own.
	Redis state.Config `yaml:"redis"`
	// Replicas is how several replicas behave as one, where there is Redis, or where they tell each other directly.
	Replicas Replicas `yaml:"replicas"`
	// ExtProc is the server that Envoy asks for every request.
	ExtProc extproc.Config `yaml:"extproc"`
	// Tracing is where spans of requests are sent.
	Tracing tracing.Config `yaml:"tracing"`
	// Warm keeps prompts in the caches of engines after their requests are over.
	Warm warm.Config `yaml:"warm"`
	// XDS is the control plane: where Envoy fetches its configuration from, and what that says.
	XDS xds.Config `yaml:"xds"`
	// Admin is the operator's side: metrics, health, API and dashboard.
	Admin admin.Config `yaml:"admin"`
	// Log is what is written to standard error.
	Log Log `yaml:"log"`
	// Runtime tunes the Go runtime.
	Runtime Runtime `yaml:"runtime"`
}

// Replicas is how several replicas behave as one.
type Replicas struct {
	replica.Config `yaml:",inline"`

	// Direct is how replicas tell each other without Redis.
	Direct direct.Config `yaml:"direct"`
}

// Pool is one pool and where its workers come from.
type Pool struct {
	router.PoolConfig `yaml:",inline"`

	// Workers are the addresses of the pool's engines, "host:port". A host name is resolved at start and whenever the configuration
	// is taken in again; use discovery or workers_file where addresses change.
	Workers []string `yaml:"workers"`
	// WorkersFile is a YAML or JSON file with further workers (docs/operations.md), and with what is only said of single ones:
	// labels, which requests may ask for, a role, a limit of requests in flight. It is watched, and a change takes effect within
	// a second. A file that turns bad keeps the last good list.
	WorkersFile string `yaml:"workers_file"`
	// Discovery is where further workers are found. A worker that is named in several places is one: what is said in workers comes
	// before workers_file, before what registers itself, before DNS, before Kubernetes, and gaps are filled in this order.
	Discovery Discovery `yaml:"discovery"`
	// Engine is what the workers run: "vllm", "sglang", "trtllm", or "auto" to tell by their metrics. A wrong value makes
	// their load invisible.
	Engine worker.Engine `yaml:"engine"`
}

// Discovery is where a pool's workers are found. There may be any number of each kind.
type Discovery struct {
	// DNS are names whose addresses are workers, resolved at intervals.
	DNS []dns.Config `yaml:"dns"`
	// Kubernetes are parts of clusters that are watched: services, or InferencePools.
	Kubernetes []kubernetes.Config `yaml:"kubernetes"`
}

// Validate reports every field that breaks its rule. Two sources of one name could not be told apart.
func (d Discovery) Validate() error {
	var check field.Checker
	names := map[string]string{}
	once := func(at, key, value, name string) {
		if first, twice := names[name]; twice {
			check.Check(false, at+"."+key, value, "is already followed by "+first)
			return
		}
		names[name] = at
	}
	for i, c := range d.DNS {
		at := fmt.Sprintf("dns[%d]", i)
		check.Under(at, c.Validate())
		once(at, "name", c.Name, "dns/"+c.Source())
	}
	for i, c := range d.Kubernetes {
		at := fmt.Sprintf("kubernetes[%d]", i)
		check.Under(at, c.Validate())
		key, value := c.What()
		once(at, key, value, "kubernetes/"+c.Source())
	}
	return check.Err()
}

// Log is what is written to standard error. Prompts are never logged.
type Log struct {
	// Level is the least important level that is written: "debug", "info", "warn" or "error".
	Level string `yaml:"level"`
	// Format is "text" for people or "json" for collectors.
	Format string `yaml:"format"`
}

// Runtime tunes the Go runtime.
type Runtime struct {
	// GCPercent is how much garbage may gather before a collection, in percent of what is live. 400 costs memory and saves
	// up to a third of the CPU of a decision against Go's default of 100 (docs/performance.md).
	GCPercent int `yaml:"gc_percent"`
	// MemoryLimit is the size at which the collector works harder instead of growing, in bytes or with a unit. 0: nine
	// tenths of the control group's limit, or none where there is no such limit. Too low a value costs CPU without end.
	MemoryLimit field.Bytes `yaml:"memory_limit"`
}

// Default is the configuration of an empty file: one pool without workers.
func Default() Config {
	return Config{
		Pools:    []Pool{{PoolConfig: router.PoolConfig{Name: "default"}, Engine: worker.Auto}},
		Workers:  worker.DefaultConfig(),
		Router:   router.DefaultConfig(),
		Redis:    state.DefaultConfig(),
		Replicas: Replicas{Config: replica.DefaultConfig(), Direct: direct.DefaultConfig()},
		ExtProc:  extproc.DefaultConfig(),
		Tracing:  tracing.DefaultConfig(),
		Warm:     warm.DefaultConfig(),
		XDS:      xds.DefaultConfig(),
		Admin:    admin.DefaultConfig(),
		Log:      Log{Level: "info", Format: "text"},
		Runtime:  Runtime{GCPercent: 400},
	}
}

// Validate reports every field that breaks its rule, in the order of the file's documentation.
func (c *Config) Validate() error {
	var check field.Checker
	check.Check(len(c.Pools) > 0, "pools", nil, "must have at least one pool")
	check.Under("pools", router.ValidatePools(c.PoolConfigs()))
	for i, p := range c.Pools {
		at := fmt.Sprintf("pools[%d].", i)
		for j, address := range p.Workers {
			if _, _, err := worker.ParseAddress(address); err != nil {
				check.Check(false, fmt.Sprintf("%sworkers[%d]", at, j), address, err.Error())
			}
		}
		check.Under(at+"discovery", p.Discovery.Validate())
		check.Check(p.Engine.Valid(), at+"engine", string(p.Engine), `must be "auto", "vllm", "sglang" or "trtllm"`)
	}
	check.Under("workers", c.Workers.Validate())
	check.Under("router", c.Router.Validate())
	check.Under("redis", c.Redis.Validate())
	check.Under("replicas", c.Replicas.Validate())
	check.Under("replicas.direct", c.Replicas.Direct.Validate())
	check.Check(!c.Redis.Enabled() || !c.Replicas.Direct.Enabled(), "replicas.direct.listen", c.Replicas.Direct.Listen,
		"must be empty where redis.addresses are given: replicas tell each other one way")
	check.Under("extproc", c.ExtProc.Validate())
	check.Under("tracing", c.Tracing.Validate())
	check.Under("warm", c.Warm.Validate())
	check.Under("xds", c.XDS.Validate())
	c.checkWait(&check)
	check.Check(!c.Warm.SpeculativePrefill || c.XDS.Gateway.BodyMode == "BUFFERED", "warm.speculative_prefill", c.Warm.SpeculativePrefill,
		"needs xds.gateway.body_mode BUFFERED: in the other mode Envoy cannot be asked for the bodies of single answers")
	check.Under("admin", c.Admin.Validate())
	check.Check(slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level), "log.level", c.Log.Level,
		`must be "debug", "info", "warn" or "error"`)
	check.Check(c.Log.Format == "text" || c.Log.Format == "json", "log.format", c.Log.Format, `must be "text" or "json"`)
	check.Check(c.Runtime.GCPercent >= 10 && c.Runtime.GCPercent <= 10000, "runtime.gc_percent", c.Runtime.GCPercent,
		"must be 10 to 10000 percent")
	check.Check(!strings.ContainsAny(c.Replica, ". \t\n"), "replica", c.Replica, "must have no dots and no spaces")
	return check.Err()
}

// checkWait holds the wait in the queue against the patience of the gateway, which would send a request on without a decision.
func (c *Config) checkWait(check *field.Checker) {
	wait, gateway := c.Router.Queue.Limits.MaxWait, &c.XDS.Gateway
	if c.Router.Queue.Enabled() {
		check.Check(wait > 0 && wait+gateway.MessageTimeout <= gateway.MaxMessageTimeout, "router.queue.limits.max_wait", wait,
			"must be above 0s, and with xds.gateway.message_timeout ("+gateway.MessageTimeout.String()+") added at most "+
				"xds.gateway.max_message_timeout ("+gateway.MaxMessageTimeout.String()+"): Envoy waits no longer for a decision")
	}
}

// PoolConfigs are the pools as the router takes them.
func (c *Config) PoolConfigs() []router.PoolConfig {
	pools := make([]router.PoolConfig, len(c.Pools))
	for i, p := range c.Pools {
		pools[i] = p.PoolConfig
	}
	return pools
}

// SlogLevel is the level of the log.
func (l Log) SlogLevel() slog.Level {
	var level slog.Level
	if level.UnmarshalText([]byte(l.Level)) != nil {
		return slog.LevelInfo
	}
	return level
}

// Load reads a file over the defaults and validates it. The error names file and line of every mistake.
func Load(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return Parse(path, text)
}

// Parse is Load for text that is already there; name is what errors call it.
func Parse(name string, text []byte) (*Config, error) {
	c, s, err := read(name, text)
	if err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, s.located(name, err)
	}
	return c, nil
}

// Read is Parse without validation, for the configuration of another process: what is named there may not be here.
func Read(name string, text []byte) (*Config, error) {
	c, _, err := read(name, text)
	return c, err
}

func read(name string, text []byte) (*Config, *shape, error) {
	c := Default()
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if !utf8.Valid(text) {
		return nil, nil, fmt.Errorf("%s: must be a text in UTF-8", name)
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, nil, syntax(name, err)
	}
	if len(file.Docs) > 1 {
		return nil, nil, fmt.Errorf(`%s: must be one YAML document; a line "---" or "..." begins a second one`, name)
	}
	s := shape{lines: map[string]int{}}
	if len(file.Docs) == 1 && file.Docs[0].Body != nil && file.Docs[0].Body.Type() != ast.NullType && file.Docs[0].Body.Type() != ast.CommentType {
		body := file.Docs[0].Body
		s.value(body, reflect.TypeFor[Config](), "")
		if err := s.check.Err(); err != nil {
			return nil, nil, s.located(name, err)
		}
		if err := yaml.NodeToValue(body, &c, yaml.Strict(), yaml.CustomUnmarshaler(duration)); err != nil {
			return nil, nil, syntax(name, err)
		}
	}
	for i := range c.Pools {
		if c.Pools[i].Engine == "" {
			c.Pools[i].Engine = worker.Auto
		}
	}
	return &c, &s, nil
}

// duration reads what time.ParseDuration reads, 0 without a unit included, which the YAML library takes for a number.
func duration(d *time.Duration, text []byte) (err error) {
	*d, err = time.ParseDuration(strings.Trim(strings.TrimSpace(string(text)), `"'`))
	return err
}

// syntax turns the YAML library's error into "file:line:column: what".
func syntax(name string, err error) error {
	var y yaml.Error
	if errors.As(err, &y) && y.GetToken() != nil {
		at := y.GetToken().Position
		what := y.GetMessage()
		if strings.Contains(what, "'\t'") {
			what = "YAML is indented by spaces, not by tabs"
		}
		return fmt.Errorf("%s:%d:%d: %s", name, at.Line, at.Column, what)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// located gives every field error the line of its field, or of the nearest part of its path that the file has.
func (s *shape) located(name string, err error) error {
	var lines []error
	for _, e := range field.All(err) {
		at := name
		for path := e.Path; path != ""; {
			if line := s.lines[path]; line > 0 {
				at = fmt.Sprintf("%s:%d", name, line)
				break
			}
			path = path[:max(strings.LastIndexByte(path, '.'), strings.LastIndexByte(path, '['), 0)]
		}
		lines = append(lines, fmt.Errorf("%s: %w", at, e))
	}
	return errors.Join(lines...)
}

// YAML writes the configuration in effect. It holds no secrets: keys and certificates are named by file.
func (c *Config) YAML() string {
	text, err := yaml.Marshal(c)
	if err != nil {
		return "# the configuration could not be written: " + err.Error() + "\n"
	}
	return string(text)
}
