package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/bubble"
	"attache/internal/worker"
	"attache/scoring"
)

func TestReconfigure(t *testing.T) {
	w := newWorld(t, nil, nil, workers("default", 1, worker.Ready, worker.Ready, worker.Ready)...)
	text := long("a system prompt", 20_000)
	before := w.route(t, "m", text)
	home := first(before)
	cfg := DefaultConfig()
	cfg.Alternatives, cfg.Scoring.Policy = 1, "least-load"
	pools := []PoolConfig{{Name: "default", Models: []string{"m"}, Aliases: map[string]string{"fast": "m"}}}
	if err := w.Reconfigure(cfg, pools); err != nil {
		t.Fatal(err)
	}
	after := w.route(t, "fast", text)
	if strings.Contains(after.Destinations, ",") || first(after) == home || after.Model != "m" {
		t.Errorf("%+v: one worker should be named, by load alone, for model m", after)
	}
	var unknown *UnknownModelError
	if _, err := w.Route(t.Context(), chatOf(t, "other", text)); !errors.As(err, &unknown) || !slices.Equal(unknown.Known, []string{"fast", "m"}) {
		t.Errorf("another model: %v", err)
	}
	if n := inFlight(w); n != 2 {
		t.Errorf("%d requests are booked, want both", n)
	}
	own := scoring.DefaultConfig() // the pool's own comes before the router's
	if err := w.Reconfigure(cfg, []PoolConfig{{Name: "default", Scoring: &own}}); err != nil {
		t.Fatal(err)
	}
	back := w.route(t, "m", text)
	if back.PredictedCached == 0 || w.Pools()[0].Policy != own.Policy {
		t.Errorf("%+v by %s: what workers hold was forgotten, or the pool's own policy", back, w.Pools()[0].Policy)
	}
	for _, d := range []*Decision{before, after, back} {
		d.Done.End()
	}
	if n := inFlight(w); n != 0 {
		t.Errorf("%d requests are booked after all ended", n)
	}
	bad := own
	bad.Policy = "fastest"
	for name, pools := range map[string][]PoolConfig{
		"more pools": {{Name: "default"}, {Name: "b"}}, "another pool": {{Name: "b"}}, "a bad policy": {{Name: "default", Scoring: &bad}},
	} {
		if err := w.Reconfigure(DefaultConfig(), pools); err == nil || w.settings.Load().Alternatives != 1 {
			t.Errorf("%s: %v; alternatives are %d", name, err, w.settings.Load().Alternatives)
		}
	}
}

func inFlight(w *world) (n int) {
	for _, k := range w.fleet.set.All() {
		n += w.InFlight(k.Slot)
	}
	return n
}

func TestReconfigureForgetsSessionsThatAreTooMany(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Affinity.Mode = affinitySoft }, nil, workers("default", 1, worker.Ready)...)
	for i := range 5 {
		req := chatOf(t, "m", "hi")
		req.Hints.Session = fmt.Sprint(i)
		d, err := w.Route(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		d.Done.End()
	}
	cfg := w.settings.Load().Config
	cfg.Affinity.Sessions = 2
	if err := w.Reconfigure(cfg, []PoolConfig{{Name: "default"}}); err != nil {
		t.Fatal(err)
	}
	if n := w.pools[0].sessions.count(); n != 2 {
		t.Errorf("%d sessions are bound, want 2", n)
	}
}

// TestReconfigureWhileRequestsWait: a queue that is turned on, widened and turned off under requests.
func TestReconfigureWhileRequestsWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := openHall(t, func(c *Config) { c.Queue.Limits.Requests = 0 }, workers("default", 1, worker.Ready)...)
		set := func(change func(*Config)) {
			t.Helper()
			cfg := h.settings.Load().Config
			change(&cfg)
			if err := h.Reconfigure(cfg, []PoolConfig{{Name: "default"}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		running := h.come("running", "a")
		if no := h.come("too early", "b"); no.waits() || no.err == nil {
			t.Error("there is no queue yet, and a request waits")
		}
		set(func(c *Config) { c.Queue.Limits.Requests = 100 })
		waiting := []*guest{h.come("1", "c"), h.come("2", "d"), h.come("3", "e")}
		set(func(c *Config) { c.Queue.Limits.Requests, c.Queue.Limits.MaxWait = 1, time.Second })
		if no := h.come("too many", "f"); no.waits() || no.err == nil {
			t.Error("the queue is full by the new limit, and a request waits")
		}
		time.Sleep(5 * time.Second) // those that waited were told 30 s
		for _, g := range waiting {
			if !g.waits() {
				t.Fatalf("request %s does not wait any more: %v", g.name, g.err)
			}
		}
		set(func(c *Config) { c.MaxInFlight = 2 })
		if waiting[0].waits() || waiting[0].err != nil || !waiting[1].waits() {
			t.Errorf("there is room for one more by the new limit: %v", h.order)
		}
		set(func(c *Config) { c.Queue.Limits.Requests = 0 })
		if no := h.come("too late", "g"); no.waits() || no.err == nil {
			t.Error("the queue is gone, and a request joins it")
		}
		set(func(c *Config) { c.MaxInFlight = 0 })
		for _, g := range append(waiting, running) {
			if g.waits() || g.err != nil {
				t.Errorf("request %s was not let through, though there is no limit any more: %v", g.name, g.err)
			}
			g.end(t)
		}
		h.stop()
	})
}

// TestReconfigureUnderLoad changes everything that can be changed, 200 times, while requests are decided: none fails, and nothing is left
// booked. It is for the race detector.
func TestReconfigureUnderLoad(t *testing.T) {
	set := worker.NewSet(workers("default", 1, worker.Ready, worker.Ready, worker.Ready, worker.Ready)...)
	var fixed staff
	fixed.set.Store(set)
	a, b := DefaultConfig(), DefaultConfig()
	b.MaxInFlight, b.Queue.Limits.Requests, b.Affinity.Mode, b.Affinity.Sessions, b.Tenants = 1, 1000, affinityHard, 10, 1
	b.Alternatives, b.Scoring.Policy, b.Scoring.Temperature, b.Scoring.Speed.Error = 1, "chwbl", .5, 3
	a.MaxInFlight, a.Queue.Limits.Requests = 2, 1000
	pools := []PoolConfig{{Name: "default"}}
	r, err := New(Params{Config: a, Pools: pools, Replica: "r1", Workers: &fixed, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	r.Observe(set)
	ctx, cancel := context.WithCancel(t.Context())
	defer r.runGates(ctx)()
	defer cancel()
	var decided atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				req := chatOf(t, "m", long(fmt.Sprint("client ", c), 200+i%7*100))
				req.Hints.Session, req.Tenant = fmt.Sprint(i%20), fmt.Sprint(c)
				d, err := r.Route(t.Context(), req)
				if err != nil {
					t.Errorf("request %d of client %d: %v", i, c, err)
					return
				}
				decided.Add(1)
				if _, err := r.Explain(t.Context(), req, nil); err != nil {
					t.Errorf("explaining request %d of client %d: %v", i, c, err)
				}
				r.Report(d.ID, Outcome{Status: 200, EngineTTFT: time.Millisecond, Usage: true, CompletedTokens: 5})
				d.Done.End()
			}
		})
	}
	for i := range 200 {
		for before := decided.Load(); decided.Load() < before+3 && !t.Failed(); {
			time.Sleep(50 * time.Microsecond)
		}
		cfg := a
		if i%2 == 0 {
			cfg = b
		}
		if err := r.Reconfigure(cfg, pools); err != nil {
			t.Fatal(err)
		}
		r.Pools()
		r.Models()
	}
	close(stop)
	clients.Wait()
	for _, w := range set.All() {
		if n := r.InFlight(w.Slot); n != 0 {
			t.Errorf("%s has %d requests booked after all ended", w.Name, n)
		}
	}
}
