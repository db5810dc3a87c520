package worker

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"attache/internal/slot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeEngine answers health checks and metrics as it is told.
type fakeEngine struct {
	*httptest.Server

	mu      sync.Mutex
	status  int           // of health checks
	hang    time.Duration // before they are answered
	page    string        // metrics; "" is a 404
	asked   []string      // paths of health checks
	readAts atomic.Int64  // readings of the page
}

func newFakeEngine(t *testing.T) *fakeEngine {
	t.Helper()
	e := &fakeEngine{status: http.StatusOK, page: "vllm:num_requests_running{model_name=\"m\"} 3\nvllm:num_requests_waiting 2\n"}
	e.Server = httptest.NewServer(http.HandlerFunc(e.serve))
	t.Cleanup(e.Close)
	return e
}

func (e *fakeEngine) serve(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	status, hang, page := e.status, e.hang, e.page
	if strings.HasSuffix(r.URL.Path, "/metrics") {
		e.readAts.Add(1)
		if status = http.StatusOK; page == "" {
			status = http.StatusNotFound
		}
		hang = 0
	} else {
		e.asked, page = append(e.asked, r.URL.Path), ""
	}
	e.mu.Unlock()
	select {
	case <-time.After(hang):
	case <-r.Context().Done():
		return
	}
	w.WriteHeader(status)
	fmt.Fprint(w, page)
}

func (e *fakeEngine) set(change func(*fakeEngine)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

func (e *fakeEngine) spec(name string) Spec {
	addr := netip.MustParseAddrPort(e.Listener.Addr().String())
	return Spec{Name: name, Pool: "default", Address: addr.String(), Addr: addr, Engine: Auto}
}

// running is a registry that looks after its workers, at a quick pace, until the test ends.
func running(t *testing.T, change func(*Config)) (*Registry, *prometheus.Registry) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Health.Interval, cfg.Health.Timeout = 50*time.Millisecond, 200*time.Millisecond
	cfg.Metrics.Busy, cfg.Metrics.Idle = 50*time.Millisecond, 100*time.Millisecond
	if change != nil {
		change(&cfg)
	}
	reg := prometheus.NewRegistry()
	r, err := New(cfg, slog.New(slog.DiscardHandler), reg)
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() { _ = r.Run(t.Context()) })
	t.Cleanup(done.Wait) // the test's context ends before its clean-up begins
	return r, reg
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// is reports whether the only worker is in a state with a cause that contains text.
func is(r *Registry, state State, cause string) bool {
	all := r.Set().All()
	return len(all) == 1 && all[0].State == state && strings.Contains(all[0].Cause, cause)
}

func TestHealthOfARealServer(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*fakeEngine)
		state  State
		cause  string
	}{
		{"it answers", func(*fakeEngine) {}, Ready, ""},
		{"it is loading its model", func(e *fakeEngine) { e.status = 503 }, Unhealthy, "status 503 on GET http://127.0.0.1:"},
		{"it has no health check", func(e *fakeEngine) { e.status = 404 }, Ready, "it answers, but has no health check: status 404"},
		{"it wants a redirect followed", func(e *fakeEngine) { e.status = 302 }, Unhealthy, "status 302"},
		{"it hangs", func(e *fakeEngine) { e.hang = time.Minute }, Unhealthy, "no answer within 200ms on GET"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newFakeEngine(t)
			e.set(c.change)
			r, _ := running(t, nil)
			r.Apply("test", []Spec{e.spec("a")})
			eventually(t, fmt.Sprintf("%s because %q", c.state, c.cause), func() bool { return is(r, c.state, c.cause) })
		})
	}
}

func TestADeadServerIsFoundAndComesBackEmpty(t *testing.T) {
	e := newFakeEngine(t)
	spec := e.spec("a")
	r, reg := running(t, nil)
	r.Apply("test", []Spec{spec})
	eventually(t, "ready", func() bool { return is(r, Ready, "") })
	e.Close()
	eventually(t, "unhealthy", func() bool { return is(r, Unhealthy, "connection refused on GET http://"+spec.Address+"/health") })
	again := &http.Server{Addr: spec.Address, Handler: http.HandlerFunc(e.serve), ReadHeaderTimeout: time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = again.ListenAndServe() })
	t.Cleanup(func() { _ = again.Close(); serving.Wait() })
	eventually(t, "ready again", func() bool { return is(r, Ready, "") })
	if w := r.Set().All()[0]; w.Epoch != 1 {
		t.Errorf("epoch %d, want 1: what its cache held is gone", w.Epoch)
	}
	want := `
		# HELP attache_worker_state 1 for the state that a worker is in.
		# TYPE attache_worker_state gauge
		attache_worker_state{pool="default",state="ready",worker="a"} 1
	`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "attache_worker_state"); err != nil {
		t.Error(err)
	}
}

func TestSGLangIsNotAskedToGenerate(t *testing.T) {
	for _, c := range []struct {
		name   string
		engine Engine
		page   string
	}{
		{"as configured", SGLang, "sglang:num_running_reqs 0\n"},
		{"as its metrics show", Auto, "sglang:num_running_reqs 0\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newFakeEngine(t)
			e.set(func(e *fakeEngine) { e.page = c.page })
			spec := e.spec("a")
			spec.Engine = c.engine
			r, _ := running(t, nil)
			r.Apply("test", []Spec{spec})
			eventually(t, "asked for /model_info", func() bool {
				e.mu.Lock()
				defer e.mu.Unlock()
				return slices.Contains(e.asked, "/model_info")
			})
		})
	}
}

func TestAFailedRequestIsFollowedByACheckAtOnce(t *testing.T) {
	e := newFakeEngine(t)
	r, _ := running(t, func(c *Config) {
		c.Health.Interval, c.Circuit.Pause, c.Circuit.MaxPause = time.Hour, time.Hour, time.Hour
	})
	r.Apply("test", []Spec{e.spec("a")})
	eventually(t, "ready", func() bool { return is(r, Ready, "") })
	r.Report(r.Set().All()[0].Slot, Outcome{Kind: Connect})
	eventually(t, "it can be reached again, which only a check can tell within the hour", func() bool {
		e.mu.Lock()
		checks := len(slices.DeleteFunc(slices.Clone(e.asked), func(path string) bool { return path == "/v1/models" }))
		e.mu.Unlock()
		return checks == 2 && is(r, Ready, "")
	})
	r.Report(99, Outcome{Kind: Connect}) // a slot that nobody has
}

// TestTheLastWorkerIsNotHeldBack: requests failed on it, but there is nobody else; Resets, unlike what a check finds out, say nothing of
// whether it is there.
func TestTheLastWorkerIsNotHeldBack(t *testing.T) {
	a, b := newFakeEngine(t), newFakeEngine(t)
	r, _ := running(t, func(c *Config) {
		c.Circuit.Failures, c.Circuit.Pause, c.Circuit.MaxPause = 1, time.Hour, time.Hour
	})
	state := func(e *fakeEngine) State { return r.Set().ByAddr(e.spec("").Addr).State }
	r.Apply("test", []Spec{a.spec("a"), b.spec("b")})
	eventually(t, "both are ready", func() bool { return state(a) == Ready && state(b) == Ready })
	fail := func(e *fakeEngine) { r.Report(r.Set().ByAddr(e.spec("").Addr).Slot, Outcome{Kind: Reset}) }
	fail(a)
	if state(a) != Suspect || state(b) != Ready {
		t.Errorf("requests failed on a, which is %s; b is %s", state(a), state(b))
	}
	fail(b)
	if state(a) != Ready || state(b) != Ready {
		t.Errorf("requests failed on both; a is %s, b is %s, and there is nobody else", state(a), state(b))
	}
	if cause := r.Set().ByAddr(a.spec("").Addr).Cause; !strings.Contains(cause, "no other worker of its pool is ready") {
		t.Errorf("a is ready because %q", cause)
	}
	r.Report(r.Set().ByAddr(b.spec("").Addr).Slot, Outcome{OK: true})
	if state(a) != Suspect || state(b) != Ready {
		t.Errorf("b answers again; a is %s, b is %s", state(a), state(b))
	}
}

func TestMetricsAreReadOftenOnlyWhereSomethingRuns(t *testing.T) {
	idle, engineBusy, weBusy := newFakeEngine(t), newFakeEngine(t), newFakeEngine(t)
	for _, e := range []*fakeEngine{idle, weBusy} {
		e.set(func(e *fakeEngine) { e.page = "vllm:num_requests_running 0\n" })
	}
	r, _ := running(t, func(c *Config) { c.Metrics.Idle = time.Hour })
	r.Apply("test", []Spec{idle.spec("idle"), engineBusy.spec("busy"), weBusy.spec("booked")})
	booked := r.Set().ByAddr(weBusy.spec("").Addr).Slot
	r.CountInFlight(func(s slot.Slot) int {
		if s == booked {
			return 1
		}
		return 0
	})
	eventually(t, "both busy ones were read five times", func() bool { return engineBusy.readAts.Load() >= 5 && weBusy.readAts.Load() >= 5 })
	if n := idle.readAts.Load(); n != 1 {
		t.Errorf("the idle one was read %d times, want once", n)
	}
	stats := r.Set().ByAddr(engineBusy.spec("").Addr).Stats()
	if stats.Running != 3 || stats.Waiting != 2 || stats.Engine != VLLM || stats.Model != "m" {
		t.Errorf("read %+v", stats)
	}
}

func TestMetricsThatFailKeepWhatWasKnown(t *testing.T) {
	e := newFakeEngine(t)
	r, _ := running(t, nil)
	r.Apply("test", []Spec{e.spec("a")})
	stats := func() Stats { return r.Set().All()[0].Stats() }
	eventually(t, "read", func() bool { return stats().Running == 3 })
	e.set(func(e *fakeEngine) { e.page = "" })
	eventually(t, "failed", func() bool { return stats().Err == "status 404 on GET /metrics" })
	if s := stats(); s.Running != 3 || s.At.IsZero() {
		t.Errorf("what was known is lost: %+v", s)
	}
	if !is(r, Ready, "") {
		t.Errorf("a worker without metrics is still a worker: %+v", r.Set().All()[0])
	}
	e.set(func(e *fakeEngine) { e.page = strings.Repeat("# a comment\n", maxPage/12+1) })
	eventually(t, "too long", func() bool { return stats().Err == "the metrics page exceeds 4 MiB" })
}

func specs(names ...string) []Spec {
	var list []Spec
	for _, n := range names {
		pool, name, _ := strings.Cut(n, "/")
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, name[0]}), 8000)
		list = append(list, Spec{Name: name, Pool: pool, Address: addr.String(), Addr: addr})
	}
	return list
}

// TestDiscovery applies lists without looking after anybody: who serves, in which slot.
func TestDiscovery(t *testing.T) {
	r, err := New(DefaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var versions []uint64
	r.Observe(func(s *Set) { versions = append(versions, s.Version) })
	for _, step := range []struct {
		name, source string
		list         []Spec
		want         string
	}{
		{"two come", "static", specs("p/a", "p/b"), "p/a=0 p/b=1"},
		{"nothing changes", "static", specs("p/a", "p/b"), "p/a=0 p/b=1"},
		{"another source adds", "file", specs("q/c"), "p/a=0 p/b=1 q/c=2"},
		{"who is named twice belongs to the higher source", "file", specs("q/c", "q/a"), "p/a=0 p/b=1 q/c=2"},
		{"a source takes back only its own", "static", specs("p/b"), "p/b=1 q/a=3 q/c=2"},
		{"a freed slot rests before it is used again", "static", specs("p/b", "p/d"), "p/b=1 p/d=4 q/a=3 q/c=2"},
		{"another pool is another worker", "static", specs("p/b", "q/d"), "p/b=1 q/a=3 q/c=2 q/d=5"},
		{"all go", "static", nil, "q/a=3 q/c=2"},
	} {
		r.Apply(step.source, step.list)
		var got []string
		for _, w := range r.Set().All() {
			got = append(got, fmt.Sprintf("%s/%s=%d", w.Pool, w.Name, w.Slot))
			if r.Set().BySlot(w.Slot) != w || r.Set().ByAddr(w.Addr) != w {
				t.Errorf("%s: %s is not found by slot and address", step.name, w.Name)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != step.want {
			t.Errorf("%s: got %v, want %s", step.name, got, step.want)
		}
	}
	if !slices.IsSorted(versions) || len(versions) != 7 {
		t.Errorf("sets %v were published; want one at first and one per change, in order", versions)
	}
}

func TestASlotRestsForAMinute(t *testing.T) {
	var s slots
	now := time.Unix(0, 0)
	a, b := s.take(now), s.take(now)
	s.free(a, now)
	s.free(b, now.Add(time.Second))
	if got := s.take(now.Add(quarantine - 1)); got != 2 {
		t.Errorf("slot %d was taken too early", got)
	}
	if got := s.take(now.Add(quarantine)); got != a {
		t.Errorf("got %d, want %d again", got, a)
	}
	if got := s.take(now.Add(quarantine)); got != 3 {
		t.Errorf("got %d: the second was freed a second later", got)
	}
}

func TestDrainingByHand(t *testing.T) {
	r, _ := running(t, nil)
	e := newFakeEngine(t)
	r.Apply("test", []Spec{e.spec("a")})
	eventually(t, "ready", func() bool { return is(r, Ready, "") })
	if err := r.Drain("a", true); err != nil || !is(r, Draining, "by an operator") || len(r.Set().Eligible("default")) != 0 {
		t.Errorf("%v, %+v", err, r.Set().All()[0])
	}
	if err := r.Drain("a", false); err != nil || !is(r, Ready, "") {
		t.Errorf("%v, %+v", err, r.Set().All()[0])
	}
	if err := r.Drain("b", true); err == nil || err.Error() != `no worker is called "b"` {
		t.Errorf("got %v", err)
	}
}

// TestReadersAndWritersAtOnce is for the race detector.
func TestReadersAndWritersAtOnce(t *testing.T) {
	r, _ := running(t, nil)
	e := newFakeEngine(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				switch i % 4 {
				case 0:
					r.Apply("test", append(specs("p/a", "p/b")[:j%3], e.spec("real")))
				case 1:
					r.Report(slot.Slot(j%4), Outcome{OK: j%2 == 0, Kind: Reset})
				case 2:
					r.UseGate(j%2 == 0)
					r.Acknowledged(map[netip.AddrPort]struct{}{e.spec("").Addr: {}})
				default:
					for _, w := range r.Set().All() {
						_, _ = w.Stats(), r.Set().Eligible(w.Pool)
					}
				}
			}
		})
	}
	wg.Wait()
	r.UseGate(false)
	r.Apply("test", []Spec{e.spec("real")})
	eventually(t, "ready in the end", func() bool { return is(r, Ready, "") })
}

func TestConfigMessages(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Health.Path = "health" }, `health.path: "health": must be empty or begin with "/"`},
		{func(c *Config) { c.Health.Interval = time.Millisecond }, "health.interval: 1ms: must be at least 50ms"},
		{func(c *Config) { c.Health.Timeout = 0 }, "health.timeout: 0s: must be above 0"},
		{func(c *Config) { c.Health.Failures = 0 }, "health.failures: 0: must be at least 1"},
		{func(c *Config) { c.Metrics.Busy = 1 }, "metrics.busy_interval: 1ns: must be at least 50ms"},
		{func(c *Config) { c.Metrics.Idle = 100 * time.Millisecond }, "metrics.idle_interval: 100ms: must be at least busy_interval"},
		{func(c *Config) { c.Metrics.Timeout = -1 }, "metrics.timeout: -1ns: must be above 0"},
		{func(c *Config) { c.Circuit.Failures = 0 }, "circuit.failures: 0: must be at least 1"},
		{func(c *Config) { c.Circuit.Pause = 0 }, "circuit.pause: 0s: must be above 0"},
		{func(c *Config) { c.Circuit.MaxPause = 1 }, "circuit.max_pause: 1ns: must be at least pause"},
		{func(c *Config) { c.AckTimeout = -1 }, "ack_timeout: -1ns: must not be negative"},
	} {
		cfg := DefaultConfig()
		c.change(&cfg)
		if err := cfg.Validate(); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestEveryRankHasASlot(t *testing.T) {
	e, other := newFakeEngine(t), newFakeEngine(t)
	e.set(func(e *fakeEngine) {
		e.page = "vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_running{engine=\"1\"} 2\n"
	})
	r, _ := running(t, nil)
	told := other.spec("b")
	told.Events.Ranks = 3
	r.Apply("test", []Spec{e.spec("a"), told})
	eventually(t, "slots for all ranks", func() bool {
		a, b := r.Set().ByAddr(e.spec("a").Addr), r.Set().ByAddr(told.Addr)
		return len(a.Slots()) == 2 && len(b.Slots()) == 3
	})
	seen := map[slot.Slot]bool{}
	for _, w := range r.Set().All() {
		for rank, s := range w.Slots() {
			if seen[s] || r.Set().BySlot(s) != w || w.Rank(s) != rank {
				t.Errorf("slot %d, rank %d of %s: seen %v, it is %s's, rank %d", s, rank, w.Name, seen[s], r.Set().BySlot(s).Name, w.Rank(s))
			}
			seen[s] = true
		}
		if w.Slot != w.Slots()[0] {
			t.Errorf("%s: the first rank has slot %d, the worker %d", w.Name, w.Slots()[0], w.Slot)
		}
	}
}

// TestWhatEnginesServeIsRead: names, adapters and context length, of SGLang from its server information where its list lacks it.
func TestWhatEnginesServeIsRead(t *testing.T) {
	for _, c := range []struct{ name, metrics, models, info, want string }{
		{"vLLM", "vllm:num_requests_running 0\n", `{"data":[{"id":"m","max_model_len":4096},{"id":"l","parent":"m"}]}`, "", "[m] [l] 4096"},
		{"SGLang", "sglang:num_running_reqs 0\n", `{"data":[{"id":"m"}]}`, `{"context_length":8192}`, "[m] [] 8192"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mux := http.NewServeMux()
			for path, text := range map[string]string{"/health": "ok", "/model_info": "{}", "/metrics": c.metrics, "/v1/models": c.models, "/server_info": c.info} {
				mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
			}
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			e := &fakeEngine{Server: server}
			r, _ := running(t, nil)
			r.Apply("test", []Spec{e.spec("a")})
			eventually(t, c.want, func() bool {
				ws := r.Set().All()
				said := ws[0].Served()
				return said != nil && fmt.Sprint(said.Names, said.Adapters, said.MaxTokens) == c.want
			})
		})
	}
}

// TestLabelsChangeAtOnce: a file that changes nothing but labels is news.
func TestLabelsChangeAtOnce(t *testing.T) {
	r, err := New(DefaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	spec := Spec{Name: "a", Pool: "p", Addr: netip.MustParseAddrPort("10.0.0.1:80"), Labels: map[string]string{"role": "decode"}}
	r.Apply("test", []Spec{spec})
	before := r.Set().Version
	r.Apply("test", []Spec{spec})
	if r.Set().Version != before {
		t.Error("the same list made another set")
	}
	spec.Labels = map[string]string{"role": "prefill"}
	r.Apply("test", []Spec{spec})
	if r.Set().Version == before || !r.Set().All()[0].Traits.Prefill {
		t.Error("changed labels were not taken in")
	}
}
