package state

import (
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"attache/internal/field"
)

// Config says where replicas share their state. Nothing on the path of a request waits for it: while Redis is away every replica routes by
// what it knows itself, and says so in /readyz and metrics.
type Config struct {
	// Addresses are those of Redis (6.2 or newer) or Valkey, host:port, or unix:///path/to.sock for a single one; with mode "sentinel" those
	// of the sentinels, with mode "cluster" of some of its nodes. Empty: nothing is shared, this replica is on its own.
	Addresses []string `yaml:"addresses"`
	// Mode is how Redis is set up: "standalone", "sentinel", "cluster", or "auto": sentinel when master_name is given, cluster when there are
	// several addresses, else standalone. A cluster behind one address needs "cluster", else most commands fail with MOVED.
	Mode string `yaml:"mode"`
	// MasterName is what the sentinels call the set of servers to use. Needed for mode "sentinel", and for no other.
	MasterName string `yaml:"master_name"`
	// Username is the user of Redis' ACL. Empty: the user "default".
	Username string `yaml:"username"`
	// PasswordFile is a file with the password, a line break at its end left out. It is read whenever a connection is made, so that a changed
	// password needs no restart, and is never shown. Empty: no password is sent.
	PasswordFile string `yaml:"password_file"`
	// SentinelUsername is the user of the sentinels' ACL. Empty: the user "default".
	SentinelUsername string `yaml:"sentinel_username"`
	// SentinelPasswordFile is a file with the password of the sentinels, which may be another one. It is read at the start, and never shown.
	// Empty: no password is sent to them.
	SentinelPasswordFile string `yaml:"sentinel_password_file"`
	// TLS is how connections are encrypted.
	TLS TLS `yaml:"tls"`
	// Database is the number of the database. A cluster has 0 only.
	Database int `yaml:"database"`
	// Prefix begins the name of every key. Deployments that share a Redis and not their workers need different ones, else each takes the
	// other's workers and requests for its own.
	Prefix string `yaml:"prefix"`
	// DialTimeout is how long connecting may take, TLS included.
	DialTimeout time.Duration `yaml:"dial_timeout"`
	// Timeout is how long a command may take that was given no other time. Too short: a busy Redis counts as away. Too long: what replicas
	// tell each other waits behind a command that will fail.
	Timeout time.Duration `yaml:"timeout"`
	// PoolSize is how many connections are kept at most, per node of a cluster; each loop that waits for records has one more.
	PoolSize int `yaml:"pool_size"`
	// PingInterval is how often Redis is asked whether it is there, for /readyz and attache_redis_up.
	PingInterval time.Duration `yaml:"ping_interval"`
	// MaxStreamLength is how many records a stream keeps, about; the oldest go first. A replica that was away for longer than they reach back
	// begins anew with a snapshot. With records of the largest size a stream takes max_stream_length x max_record of Redis' memory.
	MaxStreamLength int `yaml:"max_stream_length"`
	// StreamTTL is how long a stream is kept after its last record, so that those of pools that are no more go away.
	StreamTTL time.Duration `yaml:"stream_ttl"`
	// MaxRecord is how large a record of a stream, or what is said of a member of a group, may be. Larger ones are refused, and not shared.
	MaxRecord field.Bytes `yaml:"max_record"`
	// MaxValue is how large a whole value may be, such as a snapshot of a pool's index. Larger ones are refused, and not shared. Redis itself
	// takes 512MiB.
	MaxValue field.Bytes `yaml:"max_value"`
	// MaxMembers is how many members a group may have, such as the workers that registered themselves. Further ones are refused.
	MaxMembers int `yaml:"max_members"`
}

// TLS is how connections to Redis, and to its sentinels, are encrypted.
type TLS struct {
	// Enabled uses TLS 1.2 or newer.
	Enabled bool `yaml:"enabled"`
	// CAFile is a PEM file with the certificates that may sign the server's. Empty: those that the system trusts.
	CAFile string `yaml:"ca_file"`
	// CertFile is a PEM file with a certificate to show to the server. It is read whenever a connection is made. Empty: none.
	CertFile string `yaml:"cert_file"`
	// KeyFile is a PEM file with the key of cert_file.
	KeyFile string `yaml:"key_file"`
	// ServerName is the name that the server's certificate must hold. Empty: the host that is connected to.
	ServerName string `yaml:"server_name"`
}

// How Redis can be set up.
const (
	ModeAuto       = "auto"
	ModeStandalone = "standalone"
	ModeSentinel   = "sentinel"
	ModeCluster    = "cluster"
)

// DefaultConfig shares nothing, until addresses are named.
func DefaultConfig() Config {
	return Config{
		Addresses:       []string{},
		Mode:            ModeAuto,
		Prefix:          "attache",
		DialTimeout:     time.Second,
		Timeout:         time.Second,
		PoolSize:        8,
		PingInterval:    time.Second,
		MaxStreamLength: 20_000,
		StreamTTL:       24 * time.Hour,
		MaxRecord:       field.MiB,
		MaxValue:        256 * field.MiB,
		MaxMembers:      10_000,
	}
}

// Enabled reports whether there is a Redis.
func (c Config) Enabled() bool { return len(c.Addresses) > 0 }

// mode is Mode with "auto" decided.
func (c Config) mode() string {
	switch {
	case c.Mode != ModeAuto:
		return c.Mode
	case c.MasterName != "":
		return ModeSentinel
	case len(c.Addresses) > 1:
		return ModeCluster
	default:
		return ModeStandalone
	}
}

var prefixes = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// Validate reports every field that breaks its rule. It reads the files, and connects to nobody.
func (c Config) Validate() error {
	var check field.Checker
	c.validateServers(&check)
	c.validatePasswords(&check)
	check.Under("tls", c.TLS.validate())
	check.Check(prefixes.MatchString(c.Prefix), "prefix", c.Prefix, "must be 1 to 64 letters, digits, and . _ : -")
	for _, d := range []struct {
		path  string
		value time.Duration
		most  time.Duration
	}{
		{"dial_timeout", c.DialTimeout, time.Minute}, {"timeout", c.Timeout, longestCommand}, {"ping_interval", c.PingInterval, time.Hour},
	} {
		check.Check(d.value >= 10*time.Millisecond && d.value <= d.most, d.path, d.value, fmt.Sprintf("must be 10ms to %v", d.most))
	}
	check.Check(c.StreamTTL >= time.Minute && c.StreamTTL <= maxTTL, "stream_ttl", c.StreamTTL, "must be 1m to 87600h")
	check.Check(c.PoolSize >= 1 && c.PoolSize <= 1024, "pool_size", c.PoolSize, "must be 1 to 1024 connections")
	check.Check(c.MaxStreamLength >= 1 && c.MaxStreamLength <= 100_000_000, "max_stream_length", c.MaxStreamLength,
		"must be 1 to 100000000 records")
	check.Check(c.MaxRecord >= field.KiB && c.MaxRecord <= 16*field.MiB, "max_record", c.MaxRecord, "must be 1KiB to 16MiB")
	check.Check(c.MaxValue >= field.KiB && c.MaxValue <= 512*field.MiB, "max_value", c.MaxValue, "must be 1KiB to 512MiB, which is the most that Redis takes")
	check.Check(c.MaxMembers >= 1 && c.MaxMembers <= 100_000, "max_members", c.MaxMembers, "must be 1 to 100000 members")
	return check.Err()
}

func (c Config) validateServers(check *field.Checker) {
	mode := c.mode()
	known := mode == ModeStandalone || mode == ModeSentinel || mode == ModeCluster
	check.Check(known, "mode", c.Mode, `must be "auto", "standalone", "sentinel" or "cluster"`)
	for i, address := range c.Addresses {
		err := remote(address)
		if mode == ModeStandalone && strings.HasPrefix(address, "unix://") {
			err = field.Address(address)
		}
		check.Under("addresses["+strconv.Itoa(i)+"]", err)
	}
	if known && c.Enabled() {
		check.Check((mode == ModeSentinel) == (c.MasterName != ""), "master_name", c.MasterName,
			`must be given for mode "sentinel", and for no other`)
		check.Check(mode != ModeStandalone || len(c.Addresses) == 1, "addresses", strings.Join(c.Addresses, ", "),
			`must be one address for mode "standalone"`)
	}
	check.Check(c.Database >= 0 && c.Database <= 1<<15 && (mode != ModeCluster || c.Database == 0), "database", c.Database,
		"must be 0 to 32768, and 0 for a cluster")
}

func (c Config) validatePasswords(check *field.Checker) {
	for _, p := range []struct{ path, file, userPath, user string }{
		{"password_file", c.PasswordFile, "username", c.Username},
		{"sentinel_password_file", c.SentinelPasswordFile, "sentinel_username", c.SentinelUsername},
	} {
		_, err := readPassword(p.file)
		check.Check(err == nil, p.path, p.file, fmt.Sprint(err))
		check.Check(p.user == "" || p.file != "", p.userPath, p.user, "must have a password, in "+p.path)
	}
}

// remote checks an address to connect to. One that holds a password, as URLs do, is not shown.
func remote(address string) error {
	if strings.Contains(address, "@") {
		return &field.Error{Value: "(hidden)", Rule: "must be host:port, without a user and a password: they have keys of their own"}
	}
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || host == "" || port == "0" || strings.ContainsAny(address, "/ ") {
		return &field.Error{Value: address, Rule: "must be host:port such as redis:6379, or unix:///path/to.sock for a single server"}
	}
	return nil
}

// maxPassword is the size of a password file, in bytes.
const maxPassword = 4096

// readPassword reads a password, "" without a file. Errors never show what the file holds.
func readPassword(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	info, err := os.Stat(file)
	if err != nil || info.IsDir() || info.Size() > maxPassword {
		return "", fmt.Errorf("must be a file that can be read, of at most %d bytes", maxPassword)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", errors.New("must be a file that can be read")
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" || strings.ContainsAny(password, "\r\n\x00") {
		return "", errors.New("must hold one line, the password")
	}
	return password, nil
}
