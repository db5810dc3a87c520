package tracing

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/goccy/go-yaml"

	"attache/internal/field"
)

// Config says where spans of requests are sent, and of how many.
type Config struct {
	// Endpoint is the OTLP collector, host:port; 4318 is usual for protocol "http", 4317 for "grpc". Empty: nothing is traced, and
	// nothing is timed for it.
	Endpoint string `yaml:"endpoint"`
	// Protocol is how spans are sent: "http" (OTLP over HTTP, to /v1/traces) or "grpc".
	Protocol string `yaml:"protocol"`
	// Ratio is the share of requests that are traced, 0 to 1, among those that come without a trace of their own. Requests with a
	// traceparent header are traced when their sender's span is sampled, and not otherwise. 1 costs about 10 spans a request, away from
	// the request path.
	Ratio float64 `yaml:"ratio"`
	// HeadersFile is a YAML file of headers for the collector, `name: "value"` line by line, such as a token. It is read at the start, and
	// its values are never shown. Empty: none.
	HeadersFile string `yaml:"headers_file"`
	// Insecure connects in plain text instead of TLS. Whoever is on the way can read names of models and workers, and the headers.
	Insecure bool `yaml:"insecure"`
	// ServiceName is how this process is called in traces.
	ServiceName string `yaml:"service_name"`
	// Queue is how many finished requests may wait for the collector; further ones are dropped and counted
	// (attache_tracing_dropped_total). Each takes about 500 bytes.
	Queue int `yaml:"queue"`
}

// DefaultConfig traces nothing, and everything once an endpoint is named.
func DefaultConfig() Config {
	return Config{Protocol: "http", Ratio: 1, ServiceName: "attache", Queue: 4096}
}

// Enabled reports whether anything is traced.
func (c Config) Enabled() bool { return c.Endpoint != "" }

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	if c.Endpoint != "" {
		host, port, err := net.SplitHostPort(c.Endpoint)
		check.Check(err == nil && host != "" && port != "" && !strings.Contains(c.Endpoint, "/"), "endpoint", c.Endpoint,
			"must be host:port such as collector:4318, or empty (off)")
	}
	check.Check(c.Protocol == "http" || c.Protocol == "grpc", "protocol", c.Protocol, `must be "http" or "grpc"`)
	check.Check(c.Ratio >= 0 && c.Ratio <= 1, "ratio", c.Ratio, "must be 0 (only those whose sender wants it) to 1 (all)")
	if c.HeadersFile != "" {
		_, err := readHeaders(c.HeadersFile)
		check.Check(err == nil, "headers_file", c.HeadersFile, fmt.Sprint(err))
	}
	check.Check(c.ServiceName != "", "service_name", c.ServiceName, "must not be empty")
	check.Check(c.Queue >= 1 && c.Queue <= 1<<20, "queue", c.Queue, "must be 1 to 1048576 requests")
	return check.Err()
}

// readHeaders reads "name: value" lines. Errors never show what the file holds.
func readHeaders(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.New("must be a file that can be read")
	}
	var headers map[string]string
	if yaml.Unmarshal(text, &headers) != nil {
		return nil, errors.New("must be YAML with a line `name: \"value\"` for each header")
	}
	for name, value := range headers {
		if !printable(name, false) || strings.Contains(name, ":") || !printable(value, true) {
			return nil, errors.New("must hold names without spaces, and values of printable characters")
		}
	}
	return headers, nil
}

func printable(s string, spaces bool) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == ' ' && !spaces {
			return false
		}
	}
	return s != ""
}
