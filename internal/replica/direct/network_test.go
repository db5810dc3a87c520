package direct

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/test/bufconn"

	"attache/internal/replica"
	"attache/internal/replica/replicatest"
)

// network is machines and a DNS in memory.
type network struct {
	mu        sync.Mutex // guards what follows
	listeners map[string]*bufconn.Listener
	hosts     map[string][]netip.Addr
	broken    error // of look-ups
	dialled   map[string]int
}

func newNetwork() *network {
	return &network{listeners: map[string]*bufconn.Listener{}, hosts: map[string][]netip.Addr{}, dialled: map[string]int{}}
}

func (w *network) listen(address string) *bufconn.Listener {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := bufconn.Listen(64 << 10)
	w.listeners[address] = l
	return l
}

func (w *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	w.mu.Lock()
	l := w.listeners[address]
	w.dialled[address]++
	w.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	return l.DialContext(ctx)
}

func (w *network) dials(address string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dialled[address]
}

func (w *network) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return nil, w.broken
	}
	if found := w.hosts[host]; found != nil {
		return found, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// set says what a host stands for, or that nobody can say it.
func (w *network) set(host string, broken error, addresses ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken, w.hosts[host] = broken, nil
	for _, a := range addresses {
		w.hosts[host] = append(w.hosts[host], netip.MustParseAddr(a))
	}
}

// machine is a node that runs.
type machine struct {
	*Node

	stop func()
	log  *journal
}

// journal is a log to be read in tests.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// run runs a node until stop.
func run(t testing.TB, n *Node, log *journal) *machine {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return &machine{Node: n, log: log, stop: func() { cancel(); <-done }}
}

// start starts a node at an address of the network.
func (w *network) start(t testing.TB, address string, cfg Config) *machine {
	t.Helper()
	log := &journal{}
	n, err := newNode(Params{Config: cfg, Name: "at " + address, Lookup: w, Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: prometheus.NewRegistry()},
		w.listen(address), w.dial)
	if err != nil {
		t.Fatal(err)
	}
	m := run(t, n, log)
	stop := m.stop
	m.stop = func() {
		stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.listeners[address] == n.listener {
			delete(w.listeners, address)
		}
	}
	return m
}

// ear is what a link has told.
type ear struct {
	mu      sync.Mutex // guards what follows
	joined  int
	lost    []string
	records []string
	gate    chan struct{} // delivering waits for it; nil: it does not
}

func (e *ear) events() replica.Events {
	return replica.Events{
		Joined: func() { e.mu.Lock(); defer e.mu.Unlock(); e.joined++ },
		Lost:   func(err error) { e.mu.Lock(); defer e.mu.Unlock(); e.lost = append(e.lost, err.Error()) },
		Delivered: func(record []byte) {
			if e.gate != nil {
				<-e.gate
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			e.records = append(e.records, string(record))
		},
	}
}

// told is what it has heard, in one line.
func (e *ear) told() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Sprintf("joined %d, lost %d: %s", e.joined, len(e.lost), strings.Join(e.records, " "))
}

// heard are the records, and how often it has joined.
func (e *ear) heard() (records []string, joined int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.records), e.joined
}

func (e *ear) lastLoss() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.lost) == 0 {
		return ""
	}
	return e.lost[len(e.lost)-1]
}

// follow follows a link until the returned function is called.
func follow(l replica.Link, events replica.Events) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); l.Follow(ctx, events) }()
	return func() { cancel(); <-done }
}

// listen follows a link with an ear.
func listen(l replica.Link, e *ear) (stop func()) { return follow(l, e.events()) }

// office is a desk with the node that it stands on.
type office struct {
	*machine

	desk *replicatest.Desk
}

// open starts a node and a desk on it.
func (w *network) open(t testing.TB, name, address string, cfg Config) *office {
	m := w.start(t, address, cfg)
	return &office{m, replicatest.Start(t, m.Link("llama"), name)}
}

// close stops both, as a process does that has the time for it.
func (o *office) close() {
	o.desk.Stop()
	o.stop()
}

// kill stops both so that the others are told nothing.
func (o *office) kill() {
	o.stop()
	o.desk.Stop()
}

func config(peers ...string) Config {
	c := DefaultConfig()
	c.Listen, c.Peers = "127.0.0.1:0", peers
	return c
}
