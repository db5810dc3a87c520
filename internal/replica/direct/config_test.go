package direct

import (
	"path/filepath"
	"strings"
	"testing"

	"attache/internal/field"
)

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	token := write(t, filepath.Join(dir, "token"), secret)
	short := write(t, filepath.Join(dir, "short"), "   too short     \n")
	ours := newAuthority(t, dir, "ours")
	pair := ours.sign(t, filepath.Join(dir, "a"), "localhost")
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string // in the error; empty: none
	}{
		{"the default", func(c *Config) { *c = DefaultConfig() }, ""},
		{"loopback", func(*Config) {}, ""},
		{"loopback, v6", func(c *Config) { c.Listen = "[::1]:9004" }, ""},
		{"loopback by name", func(c *Config) { c.Listen = "localhost:9004" }, ""},
		{"everywhere", func(c *Config) { c.Listen = ":9004" }, `listen: ":9004": is no loopback address: needs token_file or tls`},
		{"a name", func(c *Config) { c.Listen = "gateway:9004" }, "is no loopback address"},
		{"an address", func(c *Config) { c.Listen = "10.0.0.1:9004" }, "is no loopback address"},
		{"insecure", func(c *Config) { c.Listen, c.Insecure = ":9004", true }, ""},
		{"a token", func(c *Config) { c.Listen, c.TokenFile = ":9004", token }, ""},
		{"certificates", func(c *Config) { c.Listen, c.TLS = ":9004", pair }, ""},
		{"a socket", func(c *Config) { c.Listen = "unix:///tmp/x" }, "listen: \"unix:///tmp/x\": must be host:port"},
		{"a port too large", func(c *Config) { c.Listen = "127.0.0.1:65536" }, "must be host:port"},
		{"peers, and nowhere to connect to", func(c *Config) { c.Listen = "" }, "must be host:port when peers or dns name other replicas"},
		{"a peer without a port", func(c *Config) { c.Peers = []string{"a:1", "b"} }, `peers[1]: "b": must be host:port`},
		{"a peer with port 0", func(c *Config) { c.Peers = []string{"b:0"} }, "peers[0]"},
		{"a peer without a host", func(c *Config) { c.Peers = []string{":1"} }, "peers[0]"},
		{"a name", func(c *Config) { c.DNS = "attache-headless" }, ""},
		{"a name with a port", func(c *Config) { c.DNS = "attache-headless:9004" }, "dns: "},
		{"no port", func(c *Config) { c.Port = 0 }, "port: 0: must be 1 to 65535"},
		{"too often", func(c *Config) { c.Interval = 0 }, "interval: 0s: must be 100ms to 10m"},
		{"too small a buffer", func(c *Config) { c.Buffer = field.MiB - 1 }, "buffer: 1048575B: must be 1MiB to 1GiB"},
		{"no token", func(c *Config) { c.TokenFile = dir + "/none" }, "must be a file that can be read"},
		{"a short token", func(c *Config) { c.TokenFile = short }, "must hold 16 to 4096 bytes"},
		{"no key", func(c *Config) { c.TLS = &TLS{Cert: pair.Cert, CA: pair.CA} }, "tls.key"},
		{"no authority", func(c *Config) { c.TLS = &TLS{Cert: pair.Cert, Key: pair.Key} }, "tls.ca"},
		{"a key as authority", func(c *Config) { c.TLS = &TLS{Cert: pair.Cert, Key: pair.Key, CA: pair.Key} }, "holds no PEM certificate"},
	} {
		cfg := config("a:9004")
		c.change(&cfg)
		err := cfg.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "too short")) {
			t.Errorf("%s: a token is shown: %v", c.name, err)
		}
	}
}
