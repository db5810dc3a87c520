package kubernetes

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"attache/internal/worker"
)

// endpoint is an engine's host as Kubernetes knows it.
type endpoint struct {
	pod    string // "namespace/name"; "" when there is none behind it
	addr   netip.Addr
	ports  []uint16 // in order
	state  state
	labels map[string]string
}

// state is what Kubernetes says of an endpoint, ordered by how much it may be used.
type state int

const (
	// away is not ready, and does not serve either: a pod that starts, or is done. One that was a worker before leaves: streams may
	// still run on it, and what it holds is worth remembering until it is ready again or out of the list.
	away state = iota
	// leaving serves while it terminates: nothing new, and what runs finishes.
	leaving
	ready
)

// stateOf is the state that conditions make, as EndpointSlices define them.
func stateOf(isReady, serving bool) state {
	switch {
	case isReady:
		return ready
	case serving:
		return leaving
	default:
		return away
	}
}

// maker turns endpoints into workers. It remembers who was one, and is used by one goroutine.
type maker struct {
	p     *Params
	known map[netip.AddrPort]bool
}

// specs are the workers of a list, by address. An address that is there twice, as while EndpointSlices are rewritten, is the one
// that may be used more.
func (m *maker) specs(list []endpoint) []worker.Spec {
	var specs []worker.Spec
	known := map[netip.AddrPort]bool{}
	slices.SortStableFunc(list, func(a, b endpoint) int { return cmp.Or(int(b.state-a.state), cmp.Compare(a.pod, b.pod)) })
	for _, e := range list {
		for rank, port := range e.ports {
			addr := netip.AddrPortFrom(e.addr, port)
			if known[addr] || e.state == away && !m.known[addr] {
				continue
			}
			known[addr] = true
			spec := worker.Spec{Name: e.pod, Pool: m.p.Pool, Address: addr.String(), Addr: addr, Engine: m.p.Engine, Drain: e.state != ready}
			switch {
			case e.pod == "":
				spec.Name = spec.Address
			case len(e.ports) > 1:
				spec.Name += ":" + strconv.Itoa(int(port))
			}
			if len(e.ports) > 1 {
				spec.Events = m.events(addr.Addr(), rank)
			}
			spec.Labels = maps.Clone(m.p.Labels)
			if spec.Labels == nil && len(e.labels) > 0 {
				spec.Labels = map[string]string{}
			}
			maps.Copy(spec.Labels, e.labels)
			specs = append(specs, spec)
		}
	}
	m.known = known
	slices.SortFunc(specs, func(a, b worker.Spec) int { return a.Addr.Compare(b.Addr) })
	return specs
}

// events is where one of several ranks of a pod publishes: each is a process of its own, numbered as its ports are, at the pool's port
// of events plus its number.
func (m *maker) events(ip netip.Addr, rank int) worker.EventSource {
	at := func(port int) string {
		if port == 0 {
			return ""
		}
		return "tcp://" + net.JoinHostPort(ip.String(), strconv.Itoa(port+rank))
	}
	e := worker.EventSource{Endpoint: at(m.p.EventsPort), Ranks: 1, FirstRank: rank}
	if e.Endpoint != "" {
		e.Replay = at(m.p.ReplayPort)
	}
	return e
}

// address reads an IP address as Kubernetes writes it.
func address(text string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q: must be an IP address", text)
	}
	return ip.Unmap(), nil
}
