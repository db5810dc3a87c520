package direct

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Lookup finds the addresses of a host; *net.Resolver is one.
type Lookup interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// target is where a replica may be.
type target struct {
	address netip.AddrPort
	host    string // under which it was found: what its certificate must be for
}

// directory knows where replicas may be: the addresses of all peers and of the DNS name. Safe for concurrent use.
type directory struct {
	names    []name // looked up by one goroutine only
	lookup   Lookup
	interval time.Duration
	log      *slog.Logger

	mu      sync.Mutex // guards what follows
	found   listing
	changed chan struct{} // closed when found changes
}

// listing is what is known of where replicas are.
type listing struct {
	known   bool // names were looked up at least once
	targets []target
	err     error // of names that could not be looked up now: they stand for what they stood for before
}

// name is a host and port as configured.
type name struct {
	host    string
	port    uint16
	last    []netip.Addr
	problem error
}

// mostTargets bounds the replicas that one follows.
const mostTargets = 255

// lookupTimeout bounds the look-up of one name.
const lookupTimeout = 2 * time.Second

func newDirectory(cfg Config, lookup Lookup, log *slog.Logger) (*directory, error) {
	d := &directory{lookup: lookup, interval: cfg.Interval, log: log, changed: make(chan struct{})}
	for _, p := range cfg.Peers {
		host, port, err := hostPort(p, 1)
		if err != nil {
			return nil, err
		}
		d.names = append(d.names, name{host: host, port: port})
	}
	if cfg.DNS != "" {
		d.names = append(d.names, name{host: cfg.DNS, port: uint16(cfg.Port)})
	}
	return d, nil
}

// run looks names up until ctx ends.
func (d *directory) run(ctx context.Context) {
	for ctx.Err() == nil {
		d.look(ctx)
		rest(ctx, jitter(d.interval))
	}
}

// look looks all names up once.
func (d *directory) look(ctx context.Context) {
	var looking sync.WaitGroup
	for i := range d.names {
		looking.Go(func() { d.names[i].look(ctx, d.lookup) })
	}
	looking.Wait()
	if ctx.Err() != nil {
		return
	}
	found := listing{known: true}
	var problems []error
	for i := range d.names {
		n := &d.names[i]
		if n.problem != nil {
			problems = append(problems, n.problem)
		}
		for _, a := range n.last {
			t := target{netip.AddrPortFrom(a.Unmap(), n.port), n.host}
			if !slices.ContainsFunc(found.targets, func(o target) bool { return o.address == t.address }) {
				found.targets = append(found.targets, t)
			}
		}
	}
	if len(found.targets) > mostTargets {
		problems = append(problems, fmt.Errorf("%d addresses were found; the first %d are used", len(found.targets), mostTargets))
		found.targets = found.targets[:mostTargets]
	}
	slices.SortFunc(found.targets, func(a, b target) int { return cmp.Or(a.address.Compare(b.address), cmp.Compare(a.host, b.host)) })
	found.err = errors.Join(problems...)
	d.publish(found)
}

// look keeps what the name stood for when nobody can say what it stands for now. That it stands for nothing is an answer.
func (n *name) look(ctx context.Context, lookup Lookup) {
	if a, err := netip.ParseAddr(n.host); err == nil {
		n.last = []netip.Addr{a}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := lookup.LookupNetIP(ctx, "ip", n.host)
	var dns *net.DNSError
	switch {
	case err == nil:
		n.last, n.problem = found, nil
	case errors.As(err, &dns) && dns.IsNotFound:
		n.last, n.problem = nil, nil
	default:
		n.problem = fmt.Errorf("%s cannot be looked up: %w", n.host, err)
	}
}

func (d *directory) publish(found listing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.found
	if before.known && slices.Equal(before.targets, found.targets) && (before.err == nil) == (found.err == nil) {
		return
	}
	if found.err != nil && before.err == nil {
		d.log.Warn("not all replicas' names can be looked up: those found before stay", "error", found.err)
	}
	d.found = found
	close(d.changed)
	d.changed = make(chan struct{})
}

// current is what is known, and a channel that is closed when it changes.
func (d *directory) current() (listing, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.found, d.changed
}

// jitter takes up to a fifth off a duration, so that replicas do not act in step.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/5+1))
}

// rest waits, or less when ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
