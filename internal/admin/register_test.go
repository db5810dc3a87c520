package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"attache/internal/worker/register"
)

const token = "a-token-of-some-length"

// taker is a Registrar for one token: what it was told, and in how many requests each worker is busy.
type taker struct {
	mu    sync.Mutex
	off   bool
	known map[string]int
	said  []string
}

func (f *taker) notef(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

func (f *taker) Authorize(shown string) error {
	switch {
	case f.off:
		return &register.RefusedError{Kind: register.Off, Text: "set workers.registration.token_file"}
	case shown != token:
		return &register.RefusedError{Kind: register.Stranger, Text: "not the token"}
	}
	return nil
}

func (f *taker) lease(name string) (*register.Lease, error) {
	n, known := f.known[name]
	if !known {
		return nil, &register.RefusedError{Kind: register.Unknown, Text: "no worker " + name + " is registered"}
	}
	return &register.Lease{Worker: name, Pool: "chat", TTL: 15, Heartbeat: 5, InFlight: n}, nil
}

func (f *taker) Register(_ context.Context, said *register.Registration) (*register.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch said.Name {
	case "taken":
		return nil, &register.RefusedError{Kind: register.Taken, Text: "taken"}
	case "surplus":
		return nil, &register.RefusedError{Kind: register.Full, Text: "full"}
	}
	f.notef("register %s at %s", said.Name, said.Address)
	f.known[said.Name] = 0
	return f.lease(said.Name)
}

func (f *taker) Heartbeat(_ context.Context, name string, said *register.Heartbeat) (*register.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notef("heartbeat %s %d", name, said.Load.Running)
	return f.lease(name)
}

func (f *taker) Drain(_ context.Context, name string) (*register.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notef("drain %s", name)
	return f.lease(name)
}

func (f *taker) Deregister(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.lease(name)
	delete(f.known, name)
	f.notef("deregister %s", name)
	return err
}

func TestRegistering(t *testing.T) {
	source := newFake()
	s := stopped(t, quiet(), source)
	for _, c := range []struct {
		method, path, body, auth string
		status                   int
		contains                 string
		said                     string // by the worker, as it came through; "" nothing
	}{
		{"PUT", "gpu-z/heartbeat", ``, "Bearer " + token, 404, `no worker gpu-z is registered`, "heartbeat gpu-z 0"},
		{"POST", "", `{"name":"gpu-z","address":"10.0.0.1:8000"}`, "Bearer " + token, 200, `"heartbeat_s": 5`, "register gpu-z at 10.0.0.1:8000"},
		{"PUT", "gpu-z/heartbeat", `{"load":{"running":3}}`, "bearer  " + token, 200, `"ttl_s": 15`, "heartbeat gpu-z 3"},
		{"DELETE", "gpu-z?drain=true", ``, "Bearer " + token, 200, `"in_flight": 0`, "drain gpu-z"},
		{"DELETE", "gpu-z?drain=maybe", ``, "Bearer " + token, 400, `drain: \"maybe\": must be true or false`, ""},
		{"DELETE", "gpu-z", ``, "Bearer " + token, 200, `"worker": "gpu-z"`, "deregister gpu-z"},
		{"DELETE", "gpu-z", ``, "Bearer " + token, 404, `no worker gpu-z is registered`, "deregister gpu-z"},
		{"DELETE", "gpu-z?drain=true", ``, "Bearer " + token, 404, `no worker gpu-z is registered`, "drain gpu-z"},
		{"POST", "", `{"name":"gpu-z"}`, "Bearer " + token, 400, `address: \"\": must be host:port`, ""},
		{"PUT", "gpu-z/heartbeat", `{"lod":1}`, "Bearer " + token, 400, `body: unknown field \"lod\"`, ""},
		{"POST", "", `{"name":"taken","address":"10.0.0.1:8000"}`, "Bearer " + token, 409, `taken`, ""},
		{"POST", "", `{"name":"surplus","address":"10.0.0.1:8000"}`, "Bearer " + token, 429, `full`, ""},
		{"POST", "", strings.Repeat(" ", register.MaxBody+1), "Bearer " + token, 413, `body: must be at most 65536 bytes`, ""},
		{"POST", "", `{"name":"gpu-z","address":"10.0.0.1:8000"}`, "", 401, `not the token`, ""},
		{"PUT", "gpu-z/heartbeat", ``, "Basic " + token, 401, `not the token`, ""},
		{"DELETE", "gpu-z", ``, token, 401, `not the token`, ""},
		{"PUT", "gpu-z", ``, "Bearer " + token, 405, `use DELETE`, ""},
	} {
		source.takes.said = nil
		path := "/api/v1/workers"
		if c.path != "" {
			path += "/" + c.path
		}
		r := httptest.NewRequest(c.method, path, strings.NewReader(c.body))
		r.Header.Set("Authorization", c.auth)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if said := strings.Join(source.takes.said, "; "); w.Code != c.status || !strings.Contains(w.Body.String(), c.contains) || said != c.said {
			t.Errorf("%s %s %.60s: %d after %q, want %d after %q; body %s", c.method, c.path, c.body, w.Code, said, c.status, c.said, w.Body)
		}
		if challenged := w.Header().Get("WWW-Authenticate") == "Bearer"; challenged != (w.Code == http.StatusUnauthorized) {
			t.Errorf("%s %s: challenged %v with status %d", c.method, c.path, challenged, w.Code)
		}
	}
	source.takes.off = true
	if w := call(s, "POST", "/api/v1/workers"); w.Code != 403 || !strings.Contains(w.Body.String(), "workers.registration.token_file") {
		t.Errorf("turned off: %d %s", w.Code, w.Body)
	}
}
