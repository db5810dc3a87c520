package xds

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/goccy/go-yaml"

	"attache/envoy"
	"attache/internal/field"
)

// Config is the control plane: where Envoy fetches its configuration from, and what that says.
type Config struct {
	// Listen is where Envoy connects to for its configuration: "host:port", or "unix:///path" for a Unix socket. Whoever
	// reaches it learns the workers' addresses and, where they are set, the API keys: keep it on loopback or inside the pod.
	Listen string `yaml:"listen"`
	// Gateway is the Envoy that attache configures, and what `attache envoy-config` prints.
	Gateway Gateway `yaml:"gateway"`
}

// Gateway is what an Envoy in front of attache is to do.
type Gateway struct {
	// NodeID names the Envoy in a printed bootstrap; every Envoy needs its own.
	NodeID string `yaml:"node_id"`
	// Listen is where the gateway takes requests, IP:port.
	Listen string `yaml:"listen"`
	// Admin is Envoy's own admin endpoint, IP:port. It has no authentication: keep it on loopback.
	Admin string `yaml:"admin"`
	// Baseline is a second listener, IP:port, that routes to the first pool by round robin without asking attache, for
	// comparison. Nothing guards it. Empty: none.
	Baseline string `yaml:"baseline"`
	// ExtProc is how Envoy reaches attache's ext_proc server, one address per replica. Empty: extproc.listen.
	ExtProc []string `yaml:"extproc"`
	// TLS encrypts the connection to the ext_proc server, which needs extproc.tls; unset: plain text.
	TLS *TLS `yaml:"tls"`
	// XDS is how Envoy reaches this control plane, one address per replica: it fetches from any of them. Empty: xds.listen.
	XDS []string `yaml:"xds"`
	// EnvoyVersion is the oldest Envoy that a printed configuration must suit: "1.38", "1.39" or "1.40". Envoys that fetch
	// their configuration say their version themselves.
	EnvoyVersion string `yaml:"envoy_version"`
	// BodyMode is how Envoy sends request bodies: "BUFFERED" keeps retries and fail-open whole; "FULL_DUPLEX_STREAMED" is
	// what foreign gateways use, and cannot fail open.
	BodyMode string `yaml:"body_mode"`
	// FailOpen lets Envoy route by its fallback policy while attache is away; clients notice nothing. false answers 503
	// then, and cuts streams that are running.
	FailOpen bool `yaml:"fail_open"`
	// MessageTimeout is how long Envoy waits for a reply: what a hung attache costs a request. Below 1s a busy machine
	// makes requests go unsteered.
	MessageTimeout time.Duration `yaml:"message_timeout"`
	// MaxMessageTimeout is the longest that attache may hold a request in its queue.
	MaxMessageTimeout time.Duration `yaml:"max_message_timeout"`
	// IdleTimeout ends requests on which nothing moves: it must exceed the longest wait for a turn, the longest silent
	// prefill and the longest gap between tokens.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// HealthInterval is how often Envoy checks attache: steering returns that late after a restart. Below 250ms the checks
	// cost more than they tell.
	HealthInterval time.Duration `yaml:"health_interval"`
	// BodyLimit is the largest request body that Envoy buffers; above it Envoy answers 413 in plain text. Keep it above
	// extproc.max_body, so that clients get our error.
	BodyLimit field.Bytes `yaml:"body_limit"`
	// Usage is how token counts are taken from answers, to compare predicted with delivered reuse: "metadata" by
	// sse_to_metadata and json_to_metadata, "ai" by ai_protocol_manager (Envoy 1.40, which calls it work in progress), or
	// "none".
	Usage string `yaml:"usage"`
	// APIKeysFile is a YAML file of client names and their keys, `name: "key"` line by line; requests without a known key
	// get 401, and the client's name is forwarded as x-client-id. Empty: keys are not checked. Either this or jwt.
	APIKeysFile string `yaml:"api_keys_file"`
	// JWT checks tokens; unset: not checked.
	JWT *JWT `yaml:"jwt"`
	// RateLimit bounds requests per client, by the client that keys or tokens name; unset: no bound.
	RateLimit *RateLimit `yaml:"rate_limit"`
	// HardBodyLimit cuts off bodies above it while they arrive, chunked ones too (Envoy 1.40). 0: body_limit is enough.
	HardBodyLimit field.Bytes `yaml:"hard_body_limit"`
}

// TLS is how Envoy knows attache's ext_proc server, and shows who it is itself. Files are read by Envoy, on its machine.
type TLS struct {
	// CA is the PEM file of the authorities that sign attache's certificate.
	CA string `yaml:"ca"`
	// Name is a DNS name in attache's certificate; another certificate is refused.
	Name string `yaml:"name"`
	// Cert is the PEM file of Envoy's own certificate, where extproc.tls.client_ca asks for one; else empty.
	Cert string `yaml:"cert"`
	// Key is the PEM file of its private key.
	Key string `yaml:"key"`
}

// JWT checks tokens against a key set.
type JWT struct {
	// Issuer must be the token's "iss".
	Issuer string `yaml:"issuer"`
	// JWKSFile holds the key set (RFC 7517).
	JWKSFile string `yaml:"jwks_file"`
	// ClientClaim names the claim that is forwarded as x-client-id; empty: "sub".
	ClientClaim string `yaml:"client_claim"`
}

// RateLimit bounds requests per client.
type RateLimit struct {
	// Requests is how many a client may send per period; they come back gradually.
	Requests uint32 `yaml:"requests"`
	// Per is the period.
	Per time.Duration `yaml:"per"`
	// Clients are other numbers of requests for some clients, by name.
	Clients map[string]uint32 `yaml:"clients"`
}

// DefaultConfig serves an Envoy that fails open and buffers bodies.
func DefaultConfig() Config {
	return Config{
		Listen: "127.0.0.1:18000",
		Gateway: Gateway{
			NodeID:            "gateway-1",
			Listen:            "0.0.0.0:8080",
			Admin:             "127.0.0.1:9901",
			EnvoyVersion:      envoy.Newest.String(),
			BodyMode:          "BUFFERED",
			FailOpen:          true,
			MessageTimeout:    2 * time.Second,
			MaxMessageTimeout: 2 * time.Minute,
			IdleTimeout:       10 * time.Minute,
			HealthInterval:    time.Second,
			BodyLimit:         32 * field.MiB,
			Usage:             string(envoy.UsageMetadata),
		},
	}
}

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Under("listen", field.Address(c.Listen))
	check.Under("gateway", c.Gateway.Validate())
	return check.Err()
}

// Validate reports every field that breaks its rule.
func (g Gateway) Validate() error {
	var check field.Checker
	check.Check(g.NodeID != "", "node_id", g.NodeID, "must not be empty")
	for _, l := range []struct{ path, address string }{{"listen", g.Listen}, {"admin", g.Admin}, {"baseline", g.Baseline}} {
		_, err := netip.ParseAddrPort(l.address) // Envoy resolves no names for its listeners
		check.Check(err == nil || l.path == "baseline" && l.address == "", l.path, l.address, "must be IP:port, such as 0.0.0.0:8080")
	}
	for i, address := range g.ExtProc {
		check.Under(fmt.Sprintf("extproc[%d]", i), field.Address(address))
	}
	if t := g.TLS; t != nil {
		check.Check(t.CA != "", "tls.ca", t.CA, "must be a PEM file on Envoy's machine")
		check.Check(t.Name != "", "tls.name", t.Name, "must be a DNS name in attache's certificate")
		check.Check((t.Cert == "") == (t.Key == ""), "tls.key", t.Key, "must be given together with tls.cert, or neither")
	}
	for i, address := range g.XDS {
		check.Under(fmt.Sprintf("xds[%d]", i), field.Address(address))
	}
	if _, err := envoy.ParseVersion(g.EnvoyVersion); err != nil {
		check.Check(false, "envoy_version", g.EnvoyVersion, "must be 1.38, 1.39 or 1.40")
	}
	check.Check(g.BodyMode == "BUFFERED" || g.BodyMode == "FULL_DUPLEX_STREAMED", "body_mode", g.BodyMode,
		`must be "BUFFERED" or "FULL_DUPLEX_STREAMED"`)
	check.Check(g.MessageTimeout >= 50*time.Millisecond && g.MessageTimeout <= time.Hour, "message_timeout", g.MessageTimeout,
		"must be 50ms to 1h")
	check.Check(g.MaxMessageTimeout >= g.MessageTimeout && g.MaxMessageTimeout <= time.Hour, "max_message_timeout", g.MaxMessageTimeout,
		"must be at least message_timeout and at most 1h")
	check.Check(g.IdleTimeout > g.MaxMessageTimeout, "idle_timeout", g.IdleTimeout, "must exceed max_message_timeout, or waiting requests are ended")
	check.Check(g.HealthInterval >= 50*time.Millisecond && g.HealthInterval <= time.Minute, "health_interval", g.HealthInterval, "must be 50ms to 1m")
	check.Check(g.BodyLimit >= field.MiB && g.BodyLimit <= field.GiB, "body_limit", g.BodyLimit, "must be 1MiB to 1GiB")
	usage := envoy.Usage(g.Usage)
	check.Check(usage == envoy.UsageNone || usage == envoy.UsageMetadata || usage == envoy.UsageAI, "usage", g.Usage,
		`must be "metadata", "ai" or "none"`)
	guarded := g.APIKeysFile != "" || g.JWT != nil
	check.Check(g.APIKeysFile == "" || g.JWT == nil, "jwt", nil, "cannot be joined with api_keys_file: both read the authorization header, so nobody could come in")
	check.Check(g.Baseline == "" || !guarded, "baseline", g.Baseline, "must be empty where api_keys_file or jwt is set: nothing guards it")
	if g.APIKeysFile != "" {
		_, err := readKeys(g.APIKeysFile)
		check.Check(err == nil, "api_keys_file", g.APIKeysFile, fmt.Sprint(err))
	}
	if j := g.JWT; j != nil {
		check.Check(j.Issuer != "", "jwt.issuer", j.Issuer, "must be the issuer of the tokens")
		_, err := os.ReadFile(j.JWKSFile)
		check.Check(err == nil, "jwt.jwks_file", j.JWKSFile, "must be a file that can be read")
	}
	if r := g.RateLimit; r != nil {
		check.Check(r.Requests > 0, "rate_limit.requests", r.Requests, "must be above 0")
		check.Check(r.Per >= 50*time.Millisecond, "rate_limit.per", r.Per, "must be at least 50ms")
		check.Check(guarded, "rate_limit", nil, "needs api_keys_file or jwt to tell clients apart")
	}
	return check.Err()
}

// Reach is how Envoy reaches attache.
type Reach struct {
	ExtProc []string
	XDS     []string
	// AnswerHeaders: attache adds headers to answers, so that Envoy must ask it again when one begins.
	AnswerHeaders bool
	// AnswerBodies: attache may ask for the bodies of single answers.
	AnswerBodies bool
}

// GatewayParams joins the configuration with the pools into what Envoy's resources are built from. What the
// configuration leaves open is taken from reach.
func GatewayParams(g Gateway, reach Reach, pools []envoy.Pool) (envoy.Params, error) {
	version, err := envoy.ParseVersion(g.EnvoyVersion)
	if err != nil {
		return envoy.Params{}, err
	}
	p := envoy.Params{
		NodeID: g.NodeID, Listen: g.Listen, Admin: g.Admin, Baseline: g.Baseline, ExtProc: g.ExtProc, XDS: g.XDS, Pools: pools,
		FullDuplex: g.BodyMode == "FULL_DUPLEX_STREAMED", AnswerHeaders: reach.AnswerHeaders, AnswerBodies: reach.AnswerBodies, FailClosed: !g.FailOpen, MessageTimeout: g.MessageTimeout,
		MaxMessageTimeout: g.MaxMessageTimeout, IdleTimeout: g.IdleTimeout, HealthInterval: g.HealthInterval,
		BodyLimit: uint32(g.BodyLimit), Version: version, Usage: envoy.Usage(g.Usage), Security: envoy.Security{MaxBody: uint64(g.HardBodyLimit)},
	}
	if t := g.TLS; t != nil {
		p.TLS = &envoy.TLS{CA: t.CA, Name: t.Name, Cert: t.Cert, Key: t.Key}
	}
	if len(p.ExtProc) == 0 {
		p.ExtProc = reach.ExtProc
	}
	if len(p.XDS) == 0 {
		p.XDS = reach.XDS
	}
	if g.APIKeysFile != "" {
		if p.Security.Keys, err = readKeys(g.APIKeysFile); err != nil {
			return p, fmt.Errorf("xds.gateway.api_keys_file: %w", err)
		}
	}
	if j := g.JWT; j != nil {
		keys, err := os.ReadFile(j.JWKSFile)
		if err != nil {
			return p, fmt.Errorf("xds.gateway.jwt.jwks_file: %w", err)
		}
		claim := j.ClientClaim
		if claim == "" {
			claim = "sub"
		}
		p.Security.JWT = &envoy.JWT{Issuer: j.Issuer, JWKS: string(keys), ClientClaim: claim}
	}
	if r := g.RateLimit; r != nil {
		p.Security.RateLimit = &envoy.RateLimit{Requests: r.Requests, Per: r.Per, Clients: r.Clients}
	}
	return p, nil
}

// readKeys reads "client: key" lines. Errors never show what the file holds.
func readKeys(path string) ([]envoy.Key, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var entries yaml.MapSlice
	if err := yaml.Unmarshal(text, &entries); err != nil {
		return nil, fmt.Errorf("%s: must be YAML with a line `client: key` for each client", path)
	}
	var keys []envoy.Key
	for i, e := range entries {
		client, ok := e.Key.(string)
		secret, good := e.Value.(string)
		switch {
		case !ok || !good || !printable(client) || !printable(secret) || len(secret) < 8:
			return nil, fmt.Errorf("%s: entry %d must be a client's name and a key of at least 8 characters in quotes, both of printable characters without spaces", path, i+1)
		case numeric(secret):
			return nil, fmt.Errorf("%s: entry %d: the key must not be a number, which YAML readers write differently", path, i+1)
		}
		keys = append(keys, envoy.Key{Client: client, Secret: secret})
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: holds no keys, so that nobody could come in", path)
	}
	return keys, nil
}

// printable reports whether s is something that headers and every YAML reader take as it is.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

func numeric(s string) bool {
	_, whole := strconv.ParseInt(s, 0, 64)
	_, broken := strconv.ParseFloat(s, 64)
	return whole == nil || broken == nil || errors.Is(whole, strconv.ErrRange) || errors.Is(broken, strconv.ErrRange)
}
