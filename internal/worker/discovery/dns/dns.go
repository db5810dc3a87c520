// Package dns finds workers by the addresses that a name has.
//
// A name is resolved at intervals; every address is one worker. What is found is given on when it differs from what was found
// before. A look-up that fails changes nothing, and an answer without records is believed only when it is given twice in a row:
// resolvers that lose their upstream, and services between two generations of pods, answer so for a moment, and a pool without
// workers refuses every request.
package dns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"attache/internal/worker"
)

// Resolver answers for names. *net.Resolver is one.
type Resolver interface {
	// LookupNetIP finds the addresses of a host; network is "ip4" or "ip6". A name that is not there, or has no such address, is a
	// *net.DNSError that says IsNotFound.
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	// LookupSRV finds the servers of a name, which is given whole: service and proto are empty.
	LookupSRV(ctx context.Context, service, proto, name string) (canonical string, records []*net.SRV, err error)
}

// Source takes what is found. A *worker.Source is one.
type Source interface {
	// Apply takes the complete list.
	Apply(specs []worker.Spec)
	// Confirm says that the list that was applied last holds now.
	Confirm()
	// Failed says that the list could not be read and the last one holds.
	Failed(err error)
}

// Params are what following a name needs.
type Params struct {
	Config

	Pool     string
	Fallback worker.Engine // of a Config that names none
	Resolver Resolver
	Source   Source
}

// Name is a name that is followed. It is used by one goroutine.
type Name struct {
	p        Params
	last     []address // as it was given on
	vanished bool      // the last answer had no records, and the one before had
}

// address is one that was found, and the host that has it.
type address struct {
	host string
	addr netip.AddrPort
}

// New makes a follower of a name. The configuration must be valid.
func New(p Params) *Name {
	if p.Interval == 0 {
		p.Interval = defaultInterval
	}
	if p.Engine == "" {
		p.Engine = p.Fallback
	}
	return &Name{p: p}
}

// timeout bounds one look-up with all that belongs to it.
const timeout = 5 * time.Second

// Run follows the name until ctx ends.
func (n *Name) Run(ctx context.Context) error {
	for {
		n.follow(ctx)
		// A little chance keeps replicas that started together from asking together.
		pause := time.NewTimer(n.p.Interval + rand.N(n.p.Interval/10+1))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
	}
}

// follow resolves the name once.
func (n *Name) follow(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := n.resolve(limited)
	vanished := n.vanished
	n.vanished = false
	switch {
	case ctx.Err() != nil: // whatever was answered, it is not the name's fault
	case err != nil:
		n.p.Source.Failed(err)
	case slices.Equal(found, n.last):
		n.p.Source.Confirm()
	case len(found) == 0 && !vanished:
		n.vanished = true
	default:
		n.last = found
		n.p.Source.Apply(n.specs())
		n.p.Source.Confirm()
	}
}

// resolve finds the addresses, in order and each once.
func (n *Name) resolve(ctx context.Context) ([]address, error) {
	servers := []*net.SRV{{Target: n.p.Name, Port: uint16(n.p.Port)}}
	if n.p.SRV {
		_, records, err := n.p.Resolver.LookupSRV(ctx, "", "", n.p.Name)
		if err != nil && !absent(err) {
			return nil, fmt.Errorf("SRV records of %s: %w", n.p.Name, err)
		}
		servers = records
	}
	var found []address
	for _, s := range servers {
		ips, err := n.addresses(ctx, s.Target)
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", s.Target, err)
		}
		for _, ip := range ips {
			if ip = ip.Unmap(); !ip.IsUnspecified() && s.Port != 0 { // port 0, target ".": RFC 2782's "not available here"
				found = append(found, address{strings.TrimSuffix(s.Target, "."), netip.AddrPortFrom(ip, s.Port)})
			}
		}
	}
	slices.SortFunc(found, func(a, b address) int {
		if c := a.addr.Compare(b.addr); c != 0 {
			return c
		}
		return strings.Compare(a.host, b.host)
	})
	return slices.CompactFunc(found, func(a, b address) bool { return a.addr == b.addr }), nil
}

// addresses are those of a host in the wanted family; none is no error. Without a wanted one IPv6 counts only where there is no
// IPv4: an engine with both must not be two workers.
func (n *Name) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	networks := []string{"ip4", "ip6"}
	switch n.p.Family {
	case IPv4:
		networks = networks[:1]
	case IPv6:
		networks = networks[1:]
	}
	for _, network := range networks {
		ips, err := n.p.Resolver.LookupNetIP(ctx, network, host)
		if err != nil && !absent(err) {
			return nil, err
		}
		if err == nil && len(ips) > 0 {
			return ips, nil
		}
	}
	return nil, nil
}

// absent reports whether an error is an answer: there are no such records.
func absent(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound && !dns.IsTimeout && !dns.IsTemporary
}

// specs are the workers that were found last, called host:port#ip.
func (n *Name) specs() []worker.Spec {
	specs := make([]worker.Spec, 0, len(n.last))
	for _, a := range n.last {
		name := net.JoinHostPort(a.host, strconv.Itoa(int(a.addr.Port()))) + "#" + a.addr.Addr().String()
		specs = append(specs, worker.Spec{Name: name, Pool: n.p.Pool, Address: a.addr.String(), Addr: a.addr, Engine: n.p.Engine, Labels: n.p.Labels})
	}
	return specs
}
