package dns

import (
	"strconv"
	"strings"
	"time"

	"attache/internal/field"
	"attache/internal/worker"
)

// Config is a name whose addresses are workers.
type Config struct {
	// Name is what is resolved, as the host's resolver does it (search domains included; a final dot leaves them out). With srv it
	// is the whole name of the records: "_http._tcp.engines.models.svc.cluster.local".
	Name string `yaml:"name"`
	// Port is where engines serve. It must be given, except with srv, whose records say it.
	Port int `yaml:"port"`
	// SRV is set where the name has SRV records: each is a host and its port. Priorities and weights are not looked at.
	SRV bool `yaml:"srv"`
	// Family is which addresses count: "ipv4", "ipv6", or empty for IPv6 only where there is no IPv4. Hosts that have both are one
	// worker in every case.
	Family Family `yaml:"family"`
	// Interval is the pause between two look-ups, up to a tenth longer by chance. A new worker is found this late, and one that is
	// gone is named this long, though its health check ends its use; times to live of records are not looked at. 0: 5s.
	Interval time.Duration `yaml:"interval"`
	// Engine is what these workers run, in place of the pool's: "vllm", "sglang", "trtllm" or "auto". Empty: as the pool says.
	Engine worker.Engine `yaml:"engine"`
	// Labels are given to each of these workers, as in a workers file.
	Labels map[string]string `yaml:"labels"`
}

// Family is a family of addresses.
type Family string

// The families.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

const (
	defaultInterval = 5 * time.Second
	minInterval     = 100 * time.Millisecond
)

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Check(c.Name != "" && len(c.Name) <= 254 && !strings.ContainsAny(c.Name, ":/# \t\n"), "name", c.Name,
		"must be a host name without scheme and port, such as engines.models.svc")
	if c.SRV {
		check.Check(c.Port == 0, "port", c.Port, "must be left out where srv is set: the records say it")
	} else {
		check.Check(c.Port > 0 && c.Port <= 65535, "port", c.Port, "must be a port, or srv be set")
	}
	check.Check(c.Family == "" || c.Family == IPv4 || c.Family == IPv6, "family", string(c.Family), `must be "ipv4", "ipv6" or empty`)
	check.Check(c.Interval == 0 || c.Interval >= minInterval, "interval", c.Interval, "must be 0 (5s) or at least 100ms")
	check.Check(c.Engine == "" || c.Engine.Valid(), "engine", string(c.Engine), `must be "auto", "vllm", "sglang", "trtllm" or empty`)
	if _, err := worker.ParseTraits(c.Labels); err != nil {
		check.Check(false, "labels", nil, strings.TrimPrefix(err.Error(), "labels."))
	}
	return check.Err()
}

// Source says what is followed, for logs and figures: "engines.models.svc:8000", or the name of SRV records. Two names that are followed
// for one pool must differ in it.
func (c Config) Source() string {
	if c.SRV {
		return c.Name
	}
	return c.Name + ":" + strconv.Itoa(c.Port)
}
