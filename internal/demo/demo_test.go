package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"attache/internal/proc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// needsEnvoy skips where there is no Envoy, except in continuous integration, where there must be one.
func needsEnvoy(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Envoy")
	}
	if _, err := proc.FindEnvoy(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// TestTwoDemosAtOnce runs both policies for a moment, twice at the same time: nothing is shared, nothing is left.
func TestTwoDemosAtOnce(t *testing.T) {
	needsEnvoy(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	results := t.TempDir()
	var running sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		running.Go(func() {
			var out bytes.Buffer
			file := filepath.Join(results, name+".json")
			err := Run(t.Context(), Options{Duration: 2 * time.Second, Engines: 2, JSON: file, Seed: 1, Version: "test", Out: &out})
			if err != nil {
				t.Errorf("demo %s: %v\n%s", name, err, out.String())
				return
			}
			checkResults(t, file)
			for _, want := range []string{"attache demo: 2 simulated vLLM workers, one real Envoy", "dashboard  http://127.0.0.1:",
				"\nround-robin ", "\nattache ", "times as many prompt tokens"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("demo %s does not show %q:\n%s", name, want, out.String())
				}
			}
		})
	}
	running.Wait()
	http.DefaultClient.CloseIdleConnections()
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// checkResults reads the file as a script of somebody else's would: by the documented names.
func checkResults(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	var results []map[string]any
	if err := json.Unmarshal(text, &results); err != nil || len(results) != 2 {
		t.Errorf("%v: %s", err, text)
		return
	}
	for i, policy := range []string{"round-robin", "attache"} {
		r := results[i]
		if r["policy"] != policy || r["errors"] != 0.0 {
			t.Errorf("got %v, want %s without errors", r, policy)
		}
		for _, name := range []string{"requests", "ttft_mean_s", "ttft_p50_s", "ttft_p99_s", "cached_share", "requests_per_s"} {
			if v, ok := r[name].(float64); !ok || v <= 0 {
				t.Errorf("%s: %s is %v, want above 0", policy, name, r[name])
			}
		}
	}
}

// TestInterrupted ends a demo in the middle of its load, as Ctrl-C does.
func TestInterrupted(t *testing.T) {
	needsEnvoy(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithCancel(t.Context())
	out := &watched{until: regexp.MustCompile(`round-robin +\d+ requests`), found: cancel}
	err := Run(ctx, Options{Duration: time.Hour, Engines: 2, Seed: 1, Version: "test", Out: out})
	if err == nil || err.Error() != "interrupted before both policies were measured" {
		t.Errorf("got %v\n%s", err, out.String())
	}
	http.DefaultClient.CloseIdleConnections()
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// watched is an output that tells when something was written.
type watched struct {
	mu    sync.Mutex
	b     bytes.Buffer
	until *regexp.Regexp
	found func()
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.b.Write(p)
	if w.until.Match(w.b.Bytes()) {
		w.found()
	}
	return n, err
}

func (w *watched) String() string { w.mu.Lock(); defer w.mu.Unlock(); return w.b.String() }

func TestWithoutEnvoy(t *testing.T) {
	t.Setenv("ENVOY", "/nonexistent/envoy")
	var out bytes.Buffer
	err := Run(t.Context(), Options{Engines: 2, Out: &out})
	if err == nil || !strings.HasPrefix(err.Error(), "ENVOY names no Envoy: ") {
		t.Errorf("got %v", err)
	}
}
