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

	"attache/internal/admin"
	"attache/internal/join"
	"attache/internal/sim"
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
	worker := func() (w admin.Worker) {
		var list struct{ Workers []admin.Worker }
		if _, text := get(t, a, "/api/v1/workers"); json.Unmarshal([]byte(text), &list) == nil && len(list.Workers) == 1 {
			w = list.Workers[0]
		}
		return w
	}
	eventually(t, "it serves", func() bool { return worker().State == "ready" })
	w := worker()
	if w.Name != "gpu-a" || w.Pool != "small" || w.Engine != "vllm" || w.Source != "registered" || w.Lease == nil || w.Lease.TTLS != admin.Known(15) ||
		w.Lease.Capacity.BlockTokens != 16 || len(w.Lease.Models) != 1 {
		t.Errorf("the operator sees %+v with lease %+v", w, w.Lease)
	}
	leave()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if w := worker(); w.State != "gone" || w.Cause != "it said goodbye" || w.Lease != nil {
		t.Errorf("after it left the operator sees %+v", w)
	}
	if _, text := get(t, a, "/metrics"); !strings.Contains(text, `attache_worker_state{pool="small",state="gone",worker="gpu-a"} 1`) ||
		!strings.Contains(text, `attache_registration_requests_total{request="deregister",result="ok"} 1`) {
		t.Error("the metrics do not tell that it left")
	}
}
