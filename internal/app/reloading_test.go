package app

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"attache/internal/config"
	"attache/internal/reload"
)

// reloading is attache in this process that follows a file.
type reloading struct {
	*App

	path  string
	again chan struct{}
	level *slog.LevelVar
}

func (r *reloading) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(r.path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(r.path+".new", r.path); err != nil {
		t.Fatal(err)
	}
}

func startReloading(t *testing.T, text string) *reloading {
	t.Helper()
	r := &reloading{path: filepath.Join(t.TempDir(), "attache.yaml"), again: make(chan struct{})}
	r.write(t, text)
	parse := func(text []byte) (*config.Config, error) {
		cfg, err := config.Parse(r.path, text)
		if err == nil {
			q := quiet()
			cfg.Replica, cfg.XDS.Listen, cfg.Admin.Listen = q.Replica, q.XDS.Listen, q.Admin.Listen
			cfg.ExtProc.DrainWait, cfg.ExtProc.DrainTimeout = 0, time.Second
			if cfg.ExtProc.Listen == config.Default().ExtProc.Listen {
				cfg.ExtProc.Listen = q.ExtProc.Listen
			}
		}
		return cfg, err
	}
	cfg, err := parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	logger, level := NewLogger(cfg.Log, io.Discard)
	r.level = level
	r.App, err = New(cfg, Options{Version: "test", Log: logger, Level: level,
		File: &reload.File{Path: r.path, Text: []byte(text), Parse: parse, Again: r.again}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	return r
}

// until waits until all of a path's answer is said.
func (r *reloading) until(t *testing.T, path string, said ...string) {
	t.Helper()
	text := ""
	defer func() {
		if t.Failed() {
			t.Log(text)
		}
	}()
	eventually(t, fmt.Sprintf("%s says %q", path, said), func() bool {
		_, text = get(t, r.App, path)
		for _, s := range said {
			if !strings.Contains(text, s) {
				return false
			}
		}
		return true
	})
}

func TestAChangedFileTakesEffect(t *testing.T) {
	worker := engine(t)
	pool := "pools: [{name: default, workers: ['" + worker + "']}]\n"
	r := startReloading(t, pool)
	r.until(t, "/readyz", "1 of 1 workers ready", "as in "+r.path)

	r.write(t, "pools: [{name: default, models: [llama], workers: ['"+worker+"', '127.0.0.1:1'], scoring: {policy: random}}]\nlog: {level: debug}\nrouter: {alternatives: 2}\n")
	r.until(t, "/api/v1/workers", "127.0.0.1:1", worker)
	r.until(t, "/api/v1/pools", `"policy": "random"`, `"llama"`)
	r.until(t, "/api/v1/config", "alternatives: 2", "level: debug")
	r.until(t, "/metrics", `attache_config_reloads_total{result="applied"} 2`, "attache_config_restart_needed 0")
	if r.level.Level() != slog.LevelDebug {
		t.Errorf("the log's level is %v", r.level.Level())
	}

	r.write(t, pool+"router: {alternatives: 1}\nextproc: {listen: '127.0.0.1:1'}\nruntime: {gc_percent: 100}\n")
	r.until(t, "/api/v1/status", "restart to apply: extproc.listen, runtime.gc_percent")
	r.until(t, "/metrics", "attache_config_restart_needed 1", "attache_config_last_reload_successful 1")
	r.until(t, "/api/v1/config", "alternatives: 1", "gc_percent: 400")

	r.write(t, pool+"router:\n  alternatives: 99\n")
	r.until(t, "/readyz", "the file is bad, and what ran before goes on: "+r.path+":3: router.alternatives: 99: must be 1 to 16 workers")
	r.until(t, "/metrics", `attache_config_reloads_total{result="refused"} 1`, "attache_config_last_reload_successful 0")
	r.until(t, "/api/v1/config", "alternatives: 1")
	if status, _ := get(t, r.App, "/readyz"); status != 200 {
		t.Errorf("/readyz says %d because of a bad file", status)
	}
	r.again <- struct{}{}
	r.until(t, "/metrics", `attache_config_reloads_total{result="refused"} 2`)

	r.write(t, "pools: [{name: default, workers: ['"+worker+"', '"+worker+"']}]\n") // good by its form
	r.until(t, "/api/v1/status", "two workers are called")
	r.until(t, "/api/v1/config", "alternatives: 1")

	r.write(t, pool)
	r.until(t, "/metrics", "attache_config_last_reload_successful 1", "attache_config_restart_needed 0")
	r.until(t, "/readyz", "as in "+r.path)
}

// TestReloadingUnderLoad changes the configuration again and again while requests are decided: none fails.
func TestReloadingUnderLoad(t *testing.T) {
	worker := engine(t)
	text := func(i int) string {
		return fmt.Sprintf("pools: [{name: default, workers: ['%s', '127.0.0.1:%d']}]\nrouter: {alternatives: %d, scoring: {policy: %s}}\nextproc: {max_body: %dMiB}\n",
			worker, 1+i%3, 1+i%4, []string{"time", "random", "dynamo"}[i%3], 1+i%5)
	}
	r := startReloading(t, text(0))
	r.until(t, "/readyz", "1 of 2 workers ready")
	conn := dial(t, r.App)
	var decided atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s, err := decide(t, conn)
				if err != nil {
					t.Errorf("a request while the configuration changes: %v", err)
					return
				}
				decided.Add(1)
				_ = s.CloseSend()
				_, _ = s.Recv()
			}
		})
	}
	for i := range 20 {
		for before := decided.Load(); decided.Load() == before && !t.Failed(); {
			time.Sleep(100 * time.Microsecond)
		}
		r.write(t, text(i+1))
		r.until(t, "/api/v1/config", fmt.Sprintf("alternatives: %d\n", 1+(i+1)%4), fmt.Sprintf("max_body: %dMiB\n", 1+(i+1)%5))
	}
	close(stop)
	clients.Wait()
}
