package join

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"attache/internal/sim"
	"attache/internal/worker"
	"attache/internal/worker/register"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "a-token-of-some-length"

func tokenFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// attache is a gateway: real registrations behind the paths that workers use.
type attache struct {
	*httptest.Server

	mu       sync.Mutex
	taking   *register.Registrations
	registry *worker.Registry
	away     int // status of every answer; 0: it is there
	inFlight atomic.Int64
	drained  atomic.Bool // it was told that the worker drains
}

func newAttache(t *testing.T) *attache {
	t.Helper()
	a := &attache{}
	a.restart(t)
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

// restart forgets everybody.
func (a *attache) restart(t *testing.T) {
	t.Helper()
	registry, err := worker.New(worker.DefaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	taking, err := register.New(register.Params{
		Config: worker.RegistrationConfig{TokenFile: tokenFile(t), TTL: time.Second, MaxWorkers: 10}, Store: register.NewLocal(), Registry: registry,
		Pools: []register.Pool{{Name: "default"}}, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		InFlight: func(netip.AddrPort) int { return int(a.inFlight.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taking, a.registry = taking, registry
}

func (a *attache) set(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = status
}

func (a *attache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	taking, away := a.taking, a.away
	a.mu.Unlock()
	if away != 0 {
		w.WriteHeader(away)
		return
	}
	name := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/api/v1/workers/"), "/heartbeat")
	body, _ := io.ReadAll(r.Body)
	var lease *register.Lease
	err := taking.Authorize(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	var said *register.Registration
	var beat *register.Heartbeat
	switch {
	case err != nil:
	case r.Method == http.MethodPost:
		if said, err = register.Parse(body); err == nil {
			lease, err = taking.Register(r.Context(), said)
		}
	case r.Method == http.MethodPut:
		if beat, err = register.ParseHeartbeat(body); err == nil {
			lease, err = taking.Heartbeat(r.Context(), name, beat)
		}
	case r.URL.Query().Get("drain") == "true":
		a.drained.Store(true)
		lease, err = taking.Drain(r.Context(), name)
	default:
		err = taking.Deregister(r.Context(), name)
	}
	var no *register.RefusedError
	if errors.As(err, &no) {
		w.WriteHeader(map[register.Kind]int{register.Invalid: 400, register.Stranger: 401, register.Unknown: 404, register.Taken: 409}[no.Kind])
		fmt.Fprintf(w, `{"error":%q}`, no.Text)
		return
	}
	text, err := json.Marshal(lease)
	if err != nil {
		w.WriteHeader(500)
		return
	}
	_, _ = w.Write(text)
}

// held is what the gateway knows of its only worker; nil when there is none.
func (a *attache) held() *register.Held {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.taking.Held() {
		return &h
	}
	return nil
}

func newSim(t *testing.T, change func(*sim.Config)) *sim.Engine {
	t.Helper()
	cfg := sim.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	change(&cfg)
	e, err := sim.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = e.Run(ctx) })
	t.Cleanup(func() { cancel(); serving.Wait() })
	return e
}

// quick is the pace of tests.
var quick = pace{
	ask: 10 * time.Millisecond, look: 10 * time.Millisecond, remind: time.Hour, retry: 10 * time.Millisecond, longer: 50 * time.Millisecond,
	drain: 10 * time.Millisecond, settle: 30 * time.Millisecond,
}

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}
func (j *journal) has(s string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.text.String(), s)
}

// joining runs a Joiner until leave is called, which says how it ended.
func joining(t *testing.T, cfg Config) (leave func() error, log *journal) {
	t.Helper()
	log = &journal{}
	j, err := New(cfg, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	j.pace = quick
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	var once sync.Once
	leave = func() (err error) {
		once.Do(func() { cancel(); err = <-ended })
		return err
	}
	t.Cleanup(func() { _ = leave() })
	return leave, log
}

func config(t *testing.T, engine string, gateways ...*attache) Config {
	t.Helper()
	cfg := Config{Engine: engine, TokenFile: tokenFile(t), Name: "gpu-a", DrainTimeout: time.Minute}
	for _, g := range gateways {
		cfg.Gateways = append(cfg.Gateways, g.URL)
	}
	return cfg
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestWhatEnginesTell: everything that a gateway may want to know comes from the engine itself.
func TestWhatEnginesTell(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*sim.Config)
		config func(*Config)
		want   string // of the registration, ADDRESS and ports of events left out
	}{
		{"vLLM, told where its events are", func(c *sim.Config) { c.KVBlocks = 500; c.LoRAs = []string{"law"} },
			func(c *Config) { c.Events, c.Labels, c.Role = "tcp://*:5557", map[string]string{"zone": "a"}, "decode" },
			`{"name":"gpu-a","address":"ADDRESS","engine":"vllm","role":"decode","models":["sim-model","law"],` +
				`"capacity":{"kv_blocks":500,"block_tokens":16,"max_model_tokens":8000},"labels":{"zone":"a"},"events":{"endpoint":"tcp://127.0.0.1:5557"}}`},
		{"SGLang tells by itself", func(c *sim.Config) {
			c.Dialect, c.KVBlocks, c.Events, c.Topic = sim.DialectSGLang, 500, "tcp://127.0.0.1:0", "kv"
		}, func(c *Config) { c.MaxInFlight = 7 },
			`{"name":"gpu-a","address":"ADDRESS","engine":"sglang","models":["sim-model"],` +
				`"capacity":{"max_in_flight":7,"kv_blocks":500,"block_tokens":16,"max_model_tokens":8000},"events":{"endpoint":"EVENTS","topic":"kv","ranks":1}}`},
		{"TensorRT-LLM", func(c *sim.Config) { c.Dialect, c.KVBlocks = sim.DialectTensorRT, 500 },
			func(c *Config) { c.Kind = worker.TRTLLM },
			`{"name":"gpu-a","address":"ADDRESS","engine":"trtllm","models":["sim-model"],` +
				`"capacity":{"kv_blocks":500,"block_tokens":16,"max_model_tokens":8000}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, a := newSim(t, c.change), newAttache(t)
			cfg := config(t, "http://"+e.Addr().String(), a)
			c.config(&cfg)
			leave, _ := joining(t, cfg)
			eventually(t, "registered", func() bool { return a.held() != nil })
			text, err := json.Marshal(a.held().Registration)
			if err != nil {
				t.Fatal(err)
			}
			events, _ := e.Endpoints(0)
			want := strings.NewReplacer("ADDRESS", e.Addr().String(), "EVENTS", events).Replace(c.want)
			want = strings.Replace(want, `"address"`, `"pool":"default","address"`, 1)
			if string(text) != want {
				t.Errorf("registered\n%s, want\n%s", text, want)
			}
			if err := leave(); err != nil || a.held() != nil {
				t.Errorf("it left with %v; the gateway knows %v", err, a.held())
			}
		})
	}
}

func TestOneGatewayIsAwayAndAnotherForgets(t *testing.T) {
	e, a, b := newSim(t, func(*sim.Config) {}), newAttache(t), newAttache(t)
	b.set(503)
	leave, log := joining(t, config(t, "http://"+e.Addr().String(), a, b))
	eventually(t, "registered at the one that is there", func() bool { return a.held() != nil && log.has("the gateway does not take it") })
	b.set(0)
	eventually(t, "and at the other, once it is there", func() bool { return b.held() != nil })
	since := a.held().Beat
	eventually(t, "heartbeats come", func() bool { return a.held().Beat.After(since) })
	a.restart(t)
	eventually(t, "registered again where it was forgotten", func() bool { return a.held() != nil })
	if !log.has("the gateway has forgotten the worker") || !log.has("the gateway answers again") {
		t.Errorf("the log does not tell:\n%s", log.text.String())
	}
	b.set(500) // it is away again while the worker leaves
	if err := leave(); err != nil || a.held() != nil || b.held() == nil {
		t.Errorf("it left with %v", err)
	}
	if !log.has("its lease ends by itself") {
		t.Errorf("the log does not tell:\n%s", log.text.String())
	}
}

func TestItWaitsForTheEngine(t *testing.T) {
	e, a := newSim(t, func(*sim.Config) {}), newAttache(t)
	e.SetFault(sim.Fault{Mode: sim.Fault503, Health: true})
	_, log := joining(t, config(t, "http://"+e.Addr().String(), a))
	eventually(t, "it says why it waits", func() bool { return log.has("waiting for the engine") && log.has("status 503 on GET /health") })
	if a.held() != nil {
		t.Error("registered before its engine is healthy")
	}
	e.SetFault(sim.Fault{})
	eventually(t, "registered", func() bool { return a.held() != nil })
}

func TestAnEngineThatNeverComes(t *testing.T) {
	a := newAttache(t)
	cfg := config(t, "http://127.0.0.1:1", a)
	cfg.Wait = 50 * time.Millisecond
	j, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	j.pace = quick
	err = j.Run(t.Context())
	if want := "the engine at http://127.0.0.1:1 is not healthy after 50ms: connect: connection refused"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if j, err = New(config(t, "127.0.0.1:1", a), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if err := j.Run(ctx); err != nil {
		t.Errorf("ended before it began: %v", err)
	}
}

// TestAnotherModel: an engine that restarts with another model is registered anew, under the same name.
func TestAnotherModel(t *testing.T) {
	var model atomic.Pointer[string]
	name, other := "qwen", "llama"
	model.Store(&name)
	var dead atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if dead.Load() {
			w.WriteHeader(500)
		}
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"data":[{"id":%q}]}`, *model.Load()) })
	mux.HandleFunc("GET /kv_event_sources", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"0":{"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5657","topic":"kv"},"1":{"publisher":"zmq","endpoint":"tcp://*:5558","replay_endpoint":"tcp://*:5658","topic":"kv"}}`)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "vllm:num_requests_running 3\nvllm:kv_cache_usage_perc 0.5\n")
	})
	engine := httptest.NewServer(mux)
	t.Cleanup(engine.Close)
	a := newAttache(t)
	cfg := config(t, engine.URL, a)
	cfg.DrainTimeout = 0 // its engine is never done
	joining(t, cfg)
	eventually(t, "registered", func() bool { return a.held() != nil && a.held().Models[0] == "qwen" })
	if got, want := a.held().Events, (register.Events{Endpoint: "tcp://127.0.0.1:5557", Replay: "tcp://127.0.0.1:5657", Topic: "kv", Ranks: 2}); got != want {
		t.Errorf("events %+v, want %+v", got, want)
	}
	eventually(t, "its load is told", func() bool { return a.held().Load == register.Load{Running: 3, KVUsage: .5} })
	dead.Store(true)
	time.Sleep(5 * quick.look)
	since := a.held().Beat
	eventually(t, "it stays while the engine is away", func() bool { return a.held().Beat.After(since) })
	model.Store(&other)
	dead.Store(false)
	eventually(t, "registered with its new model", func() bool { return a.held().Models[0] == "llama" })
}

func TestWhatRunsFinishes(t *testing.T) {
	e, a := newSim(t, func(*sim.Config) {}), newAttache(t)
	leave, log := joining(t, config(t, "http://"+e.Addr().String(), a))
	eventually(t, "registered", func() bool { return a.held() != nil })
	a.inFlight.Store(2)
	ended := make(chan error, 1)
	go func() { ended <- leave() }()
	eventually(t, "nothing new is sent", func() bool { h := a.held(); return a.drained.Load() && h != nil && h.Draining })
	select {
	case err := <-ended:
		t.Fatalf("it left while requests ran: %v", err)
	case <-time.After(10 * quick.settle):
	}
	a.inFlight.Store(0)
	if err := <-ended; err != nil || a.held() != nil || !log.has("msg=left") {
		t.Errorf("it left with %v", err)
	}
}

func TestWhatDoesNotFinishIsSaid(t *testing.T) {
	e, a := newSim(t, func(*sim.Config) {}), newAttache(t)
	cfg := config(t, "http://"+e.Addr().String(), a)
	cfg.DrainTimeout = 50 * time.Millisecond
	leave, _ := joining(t, cfg)
	eventually(t, "registered", func() bool { return a.held() != nil })
	a.inFlight.Store(2)
	if err := leave(); err == nil || err.Error() != "the worker has left with 2 requests still running after 50ms" || a.held() != nil {
		t.Errorf("got %v", err)
	}
}

func TestNoGatewayTakesIt(t *testing.T) {
	e, a, b := newSim(t, func(*sim.Config) {}), newAttache(t), newAttache(t)
	cfg := config(t, "http://"+e.Addr().String(), a, b)
	if err := os.WriteFile(cfg.TokenFile, []byte("another-token-of-some-length"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.set(404) // no attache
	j, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	j.pace = quick
	err = j.Run(t.Context())
	for _, want := range []string{
		"no gateway takes it in:", a.URL + ": authorization: this is not the token in workers.registration.token_file (status 401)",
		b.URL + ": it does not answer as attache does: status 404; --gateway must be its admin.listen",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

func TestMistakesInFlags(t *testing.T) {
	good := config(t, "127.0.0.1:8000")
	good.Gateways = []string{"gw:9902"}
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Engine = "" }, `--engine: "": must be a URL, such as http://10.0.0.1:8000`},
		{func(c *Config) { c.Engine = "ftp://h" }, `--engine: "ftp://h": must be a URL`},
		{func(c *Config) { c.Gateways = nil }, `--gateway: must be given at least once`},
		{func(c *Config) { c.Gateways = []string{"http://"} }, `--gateway: "http://": must be a URL`},
		{func(c *Config) { c.TokenFile = "none" }, `--token-file: "none": must be a file that can be read`},
		{func(c *Config) { c.Kind = "tgi" }, `--kind: "tgi": must be auto, vllm, sglang or trtllm`},
		{func(c *Config) { c.Address = "h" }, `--address: "h": must be host:port`},
		{func(c *Config) { c.DrainTimeout = -1 }, `--wait, --drain-timeout: must not be negative`},
	} {
		cfg := good
		c.change(&cfg)
		_, err := New(cfg, slog.New(slog.DiscardHandler))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestAddressesAndNames(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skip("this machine has no name")
	}
	for _, c := range []struct{ engine, gateway, address, want string }{
		{"http://10.0.0.7:8000", "http://10.0.0.1:9902", "", "10.0.0.7:8000"},
		{"http://gpu-a", "http://10.0.0.1:9902", "", "gpu-a:80"},
		{"http://127.0.0.1:8000", "http://127.0.0.1:9902", "", "127.0.0.1:8000"},
		{"http://localhost:8000", "http://127.0.0.1:9902", "", "127.0.0.1:8000"},
		{"http://127.0.0.1:8000", "http://10.0.0.1:9902", "gpu.example:80", "gpu.example:80"},
	} {
		cfg := Config{Engine: c.engine, Gateways: []string{c.gateway}, Address: c.address, TokenFile: tokenFile(t)}
		if err := cfg.validate(); err != nil {
			t.Fatal(err)
		}
		said, err := cfg.registration(&facts{served: worker.Served{Names: []string{"m"}}})
		if err != nil || said.Address != c.want || !strings.HasSuffix(said.Name, c.want[strings.LastIndexByte(c.want, ':')+1:]) || said.Name[0] != host[0] {
			t.Errorf("%+v: registers %+v, %v", c, said, err)
		}
	}
}

// TestAnEngineWithAKey: what it serves is not told without the key, and need not be known.
func TestAnEngineWithAKey(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) })
	engine := httptest.NewServer(mux)
	t.Cleanup(engine.Close)
	a := newAttache(t)
	joining(t, config(t, engine.URL, a))
	eventually(t, "registered", func() bool { return a.held() != nil })
	if h := a.held(); len(h.Models) != 0 || h.Engine != worker.Auto {
		t.Errorf("registered %+v", h.Registration)
	}
}

// TestOddAnswers: what engines say of their publishers is believed as far as it can be said by the port of rank 0.
func TestOddAnswers(t *testing.T) {
	for text, want := range map[string]publisher{
		``: {}, `{}`: {}, `[]`: {}, `{"1":{"publisher":"zmq","endpoint":"tcp://*:5557"}}`: {},
		`{"0":{"publisher":"zmq","endpoint":"tcp://*:5557"}}`:                                                              {port: 5557, ranks: 1},
		`{"0":{"publisher":"zmq","endpoint":"tcp://10.0.0.1:5557"}}`:                                                       {},
		`{"0":{"publisher":"null","endpoint":"tcp://*:5557"}}`:                                                             {},
		`{"0":{"publisher":"zmq","endpoint":"tcp://*:5557"},"1":{"publisher":"zmq","endpoint":"tcp://*:6000"}}`:            {},
		`{"0":{"publisher":"zmq","endpoint":"tcp://*:5557"},"1":{"publisher":"zmq","endpoint":"tcp://*:5558","topic":""}}`: {port: 5557, ranks: 2},
	} {
		if got := vllmPublisher([]byte(text)); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
	for text, want := range map[string]publisher{
		``: {}, `{}`: {}, `{"kv_events":null}`: {}, `{"kv_events":{"publisher":"zmq","endpoint_port_base":65535,"dp_size":2}}`: {},
		`{"kv_events":{"publisher":"zmq","endpoint_port_base":5557,"topic":"kv","dp_size":4}}`: {port: 5557, topic: "kv", ranks: 4},
	} {
		if got := sglangPublisher([]byte(text)); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}
