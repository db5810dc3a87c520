package admin

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"attache/internal/golden"
)

// The shapes that clients and the page rely on, as they go over the wire.
func TestGoldenAnswers(t *testing.T) {
	full := stopped(t, quiet(), newFake())
	empty := stopped(t, quiet(), &fake{})
	for _, c := range []struct {
		file   string
		server *Server
		target string
	}{
		{"status.json", full, "/api/v1/status"},
		{"pools.json", full, "/api/v1/pools"},
		{"workers.json", full, "/api/v1/workers"},
		{"feeds.json", full, "/api/v1/feeds"},
		{"index.json", full, "/api/v1/index"},
		{"prefixes.json", full, "/api/v1/prefixes?worker=gpu-a"},
		{"decisions.json", full, "/api/v1/decisions"},
		{"decisions_filtered.json", full, "/api/v1/decisions?pool=chat&worker=gpu-a&limit=1"},
		{"readyz.json", full, "/readyz"},
		{"config.yaml", full, "/api/v1/config"},
		{"empty_state.json", empty, "/api/v1/state"},
	} {
		t.Run(c.file, func(t *testing.T) {
			golden.Compare(t, c.file, call(c.server, "GET", c.target).Body.String())
		})
	}
}

// The stream's frame is the same state with decisions cut down; it decodes into the exported types.
func TestStateDecodes(t *testing.T) {
	f := newFake()
	for range 30 {
		d := f.made[0]
		for range 20 {
			d.Candidates = append(d.Candidates, d.Candidates[0])
		}
		f.made = append(f.made, d)
	}
	s := stopped(t, quiet(), f)
	var state State
	if err := json.Unmarshal(call(s, "GET", "/api/v1/state").Body.Bytes(), &state); err != nil {
		t.Fatal(err)
	}
	if state.Status.RequestsPerS != Known(41.27) || state.Pools[1].Reuse.Delivered != (Figure{}) || len(state.Workers) != 9 {
		t.Errorf("state: %+v", state)
	}
	if len(state.Decisions) != streamDecisions {
		t.Errorf("%d decisions, want %d", len(state.Decisions), streamDecisions)
	}
	for _, d := range state.Decisions[4:] {
		if len(d.Candidates) != streamCandidates || d.CandidatesTotal != 24 {
			t.Fatalf("%d of %d candidates, want %d of 24", len(d.Candidates), d.CandidatesTotal, streamCandidates)
		}
	}
	var all struct {
		Decisions []Decision `json:"decisions"`
	}
	if err := json.Unmarshal(call(s, "GET", "/api/v1/decisions?limit=31").Body.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Decisions) != 31 || len(all.Decisions[30].Candidates) != 24 {
		t.Errorf("the API cuts too: %d decisions", len(all.Decisions))
	}
}

func TestReadiness(t *testing.T) {
	for _, c := range []struct {
		name   string
		checks []Check
		status int
		state  CheckState
		text   string
	}{
		{"nothing to check", nil, 200, OK, "ready\n"},
		{"all well", []Check{{"workers", OK, "8 of 8 ready"}}, 200, OK, "ready\n[ok] workers: 8 of 8 ready\n"},
		{"one degraded", []Check{{"redis", Degraded, "away since 12:00"}, {"workers", OK, "fine"}}, 200, Degraded,
			"ready\n[degraded] redis: away since 12:00\n[ok] workers: fine\n"},
		{"one failed", []Check{{"redis", Degraded, "away"}, {"workers", Failed, "no worker is ready"}}, 503, Failed,
			"not ready\n[degraded] redis: away\n[failed] workers: no worker is ready\n"},
		{"unknown word", []Check{{"x", "odd", "?"}}, 200, Degraded, "ready\n[odd] x: ?\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := stopped(t, quiet(), &fake{checks: c.checks})
			w := call(s, "GET", "/readyz")
			var v ReadinessView
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
				t.Fatal(err)
			}
			reasons := 0
			for _, check := range c.checks {
				if check.State != OK {
					reasons++
				}
			}
			if w.Code != c.status || v.State != c.state || v.Ready != (c.status == 200) || len(v.Reasons) != reasons {
				t.Errorf("JSON: %d %+v", w.Code, v)
			}
			for _, w := range []string{call(s, "GET", "/readyz?format=text").Body.String(),
				call(s, "GET", "/readyz", "Accept", "text/plain").Body.String()} {
				if w != c.text {
					t.Errorf("text: %q, want %q", w, c.text)
				}
			}
		})
	}
}

func TestLiveness(t *testing.T) {
	f := newFake()
	s := stopped(t, quiet(), f)
	if w := call(s, "GET", "/healthz?format=text"); w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("alive: %d %q", w.Code, w.Body)
	}
	f.dead = errors.New("registry loop has not moved for 1m")
	for _, target := range []string{"/healthz", "/healthz?format=text"} {
		if w := call(s, "GET", target); w.Code != 503 || !strings.Contains(w.Body.String(), "has not moved") {
			t.Errorf("dead: %s: %d %q", target, w.Code, w.Body)
		}
	}
}

func TestDrain(t *testing.T) {
	f := newFake()
	f.workers[1].Name = "rack 1/gpu-b"
	s := stopped(t, quiet(), f)
	for _, c := range []struct {
		method, name string
		status       int
		body         string
		state        string // of workers[0]
	}{
		{"POST", "gpu-a", 200, `"draining": true`, "draining"},
		{"POST", "gpu-a", 200, `"draining": true`, "draining"},
		{"DELETE", "gpu-a", 200, `"draining": false`, "ready"},
		{"POST", "rack%201%2Fgpu-b", 200, `"worker": "rack 1/gpu-b"`, "ready"},
		{"POST", "nobody", 404, `no such worker: \"nobody\"`, "ready"},
		{"PUT", "gpu-a", 405, "use DELETE, POST", "ready"},
	} {
		w := call(s, c.method, "/api/v1/workers/"+c.name+"/drain")
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) || f.workers[0].State != c.state {
			t.Errorf("%s %s: %d %s, worker %s; want %d %q, worker %s", c.method, c.name, w.Code, w.Body, f.workers[0].State,
				c.status, c.body, c.state)
		}
	}
	f.drainErr = errors.New("its discovery source drains it")
	w := call(s, "DELETE", "/api/v1/workers/gpu-a/drain")
	if w.Code != 409 || !strings.Contains(w.Body.String(), "its discovery source") {
		t.Errorf("refused: %d %s", w.Code, w.Body)
	}
}

func TestUnreadableConfigIsNotShown(t *testing.T) {
	s := stopped(t, quiet(), &fake{config: "password: [hunter2\n"})
	w := call(s, "GET", "/api/v1/config")
	if w.Code != 500 || strings.Contains(w.Body.String(), "hunter2") || !strings.Contains(w.Body.String(), "not shown") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
