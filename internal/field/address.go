package field

import (
	"net"
	"strconv"
	"strings"
)

// Address checks a listen address: "host:port" (an empty host is every interface, port 0 any free port) or
// "unix:///path". It returns a field error with an empty path.
func Address(s string) error {
	if path, ok := strings.CutPrefix(s, "unix://"); ok {
		if !strings.HasPrefix(path, "/") || len(path) > 100 {
			return &Error{Value: s, Rule: "must be unix:// followed by an absolute path of at most 100 bytes"}
		}
		return nil
	}
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return &Error{Value: s, Rule: `must be host:port such as 127.0.0.1:9002, or unix:///path/to.sock`}
	}
	return nil
}

// Network splits a checked listen address into the arguments of net.Listen.
func Network(s string) (network, address string) {
	if path, ok := strings.CutPrefix(s, "unix://"); ok {
		return "unix", path
	}
	return "tcp", s
}
