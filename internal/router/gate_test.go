package router

import (
	"cmp"
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
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"attache/internal/bubble"
	"attache/internal/hints"
	"attache/internal/slot"
	"attache/internal/worker"
	"attache/scoring/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// staff is a registry whose workers may change while requests wait.
type staff struct{ set atomic.Pointer[worker.Set] }

func (s *staff) Set() *worker.Set { return s.set.Load() }

func (s *staff) Report(slot.Slot, worker.Outcome) {}

// hall is a router whose gates are open, in virtual time: every test of it runs in a bubble.
type hall struct {
	*world

	t     *testing.T
	staff staff
	stop  func() // the gates; works once

	mu    sync.Mutex // guards order
	order []string   // who was let through
}

// openHall makes a router with a queue for 100 requests and workers that take one each, unless change says otherwise.
func openHall(t *testing.T, change func(*Config), ws ...*worker.Worker) *hall {
	t.Helper()
	cfg := DefaultConfig()
	cfg.MaxInFlight, cfg.Queue.Limits.Requests = 1, 100
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	h := &hall{t: t}
	h.staff.set.Store(worker.NewSet(ws...))
	reg := prometheus.NewRegistry()
	r, err := New(Params{Config: cfg, Pools: []PoolConfig{{Name: "default"}}, Replica: "r1", Workers: &h.staff, Now: time.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	r.Observe(h.staff.Set())
	h.world = &world{Router: r, reg: reg}
	ctx, cancel := context.WithCancel(t.Context())
	wait := r.runGates(ctx)
	h.stop = sync.OnceFunc(func() { cancel(); wait() })
	t.Cleanup(h.stop)
	return h
}

func (h *hall) publish(ws ...*worker.Worker) {
	h.staff.set.Store(worker.NewSet(ws...))
	h.Observe(h.staff.Set())
}

// guest is a request on its way through the gate.
type guest struct {
	name  string
	leave context.CancelFunc
	over  chan struct{}
	told  atomic.Int64 // how long it was told that it may have to wait, in nanoseconds; -1: it was not

	// Once over is closed.
	decision *Decision
	err      error
}

// come sends a request, and returns when it was let through, turned away or waits.
func (h *hall) come(name, text string, change ...func(*Request)) *guest {
	h.t.Helper()
	req := chatOf(h.t, "m", text)
	for _, c := range change {
		c(req)
	}
	g := &guest{name: name, over: make(chan struct{})}
	g.told.Store(-1)
	req.Waiting = func(most time.Duration) { g.told.Store(int64(most)) }
	ctx, cancel := context.WithCancel(context.Background())
	g.leave = cancel
	go func() {
		defer close(g.over)
		defer cancel()
		g.decision, g.err = h.Route(ctx, req)
		if g.err == nil {
			h.mu.Lock()
			h.order = append(h.order, name)
			h.mu.Unlock()
		}
	}()
	synctest.Wait()
	return g
}

// waits reports whether the request is at the gate.
func (g *guest) waits() bool {
	select {
	case <-g.over:
		return false
	default:
		return true
	}
}

// end ends the request's answer, and returns when the gate has seen it.
func (g *guest) end(t *testing.T) {
	t.Helper()
	if g.waits() || g.err != nil {
		t.Fatalf("%s has not been let through: %v", g.name, g.err)
	}
	g.decision.Done.End()
	synctest.Wait()
}

func (h *hall) passed() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.order, " ")
}

// empty checks that nobody waits, and nothing is booked.
func (h *hall) empty() {
	h.t.Helper()
	if what := h.remains(); what != "" {
		h.t.Error(what)
	}
}

// remains says who waits, or what is booked; "" nobody and nothing.
func (h *hall) remains() string {
	g := h.pools[0].gate
	g.mu.Lock()
	waiting := g.queue.Len()
	g.mu.Unlock()
	if waiting != 0 || g.depth() != 0 {
		return fmt.Sprintf("%d requests wait, the gate says %d", waiting, g.depth())
	}
	for s := range slot.Slot(12) {
		if l := h.pools[0].scorer.Load(s); l.InFlight != 0 || l.PrefillTokens != 0 {
			return fmt.Sprintf("slot %d: %d requests, %d tokens of prefill are booked", s, l.InFlight, l.PrefillTokens)
		}
	}
	return ""
}

// shed checks that the request was turned away for a reason.
func (g *guest) shed(t *testing.T, why queue.Reason) *ShedError {
	t.Helper()
	var shed *ShedError
	if g.waits() || !errors.As(g.err, &shed) || shed.Reason != why {
		t.Fatalf("%s: waits %t, %v; want %s", g.name, g.waits(), g.err, why)
	}
	if shed.RetryAfter < time.Second || shed.RetryAfter%time.Second != 0 || shed.Error() == "" {
		t.Errorf("%s: try again after %v: %s", g.name, shed.RetryAfter, shed)
	}
	return shed
}

func one() []*worker.Worker { return workers("default", 1, worker.Ready) }
func two() []*worker.Worker { return workers("default", 1, worker.Ready, worker.Ready) }

func tier(n uint32) func(*Request) { return func(r *Request) { r.Hints.StrictPriority = n } }
func class(name string) func(*Request) {
	return func(r *Request) { r.Hints.PolicyClass = name }
}
func tenant(name string) func(*Request) { return func(r *Request) { r.Tenant = name } }
func slo(d time.Duration) func(*Request) {
	return func(r *Request) { r.Hints.TTFT = d }
}
func deadline(d time.Duration) func(*Request) {
	return func(r *Request) { r.Hints.Deadline = d }
}
func priority(p float64, from hints.Source) func(*Request) {
	return func(r *Request) { r.Hints.Priority, r.Hints.PriorityFrom = p, from }
}

// onlyOn is the gateway's subset of one worker.
func onlyOn(n int) func(*Request) {
	return func(r *Request) { r.Subset = Subset{Stated: true, Endpoints: append(r.Subset.Endpoints, addr(n))} }
}

func TestTheGateIsOpenWhileThereIsRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := openHall(t, nil, two()...)
		a, b := h.come("a", "x"), h.come("b", "x")
		if a.waits() || b.waits() || a.told.Load() != -1 {
			t.Fatal("two requests wait for two idle workers")
		}
		c := h.come("c", "x")
		if !c.waits() || h.depth() != 1 {
			t.Fatalf("the third does not wait: %v", c.err)
		}
		if most := time.Duration(c.told.Load()); most != 30*time.Second {
			t.Errorf("it was told %v, want the longest wait", most)
		}
		time.Sleep(3 * time.Second)
		if !c.waits() {
			t.Fatal("it was let through to saturated workers")
		}
		b.end(t)
		if c.waits() || c.err != nil || first(c.decision) != first(b.decision) {
			t.Fatalf("an end did not let it through to the worker that was freed: %v", c.err)
		}
		if waited := h.Decisions(1)[0]; waited.ID != c.decision.ID {
			t.Errorf("the last decision is %s, want %s", waited.ID, c.decision.ID)
		}
		a.end(t)
		c.end(t)
		h.empty()
	})
}

func (h *hall) depth() int { return h.pools[0].gate.depth() }

func TestAPrefillThatIsToldLetsTheNextThrough(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := openHall(t, func(c *Config) { c.MaxInFlight, c.Saturation.PrefillTokens = 0, 1000 }, one()...)
		a := h.come("a", long("first", 400_000)) // a minute of prefill
		b := h.come("b", long("second", 4_000))
		if a.waits() || !b.waits() {
			t.Fatal("a long prompt is to go at once, the next one to wait")
		}
		a.decision.Done.Prefilled()
		synctest.Wait()
		if b.waits() {
			t.Fatal("the second waits although the first was computed")
		}
		a.end(t)
		b.end(t)
		h.empty()
	})
}

func TestTheClockOfPredictedWorkLetsTheNextThrough(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := openHall(t, func(c *Config) { c.MaxInFlight, c.Saturation.PrefillTokens = 0, 1000 }, one()...)
		a := h.come("a", long("first", 40_000))
		b := h.come("b", long("second", 40_000))
		if !b.waits() {
			t.Fatal("the second does not wait")
		}
		<-b.over // nobody says anything: only time passes
		if b.err != nil {
			t.Fatal(b.err)
		}
		a.end(t)
		b.end(t)
		h.empty()
	})
}

// TestOrder: one worker that takes one request at a time, and who is let through after whom.
func TestOrder(t *testing.T) {
	policy := func(name string) func(*Config) {
		return func(c *Config) {
			class := queue.DefaultClass()
			class.Policy = name
			c.Queue.Classes = []queue.ClassConfig{class}
		}
	}
	type arrival struct {
		name, text string
		with       func(*Request)
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		come   []arrival
		want   string
	}{
		{"first come, first served", nil, []arrival{{"a", "x", nil}, {"b", "x", nil}, {"c", "x", nil}}, "a b c"},
		{"strict tiers", nil, []arrival{{"low", "x", nil}, {"high", "x", tier(2)}, {"middle", "x", tier(1)}, {"high2", "x", tier(2)}}, "high high2 middle low"},
		{"priority is a jump ahead", nil, []arrival{{"a", "x", nil}, {"b", "x", priority(1, hints.FromDynamo)}, {"c", "x", priority(30, hints.FromExtension)}}, "c b a"},
		{"a body's priority is on the engine's scale", nil,
			[]arrival{{"a", "x", nil}, {"later", "x", priority(30, hints.FromMember)}, {"sooner", "x", priority(-30, hints.FromMember)}}, "sooner a later"},
		{"earliest deadline first", policy("edf"),
			[]arrival{{"silent", "x", nil}, {"patient", "x", slo(20 * time.Second)}, {"urgent", "x", slo(time.Second)}}, "urgent silent patient"},
		{"short prompts first", policy("wspt"), []arrival{{"long", long("long", 40_000), nil}, {"short", "x", nil}}, "short long"},
		{"last come, first served", policy("lcfs"), []arrival{{"a", "x", nil}, {"b", "x", nil}}, "b a"},
		{"classes share by their quanta", func(c *Config) {
			gold, rest := queue.DefaultClass(), queue.DefaultClass()
			gold.Name, gold.Quantum, rest.Quantum = "gold", 2, 1 // every prompt below is one token
			c.Queue.Classes = []queue.ClassConfig{rest, gold}
		}, []arrival{{"r1", "", nil}, {"r2", "", nil}, {"g1", "", class("gold")}, {"g2", "", class("gold")}, {"g3", "", class("gold")}}, "r1 g1 g2 r2 g3"},
		{"tenants take turns", func(c *Config) {
			class := queue.DefaultClass()
			class.Fair = true
			c.Queue.Classes = []queue.ClassConfig{class}
		}, []arrival{{"a1", "x", tenant("a")}, {"a2", "x", tenant("a")}, {"a3", "x", tenant("a")}, {"b1", "x", tenant("b")}, {"b2", "x", tenant("b")}},
			"a1 b1 a2 b2 a3"},
		{"tenants by the tokens that they got", func(c *Config) {
			class := queue.DefaultClass()
			class.Fair = true
			c.Queue.Classes = []queue.ClassConfig{class}
		}, []arrival{{"a1", long("long", 4_000), tenant("a")}, {"a2", "x", tenant("a")}, {"b1", "x", tenant("b")}, {"b2", "x", tenant("b")}, {"b3", "x", tenant("b")}},
			"a1 b1 b2 b3 a2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ws := one()
				ws[0].Engine = worker.VLLM
				h := openHall(t, c.change, ws...)
				all := []*guest{h.come("holder", "x")}
				for _, a := range c.come {
					with := func(*Request) {}
					if a.with != nil {
						with = a.with
					}
					if a.text == "" { // as short as can be: no prompt is understood
						with = func(r *Request) {
							r.Scan = nil
							if a.with != nil {
								a.with(r)
							}
						}
					}
					all = append(all, h.come(a.name, cmp.Or(a.text, "x"), with))
					time.Sleep(time.Millisecond)
				}
				for range all { // whoever was let through makes room for the next
					for _, g := range all {
						if !g.waits() && g.err == nil {
							g.decision.Done.End()
						}
					}
					synctest.Wait()
				}
				if got, want := h.passed(), "holder "+c.want; got != want {
					t.Errorf("let through %s, want %s", got, want)
				}
				h.empty()
			})
		})
	}
}

// TestWhoComesLaterDoesNotStealRoom: a request of another class that comes when room has just come gets its turn, not the room.
func TestWhoComesLaterDoesNotStealRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := openHall(t, func(c *Config) {
			gold, rest := queue.DefaultClass(), queue.DefaultClass()
			gold.Name = "gold"
			c.Queue.Classes = []queue.ClassConfig{rest, gold}
		}, one()...)
		holder := h.come("holder", "x")
		first := h.come("first", "x", tier(1))
		holder.decision.Done.rec.booking.End() // nobody tells the gate
		second := h.come("second", "x", class("gold"))
		if first.waits() || !second.waits() {
			t.Fatalf("let through: %s", h.passed())
		}
		first.end(t)
		second.end(t)
		holder.end(t)
		h.empty()
	})
}

func TestLanes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := openHall(t, nil, two()...)
		a := h.come("a", "x", onlyOn(1))
		pinned, other := h.come("pinned", "x", onlyOn(1)), h.come("other", "x")
		if a.waits() || !pinned.waits() {
			t.Fatal("the second request for one worker does not wait")
		}
		if other.waits() || other.told.Load() != -1 || first(other.decision) != addr(2).String() {
			t.Fatal("a request that may go anywhere waits behind one that may not")
		}
		last := h.come("last", "x")
		other.end(t)
		if last.waits() || !pinned.waits() {
			t.Fatal("room on one worker is for those that may go there")
		}
		a.end(t)
		if pinned.waits() || first(pinned.decision) != addr(1).String() {
			t.Fatal("the pinned request was not let through to its worker")
		}
		pinned.end(t)
		last.end(t)
		h.empty()
	})
}

// TestAHardSessionHoldsUpNobody: a session that must go to its worker waits for it in a lane of its own.
func TestAHardSessionHoldsUpNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := openHall(t, func(c *Config) { c.Affinity.Mode = affinityHard }, two()...)
		a := h.come("a", "x", ofSession("s"))
		home := first(a.decision)
		mine, other := h.come("mine", "x", ofSession("s")), h.come("other", "x")
		if !mine.waits() || other.waits() || first(other.decision) == home {
			t.Fatalf("let through: %s", h.passed())
		}
		a.end(t)
		if mine.waits() || first(mine.decision) != home {
			t.Fatal("the session did not go on where it was")
		}
		mine.end(t)
		other.end(t)
		h.empty()
	})
}

func TestShedding(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := openHall(t, func(c *Config) {
			c.Queue.Limits.Requests = 2
			c.Queue.Limits.BodyBytes = 100_000
		}, one()...)
		a := h.come("a", "x")
		b := h.come("b", "x")
		large := h.come("large", long("large", 100_000)).shed(t, queue.RejectedSaturated)
		if want := `every worker of pool "default" is saturated, and its queue is full: all classes: body_bytes: `; !strings.HasPrefix(large.Error(), want) {
			t.Errorf("%s\nwant %s…", large, want)
		}
		c := h.come("c", "x")
		full := h.come("d", "x").shed(t, queue.RejectedSaturated)
		if want := `every worker of pool "default" is saturated, and its queue is full: all classes: requests: 2 waiting, at most 2`; full.Error() != want {
			t.Errorf("%s\nwant %s", full, want)
		}
		for _, g := range []*guest{a, b, c} {
			g.end(t)
		}
		h.empty()
		h.counts(map[string]float64{
			`dropped_total{pool="default",reason="rejected-saturated"}`: 2, `refused_total{pool="default",reason="shed"}`: 2, `decisions_total{pool="default"}`: 3,
		})
	})
}

func (h *hall) counts(want map[string]float64) {
	h.t.Helper()
	for sample, n := range want {
		if got := h.sample(h.t, sample); got != n {
			h.t.Errorf("%s = %v, want %v", sample, got, n)
		}
	}
}

func TestWithoutAQueueTheErrorNamesTheLimit(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.MaxInFlight = 1 }, `every worker of pool "default" already has 1 requests in flight, its limit`},
		{func(c *Config) { c.MaxInFlight, c.Saturation.KVShare = 1, 1 }, `every worker of pool "default" is saturated`},
	} {
		w := newWorld(t, c.change, nil, one()...)
		w.route(t, "m", "x")
		if _, err := w.Route(t.Context(), chatOf(t, "m", "x")); err == nil || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

func TestExpiry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := openHall(t, func(c *Config) { c.Queue.Limits.MaxWait = 10 * time.Second }, one()...)
		a := h.come("a", "x")
		b, soon := h.come("b", "x"), h.come("soon", "x", deadline(2*time.Second))
		if most := time.Duration(soon.told.Load()); most > 2*time.Second || most <= 0 {
			t.Errorf("a request with a deadline in 2s was told that it may wait %v", most)
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		soon.shed(t, queue.RejectedTTLExpired)
		if !b.waits() {
			t.Fatal("a request without a deadline expired before the longest wait")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		b.shed(t, queue.RejectedTTLExpired)
		a.end(t)
		h.empty()
		h.counts(map[string]float64{`dropped_total{pool="default",reason="rejected-ttl-expired"}`: 2})
	})
}

func TestEviction(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := openHall(t, func(c *Config) { c.Queue.Limits.Requests, c.Queue.Evict = 1, true }, one()...)
		a := h.come("a", "x")
		low := h.come("low", "x")
		high := h.come("high", "x", tier(1))
		low.shed(t, queue.EvictedPriority)
		h.come("second", "x", tier(1)).shed(t, queue.RejectedSaturated)
		a.end(t)
		high.end(t)
		h.empty()
		h.counts(map[string]float64{`dropped_total{pool="default",reason="evicted-priority"}`: 1})
	})
}

func TestAClientThatLeavesFreesItsPlace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := openHall(t, func(c *Config) { c.Queue.Limits.Requests = 1 }, one()...)
		a := h.come("a", "x")
		b := h.come("b", "x")
		b.leave()
		synctest.Wait()
		if b.waits() || !errors.Is(b.err, context.Canceled) || h.depth() != 0 {
			t.Fatalf("the client left: waits %t, %v, %d wait", b.waits(), b.err, h.depth())
		}
		c := h.come("c", "x")
		if !c.waits() {
			t.Fatalf("its place is not free: %v", c.err)
		}
		a.end(t)
		c.end(t)
		h.empty()
		h.counts(map[string]float64{`dropped_total{pool="default",reason="rejected-context-cancelled"}`: 1, `refused_total{pool="default",reason="client_left"}`: 1})
	})
}

// TestLeavingAsOnesTurnComes: whichever comes first, the request is either let through, and then whoever asked ends it, or it books
// nothing.
func TestLeavingAsOnesTurnComes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := openHall(t, nil, one()...)
		for i := range 300 {
			a, b := h.come("a", "x"), h.come("b", "x")
			var both sync.WaitGroup
			both.Go(a.decision.Done.End)
			both.Go(b.leave)
			both.Wait()
			<-b.over
			switch {
			case b.err == nil:
				b.decision.Done.End()
			case !errors.Is(b.err, context.Canceled):
				t.Fatalf("round %d: %v", i, b.err)
			}
			synctest.Wait()
			h.empty()
		}
	})
}

func TestWorkersChangeWhileRequestsWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ws := two()
		h := openHall(t, nil, ws[0])
		a, b := h.come("a", "x"), h.come("b", "x")
		h.publish(ws...)
		<-b.over
		if b.err != nil || first(b.decision) != addr(2).String() {
			t.Fatalf("a worker that joined was not used: %v", b.err)
		}
		c, d := h.come("c", "x"), h.come("d", "x", onlyOn(1))
		gone := *ws[0]
		gone.State = worker.Unhealthy
		h.publish(&gone, ws[1])
		time.Sleep(time.Second)
		synctest.Wait()
		var nobody *NoWorkerError
		if !c.waits() || !errors.As(d.err, &nobody) {
			t.Fatalf("one worker is gone: the request for it says %v, the other waits %t", d.err, c.waits())
		}
		h.publish()
		<-c.over
		if !errors.As(c.err, &nobody) || nobody.Why != "no workers known" {
			t.Fatalf("all workers are gone: %v", c.err)
		}
		a.end(t)
		b.end(t)
		h.empty()
		h.counts(map[string]float64{`dropped_total{pool="default",reason="rejected-no-endpoints"}`: 2, `refused_total{pool="default",reason="no_worker"}`: 2})
	})
}

func TestShutdown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := openHall(t, nil, one()...)
		a, b := h.come("a", "x"), h.come("b", "x")
		h.stop()
		synctest.Wait()
		b.shed(t, queue.RejectedShuttingDown)
		h.come("c", "x").shed(t, queue.RejectedShuttingDown) // there is nobody to let it through
		a.end(t)
		d := h.come("d", "x")
		if d.waits() || d.err != nil {
			t.Fatalf("there is room: %v", d.err)
		}
		d.end(t)
		h.empty()
	})
}

// TestWhatIsHeldIsLookedAtAgain: what a worker has been sent while a request waited counts when its turn comes.
func TestWhatIsHeldIsLookedAtAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := openHall(t, nil, two()...)
		a, b := h.come("a", "x", onlyOn(1)), h.come("b", "x", onlyOn(2))
		text := long("a prompt that two requests share", 20_000)
		same, waits := h.come("same", text, onlyOn(2)), h.come("waits", text)
		time.Sleep(time.Second)
		b.end(t) // same goes there
		if same.waits() || !waits.waits() {
			t.Fatalf("let through: %s", h.passed())
		}
		time.Sleep(time.Second)
		same.end(t)
		if waits.waits() || waits.decision.PredictedCached == 0 || first(waits.decision) != addr(2).String() {
			t.Fatal("what the worker holds since the request came was not seen")
		}
		a.end(t)
		waits.end(t)
		h.empty()
	})
}

// TestAnObjectiveDoesNotLoosenTheLimit: clients may ask for more patience with workers than the operator has, and do not get it.
func TestAnObjectiveDoesNotLoosenTheLimit(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Queue.Limits.Requests, c.Saturation.TTFT = 1, time.Second }, nil, one()...)
	for own, want := range map[time.Duration]time.Duration{0: time.Second, 100 * time.Millisecond: 100 * time.Millisecond, time.Minute: time.Second} {
		a := attempt{scratch: new(scratch), router: w.Router, settings: w.settings.Load(), req: &Request{Hints: hints.Hints{TTFT: own}}}
		if a.limit(); a.limits.TTFT != want || a.demand.Limits == nil {
			t.Errorf("objective %v: limit %v, want %v", own, a.limits.TTFT, want)
		}
	}
}

func TestFlows(t *testing.T) {
	for _, c := range []struct {
		req  Request
		want string
	}{
		{Request{}, ""},
		{Request{Hints: hints.Hints{Program: "run"}}, "run"},
		{Request{Tenant: "alice", Hints: hints.Hints{Program: "run"}}, "alice"},
		{Request{Tenant: "alice", Hints: hints.Hints{Tenant: "acme"}}, "acme"},
		{Request{Tenant: "alice", Hints: hints.Hints{Tenant: "acme", Flow: "batch"}}, "batch"},
	} {
		if got := (&attempt{req: &c.req}).flow(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.req, got, c.want)
		}
	}
}

// day is what happens to a gate.
type day struct {
	affinity      string
	most, prefill int
	steps         []step
}

// step is one thing that happens; which fields count depends on its kind.
type step struct {
	kind, which, length, staff int
	tier                       uint32
	class, tenant, session     string
	pinned                     bool
	state                      worker.State
	pause                      time.Duration
}

var days = rapid.Custom(func(draw *rapid.T) day {
	one := rapid.Custom(func(draw *rapid.T) step {
		return step{
			kind: rapid.IntRange(0, 5).Draw(draw, "kind"), which: rapid.IntRange(0, 100).Draw(draw, "which"),
			length: rapid.IntRange(1, 20_000).Draw(draw, "length"), staff: rapid.IntRange(0, 2).Draw(draw, "staff"),
			tier:    rapid.Uint32Range(0, 2).Draw(draw, "tier"),
			class:   rapid.SampledFrom([]string{"", "fair"}).Draw(draw, "class"),
			tenant:  rapid.SampledFrom([]string{"a", "b"}).Draw(draw, "tenant"),
			session: rapid.SampledFrom([]string{"", "s", "t"}).Draw(draw, "session"),
			pinned:  rapid.IntRange(0, 3).Draw(draw, "pinned") == 0,
			state:   rapid.SampledFrom([]worker.State{worker.Ready, worker.Ready, worker.Unhealthy, worker.Draining}).Draw(draw, "state"),
			pause:   time.Duration(rapid.IntRange(0, 8000).Draw(draw, "pause")) * time.Millisecond,
		}
	})
	return day{
		affinity: rapid.SampledFrom([]string{affinityOff, affinitySoft, affinityHard}).Draw(draw, "affinity"),
		most:     rapid.IntRange(1, 6).Draw(draw, "most"), prefill: rapid.SampledFrom([]int{0, 2000}).Draw(draw, "prefill"),
		steps: rapid.SliceOfN(one, 1, 40).Draw(draw, "steps"),
	}
})

// TestAtTheEndNobodyWaitsAndNothingIsBooked draws arrivals, ends, leaving clients, workers that come and go, and time.
func TestAtTheEndNobodyWaitsAndNothingIsBooked(t *testing.T) {
	rapid.Check(t, func(draw *rapid.T) {
		day, wrong := days.Draw(draw, "day"), ""
		bubble.Test(t, func(t *testing.T) { wrong = day.pass(t) })
		if wrong != "" {
			draw.Fatal(wrong)
		}
	})
}

// pass plays the day and returns what is wrong.
func (d *day) pass(t *testing.T) (wrong string) {
	fair := queue.DefaultClass()
	fair.Name, fair.Fair = "fair", true
	h := openHall(t, func(c *Config) {
		c.MaxInFlight, c.Saturation.PrefillTokens, c.Affinity.Mode = 2, d.prefill, d.affinity
		c.Queue.Limits.Requests, c.Queue.Evict = d.most, true
		c.Queue.Classes = []queue.ClassConfig{queue.DefaultClass(), fair}
	}, two()...)
	var all []*guest
	end := func(which func(i int) bool) {
		for i, g := range all {
			if !g.waits() && g.err == nil && which(i) {
				g.decision.Done.End()
			}
		}
	}
	for i, s := range d.steps {
		switch s.kind {
		case 0, 1:
			all = append(all, h.come(fmt.Sprint(i), long("text", s.length), tier(s.tier), class(s.class), tenant(s.tenant), ofSession(s.session), func(r *Request) {
				if s.pinned {
					onlyOn(1)(r)
				}
			}))
		case 2:
			if len(all) > 0 {
				all[s.which%len(all)].leave()
			}
		case 3:
			end(func(i int) bool { return i%2 == s.which%2 })
		case 4:
			ws := two()
			ws[1].State = s.state
			h.publish(ws[:s.staff]...)
		default:
			time.Sleep(s.pause)
		}
		if n := h.depth(); n > d.most {
			return fmt.Sprintf("step %d: %d wait, at most %d may", i, n, d.most)
		}
	}
	every := func(int) bool { return true }
	for slices.ContainsFunc(all, (*guest).waits) {
		end(every)
		time.Sleep(time.Second)
	}
	end(every)
	return h.remains()
}
