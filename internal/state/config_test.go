package state

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/field"
)

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	password := file("password", "hunter2\r\n")
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string // fields that are wrong
	}{
		{"default", func(*Config) {}, ""},
		{"one server", func(c *Config) { c.Addresses = []string{"redis:6379"} }, ""},
		{"a socket", func(c *Config) { c.Addresses = []string{"unix:///run/redis.sock"} }, ""},
		{"IPv6", func(c *Config) { c.Addresses = []string{"[::1]:6379"} }, ""},
		{"a cluster", func(c *Config) { c.Addresses = []string{"a:1", "b:1"} }, ""},
		{"a cluster behind one address", func(c *Config) { c.Addresses, c.Mode = []string{"a:1"}, ModeCluster }, ""},
		{"sentinels", func(c *Config) { c.Addresses, c.MasterName = []string{"a:1", "b:1"}, "main" }, ""},
		{"a user", func(c *Config) { c.Username, c.PasswordFile = "attache", password }, ""},
		{"a user of sentinels", func(c *Config) { c.SentinelUsername, c.SentinelPasswordFile = "attache", password }, ""},
		{"no port", func(c *Config) { c.Addresses = []string{"redis"} }, "addresses[0]"},
		{"no host", func(c *Config) { c.Addresses = []string{"a:1", ":6379", "b:0", "c:x"} }, "addresses[1] addresses[2] addresses[3]"},
		{"a URL", func(c *Config) { c.Addresses = []string{"redis://:hunter2@redis:6379"} }, "addresses[0]"},
		{"a relative socket", func(c *Config) { c.Addresses = []string{"unix://redis.sock"} }, "addresses[0]"},
		{"a socket of a cluster", func(c *Config) { c.Addresses, c.Mode = []string{"unix:///redis.sock"}, ModeCluster }, "addresses[0]"},
		{"two servers alone", func(c *Config) { c.Addresses, c.Mode = []string{"a:1", "b:1"}, ModeStandalone }, "addresses"},
		{"mode", func(c *Config) { c.Mode = "ring" }, "mode"},
		{"sentinels of nothing", func(c *Config) { c.Addresses, c.Mode = []string{"a:1"}, ModeSentinel }, "master_name"},
		{"a name without sentinels", func(c *Config) { c.Addresses, c.Mode, c.MasterName = []string{"a:1"}, ModeStandalone, "main" }, "master_name"},
		{"a user without a password", func(c *Config) { c.Username, c.SentinelUsername = "a", "b" }, "username sentinel_username"},
		{"no password file", func(c *Config) { c.PasswordFile = filepath.Join(dir, "none") }, "password_file"},
		{"a folder", func(c *Config) { c.PasswordFile = dir }, "password_file"},
		{"an empty password", func(c *Config) { c.SentinelPasswordFile = file("empty", "\n") }, "sentinel_password_file"},
		{"two lines", func(c *Config) { c.PasswordFile = file("two", "hunter2\nhunter3\n") }, "password_file"},
		{"a large password", func(c *Config) { c.PasswordFile = file("large", strings.Repeat("x", maxPassword+1)) }, "password_file"},
		{"a database of a cluster", func(c *Config) { c.Addresses, c.Database = []string{"a:1", "b:1"}, 1 }, "database"},
		{"a database", func(c *Config) { c.Database = -1 }, "database"},
		{"prefix", func(c *Config) { c.Prefix = "a{b}" }, "prefix"},
		{"no prefix", func(c *Config) { c.Prefix = "" }, "prefix"},
		{"times", func(c *Config) {
			c.DialTimeout, c.Timeout, c.PingInterval, c.StreamTTL = 0, 2*time.Minute, time.Millisecond, time.Second
		},
			"dial_timeout timeout ping_interval stream_ttl"},
		{"sizes", func(c *Config) {
			c.PoolSize, c.MaxStreamLength, c.MaxRecord, c.MaxValue, c.MaxMembers = 0, 0, 0, field.GiB, 0
		},
			"pool_size max_stream_length max_record max_value max_members"},
		{"TLS that is off", func(c *Config) { c.TLS.CAFile, c.TLS.ServerName = "x", "y" }, "tls.ca_file tls.server_name tls.ca_file"},
		{"TLS without a key", func(c *Config) { c.TLS = TLS{Enabled: true, CertFile: "x"} }, "tls.key_file"},
		{"TLS with something else", func(c *Config) { c.TLS = TLS{Enabled: true, CAFile: password, CertFile: password, KeyFile: password} },
			"tls.ca_file tls.cert_file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := DefaultConfig()
			c.change(&cfg)
			err := cfg.Validate()
			var wrong []string
			for _, e := range field.All(err) {
				wrong = append(wrong, e.Path)
				if !strings.Contains(e.Rule, "must") {
					t.Errorf("%v does not say what was expected", e)
				}
				if strings.Contains(e.Error(), "hunter") {
					t.Errorf("%v shows the password", e)
				}
			}
			if got := strings.Join(wrong, " "); got != c.want {
				t.Errorf("wrong are %q (%v), want %q", got, err, c.want)
			}
		})
	}
}

func TestMode(t *testing.T) {
	for _, c := range []struct {
		mode, master string
		addresses    []string
		want         string
	}{
		{"auto", "", []string{"a:1"}, ModeStandalone},
		{"auto", "", []string{"a:1", "b:1"}, ModeCluster},
		{"auto", "main", []string{"a:1"}, ModeSentinel},
		{"cluster", "", []string{"a:1"}, ModeCluster},
		{"standalone", "", []string{"a:1"}, ModeStandalone},
	} {
		if got := (Config{Mode: c.mode, MasterName: c.master, Addresses: c.addresses}).mode(); got != c.want {
			t.Errorf("%+v is %s", c, got)
		}
	}
}

func TestNew(t *testing.T) {
	params := Params{Config: DefaultConfig(), Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()}
	store, err := New(params)
	if _, memory := store.(*Memory); !memory || err != nil {
		t.Errorf("without addresses got %T, error %v", store, err)
	}
	params.Config.Addresses = []string{"redis"}
	if store, err = New(params); err == nil {
		t.Errorf("with a bad address got %T", store)
	}
	// Nobody listens there, and nobody is asked.
	params.Config.Addresses = []string{"127.0.0.1:1"}
	if store, err = New(params); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
