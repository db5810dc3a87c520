package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"attache/internal/config"
	"attache/internal/field"
	"attache/internal/sim"
	"attache/internal/worker/discovery/dns"
	"attache/internal/worker/discovery/kubernetes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet is a configuration on free ports that stops at once.
func quiet(workers ...string) *config.Config {
	cfg := config.Default()
	cfg.Replica = "test"
	cfg.ExtProc.Listen, cfg.XDS.Listen, cfg.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.ExtProc.DrainWait, cfg.ExtProc.DrainTimeout = 0, time.Second
	cfg.Pools[0].Workers = workers
	return &cfg
}

var options = Options{Version: "test", Log: slog.New(slog.DiscardHandler)}

func TestTheGraphIsComplete(t *testing.T) {
	if err := fx.ValidateApp(new(App).options(quiet(), options)); err != nil {
		t.Fatal(err)
	}
}

// started is attache in this process until the test ends.
func started(t *testing.T, cfg *config.Config) *App {
	t.Helper()
	a, err := New(cfg, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Stop(); err != nil {
			t.Errorf("stopping: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return a
}

func get(t *testing.T, a *App, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + a.Addrs().Admin.String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestReadinessSaysWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		name    string
		workers []string
		want    string
	}{
		{"no workers are known", nil, "no workers known: give --workers host:port, pools[].workers, pools[].workers_file or pools[].discovery, or let them register"},
		{"the only worker is down", []string{"127.0.0.1:1"}, "0 of 1 workers ready"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := started(t, quiet(c.workers...))
			eventually(t, c.want, func() bool {
				status, text := get(t, a, "/readyz")
				return status == 503 && strings.Contains(text, c.want) && strings.Contains(text, "takes requests")
			})
			if status, _ := get(t, a, "/healthz"); status != 200 {
				t.Errorf("/healthz is %d: a missing worker is no reason to restart attache", status)
			}
		})
	}
}

// TestDiscovery finds a worker by its name, and says what of discovery fails.
func TestDiscovery(t *testing.T) {
	engine := sim.DefaultConfig()
	engine.Listen = "127.0.0.1:0"
	e, err := sim.New(engine, options.Log)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = e.Run(t.Context()) })
	t.Cleanup(serving.Wait)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}], "contexts": [{"name": "c", "context": {"cluster": "k"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := quiet()
	cfg.Pools[0].Discovery.DNS = []dns.Config{{Name: "localhost", Port: int(e.Addr().Port())}}
	cfg.Pools[0].Discovery.Kubernetes = []kubernetes.Config{{Service: "vllm", Kubeconfig: kubeconfig}}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	a := started(t, cfg)
	eventually(t, "the worker is ready", func() bool {
		status, text := get(t, a, "/readyz")
		return status == 200 && strings.Contains(text, "1 of 1 workers ready")
	})
	eventually(t, "a warning", func() bool {
		_, text := get(t, a, "/api/v1/status")
		return strings.Contains(text, "discovery kubernetes/service/vllm of pool default fails since ")
	})
	_, text := get(t, a, "/metrics")
	for _, want := range []string{
		fmt.Sprintf("attache_discovery_workers{pool=\"default\",source=\"dns/localhost:%d\"} 1\n", cfg.Pools[0].Discovery.DNS[0].Port),
		"attache_discovery_workers{pool=\"default\",source=\"kubernetes/service/vllm\"} 0\n",
		"attache_discovery_errors_total{pool=\"default\",source=\"kubernetes/service/vllm\"} ",
		"attache_discovery_age_seconds{pool=\"default\",source=\"kubernetes/service/vllm\"} ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func TestFromStartToStop(t *testing.T) {
	engine := sim.DefaultConfig()
	engine.Listen = "127.0.0.1:0"
	e, err := sim.New(engine, options.Log)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = e.Run(t.Context()) })
	t.Cleanup(serving.Wait)

	cfg := quiet(e.Addr().String(), "127.0.0.1:1")
	cfg.Pools[0].Models = []string{"m"}
	a := started(t, cfg)
	eventually(t, "ready, with one of two workers", func() bool {
		status, text := get(t, a, "/readyz")
		return status == 200 && strings.Contains(text, "1 of 2 workers ready")
	})

	conn, err := grpc.NewClient(a.Addrs().ExtProc.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, name := range []string{"", "readiness", "liveness", "envoy.service.ext_proc.v3.ExternalProcessor"} {
		resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", name, resp, err)
		}
	}

	var workers struct {
		Workers []struct {
			Address, State, Cause string
		} `json:"workers"`
	}
	if _, text := get(t, a, "/api/v1/workers"); json.Unmarshal([]byte(text), &workers) != nil || len(workers.Workers) != 2 {
		t.Fatalf("workers: %s", text)
	}
	for _, w := range workers.Workers {
		want := map[string]string{"127.0.0.1:1": "unhealthy", e.Addr().String(): "ready"}[w.Address]
		if w.State != want {
			t.Errorf("%s is %s because %q, want %s", w.Address, w.State, w.Cause, want)
		}
	}
	if _, text := get(t, a, "/api/v1/status"); !strings.Contains(text, "127.0.0.1:1 (127.0.0.1:1) is unhealthy: connection refused") {
		t.Errorf("the status does not warn of the dead worker: %s", text)
	}
	if _, text := get(t, a, "/api/v1/pools"); !strings.Contains(text, `"workers_ready": 1`) {
		t.Errorf("pools: %s", text)
	}
	if _, text := get(t, a, "/metrics"); !strings.Contains(text, `attache_build_info{version="test"} 1`) ||
		!strings.Contains(text, `attache_worker_state{pool="default"`) {
		t.Error("the metrics lack the version or the workers")
	}
	if _, text := get(t, a, "/api/v1/config"); !strings.Contains(text, "replica: test") {
		t.Errorf("the configuration in effect: %s", text)
	}
}

// TestStartErrors: what stands on a terminal when attache cannot start.
func TestStartErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "plain.txt")
	if err := os.WriteFile(file, []byte("not a socket"), 0o600); err != nil {
		t.Fatal(err)
	}
	busy := fmt.Sprintf("listen tcp %[1]s: bind: address already in use; is attache running already? Choose another address, or port 0 for a free one",
		taken.Addr())
	for _, c := range []struct {
		name   string
		change func(*config.Config)
		want   string
	}{
		{"the port for Envoy's questions is taken", func(c *config.Config) { c.ExtProc.Listen = taken.Addr().String() }, "extproc.listen: " + busy},
		{"the control plane's port is taken", func(c *config.Config) { c.XDS.Listen = taken.Addr().String() }, "xds.listen: " + busy},
		{"the dashboard's port is taken", func(c *config.Config) { c.Admin.Listen = taken.Addr().String() }, "admin.listen: " + busy},
		{"the socket's path is somebody's file", func(c *config.Config) { c.ExtProc.Listen = "unix://" + file },
			"extproc.listen: unix://" + file + ": there is a file which is not a socket; choose another path"},
		{"the workers file is missing", func(c *config.Config) { c.Pools[0].WorkersFile = filepath.Join(dir, "none.yaml") },
			"workers file " + filepath.Join(dir, "none.yaml") + ": open " + filepath.Join(dir, "none.yaml") + ": no such file or directory"},
		{"two workers have one address", func(c *config.Config) { c.Pools[0].Workers = []string{"127.0.0.1:1", "127.0.0.1:1"} },
			`pool default: two workers are called "127.0.0.1:1"; every worker needs a name of its own`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := quiet()
			c.change(cfg)
			err := Run(t.Context(), cfg, options)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "not a socket" {
		t.Error("the file that was in the way is gone")
	}
}

// serves keeps a log and does something when it says that attache serves.
type serves struct {
	strings.Builder

	mu   sync.Mutex // guards Builder
	then func()
}

func (s *serves) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.Contains(string(line), "attache serves") {
		s.then()
	}
	return s.Builder.Write(line)
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	log := serves{then: cancel}
	logger, _ := NewLogger(config.Log{Level: "info", Format: "json"}, &log)
	opts := Options{Version: "test", Log: logger}
	done := make(chan error, 1)
	go func() { done <- Run(ctx, quiet(), opts) }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	for _, want := range []string{`"msg":"attache serves","version":"test","replica":"test"`, `"msg":"attache drains"`, `"msg":"attache has stopped"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}
}

func TestMemoryLimitOfTheControlGroup(t *testing.T) {
	for text, want := range map[string]field.Bytes{"max\n": 0, "1073741824\n": field.GiB, "": 0} {
		file := filepath.Join(t.TempDir(), "memory.max")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := controlGroupLimit(file); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
	if got := controlGroupLimit("/nonexistent"); got != 0 {
		t.Errorf("no file: got %d", got)
	}
}
