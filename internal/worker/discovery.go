package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"

	"attache/internal/watch"
)

// ParseAddress checks "host:port" without looking the host up; IPv6 addresses stand in brackets.
func ParseAddress(s string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(s)
	if err == nil && host != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err == nil && n > 0 && !strings.ContainsAny(host, "/ \t") {
			return host, uint16(n), nil
		}
	}
	return "", 0, errors.New("must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000")
}

// resolveTimeout bounds the look-up of one host name.
const resolveTimeout = 2 * time.Second

// Resolve turns "host:port" into an address. A name that has several addresses stands for the first.
func Resolve(s string) (netip.AddrPort, error) {
	host, port, err := ParseAddress(s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q: %w", s, err)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(ip.Unmap(), port), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(ips) == 0 {
		return netip.AddrPort{}, fmt.Errorf("%q: the host name cannot be resolved: %w", s, err)
	}
	return netip.AddrPortFrom(ips[0].Unmap(), port), nil
}

// Static makes the workers of a pool from addresses in the configuration.
func Static(pool string, engine Engine, addresses []string) ([]Spec, error) {
	var specs []Spec
	for _, a := range addresses {
		addr, err := Resolve(a)
		if err != nil {
			return nil, err
		}
		specs = append(specs, Spec{Name: a, Pool: pool, Address: a, Addr: addr, Engine: engine})
	}
	return specs, unique(specs)
}

func unique(specs []Spec) error {
	names, addrs := map[string]bool{}, map[netip.AddrPort]bool{}
	for _, s := range specs {
		if names[s.Name] {
			return fmt.Errorf("two workers are called %q; every worker needs a name of its own", s.Name)
		}
		if addrs[s.Addr] {
			return fmt.Errorf("two workers have the address %s", s.Addr)
		}
		names[s.Name], addrs[s.Addr] = true, true
	}
	return nil
}

// fileForm is a workers file. The second list is how llm-d's file discovery writes the same.
type fileForm struct {
	Workers []struct {
		Name    string            `yaml:"name"`
		Address string            `yaml:"address"`
		Pool    string            `yaml:"pool"`
		Engine  Engine            `yaml:"engine"`
		Drain   bool              `yaml:"drain"`
		Labels  map[string]string `yaml:"labels"`
		Events  fileEvents        `yaml:"events"`
		// MaxInFlight is the label of that name, for all to see.
		MaxInFlight int `yaml:"max_in_flight"`
	} `yaml:"workers"`
	Endpoints []struct {
		Name      string            `yaml:"name"`
		Namespace string            `yaml:"namespace"`
		Address   string            `yaml:"address"`
		Port      any               `yaml:"port"`
		Labels    map[string]string `yaml:"labels"`
	} `yaml:"endpoints"`
}

// fileEvents is where a worker publishes its KV events, as a workers file says it.
type fileEvents struct {
	Off       bool   `yaml:"off"`
	Endpoint  string `yaml:"endpoint"`
	Replay    string `yaml:"replay"`
	Topic     string `yaml:"topic"`
	Ranks     int    `yaml:"ranks"`
	FirstRank int    `yaml:"first_rank"`
}

func (e fileEvents) source() (EventSource, error) {
	for name, endpoint := range map[string]string{"endpoint": e.Endpoint, "replay": e.Replay} {
		if endpoint != "" && !strings.HasPrefix(endpoint, "tcp://") && !strings.HasPrefix(endpoint, "ipc://") {
			return EventSource{}, fmt.Errorf("events.%s: %q: must be tcp://host:port or ipc://path", name, endpoint)
		}
	}
	switch {
	case e.Ranks < 0 || e.Ranks > maxRanks:
		return EventSource{}, fmt.Errorf("events.ranks: %d: must be 0 (as its metrics show) to %d", e.Ranks, maxRanks)
	case e.FirstRank < 0:
		return EventSource{}, fmt.Errorf("events.first_rank: %d: must not be negative", e.FirstRank)
	case e.Replay != "" && e.Endpoint == "":
		return EventSource{}, errors.New("events.replay: needs events.endpoint as well")
	}
	return EventSource(e), nil
}

// maxFile bounds a workers file.
const maxFile = 8 << 20

// parseFile reads a workers file (YAML, and so JSON). Unknown keys are errors with their line.
func parseFile(text []byte, pool string, engine Engine) ([]Spec, error) {
	if len(text) > maxFile {
		return nil, errors.New("the file exceeds 8 MiB")
	}
	file, err := parser.ParseBytes(text, 0)
	switch {
	case err != nil:
		return nil, located(err)
	case len(file.Docs) > 1:
		return nil, errors.New(`must be one YAML document; a line "---" begins a second one`)
	case len(file.Docs) == 0 || file.Docs[0].Body == nil:
		return nil, errors.New("must not be empty; write `workers: []` when there are none")
	}
	var form fileForm
	if err := yaml.UnmarshalWithOptions(text, &form, yaml.Strict()); err != nil {
		return nil, located(err)
	}
	var specs []Spec
	add := func(s Spec) error {
		addr, err := Resolve(s.Address)
		if err != nil {
			return err
		}
		s.Addr = addr
		if s.Name == "" {
			s.Name = s.Address
		}
		if s.Pool == "" {
			s.Pool = pool
		}
		if s.Engine == "" {
			s.Engine = engine
		}
		if !s.Engine.Valid() {
			return fmt.Errorf("worker %s: engine %q: must be auto, vllm, sglang or trtllm", s.Name, s.Engine)
		}
		if _, err := ParseTraits(s.Labels); err != nil {
			return fmt.Errorf("worker %s: %w", s.Name, err)
		}
		specs = append(specs, s)
		return nil
	}
	for _, w := range form.Workers {
		events, err := w.Events.source()
		if err != nil {
			return nil, fmt.Errorf("worker %s: %w", cmp.Or(w.Name, w.Address), err)
		}
		if w.MaxInFlight != 0 {
			if w.Labels == nil {
				w.Labels = map[string]string{}
			}
			w.Labels[labelMaxInFlight] = strconv.Itoa(w.MaxInFlight)
		}
		if err := add(Spec{Name: w.Name, Address: w.Address, Pool: w.Pool, Engine: w.Engine, Drain: w.Drain, Labels: w.Labels,
			Events: events}); err != nil {
			return nil, err
		}
	}
	for i, e := range form.Endpoints {
		port := fmt.Sprint(e.Port)
		if _, err := netip.ParseAddr(e.Address); err != nil || e.Port == nil {
			return nil, fmt.Errorf("endpoints[%d]: address %q, port %v: must be an IP address and, apart from it, a port", i, e.Address, e.Port)
		}
		if e.Namespace != "" {
			e.Name = e.Namespace + "/" + e.Name
		}
		if err := add(Spec{Name: e.Name, Address: net.JoinHostPort(e.Address, port), Labels: e.Labels}); err != nil {
			return nil, err
		}
	}
	return specs, unique(specs)
}

// located turns the YAML library's error into "line 3: what".
func located(err error) error {
	var y yaml.Error
	if errors.As(err, &y) && y.GetToken() != nil {
		return fmt.Errorf("line %d: %s", y.GetToken().Position.Line, y.GetMessage())
	}
	return err
}

// ReadFile reads a workers file once.
func ReadFile(path, pool string, engine Engine) ([]Spec, error) {
	text, err := watch.Read(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("workers file: %w", err)
	}
	specs, err := parseFile(text, pool, engine)
	if err != nil {
		return nil, fmt.Errorf("workers file %s: %w", path, err)
	}
	return specs, nil
}
