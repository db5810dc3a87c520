package join

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"attache/internal/worker"
	"attache/internal/worker/register"
)

// Config is one engine, and where it is to serve. What is empty is found out.
type Config struct {
	Engine    string   // URL, such as http://127.0.0.1:8000
	Gateways  []string // URLs of admin APIs, such as http://gateway:9902
	TokenFile string

	Name, Pool  string
	Address     string // where gateways and Envoys reach the engine, host:port
	Kind        worker.Engine
	Role        string // "prefill" or "decode"
	Labels      map[string]string
	Topology    map[string]string
	MaxInFlight int    // requests
	Events      string // where the engine publishes its KV events: tcp://host:port, * for the host of Address
	Replay      string // where it replays them, likewise
	Topic       string

	Wait         time.Duration // for the engine to become healthy; 0 as long as it takes
	DrainTimeout time.Duration // for requests to end before the engine leaves
}

// validate checks what can be checked before anybody is asked, and brings URLs into one form.
func (c *Config) validate() error {
	var err error
	if c.Engine, err = base("--engine", c.Engine); err != nil {
		return err
	}
	if len(c.Gateways) == 0 {
		return errors.New("--gateway: must be given at least once, such as http://gateway:9902")
	}
	for i := range c.Gateways {
		if c.Gateways[i], err = base("--gateway", c.Gateways[i]); err != nil {
			return err
		}
	}
	if _, err := worker.ReadToken(c.TokenFile); err != nil {
		return fmt.Errorf("--token-file: %q: %w", c.TokenFile, err)
	}
	if c.Kind != "" && !c.Kind.Valid() {
		return fmt.Errorf("--kind: %q: must be auto, vllm, sglang or trtllm", c.Kind)
	}
	if c.Address != "" {
		if _, _, err := worker.ParseAddress(c.Address); err != nil {
			return fmt.Errorf("--address: %q: %w", c.Address, err)
		}
	}
	if c.Wait < 0 || c.DrainTimeout < 0 {
		return errors.New("--wait, --drain-timeout: must not be negative")
	}
	return nil
}

// base takes a URL, or host:port alone.
func base(flag, address string) (string, error) {
	whole := address
	if !strings.Contains(whole, "://") {
		whole = "http://" + whole
	}
	u, err := url.Parse(whole)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%s: %q: must be a URL, such as http://10.0.0.1:8000", flag, address)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	return strings.TrimRight(u.Scheme+"://"+u.Host+u.Path, "/"), nil
}

// address is where others reach the engine. An engine that is asked at a loopback address is reached at the address by which this machine
// reaches its first gateway, unless that is here as well.
func (c *Config) address() (string, error) {
	if c.Address != "" {
		return c.Address, nil
	}
	u, err := url.Parse(c.Engine)
	if err != nil {
		return "", err
	}
	if !local(u.Hostname()) {
		return u.Host, nil
	}
	gateway, err := url.Parse(c.Gateways[0])
	if err != nil {
		return "", err
	}
	conn, err := net.Dial("udp", gateway.Host) // sends nothing
	if err != nil {
		return "", fmt.Errorf("--address: give it, because %s is not found: %w", gateway.Host, plain(err))
	}
	defer func() { _ = conn.Close() }()
	ours, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return "", errors.New("--address: give it, because this machine does not tell its address")
	}
	return net.JoinHostPort(ours.AddrPort().Addr().Unmap().String(), u.Port()), nil
}

func local(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// name is unique as long as host names are: Kubernetes' pods have names of their own.
func (c *Config) name(address string) (string, error) {
	if c.Name != "" {
		return c.Name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("--name: give it, because this machine does not tell its name: %w", err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	return strings.Map(func(c rune) rune {
		if c == '.' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			return c
		}
		return '-'
	}, host) + "-" + port, nil
}

// registration is what the gateways are told.
func (c *Config) registration(f *facts) (*register.Registration, error) {
	address, err := c.address()
	if err != nil {
		return nil, err
	}
	name, err := c.name(address)
	if err != nil {
		return nil, err
	}
	events, err := c.events(f, address)
	if err != nil {
		return nil, err
	}
	models := append(append([]string{}, f.served.Names...), f.served.Adapters...)
	said := &register.Registration{
		Name: name, Pool: c.Pool, Address: address, Engine: cmp.Or(f.kind, worker.Auto), Role: c.Role,
		Models: models[:min(len(models), register.MaxModels)], Labels: c.Labels, Topology: c.Topology, Events: events,
		Capacity: register.Capacity{MaxInFlight: c.MaxInFlight, Blocks: f.stats.Blocks, BlockTokens: f.stats.BlockTokens, MaxModelTokens: f.served.MaxTokens},
	}
	return said, said.Check()
}

// events are as they were given, else as the engine tells.
func (c *Config) events(f *facts, address string) (register.Events, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return register.Events{}, err
	}
	here := func(endpoint string) string {
		rest, everywhere := strings.CutPrefix(endpoint, "tcp://*:")
		if !everywhere {
			return endpoint
		}
		return "tcp://" + net.JoinHostPort(host, rest)
	}
	at := func(port int) string {
		if port == 0 {
			return ""
		}
		return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port))
	}
	switch p := f.publisher; {
	case c.Events != "":
		return register.Events{Endpoint: here(c.Events), Replay: here(c.Replay), Topic: c.Topic, Ranks: f.stats.Ranks}, nil
	case p.port != 0:
		return register.Events{Endpoint: at(p.port), Replay: at(p.replay), Topic: p.topic, Ranks: p.ranks}, nil
	}
	return register.Events{}, nil
}

// same reports whether gateways would be told the same.
func same(a, b *register.Registration) bool {
	one, err := json.Marshal(a)
	two, wrong := json.Marshal(b)
	return err == nil && wrong == nil && bytes.Equal(one, two)
}
