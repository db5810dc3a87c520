package replica

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"attache/internal/block"
)

// desk is a replica that only keeps what it has under way, and what it is told of the others.
type desk struct {
	*Pool

	name string
	stop func()

	mu        sync.Mutex
	own       map[uint64]*Delta
	next      uint64
	others    map[string]map[uint64]*Delta
	seen      map[uint64]bool // in a snapshot
	waiting   Waiting
	elsewhere Waiting
	kept      map[string]time.Duration
	learnt    string
}

func (d *desk) Open(tell func(*Delta)) {
	d.mu.Lock()
	open := slices.Collect(maps.Values(d.own))
	d.mu.Unlock()
	for _, o := range open {
		tell(o)
	}
}

func (d *desk) Waiting() Waiting {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting
}

func (d *desk) Learnt() []byte { return []byte(d.name + " has learnt") }

func (d *desk) Apply(from string, x *Delta) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.others[from] == nil {
		d.others[from] = map[uint64]*Delta{}
	}
	switch x.Kind {
	case Booked:
		c := *x
		d.others[from][x.Number] = &c
		if d.seen != nil {
			d.seen[x.Number] = true
		}
	case Moved:
		if o := d.others[from][x.Number]; o != nil {
			o.Worker, o.Rank = x.Worker, x.Rank
		}
	case Ended:
		delete(d.others[from], x.Number)
	}
}

func (d *desk) Begin(string) { d.seen = map[uint64]bool{} }

func (d *desk) Finish(from string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.others[from], func(n uint64, _ *Delta) bool { return !d.seen[n] })
	d.seen = nil
}

func (d *desk) Gone(from string, kept time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.others, from)
	d.kept[from] = kept
}

func (d *desk) Elsewhere(w Waiting) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.elsewhere = w
}

func (d *desk) Learn(_ string, learnt []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.learnt = string(learnt)
}

// told is what waits elsewhere, and what others have learnt, as the replica was told last.
func (d *desk) told() (Waiting, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.elsewhere, d.learnt
}

// book tells of a request with a prompt of so many blocks, that begins as base does.
func (d *desk) book(chain []block.Hash) uint64 {
	d.mu.Lock()
	d.next++
	x := &Delta{
		Kind: Booked, Number: d.next, Worker: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:8000", d.next%7+1)), Rank: int(d.next % 3),
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

func (d *desk) end(number uint64) {
	d.mu.Lock()
	delete(d.own, number)
	d.mu.Unlock()
	d.Share(&Delta{Kind: Ended, Number: number})
}

// start starts a replica on a bus.
func start(t *testing.T, b Link, name string) *desk {
	t.Helper()
	d := &desk{name: name, own: map[uint64]*Delta{}, others: map[string]map[uint64]*Delta{}, kept: map[string]time.Duration{}}
	var err error
	d.Pool, err = New(Params{Config: DefaultConfig(), Name: name, Link: b, Source: d, Target: d, Now: time.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
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
	d.stop = func() { cancel(); <-done }
	return d
}

// agree checks that everybody knows what everybody has under way, and nothing else.
func agree(t *testing.T, when string, desks ...*desk) {
	t.Helper()
	for _, d := range desks {
		for _, o := range desks {
			if d == o {
				continue
			}
			o.mu.Lock()
			want := maps.Clone(o.own)
			o.mu.Unlock()
			d.mu.Lock()
			got := d.others[o.name]
			if len(got) != len(want) {
				t.Errorf("%s: %s knows of %d requests of %s, which has %d", when, d.name, len(got), o.name, len(want))
			}
			for n, w := range want {
				if g := got[n]; g == nil || g.Worker != w.Worker || g.Rank != w.Rank || g.PromptTokens != w.PromptTokens || g.CachedTokens != w.CachedTokens ||
					g.Session != w.Session || g.SessionTTL != w.SessionTTL || g.Flow != w.Flow || g.Named != w.Named || !slices.Equal(g.Chain, w.Chain) {
					t.Errorf("%s: %s knows of %s's request %d: %+v, want %+v", when, d.name, o.name, n, g, w)
				}
			}
			d.mu.Unlock()
		}
		if len(d.Peers()) != len(desks)-1 {
			t.Errorf("%s: %s hears %v", when, d.name, d.Peers())
		}
	}
}

// chains draws prompts that begin alike, as conversations do.
type chains struct{ all [][]block.Hash }

func (c *chains) draw(rnd *rand.Rand) []block.Hash {
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

func TestReplicasKnowWhatOthersHaveUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd, b, c := rand.New(rand.NewPCG(1, 2)), newBus(), chains{}
		link := LogLink{Log: b}
		desks := []*desk{start(t, link, "a"), start(t, link, "b"), start(t, link, "c")}
		work := func(n int) {
			for range n {
				d := desks[rnd.IntN(len(desks))]
				if numbers := slices.Collect(maps.Keys(d.own)); len(numbers) > 0 && rnd.IntN(2) == 0 {
					d.end(numbers[rnd.IntN(len(numbers))])
				} else {
					d.book(c.draw(rnd))
				}
				if rnd.IntN(10) == 0 {
					time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond)
				}
			}
		}
		settle := func() { time.Sleep(5 * time.Second) }
		time.Sleep(time.Second)
		work(500)
		time.Sleep(10 * time.Millisecond) // a batch, no heartbeat
		agree(t, "after work", desks...)
		for _, d := range desks {
			if n := testutil.ToFloat64(d.sender.metrics.unknown); n != 0 {
				t.Errorf("%s: %v chains are not known", d.name, n)
			}
		}

		desks = append(desks, start(t, link, "d"))
		time.Sleep(time.Second)
		agree(t, "with one that has come", desks...)
		work(300)
		settle()
		agree(t, "after its work", desks...)

		b.set(func() { b.losing = true })
		work(300)
		b.set(func() { b.losing = false })
		work(10)
		settle()
		agree(t, "after records were lost", desks...)

		b.set(func() { b.broken = true })
		work(300)
		time.Sleep(DefaultConfig().Lease + 2*time.Second)
		for _, d := range desks {
			if d.Down() == nil || len(d.Peers()) != 0 || len(d.others) != 0 {
				t.Errorf("%s: nobody is heard, and it still knows of %v (%v)", d.name, d.Peers(), d.Down())
			}
		}
		b.set(func() { b.broken = false })
		settle()
		agree(t, "after the link was broken", desks...)

		b.set(func() { b.slow = 2 * time.Second })
		work(300)
		time.Sleep(20 * time.Second)
		b.set(func() { b.slow = 0 })
		settle()
		agree(t, "after it was slow", desks...)

		b.trim()
		b.set(func() { b.trimmed += 1000 })
		work(100)
		settle()
		agree(t, "after it forgot", desks...)

		for _, d := range desks {
			d.stop()
		}
	})
}

func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := LogLink{Log: newBus()}
		a, b := start(t, link, "a"), start(t, link, "b")
		time.Sleep(time.Second)
		a.book([]block.Hash{1, 2})
		time.Sleep(time.Second)
		agree(t, "before", a, b)
		if _, learnt := b.told(); learnt != "a has learnt" {
			t.Errorf("b was told %q of what a has learnt", learnt)
		}
		a.stop()
		synctest.Wait()
		if kept, gone := b.kept["a"]; !gone || kept != DefaultConfig().Handover {
			t.Errorf("a has left; its requests count for %v (%v)", kept, gone)
		}
		again := start(t, link, "a")
		time.Sleep(2 * time.Second)
		again.book([]block.Hash{3})
		time.Sleep(time.Second)
		agree(t, "when it is there again", again, b)
		again.stop()
		b.stop()
	})
}

func TestWaitingElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := LogLink{Log: newBus()}
		desks := []*desk{start(t, link, "a"), start(t, link, "b"), start(t, link, "c")}
		for i, d := range desks {
			d.mu.Lock()
			d.waiting = Waiting{i + 1, int64(10 * (i + 1)), int64(100 * (i + 1))}
			d.mu.Unlock()
		}
		time.Sleep(3 * time.Second)
		for i, want := range []Waiting{{5, 50, 500}, {4, 40, 400}, {3, 30, 300}} {
			if got, _ := desks[i].told(); got != want {
				t.Errorf("%s: %+v waits elsewhere, want %+v", desks[i].name, got, want)
			}
		}
		desks[2].stop()
		synctest.Wait()
		if got, _ := desks[0].told(); got != (Waiting{2, 20, 200}) {
			t.Errorf("with c gone %+v waits elsewhere", got)
		}
		desks[0].stop()
		desks[1].stop()
	})
}

func TestTwoOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := LogLink{Log: newBus()}
		a := start(t, link, "a")
		time.Sleep(time.Second)
		twin := start(t, link, "a")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if a.inbox.twins.IsZero() {
			t.Error("a process of the same name was not noticed")
		}
		a.stop()
		twin.stop()
	})
}

// TestMuchAtOnce: what is told within one batch may be more than one record may hold.
func TestMuchAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, rnd := newBus(), rand.New(rand.NewPCG(7, 8))
		a, other := start(t, LogLink{Log: b}, "a"), start(t, LogLink{Log: b}, "b")
		time.Sleep(time.Second)
		for range 60 {
			chain := make([]block.Hash, 5000)
			for i := range chain {
				chain[i] = rnd.Uint64()
			}
			a.book(chain)
		}
		time.Sleep(time.Second)
		agree(t, "after much at once", a, other)
		third := start(t, LogLink{Log: b}, "c")
		time.Sleep(time.Second)
		agree(t, "in a snapshot", a, other, third)
		for _, r := range b.records {
			if len(r) > 1<<20 {
				t.Errorf("a record of %d bytes", len(r))
			}
		}
		for _, d := range []*desk{a, other, third} {
			d.stop()
		}
	})
}
