// Package replicatest has replicas for tests of links: desks that tell each other what they have under way, and must agree on it.
package replicatest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/block"
	"attache/internal/replica"
)

// Desk is a replica that only keeps what it has under way, and what it is told of the others. Safe for concurrent use.
type Desk struct {
	*replica.Pool

	Name string
	// Stop stops it and returns when it has stopped.
	Stop func()

	metrics *prometheus.Registry

	mu        sync.Mutex // guards what follows
	log       bytes.Buffer
	own       map[uint64]*replica.Delta
	next      uint64
	others    map[string]map[uint64]*replica.Delta
	seen      map[string]map[uint64]bool // in a snapshot
	waiting   replica.Waiting
	elsewhere replica.Waiting
	kept      map[string]time.Duration
	learnt    string
}

// Start starts a replica on a link.
func Start(t testing.TB, link replica.Link, name string) *Desk {
	t.Helper()
	d := &Desk{
		Name: name, own: map[uint64]*replica.Delta{}, others: map[string]map[uint64]*replica.Delta{}, seen: map[string]map[uint64]bool{},
		kept: map[string]time.Duration{}, metrics: prometheus.NewRegistry(),
	}
	var err error
	d.Pool, err = replica.New(replica.Params{Config: replica.DefaultConfig(), Name: name, Link: link, Source: d, Target: d, Now: time.Now,
		Log: slog.New(slog.NewTextHandler(d, nil)), Metrics: d.metrics})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	d.Stop = func() { cancel(); <-done }
	return d
}

// Open implements replica.Source.
func (d *Desk) Open(tell func(*replica.Delta)) {
	d.mu.Lock()
	open := slices.Collect(maps.Values(d.own))
	d.mu.Unlock()
	for _, o := range open {
		tell(o)
	}
}

// Waiting implements replica.Source.
func (d *Desk) Waiting() replica.Waiting {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting
}

// SetWaiting sets what waits here.
func (d *Desk) SetWaiting(w replica.Waiting) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = w
}

// Learnt implements replica.Source.
func (d *Desk) Learnt() []byte { return []byte(d.Name + " has learnt") }

// Apply implements replica.Target.
func (d *Desk) Apply(from string, x *replica.Delta) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.others[from] == nil {
		d.others[from] = map[uint64]*replica.Delta{}
	}
	switch x.Kind {
	case replica.Booked:
		c := *x
		d.others[from][x.Number] = &c
		if seen := d.seen[from]; seen != nil {
			seen[x.Number] = true
		}
	case replica.Moved:
		if o := d.others[from][x.Number]; o != nil {
			o.Worker, o.Rank = x.Worker, x.Rank
		}
	case replica.Ended:
		delete(d.others[from], x.Number)
	}
}

// Begin implements replica.Target.
func (d *Desk) Begin(from string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[from] = map[uint64]bool{}
}

// Finish implements replica.Target.
func (d *Desk) Finish(from string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.others[from], func(n uint64, _ *replica.Delta) bool { return !d.seen[from][n] })
	delete(d.seen, from)
}

// Gone implements replica.Target.
func (d *Desk) Gone(from string, kept time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.others, from)
	delete(d.seen, from)
	d.kept[from] = kept
}

// Elsewhere implements replica.Target.
func (d *Desk) Elsewhere(w replica.Waiting) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.elsewhere = w
}

// Learn implements replica.Target.
func (d *Desk) Learn(_ string, learnt []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.learnt = string(learnt)
}

// Told is what waits elsewhere, and what others have learnt, as the replica was told last.
func (d *Desk) Told() (replica.Waiting, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.elsewhere, d.learnt
}

// Knows is how many other replicas it has applied something of.
func (d *Desk) Knows() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.others)
}

// Kept is for how long what a replica that has gone left running counts; gone is false when it has not.
func (d *Desk) Kept(name string) (kept time.Duration, gone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept, gone = d.kept[name]
	return kept, gone
}

// Write takes in a line of the log.
func (d *Desk) Write(line []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.Write(line)
}

// Log is what it has logged.
func (d *Desk) Log() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// Figure is a counter or gauge without labels, by its name in metrics.
func (d *Desk) Figure(t testing.TB, name string) float64 {
	t.Helper()
	families, err := d.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// Book tells of a request with a prompt of that chain.
func (d *Desk) Book(chain []block.Hash) uint64 {
	d.mu.Lock()
	d.next++
	x := &replica.Delta{
		Kind: replica.Booked, Number: d.next, Worker: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:8000", d.next%7+1)), Rank: int(d.next % 3),
		PromptTokens: 16 * len(chain), CachedTokens: int(d.next), BlockTokens: 16, OutputTokens: 7, Chain: chain, Named: d.next%2 == 0,
		Session: d.next % 5, SessionTTL: time.Minute, Flow: "tenant",
	}
	if x.Session == 0 {
		x.SessionTTL = 0
	}
	d.own[d.next] = x
	d.mu.Unlock()
	d.Share(x)
	return x.Number
}

// End tells that a request is over.
func (d *Desk) End(number uint64) {
	d.mu.Lock()
	delete(d.own, number)
	d.mu.Unlock()
	d.Share(&replica.Delta{Kind: replica.Ended, Number: number})
}

// Work books a request, or ends one that was booked.
func (d *Desk) Work(rnd *rand.Rand, chains *Chains) {
	d.mu.Lock()
	numbers := slices.Sorted(maps.Keys(d.own))
	d.mu.Unlock()
	if len(numbers) > 0 && rnd.IntN(2) == 0 {
		d.End(numbers[rnd.IntN(len(numbers))])
	} else {
		d.Book(chains.Draw(rnd))
	}
}

// Differences is where desks do not know what everybody has under way, or believe something else.
func Differences(desks ...*Desk) (found []string) {
	note := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, d := range desks {
		for _, o := range desks {
			if d == o {
				continue
			}
			o.mu.Lock()
			want := maps.Clone(o.own)
			o.mu.Unlock()
			d.mu.Lock()
			got := d.others[o.Name]
			if len(got) != len(want) {
				note("%s knows of %d requests of %s, which has %d", d.Name, len(got), o.Name, len(want))
			}
			for n, w := range want {
				if g := got[n]; g == nil || g.Worker != w.Worker || g.Rank != w.Rank || g.PromptTokens != w.PromptTokens || g.CachedTokens != w.CachedTokens ||
					g.Session != w.Session || g.SessionTTL != w.SessionTTL || g.Flow != w.Flow || g.Named != w.Named || !slices.Equal(g.Chain, w.Chain) {
					note("%s knows of %s's request %d: %+v, want %+v", d.Name, o.Name, n, g, w)
				}
			}
			d.mu.Unlock()
		}
		if len(d.Peers()) != len(desks)-1 {
			note("%s hears %v", d.Name, d.Peers())
		}
	}
	return found
}

// Agree checks that everybody knows what everybody has under way, and nothing else.
func Agree(t testing.TB, when string, desks ...*Desk) {
	t.Helper()
	for _, difference := range Differences(desks...) {
		t.Errorf("%s: %s", when, difference)
	}
}

// Chains draws prompts that begin alike, as conversations do.
type Chains struct{ all [][]block.Hash }

// Draw makes one.
func (c *Chains) Draw(rnd *rand.Rand) []block.Hash {
	var chain []block.Hash
	if len(c.all) > 0 && rnd.IntN(4) > 0 {
		of := c.all[rnd.IntN(len(c.all))]
		chain = slices.Clone(of[:len(of)-rnd.IntN(min(len(of), 20)+1)])
	}
	for range rnd.IntN(60) {
		chain = append(chain, rnd.Uint64())
	}
	if len(chain) > 0 {
		c.all = append(c.all, chain)
	}
	return chain
}
