package direct

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"attache/internal/field"
)

// Config is how replicas find and trust each other.
type Config struct {
	// Listen is where the other replicas connect to, "host:port". An address other than loopback needs token_file or tls, since whoever
	// is let in can tell this replica anything about the workers' load. Empty: replicas do not tell each other directly.
	Listen string `yaml:"listen"`
	// Peers are the other replicas, "host:port". Names are looked up again every interval, and stand for all their addresses. This
	// replica may be among them: it recognises itself, so that all replicas can have the same list.
	Peers []string `yaml:"peers"`
	// DNS is a name whose addresses are the replicas, such as a headless service; looked up every interval. Empty: peers alone.
	DNS string `yaml:"dns"`
	// Port is where the replicas behind dns listen.
	Port int `yaml:"port"`
	// Interval is how often names are looked up. A new replica is found within it; until then neither knows what the other decides.
	Interval time.Duration `yaml:"interval"`
	// TokenFile is a file with the secret that all replicas share, at least 16 bytes. It is read at each connection, never sent and
	// never shown. It says who may connect; without tls, what is sent can be read, and changed, by whoever is on the way. Empty: none.
	TokenFile string `yaml:"token_file"`
	// TLS encrypts connections, and lets in only those who have a certificate of the same authority; unset: plain text.
	TLS *TLS `yaml:"tls"`
	// Insecure allows an address other than loopback without token_file and tls: for networks where everybody is trusted.
	Insecure bool `yaml:"insecure"`
	// Buffer is how much may wait for one replica that takes records slowly, in bytes or with a unit; twice that while it is sent
	// something larger. With more it is cut off, and told everything when it comes again. All replicas' queues share their records.
	Buffer field.Bytes `yaml:"buffer"`
}

// TLS is this replica's certificate, for both ends of connections, and the authority of all.
type TLS struct {
	// Cert is the PEM file of the certificate chain, good for servers and clients. The files are read at each connection.
	Cert string `yaml:"cert"`
	// Key is the PEM file of the private key.
	Key string `yaml:"key"`
	// CA is a PEM file of the authorities that sign the replicas' certificates.
	CA string `yaml:"ca"`
	// ServerName is the name that the certificates of the others must bear. Empty: the host under which each is found.
	ServerName string `yaml:"server_name"`
}

// DefaultConfig listens nowhere.
func DefaultConfig() Config {
	return Config{Port: 9004, Interval: 5 * time.Second, Buffer: 16 * field.MiB}
}

// Enabled reports whether replicas tell each other directly.
func (c Config) Enabled() bool { return c.Listen != "" }

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	if c.Enabled() {
		_, _, err := hostPort(c.Listen, 0)
		check.Check(err == nil, "listen", c.Listen, "must be host:port such as 0.0.0.0:9004, or empty (off)")
		check.Check(err != nil || c.Insecure || c.TokenFile != "" || c.TLS != nil || loopback(c.Listen), "listen", c.Listen,
			"is no loopback address: needs token_file or tls, or insecure: true where everybody who can connect is trusted")
	} else {
		check.Check(len(c.Peers) == 0 && c.DNS == "", "listen", c.Listen, "must be host:port when peers or dns name other replicas: they connect to it")
	}
	for i, p := range c.Peers {
		host, _, err := hostPort(p, 1)
		check.Check(err == nil && host != "", fmt.Sprintf("peers[%d]", i), p, "must be host:port such as attache-1.attache:9004")
	}
	check.Check(!strings.ContainsAny(c.DNS, ":/ \t"), "dns", c.DNS, "must be a name without a port, or empty")
	check.Check(c.Port >= 1 && c.Port <= 65535, "port", c.Port, "must be 1 to 65535")
	check.Check(c.Interval >= 100*time.Millisecond && c.Interval <= 10*time.Minute, "interval", c.Interval, "must be 100ms to 10m")
	check.Check(c.Buffer >= maxRecord && c.Buffer <= field.GiB, "buffer", c.Buffer, "must be 1MiB to 1GiB")
	if c.TokenFile != "" {
		_, err := readToken(c.TokenFile)
		check.Check(err == nil, "token_file", c.TokenFile, fmt.Sprint(err))
	}
	if t := c.TLS; t != nil {
		check.Check(t.Cert != "", "tls.cert", t.Cert, "must be the PEM file of this replica's certificate")
		check.Check(t.Key != "", "tls.key", t.Key, "must be the PEM file of the certificate's private key")
		check.Check(t.CA != "", "tls.ca", t.CA, "must be a PEM file of the authorities that sign the replicas' certificates")
		if t.Cert != "" && t.Key != "" && t.CA != "" {
			_, _, err := t.load()
			check.Check(err == nil, "tls", nil, fmt.Sprint(err))
		}
	}
	return check.Err()
}

// hostPort takes "host:port" apart; the port is at least least.
func hostPort(s string, least uint16) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n < uint64(least) || strings.ContainsAny(host, "/ \t") {
		return "", 0, fmt.Errorf("%q: must be host:port", s)
	}
	return host, uint16(n), nil
}

// loopback reports whether a listen address is for this machine only.
func loopback(listen string) bool {
	host, _, _ := net.SplitHostPort(listen)
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}
