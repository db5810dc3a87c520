package worker

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// mute is an engine that is healthy and answers requests as it is told.
type mute struct {
	*httptest.Server

	status atomic.Int64
	hang   atomic.Bool
	asked  atomic.Int64
	body   atomic.Pointer[string]
}

func newMute(t *testing.T) *mute {
	t.Helper()
	m := &mute{}
	m.status.Store(http.StatusOK)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "vllm:num_requests_running{model_name=\"llama\"} 0\n")
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		m.asked.Add(1)
		text, _ := io.ReadAll(r.Body)
		body := string(text)
		m.body.Store(&body)
		if m.hang.Load() {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(int(m.status.Load()))
	})
	m.Server = httptest.NewServer(mux)
	t.Cleanup(m.Close)
	return m
}

func (m *mute) spec() Spec {
	addr := netip.MustParseAddrPort(m.Listener.Addr().String())
	return Spec{Name: "a", Pool: "default", Address: addr.String(), Addr: addr, Engine: Auto}
}

// canaries is a configuration that asks whenever a second passed without a request that succeeded.
func canaries(c *Config) {
	c.Health.Canary = CanaryConfig{Interval: time.Second, Timeout: 100 * time.Millisecond, Model: "qwen"}
}

func TestAnEngineThatGeneratesNothingIsUnhealthy(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*mute)
		state  State
		cause  string
	}{
		{"it generates", func(*mute) {}, Ready, ""},
		{"it hangs", func(m *mute) { m.hang.Store(true) }, Unhealthy, "canary: no token within 100ms on POST http://127.0.0.1:"},
		{"it breaks", func(m *mute) { m.status.Store(500) }, Unhealthy, "canary: status 500 on POST http://127.0.0.1:"},
		{"it refuses", func(m *mute) { m.status.Store(401) }, Ready, "canary: status 401 on POST http://127.0.0.1:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMute(t)
			c.change(m)
			r, _ := running(t, canaries)
			r.Apply("test", []Spec{m.spec()})
			eventually(t, fmt.Sprintf("%s because %q", c.state, c.cause), func() bool { return is(r, c.state, c.cause) })
			if got, want := *m.body.Load(), `{"model":"qwen","prompt":"ok","max_tokens":1}`; got != want {
				t.Errorf("asked %s, want %s", got, want)
			}
			m.status.Store(200)
			m.hang.Store(false)
			eventually(t, "ready once it generates", func() bool { return is(r, Ready, "") })
			if testutil.ToFloat64(r.metrics.canaries.WithLabelValues("ok")) == 0 {
				t.Error("not counted")
			}
		})
	}
}

func TestWhoServesIsNotAsked(t *testing.T) {
	m := newMute(t)
	r, _ := running(t, func(c *Config) {
		canaries(c)
		c.Health.Canary.Interval, c.Health.Canary.Model = time.Hour, ""
	})
	r.Apply("test", []Spec{m.spec()})
	eventually(t, "asked once, at the start", func() bool { return is(r, Ready, "") && m.asked.Load() == 1 })
	w := r.Set().All()[0]
	e := r.entries[w.Addr]
	e.proven.at.Store(1)
	r.Report(w.Slot, Outcome{OK: true})
	if e.proven.since() > time.Minute {
		t.Error("a request that succeeded proves nothing")
	}
	eventually(t, "its metrics are read", func() bool { return w.Stats().Model == "llama" })
	e.proven.at.Store(1)
	eventually(t, "asked again, by the name that it told", func() bool {
		return m.asked.Load() == 2 && *m.body.Load() == `{"model":"llama","prompt":"ok","max_tokens":1}`
	})
}

func TestFiguresThatAWorkerTellsCountWhileItsMetricsCannotBeRead(t *testing.T) {
	e := newFakeEngine(t)
	r, _ := running(t, nil)
	spec := e.spec("a")
	r.Apply("test", []Spec{spec})
	stats := func() Stats { return r.Set().All()[0].Stats() }
	eventually(t, "read", func() bool { return stats().Running == 3 })
	r.Tell(spec.Addr, Stats{Running: 7, Waiting: 1, KVUsage: .5, Blocks: 100, BlockTokens: 16})
	e.set(func(e *fakeEngine) { e.page = "" })
	eventually(t, "as it was told", func() bool {
		s := stats()
		return s.Told && s.Err != "" && s.Running == 7 && s.KVUsage == .5 && s.Blocks == 100 && s.Model == "m"
	})
	e.set(func(e *fakeEngine) { e.page = "vllm:num_requests_running 4\n" })
	eventually(t, "its own word is not needed any more", func() bool { return stats().Running == 4 && !stats().Told })
	r.Tell(netip.MustParseAddrPort("10.0.0.99:1"), Stats{}) // whom nobody knows
}
