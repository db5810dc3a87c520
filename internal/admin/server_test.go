package admin

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet is the configuration of most tests: a free port.
func quiet() Config {
	cfg := DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	return cfg
}

// stopped makes a server whose handler can be called; nothing runs.
func stopped(t *testing.T, cfg Config, src Source) *Server {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "attache_test_answer", Help: "Of everything."}))
	s, err := New(cfg, src, slog.New(slog.DiscardHandler), reg)
	if err != nil {
		t.Fatal(err)
	}
	s.view.now = func() time.Time { return noon }
	t.Cleanup(func() { _ = s.listener.Close() })
	return s
}

// running makes a server and runs it until the test ends.
func running(t *testing.T, cfg Config, src Source) *Server {
	t.Helper()
	s := stopped(t, cfg, src)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s
}

func call(s *Server, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

func TestPathsAndMethods(t *testing.T) {
	with, without := quiet(), quiet()
	with.Pprof = true
	profiled, plain := stopped(t, with, newFake()), stopped(t, without, newFake())
	for _, c := range []struct {
		server         *Server
		method, target string
		status         int
		contentType    string
		contains       string
	}{
		{plain, "GET", "/", 200, "text/html; charset=utf-8", "<title>attache</title>"},
		{plain, "GET", "/assets/app.js", 200, "text/javascript; charset=utf-8", "EventSource"},
		{plain, "GET", "/assets/style.css", 200, "text/css; charset=utf-8", "--ground"},
		{plain, "GET", "/assets/icon.svg", 200, "image/svg+xml", "<svg"},
		{plain, "GET", "/assets/none.js", 404, "application/json", `"no such path: /assets/none.js"`},
		{plain, "GET", "/assets/index.html", 404, "application/json", `"error"`},
		{plain, "GET", "/assets/..%2Fdoc.go", 404, "application/json", `"error"`},
		{plain, "GET", "/metrics", 200, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", "attache_test_answer 0"},
		{plain, "GET", "/healthz", 200, "application/json", `"live": true`},
		{plain, "GET", "/readyz", 200, "application/json", `"ready": true`},
		{plain, "GET", "/api/v1/state", 200, "application/json", `"series"`},
		{plain, "GET", "/api/v1/config", 200, "application/yaml; charset=utf-8", "listen: 0.0.0.0:9001"},
		{plain, "GET", "/nowhere", 404, "application/json", `"/api/v1/workers/{name}/drain": "POST`},
		{plain, "POST", "/nowhere", 404, "application/json", `"/": "dashboard"`},
		{plain, "GET", "/api/v1/workers/gpu-a", 405, "application/json", "use DELETE"},
		{plain, "POST", "/", 405, "application/json", "use GET, HEAD"},
		{plain, "POST", "/metrics", 405, "application/json", "POST is not allowed here"},
		{plain, "DELETE", "/api/v1/config", 405, "application/json", "use GET, HEAD"},
		{plain, "GET", "/api/v1/workers/gpu-a/drain", 405, "application/json", "use DELETE, POST"},
		{plain, "HEAD", "/api/v1/workers/gpu-a/drain", 405, "application/json", "use DELETE, POST"},
		{plain, "GET", "/debug/pprof/", 404, "application/json", `"error"`},
		{profiled, "GET", "/debug/pprof/", 200, "text/html; charset=utf-8", "goroutine"},
		{profiled, "GET", "/debug/pprof/goroutine?debug=1", 200, "text/plain; charset=utf-8", "goroutine profile"},
		{profiled, "GET", "/nowhere", 404, "application/json", "/debug/pprof/"},
		{plain, "GET", "/api/v1/decisions?limit=0", 400, "application/json", `limit: \"0\": must be 1 to 1000`},
		{plain, "GET", "/api/v1/decisions?limit=many", 400, "application/json", "must be 1 to 1000"},
		{plain, "GET", "/api/v1/decisions?limit=1001", 400, "application/json", "must be 1 to 1000"},
	} {
		w := call(c.server, c.method, c.target)
		if w.Code != c.status || w.Header().Get("Content-Type") != c.contentType || !strings.Contains(w.Body.String(), c.contains) {
			t.Errorf("%s %s: %d %s, want %d %s; body:\n%.300s\ndoes not contain %q", c.method, c.target,
				w.Code, w.Header().Get("Content-Type"), c.status, c.contentType, w.Body, c.contains)
		}
		if w.Code == http.StatusMethodNotAllowed && w.Header().Get("Allow") == "" {
			t.Errorf("%s %s: 405 without Allow", c.method, c.target)
		}
		for _, name := range []string{"X-Content-Type-Options", "Content-Security-Policy", "Referrer-Policy", "Cache-Control"} {
			if w.Header().Get(name) == "" {
				t.Errorf("%s %s: no %s header", c.method, c.target, name)
			}
		}
	}
}

// HEAD has to go over the wire: there the body is dropped.
func TestHeadHasNoBody(t *testing.T) {
	s := running(t, quiet(), newFake())
	for _, path := range []string{"/", "/readyz", "/api/v1/state", "/api/v1/stream", "/metrics", "/nowhere"} {
		answer, err := http.Head("http://" + s.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if want := map[bool]int{true: 404, false: 200}[path == "/nowhere"]; answer.StatusCode != want || len(body) != 0 {
			t.Errorf("HEAD %s: %d with %d bytes, want %d with none", path, answer.StatusCode, len(body), want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestUnchangedFilesAreNotSentAgain(t *testing.T) {
	s := stopped(t, quiet(), newFake())
	tag := call(s, "GET", "/assets/app.js").Header().Get("ETag")
	w := call(s, "GET", "/assets/app.js", "If-None-Match", tag)
	if tag == "" || w.Code != http.StatusNotModified {
		t.Errorf("with tag %q: status %d, want 304", tag, w.Code)
	}
}

func TestOtherOriginsCannotChangeAnything(t *testing.T) {
	f := newFake()
	s := stopped(t, quiet(), f)
	for _, header := range [][]string{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
		w := call(s, "POST", "/api/v1/workers/gpu-a/drain", header...)
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "another origin") ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%v: %d %s, want 403 in JSON", header, w.Code, w.Body)
		}
	}
	if f.workers[0].State != "ready" {
		t.Errorf("the worker is %s", f.workers[0].State)
	}
	if w := call(s, "POST", "/api/v1/workers/gpu-a/drain", "Sec-Fetch-Site", "same-origin"); w.Code != 200 {
		t.Errorf("from the dashboard itself: %d %s", w.Code, w.Body)
	}
}

func TestNewRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	bad := quiet()
	bad.Listen = "nine"
	busy := quiet()
	busy.Listen = taken.Addr().String()
	for _, c := range []struct {
		cfg  Config
		want string
	}{{bad, `listen: "nine": must be host:port`}, {busy, "admin.listen: "}} {
		_, err := New(c.cfg, newFake(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%+v): %v, want %q", c.cfg, err, c.want)
		}
	}
}

func TestValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Listen = "" }, `listen: "": must be host:port`},
		{func(c *Config) { c.Listen = "h:70000" }, "must be host:port"},
		{func(c *Config) { c.Refresh = time.Millisecond }, "refresh: 1ms: must be 250ms to 1m"},
		{func(c *Config) { c.Refresh = time.Hour }, "refresh: 1h0m0s"},
		{func(c *Config) { c.MaxViewers = -1 }, "max_viewers: -1: must be 0 to 1000 viewers"},
	} {
		cfg := DefaultConfig()
		c.change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Validate(%+v): %v, want %q", cfg, err, c.want)
		}
	}
}

func TestRunFailsWithItsListener(t *testing.T) {
	s := stopped(t, quiet(), newFake())
	_ = s.listener.Close()
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "admin serve") {
		t.Errorf("Run on a closed listener: %v", err)
	}
}
