package app

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/admin"
	"attache/internal/join"
	"attache/internal/sim"
	"attache/internal/state"
	"attache/internal/worker"
	"attache/internal/worker/register"
)

// TestAnEngineJoinsAndLeaves: from a worker's side to the operator's, over HTTP.
func TestAnEngineJoinsAndLeaves(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a-token-of-some-length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	engine := sim.DefaultConfig()
	engine.Listen, engine.Model = "127.0.0.1:0", "qwen3"
	e, err := sim.New(engine, options.Log)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = e.Run(t.Context()) })
	t.Cleanup(serving.Wait)

	cfg := quiet()
	cfg.Pools[0].Models = []string{"llama"}
	other := cfg.Pools[0]
	other.Name, other.Models = "small", []string{"qwen*"}
	cfg.Pools = append(cfg.Pools, other)
	cfg.Workers.Registration.TokenFile = token
	a := started(t, cfg)

	j, err := join.New(join.Config{Engine: "http://" + e.Addr().String(), Gateways: []string{a.Addrs().Admin.String()}, TokenFile: token, Name: "gpu-a",
		Topology: map[string]string{"zone": "a"}, DrainTimeout: time.Minute}, options.Log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	seen := func() (w admin.Worker) {
		var list struct{ Workers []admin.Worker }
		if _, text := get(t, a, "/api/v1/workers"); json.Unmarshal([]byte(text), &list) == nil && len(list.Workers) == 1 {
			w = list.Workers[0]
		}
		return w
	}
	eventually(t, "it serves", func() bool { return seen().State == "ready" })
	w := seen()
	if w.Name != "gpu-a" || w.Pool != "small" || w.Engine != "vllm" || w.Source != "registered" || w.Lease == nil || w.Lease.TTLS != admin.Known(15) ||
		w.Lease.Capacity.BlockTokens != 16 || len(w.Lease.Models) != 1 {
		t.Errorf("the operator sees %+v with lease %+v", w, w.Lease)
	}
	leave()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if w := seen(); w.State != "gone" || w.Cause != "it said goodbye" || w.Lease != nil {
		t.Errorf("after it left the operator sees %+v", w)
	}
	if _, text := get(t, a, "/metrics"); !strings.Contains(text, `attache_worker_state{pool="small",state="gone",worker="gpu-a"} 1`) ||
		!strings.Contains(text, `attache_registration_requests_total{request="deregister",result="ok"} 1`) {
		t.Error("the metrics do not tell that it left")
	}
}

// TestTheSharedStoreTakesRegistrations: two gateways, one store.
func TestTheSharedStoreTakesRegistrations(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a-token-of-some-length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store := state.NewMemory(state.DefaultConfig())
	var gateways []*register.Registrations
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	for range 2 {
		registry, err := worker.New(worker.DefaultConfig(), options.Log, prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		r, err := register.New(register.Params{
			Config: worker.RegistrationConfig{TokenFile: token, TTL: time.Minute, MaxWorkers: 1}, Pools: []register.Pool{{Name: "default"}},
			Store: leases{store}, Registry: registry, Log: options.Log, Metrics: prometheus.NewRegistry(),
		})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { _ = r.Run(t.Context()) })
		gateways = append(gateways, r)
	}
	if _, err := gateways[0].Register(t.Context(), &register.Registration{Name: "gpu-a", Address: "10.0.0.1:8000"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other knows it", func() bool { return len(gateways[1].Held()) == 1 })
	if err := gateways[1].Deregister(t.Context(), "gpu-a"); err != nil {
		t.Error(err)
	}
	eventually(t, "the first knows that it left", func() bool { return len(gateways[0].Held()) == 0 })
}
