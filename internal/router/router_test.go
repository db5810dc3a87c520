package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/openai"
	"attache/internal/slot"
	"attache/internal/worker"
)

// fleet is a hand-made registry.
type fleet struct {
	set *worker.Set

	mu    sync.Mutex // guards marks
	marks []string
}

func (f *fleet) Set() *worker.Set { return f.set }

func (f *fleet) Report(s slot.Slot, o worker.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := f.set.BySlot(s).Name
	if o.OK {
		f.marks = append(f.marks, name+" ok")
	} else {
		f.marks = append(f.marks, fmt.Sprintf("%s %s", name, o.Kind))
	}
}

func addr(i int) netip.AddrPort { return netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:8000", i)) }

// workers named w1, w2 … of a pool, in the given states.
func workers(pool string, from int, states ...worker.State) []*worker.Worker {
	var ws []*worker.Worker
	for i, state := range states {
		n := from + i
		ws = append(ws, &worker.Worker{
			Spec: worker.Spec{Name: fmt.Sprintf("w%d", n), Pool: pool, Address: addr(n).String(), Addr: addr(n)},
			Slot: slot.Slot(n), State: state, Endpoint: addr(n).String(),
		})
	}
	return ws
}

// world is a router over a hand-made fleet and clock.
type world struct {
	*Router

	fleet *fleet
	clock time.Time
	reg   *prometheus.Registry
}

func newWorld(t testing.TB, change func(*Config), pools []PoolConfig, ws ...*worker.Worker) *world {
	t.Helper()
	w := &world{fleet: &fleet{set: worker.NewSet(ws...)}, clock: time.Unix(1_000_000, 0), reg: prometheus.NewRegistry()}
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	if pools == nil {
		pools = []PoolConfig{{Name: "default"}}
	}
	r, err := New(Params{Config: cfg, Pools: pools, Replica: "r1", Workers: w.fleet, Now: func() time.Time { return w.clock },
		Log: slog.New(slog.DiscardHandler), Metrics: w.reg})
	if err != nil {
		t.Fatal(err)
	}
	w.Router = r
	r.Observe(w.fleet.set)
	return w
}

func (w *world) publish(ws ...*worker.Worker) {
	w.fleet.set = worker.NewSet(ws...)
	w.Observe(w.fleet.set)
}

func chatOf(t testing.TB, model, text string) *Request {
	t.Helper()
	body := []byte(fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":%q}]}`, model, text))
	scan := new(openai.Request)
	if err := openai.Scan(scan, openai.Chat, body); err != nil {
		t.Fatal(err)
	}
	return &Request{Kind: openai.Chat, Body: body, Scan: scan, Path: "/v1/chat/completions", ID: "id"}
}

func (w *world) route(t *testing.T, model, text string) *Decision {
	t.Helper()
	d, err := w.Route(t.Context(), chatOf(t, model, text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func first(d *Decision) string {
	head, _, _ := strings.Cut(d.Destinations, ",")
	return head
}

func long(seed string, n int) string {
	return strings.Repeat(seed+" ", n/(len(seed)+1))
}

func TestAConversationGoesWhereItsPrefixIs(t *testing.T) {
	w := newWorld(t, nil, nil, workers("default", 1, worker.Ready, worker.Ready, worker.Ready)...)
	text := long("a system prompt", 20_000)
	d := w.route(t, "m", text)
	home := first(d)
	d.Done.End()
	for turn := range 5 {
		text += long(fmt.Sprint("turn ", turn), 500)
		d := w.route(t, "m", text)
		if first(d) != home {
			t.Fatalf("turn %d went to %s, the prefix is on %s", turn, first(d), home)
		}
		if d.PredictedCached < 4900 {
			t.Errorf("turn %d: %d tokens predicted cached, the prompt repeats about 5,000", turn, d.PredictedCached)
		}
		if n := strings.Count(d.Destinations, ","); n != 2 {
			t.Errorf("destinations %q: want three workers", d.Destinations)
		}
		d.Done.End()
	}
	other := w.route(t, "another model", text)
	if other.PredictedCached != 0 {
		t.Errorf("another model's prompt found %d cached tokens", other.PredictedCached)
	}
}

func TestLoadOutweighsAPrefix(t *testing.T) {
	w := newWorld(t, nil, nil, workers("default", 1, worker.Ready, worker.Ready)...)
	text := long("shared", 2_000)
	home := first(w.route(t, "m", text))
	moved := false
	for i := range 10 { // nobody ends
		d := w.route(t, "m", text+long(fmt.Sprint("own ", i), 40_000))
		moved = moved || first(d) != home
	}
	if !moved {
		t.Error("ten long prompts queued behind one short shared prefix")
	}
}

func TestEligibility(t *testing.T) {
	ws := workers("default", 1, worker.Ready, worker.Unhealthy, worker.Draining, worker.Starting, worker.Suspect, worker.Ready)
	w := newWorld(t, nil, nil, ws...)
	for range 10 {
		if d := w.route(t, "m", "x"); strings.ContainsAny(strings.ReplaceAll(strings.ReplaceAll(d.Destinations, "10.0.0.", ""), ":8000", ""), "2345") {
			t.Fatalf("destinations %s name a worker that is not ready", d.Destinations)
		}
	}
	only := func(s Subset) (*Decision, error) {
		req := chatOf(t, "m", "x")
		req.Subset = s
		return w.Route(t.Context(), req)
	}
	d, err := only(Subset{Stated: true, Endpoints: []netip.AddrPort{addr(6), addr(2)}})
	if err != nil || d.Destinations != "10.0.0.6:8000" {
		t.Errorf("subset: %v, %v", d, err)
	}
	for name, c := range map[string]struct {
		subset Subset
		why    string
	}{
		"empty subset":    {Subset{Stated: true}, "6 outside the gateway's subset"},
		"unknown in it":   {Subset{Stated: true, Endpoints: []netip.AddrPort{addr(99)}}, "6 outside the gateway's subset"},
		"unhealthy in it": {Subset{Stated: true, Endpoints: []netip.AddrPort{addr(2)}}, "1 unhealthy, 5 outside the gateway's subset"},
	} {
		var nobody *NoWorkerError
		if _, err := only(c.subset); !errors.As(err, &nobody) || nobody.Why != c.why {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.publish(ws[1], ws[2])
	var nobody *NoWorkerError
	if _, err := only(Subset{}); !errors.As(err, &nobody) || nobody.Why != "1 draining, 1 unhealthy" {
		t.Errorf("nobody ready: %v", err)
	}
	w.publish()
	if _, err := only(Subset{}); !errors.As(err, &nobody) || nobody.Why != "no workers known" {
		t.Errorf("nobody at all: %v", err)
	}
}

// TestEnginesAreTold: the decision says when a request may reach an engine that refuses what it does not know, and which engine it
// reaches if that is sure.
func TestEnginesAreTold(t *testing.T) {
	for _, c := range []struct {
		engines []worker.Engine
		strict  bool
		engine  worker.Engine
	}{
		{[]worker.Engine{worker.VLLM, worker.VLLM}, false, worker.VLLM},
		{[]worker.Engine{worker.TRTLLM, worker.TRTLLM}, true, worker.TRTLLM},
		{[]worker.Engine{worker.VLLM, worker.SGLang}, false, worker.Auto},
		{[]worker.Engine{worker.VLLM, worker.TRTLLM}, true, worker.Auto},
		{[]worker.Engine{worker.SGLang, worker.Auto}, false, worker.Auto},
		{[]worker.Engine{worker.Auto, worker.Auto}, false, worker.Auto},
	} {
		ws := workers("default", 1, worker.Ready, worker.Ready)
		for i, e := range c.engines {
			ws[i].Engine = e
		}
		w := newWorld(t, nil, nil, ws...)
		if d := w.route(t, "m", "hello"); d.Strict != c.strict || d.Engine != c.engine {
			t.Errorf("%v: strict %t, engine %s, want %t, %s", c.engines, d.Strict, d.Engine, c.strict, c.engine)
		}
	}
}

func TestPoolsByModel(t *testing.T) {
	pools := []PoolConfig{
		{Name: "small", Models: []string{"qwen-*"}},
		{Name: "big", Models: []string{"llama-70b", "qwen-max*"}, Aliases: map[string]string{"gpt-4": "llama-70b"}},
	}
	if err := ValidatePools(pools); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, nil, pools, append(workers("small", 1, worker.Ready), workers("big", 2, worker.Ready)...)...)
	for model, want := range map[string]string{
		"qwen-7b": "small ", "qwen-max-2": "big ", "llama-70b": "big ", "gpt-4": "big llama-70b", "": "small ",
	} {
		d := w.route(t, model, "x")
		if got := d.Pool + " " + d.Model; got != want {
			t.Errorf("model %q: %q, want %q", model, got, want)
		}
	}
	var unknown *UnknownModelError
	_, err := w.Route(t.Context(), chatOf(t, "gpt-9", "x"))
	if !errors.As(err, &unknown) || unknown.Error() != `the model "gpt-9" does not exist; served here: gpt-4, llama-70b, qwen-*, qwen-max*` {
		t.Errorf("unknown model: %v", err)
	}
}

func TestSheddingNeedsEveryWorkerAtItsLimit(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxInFlight = 2 }, nil, workers("default", 1, worker.Ready, worker.Ready)...)
	var held []*Decision
	for range 4 {
		held = append(held, w.route(t, "m", "x"))
	}
	var shed *ShedError
	if _, err := w.Route(t.Context(), chatOf(t, "m", "x")); !errors.As(err, &shed) || shed.Limit != 2 || shed.RetryAfter != time.Second {
		t.Fatalf("the fifth request: %v", err)
	}
	held[0].Done.End()
	held[0].Done.End() // a second time does nothing
	w.route(t, "m", "x")
	if _, err := w.Route(t.Context(), chatOf(t, "m", "x")); !errors.As(err, &shed) {
		t.Errorf("the sixth: %v", err)
	}
}

func TestALeavingClientIsNotBooked(t *testing.T) {
	w := newWorld(t, nil, nil, workers("default", 1, worker.Ready)...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Route(ctx, chatOf(t, "m", "x")); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if n := w.InFlight(1); n != 0 {
		t.Errorf("%d requests in flight", n)
	}
}

func TestReportsReachTheDecision(t *testing.T) {
	w := newWorld(t, nil, nil, workers("default", 1, worker.Ready, worker.Ready)...)
	d := w.route(t, "m", long("told", 8000))
	chosen := netip.MustParseAddrPort(first(d))
	d.Done.End()
	w.Report(d.ID, Outcome{Status: 200, Served: chosen, Attempts: 1, TTFT: 300 * time.Millisecond, EngineTTFT: 200 * time.Millisecond,
		Usage: true, PromptTokens: 2000, CachedTokens: 1024, CachedKnown: true})
	w.Report(d.ID, Outcome{Status: 500}) // a second report finds nothing
	w.Report("r1.zzz", Outcome{Status: 200})
	w.Report("r2.1", Outcome{Status: 200})
	w.Report("nonsense", Outcome{Status: 200})
	if w.SpeedFactorOf("default") == 1 {
		t.Error("the speed factor did not learn from an observed first token")
	}
	got := w.Decisions(1)[0]
	if got.Outcome == nil || got.Outcome.Verdict() != "ok" || got.Served != got.Named[0] {
		t.Errorf("the decision shows %+v", got)
	}
	for sample, want := range map[string]float64{
		`cached_tokens_total{pool="default",stage="delivered"}`: 1024, `outcomes_total{outcome="ok",pool="default"}`: 1,
		`lost_reports_total{reason="unknown"}`: 2, `lost_reports_total{reason="other_replica"}`: 1, `lost_reports_total{reason="malformed"}`: 1,
	} {
		if v := w.sample(t, sample); v != want {
			t.Errorf("%s = %v, want %v", sample, v, want)
		}
	}
}

// sample reads one counter of the registry as text.
func (w *world) sample(t *testing.T, name string) float64 {
	t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if "attache_router_"+name == f.GetName()+"{"+strings.Join(labels, ",")+"}" {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return -1
}

func (r *Router) SpeedFactorOf(pool string) float64 { return r.byName[pool].scorer.SpeedFactor() }

func TestFailuresAreMarkedOnWhoFailed(t *testing.T) {
	w := newWorld(t, nil, nil, workers("default", 1, worker.Ready, worker.Ready, worker.Ready)...)
	for _, c := range []struct {
		name    string
		outcome func(named []string) Outcome
		want    func(named []string) []string
	}{
		{"served at once", func(n []string) Outcome {
			return Outcome{Status: 200, Served: netip.MustParseAddrPort(n[0]), Attempts: 1}
		}, func(n []string) []string { return []string{n[0] + " ok"} }},
		{"the second served", func(n []string) Outcome {
			return Outcome{Status: 200, Served: netip.MustParseAddrPort(n[1]), Attempts: 2}
		}, func(n []string) []string { return []string{n[1] + " ok", n[0] + " connect"} }},
		{"nobody served", func([]string) Outcome { return Outcome{Status: 503, Attempts: 2, Unreached: true} },
			func(n []string) []string { return []string{n[0] + " connect", n[1] + " connect"} }},
		{"died mid-answer", func(n []string) Outcome {
			return Outcome{Status: 200, Served: netip.MustParseAddrPort(n[0]), Attempts: 1, TTFT: 1, Broken: true}
		}, func(n []string) []string { return []string{n[0] + " reset"} }},
		{"the client left", func(n []string) Outcome {
			return Outcome{Served: netip.MustParseAddrPort(n[0]), Attempts: 1, Aborted: true}
		}, func([]string) []string { return nil }},
	} {
		w.fleet.marks = nil
		d := w.route(t, "m", "x")
		named := strings.Split(d.Destinations, ",")
		d.Done.End()
		w.Report(d.ID, c.outcome(named))
		got := strings.Join(w.fleet.marks, ", ")
		want := strings.Join(c.want(named), ", ")
		for i := 1; i <= 3; i++ { // marks are by name
			want = strings.ReplaceAll(want, addr(i).String(), fmt.Sprintf("w%d", i))
		}
		if got != want {
			t.Errorf("%s: marks %q, want %q", c.name, got, want)
		}
	}
}

func TestADeadWorkerIsForgottenAndItsBookingsMove(t *testing.T) {
	ws := workers("default", 1, worker.Ready, worker.Ready)
	w := newWorld(t, nil, nil, ws...)
	text := long("mine", 20_000)
	d := w.route(t, "m", text)
	home := netip.MustParseAddrPort(first(d))
	dead, other := ws[0], ws[1]
	if other.Addr == home {
		dead, other = other, dead
	}
	down := *dead
	down.State = worker.Unhealthy
	w.publish(&down, other)
	if a, b := w.InFlight(dead.Slot), w.InFlight(other.Slot); a != 0 || b != 1 {
		t.Errorf("in flight: %d on the dead worker, %d on the other; want 0 and 1", a, b)
	}
	back := *dead
	back.Epoch++
	w.publish(&back, other)
	d.Done.End()
	if d := w.route(t, "m", text); d.PredictedCached > 0 && first(d) == home.String() {
		t.Errorf("a restarted engine is believed to hold %d tokens", d.PredictedCached)
	}
	w.publish(other)
	if n := w.InFlight(dead.Slot); n != 0 {
		t.Errorf("%d requests in flight on a removed worker", n)
	}
}

func TestUnheardDecisionsAreForgotten(t *testing.T) {
	w := newWorld(t, nil, nil, workers("default", 1, worker.Ready)...)
	running, ended := w.route(t, "m", "x"), w.route(t, "m", "x")
	ended.Done.End()
	w.clock = w.clock.Add(2 * time.Minute)
	if n := w.table.forget(w.clock.Add(-w.settings.Load().FeedbackTTL), w.tell); n != 1 {
		t.Errorf("%d forgotten, want the one that ended", n)
	}
	running.Done.End()
	w.clock = w.clock.Add(2 * time.Minute)
	if n := w.table.forget(w.clock.Add(-w.settings.Load().FeedbackTTL), w.tell); n != 1 {
		t.Errorf("%d forgotten at last, want 1", n)
	}
}

func TestConcurrentRequestsConserveBookings(t *testing.T) {
	w := newWorld(t, nil, nil, workers("default", 1, worker.Ready, worker.Ready, worker.Ready)...)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				d, err := w.Route(context.Background(), chatOf(t, "m", long(fmt.Sprint(g, i%7), 3000)))
				if err != nil {
					t.Error(err)
					return
				}
				d.Done.Prefilled()
				d.Done.End()
				w.Decisions(3)
			}
		})
	}
	wg.Wait()
	for s := range 4 {
		if n := w.InFlight(slot.Slot(s)); n != 0 {
			t.Errorf("%d requests in flight on slot %d after all ended", n, s)
		}
	}
}

func TestValidatePools(t *testing.T) {
	for _, c := range []struct {
		name  string
		pools []PoolConfig
		want  string
	}{
		{"one pool for all", []PoolConfig{{Name: "default"}}, ""},
		{"a bad name", []PoolConfig{{Name: "my pool"}}, `[0].name: "my pool": must be letters, digits, "-" or "_", at most 60 of them`},
		{"one name twice", []PoolConfig{{Name: "a", Models: []string{"x"}}, {Name: "a", Models: []string{"y"}}},
			`[1].name: "a": is already the name of pool 0; every pool needs its own`},
		{"nothing to tell pools apart", []PoolConfig{{Name: "a", Models: []string{"x"}}, {Name: "b"}},
			`[1].models: must name at least one model, because there are several pools to tell apart`},
		{"a model twice", []PoolConfig{{Name: "a", Models: []string{"x"}}, {Name: "b", Models: []string{"x"}}},
			`[1].models[0]: "x": is already claimed by pool "a"`},
		{"a star inside", []PoolConfig{{Name: "a", Models: []string{"x*y"}}},
			`[0].models[0]: "x*y": must be a model name, or the beginning of one followed by a single "*"`},
		{"an alias to nothing", []PoolConfig{{Name: "a", Aliases: map[string]string{"x": ""}}},
			`[0].aliases.x: "": must be the model name that the worker knows`},
	} {
		got := ""
		if err := ValidatePools(c.pools); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	fl := &fleet{set: worker.NewSet(workers("default", 1, worker.Ready, worker.Ready, worker.Ready, worker.Ready, worker.Ready, worker.Ready,
		worker.Ready, worker.Ready, worker.Ready, worker.Ready, worker.Ready, worker.Ready, worker.Ready, worker.Ready, worker.Ready, worker.Ready)...)}
	r, err := New(Params{Config: DefaultConfig(), Pools: []PoolConfig{{Name: "default"}}, Replica: "r", Workers: fl, Now: time.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	for _, kb := range []int{8, 64, 256} {
		req := chatOf(b, "m", long("seen before", kb<<10))
		b.Run(fmt.Sprintf("seen/%dKB", kb), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(req.Body)))
			for b.Loop() {
				d, err := r.Route(context.Background(), req)
				if err != nil {
					b.Fatal(err)
				}
				d.Done.End()
				r.table.take(r.ids.Load())
			}
		})
	}
}

// BenchmarkCore is a decision once its chain is there: who holds what, sixteen candidates, one booked, and its end.
func BenchmarkCore(b *testing.B) {
	states := make([]worker.State, 16)
	for i := range states {
		states[i] = worker.Ready
	}
	fl := &fleet{set: worker.NewSet(workers("default", 1, states...)...)}
	r, err := New(Params{Config: DefaultConfig(), Pools: []PoolConfig{{Name: "default"}}, Replica: "r", Workers: fl, Now: time.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	req := chatOf(b, "m", long("seen before", 16_400)) // 128 blocks
	d, err := r.Route(context.Background(), req)
	if err != nil {
		b.Fatal(err)
	}
	d.Done.End()
	a := attempt{scratch: new(scratch), rec: new(record)}
	if err := r.examine(context.Background(), req, &a); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(a.chain.Hashes)), "blocks")
	b.ReportAllocs()
	for b.Loop() {
		a.survey(a.started)
		a.pick()
		a.rec.booking.End()
	}
}

func TestRanks(t *testing.T) {
	spec := func(n int) worker.Spec {
		return worker.Spec{Name: fmt.Sprintf("w%d", n), Pool: "default", Address: addr(n).String(), Addr: addr(n)}
	}
	w := newWorld(t, nil, nil, worker.NewWorker(spec(1), 0, worker.Ready, 1, 2), worker.NewWorker(spec(2), 3, worker.Ready))
	seen := map[string]bool{}
	for i := range 40 {
		text := long(fmt.Sprintf("conversation %d", i), 20_000)
		d := w.route(t, "m", text)
		seen[first(d)+" rank "+d.Rank] = true
		if named := strings.Split(d.Destinations, ","); len(named) != 2 || named[0] == named[1] {
			t.Fatalf("destinations %q: every worker once", d.Destinations)
		}
		d.Done.End()
		again := w.route(t, "m", text+" and on")
		if first(again) != first(d) || again.Rank != d.Rank {
			t.Errorf("the first turn went to %s rank %q, the second to %s rank %q", first(d), d.Rank, first(again), again.Rank)
		}
		again.Done.End()
	}
	for _, want := range []string{addr(1).String() + " rank 0", addr(1).String() + " rank 1", addr(1).String() + " rank 2", addr(2).String() + " rank "} {
		if !seen[want] {
			t.Errorf("nothing was sent to %s", want)
		}
	}
	if len(seen) != 4 {
		t.Errorf("sent to %v", seen)
	}
}
