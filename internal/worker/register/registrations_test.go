package register

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"attache/internal/bubble"
	"attache/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "a-token-of-some-length"

// shared is a store that several gateways share, and that can die, hang and forget.
type shared struct {
	*Local

	mu    sync.Mutex
	dead  error
	hang  bool
	hates string // a member that it does not take
}

func newShared() *shared { return &shared{Local: NewLocal()} }

func (s *shared) set(dead error, hang bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead, s.hang = dead, hang
}

func (s *shared) forget() {
	s.Local.mu.Lock()
	defer s.Local.mu.Unlock()
	clear(s.groups)
}

func (s *shared) ready(ctx context.Context) error {
	s.mu.Lock()
	dead, hang := s.dead, s.hang
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return dead
}

func (s *shared) Put(ctx context.Context, group, member string, value []byte, ttl time.Duration) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if member == s.hates {
		return errors.New("too large")
	}
	return s.Local.Put(ctx, group, member, value, ttl)
}

func (s *shared) Members(ctx context.Context, group string) ([]Member, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.Local.Members(ctx, group)
}

// gateway is one replica: registrations that run, and a registry that looks after nobody.
type gateway struct {
	*Registrations

	registry *worker.Registry
	stop     func()
}

func tokenFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newGateway(t *testing.T, token string, store Store) *gateway {
	t.Helper()
	registry, err := worker.New(worker.DefaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(Params{
		Config: worker.RegistrationConfig{TokenFile: token, TTL: 15 * time.Second, MaxWorkers: 3}, Store: store, Registry: registry,
		Pools: []Pool{{Name: "small", Models: []string{"qwen*"}}, {Name: "large", Models: []string{"llama"}}},
		Log:   slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		InFlight: func(addr netip.AddrPort) int { return int(addr.Port()) - 8000 },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	g := &gateway{Registrations: r, registry: registry, stop: func() { cancel(); running.Wait() }}
	t.Cleanup(g.stop)
	return g
}

// serves is who the gateway's registry has, and who left it, the latest first.
func (g *gateway) serves() string {
	var all []string
	for _, w := range g.registry.Set().All() {
		state := ""
		if w.State == worker.Draining {
			state = " draining"
		}
		all = append(all, w.Name+state)
	}
	for _, d := range g.registry.Departed() {
		all = append(all, d.Name+" gone: "+d.Cause)
	}
	return strings.Join(all, ", ")
}

func (g *gateway) want(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if got := g.serves(); got != want {
		t.Errorf("serves %q, want %q", got, want)
	}
}

func qwen(name string, port int) *Registration {
	return &Registration{Name: name, Address: fmt.Sprintf("10.0.0.1:%d", port), Models: []string{"qwen3"}}
}

func (g *gateway) register(t *testing.T, said *Registration) {
	t.Helper()
	lease, err := g.Register(t.Context(), said)
	if err != nil {
		t.Fatal(err)
	}
	if lease.TTL != 15 || lease.Heartbeat != 5 || lease.Pool != "small" {
		t.Errorf("lease %+v", lease)
	}
}

// beat sends heartbeats for a while, every five seconds.
func (g *gateway) beat(t *testing.T, name string, d time.Duration) {
	t.Helper()
	for range d / (5 * time.Second) {
		time.Sleep(5 * time.Second)
		if _, err := g.Heartbeat(t.Context(), name, &Heartbeat{Load: Load{Running: 2}}); err != nil {
			t.Errorf("heartbeat of %s: %v", name, err)
		}
	}
}

func TestWhatOneGatewayTakesInAllServe(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		token, store := tokenFile(t), newShared()
		a, b := newGateway(t, token, store), newGateway(t, token, store)
		a.register(t, qwen("w1", 8001))
		a.want(t, "w1") // at once
		time.Sleep(time.Second)
		b.want(t, "w1")
		a.beat(t, "w1", time.Minute)
		time.Sleep(time.Second)
		a.want(t, "w1")
		b.want(t, "w1")
		if held := b.Held()[netip.MustParseAddrPort("10.0.0.1:8001")]; held.Load.Running != 2 || held.TTL != 15*time.Second || held.Left < 13*time.Second {
			t.Errorf("the other gateway knows %+v", held)
		}
		b.beat(t, "w1", 20*time.Second) // now at the other gateway
		lease, err := b.Drain(t.Context(), "w1")
		if err != nil || !lease.Draining || lease.InFlight != 1 {
			t.Errorf("%+v, %v", lease, err)
		}
		time.Sleep(time.Second)
		a.want(t, "w1 draining")
		a.beat(t, "w1", 5*time.Second)
		a.want(t, "w1 draining")
		a.register(t, qwen("w1", 8001))
		time.Sleep(time.Second)
		b.want(t, "w1") // it is back for good
		if err := b.Deregister(t.Context(), "w1"); err != nil {
			t.Error(err)
		}
		b.want(t, "w1 gone: it said goodbye")
		time.Sleep(time.Second)
		a.want(t, "w1 gone: it said goodbye")
		time.Sleep(time.Minute)
		a.want(t, "w1 gone: it said goodbye")
		a.register(t, qwen("w1", 8001))
		a.want(t, "w1")
	})
}

func TestWhoFallsSilentIsGoneEverywhere(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		token, store := tokenFile(t), newShared()
		a, b := newGateway(t, token, store), newGateway(t, token, store)
		a.register(t, qwen("w1", 8001))
		b.register(t, qwen("w2", 8002))
		a.beat(t, "w2", 10*time.Second)
		time.Sleep(4 * time.Second)
		a.want(t, "w1, w2")
		b.want(t, "w1, w2")
		time.Sleep(2 * time.Second)
		a.want(t, "w2, w1 gone: its lease ended: no heartbeat for 15s")
		b.want(t, "w2, w1 gone: its lease ended: no heartbeat for 15s")
		if n := testutil.ToFloat64(b.metrics.ended); n != 1 {
			t.Errorf("%g leases ended, want 1", n)
		}
		var refusal *RefusedError
		if _, err := a.Heartbeat(t.Context(), "w1", &Heartbeat{}); !errors.As(err, &refusal) || refusal.Kind != Unknown {
			t.Errorf("a heartbeat of somebody who is gone: %v", err)
		}
	})
}

func TestTheStoreDiesAndReturns(t *testing.T) {
	for _, c := range []struct {
		name string
		kill func(*shared)
	}{
		{"it refuses", func(s *shared) { s.set(errors.New("connection refused"), false) }},
		{"it hangs", func(s *shared) { s.set(nil, true) }},
	} {
		for _, forgets := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, forgets %v", c.name, forgets), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					token, store := tokenFile(t), newShared()
					a, b := newGateway(t, token, store), newGateway(t, token, store)
					a.register(t, qwen("w1", 8001))
					b.register(t, qwen("w2", 8002))
					time.Sleep(time.Second)
					c.kill(store)
					a.beat(t, "w1", 5*time.Minute) // w2 is silent
					a.want(t, "w1, w2")
					b.want(t, "w1, w2")
					if since, err := b.StoreFailure(); err == nil || time.Since(since) < 4*time.Minute {
						t.Errorf("the store's failure is not shown: %v since %s", err, since)
					}
					a.register(t, qwen("w3", 8003))
					if err := a.Deregister(t.Context(), "w1"); err != nil {
						t.Error(err)
					}
					a.want(t, "w2, w3, w1 gone: it said goodbye")
					b.want(t, "w1, w2") // it cannot know
					if forgets {
						store.forget()
					}
					store.set(nil, false)
					time.Sleep(3 * time.Second) // one call may still hang
					b.want(t, "w2, w3, w1 gone: it said goodbye")
					a.beat(t, "w3", 15*time.Second)
					time.Sleep(3 * time.Second)
					const want = "w3, w2 gone: its lease ended: no heartbeat for 15s, w1 gone: it said goodbye"
					a.want(t, want)
					b.want(t, want)
					if _, err := a.StoreFailure(); err != nil {
						t.Errorf("still failed: %v", err)
					}
				})
			})
		}
	}
}

// TestAStoreThatDoesNotTakeOneTakesTheOthers: it is not away because of that, and leases end.
func TestAStoreThatDoesNotTakeOneTakesTheOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		token, store := tokenFile(t), newShared()
		store.hates = "w1"
		a, b := newGateway(t, token, store), newGateway(t, token, store)
		a.register(t, qwen("w1", 8001))
		a.register(t, qwen("w2", 8002))
		time.Sleep(time.Second)
		a.want(t, "w1, w2")
		b.want(t, "w2")
		if _, err := a.StoreFailure(); err == nil || testutil.ToFloat64(a.metrics.storeUp) != 1 {
			t.Errorf("failure %v, up %g", err, testutil.ToFloat64(a.metrics.storeUp))
		}
		time.Sleep(15 * time.Second)
		const ended = " gone: its lease ended: no heartbeat for 15s"
		b.want(t, "w2"+ended)
		if got := a.serves(); !strings.Contains(got, "w1"+ended) || !strings.Contains(got, "w2"+ended) {
			t.Errorf("serves %q", got)
		}
	})
}

// TestAStoreThatForgetsIsToldAgain: no outage was seen, but the store is empty.
func TestAStoreThatForgetsIsToldAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		token, store := tokenFile(t), newShared()
		a, b := newGateway(t, token, store), newGateway(t, token, store)
		a.register(t, qwen("w1", 8001))
		time.Sleep(time.Second)
		store.forget()
		a.beat(t, "w1", time.Minute)
		time.Sleep(time.Second)
		a.want(t, "w1")
		b.want(t, "w1")
		if members, _ := store.Members(t.Context(), group); len(members) != 1 {
			t.Errorf("the store has %d members", len(members))
		}
	})
}

func TestAGatewayThatRestartsKnowsAll(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		token, store := tokenFile(t), newShared()
		a := newGateway(t, token, store)
		a.register(t, qwen("w1", 8001))
		a.stop()
		b := newGateway(t, token, store)
		b.want(t, "w1")
		c := newGateway(t, token, NewLocal()) // without the store it has forgotten, and says so
		var refusal *RefusedError
		if _, err := c.Heartbeat(t.Context(), "w1", &Heartbeat{}); !errors.As(err, &refusal) || refusal.Kind != Unknown {
			t.Errorf("got %v", err)
		}
	})
}

func TestWhoMayNotRegister(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGateway(t, tokenFile(t), NewLocal())
		g.registry.Apply("static/small", []worker.Spec{{Name: "fixed", Pool: "small", Address: "10.0.0.9:8000", Addr: netip.MustParseAddrPort("10.0.0.9:8000")}})
		g.register(t, qwen("w1", 8001))
		time.Sleep(time.Second)
		for _, c := range []struct {
			change func(*Registration)
			kind   Kind
			text   string
		}{
			{func(*Registration) {}, Taken, `name: "w1" is taken by the worker at 10.0.0.1:8001, whose lease lasts for another 14s; give every worker a name of its own`},
			{func(r *Registration) { r.Name, r.Address = "w2", "10.0.0.1:8001" }, Taken, `address: 10.0.0.1:8001 is taken by worker w1, whose lease lasts for another 14s`},
			{func(r *Registration) { r.Name = "fixed" }, Taken, `name: "fixed" is taken by the worker at 10.0.0.9:8000, which static/small names`},
			{func(r *Registration) { r.Name, r.Pool = "w2", "none" }, Invalid, `pool: "none": must be one of small, large`},
			{func(r *Registration) { r.Name, r.Models = "w2", []string{"gemma"} }, Invalid, `pool: must be one of small, large, because its models, ["gemma"], do not tell`},
		} {
			said := qwen("w1", 8002)
			c.change(said)
			_, err := g.Register(t.Context(), said)
			var refusal *RefusedError
			if !errors.As(err, &refusal) || refusal.Kind != c.kind || refusal.Text != c.text {
				t.Errorf("got %v\nwant %s", err, c.text)
			}
		}
		g.register(t, qwen("w2", 8002))
		g.register(t, qwen("w3", 8003))
		_, err := g.Register(t.Context(), qwen("w4", 8004))
		if want := "3 workers are registered, as many as workers.registration.max_workers allows"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if lease, err := g.Register(t.Context(), &Registration{Name: "w3", Address: "10.0.0.1:8003", Pool: "large", TTL: 3}); err != nil || lease.TTL != 3 ||
			lease.Heartbeat != 1 || lease.Pool != "large" {
			t.Errorf("what it says anew: %+v, %v", lease, err)
		}
	})
}

func TestTokens(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		path := tokenFile(t)
		g := newGateway(t, path, NewLocal())
		kind := func(shown string) Kind {
			var refusal *RefusedError
			if errors.As(g.Authorize(shown), &refusal) {
				return refusal.Kind
			}
			return -1
		}
		if kind("") != Stranger || kind(secret+"x") != Stranger || kind(secret) != -1 {
			t.Error("the token does not tell who may register")
		}
		if err := os.WriteFile(path, []byte("another-token-of-some-length"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(tokenAge)
		if kind(secret) != Stranger || kind("another-token-of-some-length") != -1 {
			t.Error("a changed token is not taken over")
		}
		if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(tokenAge)
		if kind("short") != Stranger || kind("another-token-of-some-length") != -1 {
			t.Error("a file that turned bad does not keep the last good token")
		}
		off, err := New(Params{Config: worker.RegistrationConfig{TTL: time.Second}, Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		var refusal *RefusedError
		if !errors.As(off.Authorize(secret), &refusal) || refusal.Kind != Off || !strings.Contains(refusal.Text, "workers.registration.token_file") {
			t.Error("nobody is told how to turn it on")
		}
		if _, err := New(Params{Config: worker.RegistrationConfig{TokenFile: path}, Metrics: prometheus.NewRegistry()}); err == nil || strings.Contains(err.Error(), `"short"`) {
			t.Errorf("a bad token at the start: %v", err)
		}
	})
}

// TestAnyHistoryEndsInAgreement draws what workers do at two gateways while the store comes and goes, and compares in the end with a
// list of who is there.
func TestAnyHistoryEndsInAgreement(t *testing.T) {
	token := tokenFile(t)
	rapid.Check(t, func(rt *rapid.T) {
		bubble.Test(t, func(t *testing.T) {
			store := newShared()
			gateways := []*gateway{newGateway(t, token, store), newGateway(t, token, store)}
			defer gateways[0].stop()
			defer gateways[1].stop()
			names := []string{"w0", "w1", "w2"}
			there := map[string]bool{}
			for range rapid.IntRange(1, 25).Draw(rt, "steps") {
				time.Sleep(time.Duration(rapid.IntRange(0, 4000).Draw(rt, "ms")) * time.Millisecond)
				g := rapid.SampledFrom(gateways).Draw(rt, "gateway")
				i := rapid.IntRange(0, 2).Draw(rt, "worker")
				switch rapid.IntRange(0, 4).Draw(rt, "what") {
				case 0, 1:
					if _, err := g.Register(t.Context(), qwen(names[i], 8001+i)); err != nil {
						t.Fatal(err)
					}
					there[names[i]] = true
				case 2:
					if g.Deregister(t.Context(), names[i]) == nil {
						there[names[i]] = false
					}
				case 3:
					store.set(errors.New("away"), rapid.Bool().Draw(rt, "hangs"))
				case 4:
					store.set(nil, false)
				}
			}
			store.set(nil, false)
			for range 12 { // everybody who is there says so; who did not hear of it registers again
				time.Sleep(3 * time.Second)
				for i, name := range names {
					if !there[name] {
						continue
					}
					for _, g := range gateways {
						if _, err := g.Heartbeat(t.Context(), name, &Heartbeat{}); err != nil {
							_, _ = g.Register(t.Context(), qwen(name, 8001+i))
						}
					}
				}
			}
			var want []string
			for _, name := range names {
				if there[name] {
					want = append(want, name)
				}
			}
			for i, g := range gateways {
				var got []string
				for _, w := range g.registry.Set().All() {
					got = append(got, w.Name)
				}
				if !slices.Equal(got, want) {
					rt.Fatalf("gateway %d serves %v, want %v", i, got, want)
				}
			}
		})
	})
}
