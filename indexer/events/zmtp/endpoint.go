package zmtp

import (
	"context"
	"net"
	"strconv"
	"strings"

	"attache/internal/field"
)

// endpoint is an address as ZeroMQ writes it, taken apart for package net.
type endpoint struct {
	text    string // as it was given
	network string // tcp or unix
	address string
}

const (
	connectRule = "must be tcp://host:port, IPv6 in brackets, or ipc://path"
	bindRule    = "must be tcp://host:port, where the host may be * for all and the port * for any free one, or ipc://path"
)

// CheckEndpoint checks an endpoint to connect to, or to bind at, without looking its host up: tcp://10.0.0.1:5557,
// tcp://[fd00::1]:5557, tcp://engine:5557, ipc:///run/events, ipc://@abstract; for binding also tcp://*:5557 and tcp://*:*.
// It returns a field error with an empty path.
func CheckEndpoint(s string, bind bool) error {
	_, err := parseEndpoint(s, bind)
	return err
}

func parseEndpoint(s string, bind bool) (endpoint, error) {
	rule := connectRule
	if bind {
		rule = bindRule
	}
	bad := &field.Error{Value: s, Rule: rule}
	if path, ok := strings.CutPrefix(s, "ipc://"); ok {
		// A socket's path has little room in the kernel: 104 bytes on some systems, a zero included.
		if path == "" || path == "@" || path == "*" || len(path) > 103 || strings.ContainsRune(path, 0) {
			return endpoint{}, bad
		}
		return endpoint{text: s, network: "unix", address: path}, nil
	}
	rest, ok := strings.CutPrefix(s, "tcp://")
	host, port, err := net.SplitHostPort(rest)
	if !ok || err != nil || host == "" || strings.ContainsAny(host, "/; \t\x00") {
		return endpoint{}, bad
	}
	if bind && host == "*" {
		host = "" // all addresses of all interfaces
	}
	if bind && port == "*" {
		port = "0"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "*" || n == 0 && !bind {
		return endpoint{}, bad
	}
	return endpoint{text: s, network: "tcp", address: net.JoinHostPort(host, port)}, nil
}

func (e endpoint) dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, e.network, e.address)
}

func (e endpoint) listen() (net.Listener, error) {
	if e.network == "unix" {
		return field.Listen("unix://" + e.address) // takes the place of a socket file that nobody serves
	}
	return net.Listen(e.network, e.address)
}

// bound is how a peer of this machine writes a listener's address.
func bound(a net.Addr) string {
	if a.Network() == "unix" {
		return "ipc://" + a.String()
	}
	return "tcp://" + a.String()
}
