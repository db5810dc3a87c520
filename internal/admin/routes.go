package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// route is one path with what it does per method. HEAD follows GET.
type route struct {
	pattern string // of http.ServeMux, without method
	about   string
	methods map[string]http.HandlerFunc
}

func get(h http.HandlerFunc) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{http.MethodGet: h}
}

func (s *Server) table(files *files, missing http.HandlerFunc) []route {
	routes := []route{
		{"/{$}", "dashboard", get(files.page)},
		{"/assets/{name}", "files of the dashboard", get(files.asset(missing))},
		{"/metrics", "Prometheus metrics", get(s.metrics())},
		{"/healthz", "200 while the process lives", get(s.healthz)},
		{"/readyz", "200 while it should get traffic, else 503 with reasons", get(s.readyz)},
		{"/api/v1/status", "the process as a whole", get(s.status)},
		{"/api/v1/pools", "pools", get(s.pools)},
		{"/api/v1/workers", "workers; POST: register one, with a token",
			map[string]http.HandlerFunc{http.MethodGet: s.workers, http.MethodPost: s.register}},
		{"/api/v1/workers/{name}", "DELETE: deregister a worker, with a token; ?drain=true: nothing new until then",
			map[string]http.HandlerFunc{http.MethodDelete: s.deregister}},
		{"/api/v1/workers/{name}/heartbeat", "PUT: renew the lease of a registered worker, with a token",
			map[string]http.HandlerFunc{http.MethodPut: s.heartbeat}},
		{"/api/v1/workers/{name}/drain", "POST: no new requests for this worker; DELETE: give it back",
			map[string]http.HandlerFunc{http.MethodPost: s.drain, http.MethodDelete: s.undrain}},
		{"/api/v1/feeds", "feeds of engines' KV events", get(s.feeds)},
		{"/api/v1/index", "what is remembered of the workers' caches, by pool", get(s.index)},
		{"/api/v1/prefixes", "most recently used prefixes of a worker; ?worker=NAME&n=100, every worker without a name", get(s.prefixes)},
		{"/api/v1/decisions", "latest decisions, newest first; ?limit=50&pool=NAME&worker=NAME", get(s.decisions)},
		{"/api/v1/explain", "POST a request's body: who would serve it, and why; ?path=/v1/chat/completions&h=name:value&policy=NAME",
			map[string]http.HandlerFunc{http.MethodPost: s.explain}},
		{"/api/v1/config", "running configuration as YAML, without secrets", get(s.config)},
		{"/api/v1/state", "everything the dashboard shows", get(s.state)},
		{"/api/v1/stream", "the same as server-sent events", get(s.stream)},
	}
	if s.cfg.Pprof {
		routes = append(routes,
			route{"/debug/pprof/", "Go profiles", get(pprof.Index)},
			route{"/debug/pprof/cmdline", "", get(pprof.Cmdline)},
			route{"/debug/pprof/profile", "", get(pprof.Profile)},
			route{"/debug/pprof/symbol", "", map[string]http.HandlerFunc{http.MethodGet: pprof.Symbol, http.MethodPost: pprof.Symbol}},
			route{"/debug/pprof/trace", "", get(pprof.Trace)},
		)
	}
	return routes
}

// routes builds the handler: headers first, then the refusal of what other origins send, then the table.
func (s *Server) routes(files *files) http.Handler {
	mux := http.NewServeMux()
	paths := map[string]string{}
	missing := func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, http.StatusNotFound, problem{Error: "no such path: " + r.URL.Path, Paths: paths})
	}
	for _, r := range s.table(files, missing) {
		mux.HandleFunc(r.pattern, s.dispatch(r.methods))
		if r.about != "" {
			paths[strings.TrimSuffix(r.pattern, "{$}")] = r.about
		}
	}
	mux.HandleFunc("/", missing)
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.failf(w, http.StatusForbidden, "refused: the request comes from a web page of another origin")
	}))
	guarded := origin.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		guarded.ServeHTTP(w, r)
	})
}

func (s *Server) dispatch(methods map[string]http.HandlerFunc) http.HandlerFunc {
	allowed := slices.Collect(maps.Keys(methods))
	if methods[http.MethodGet] != nil {
		allowed = append(allowed, http.MethodHead)
	}
	slices.Sort(allowed)
	allow := strings.Join(allowed, ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		h := methods[method]
		if h == nil {
			w.Header().Set("Allow", allow)
			s.failf(w, http.StatusMethodNotAllowed, "%s is not allowed here: use %s", r.Method, allow)
			return
		}
		h(w, r)
	}
}

func (s *Server) metrics() http.HandlerFunc {
	return promhttp.HandlerFor(s.gatherer, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
		Timeout:             metricsTimeout,
	}).ServeHTTP
}

// problem is the JSON of every error.
type problem struct {
	Error   string            `json:"error"`
	Paths   map[string]string `json:"paths,omitempty"`
	Workers []string          `json:"workers,omitempty"`
}

func (s *Server) failf(w http.ResponseWriter, status int, format string, args ...any) {
	s.answer(w, status, problem{Error: fmt.Sprintf(format, args...)})
}

// answer writes v as indented JSON. Nothing is sent before all of it could be marshalled.
func (s *Server) answer(w http.ResponseWriter, status int, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		s.log.Error("admin answer could not be written as JSON", "error", err)
		status = http.StatusInternalServerError
		body.Reset()
		body.WriteString(`{"error": "the answer could not be written as JSON; see the log"}` + "\n")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // a reader that left is not our error
}
