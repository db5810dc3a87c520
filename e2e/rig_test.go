// Package e2e tests attache as its users run it: the real binary, a real Envoy, simulated engines in processes of their
// own, joined over loopback. `make test` brings what is needed.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"attache/internal/proc"
)

const model = "sim-model"

// wait is the bound of every wait for something that should happen soon; a busy machine needs air.
const wait = 15 * time.Second

func TestMain(m *testing.M) {
	binary := os.Getenv("ATTACHE")
	_, err := proc.FindEnvoy()
	if binary == "" || err != nil {
		fmt.Fprintln(os.Stderr, "e2e: needs ATTACHE (the binary) and ENVOY; run `make test`")
		if os.Getenv("CI") != "" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rig is one installation: engines, attache and Envoy. Ports are fixed for its life, so that what is killed can come
// back where it was.
type rig struct {
	t       *testing.T
	dir     string
	cfg     string // attache.yaml
	engines []*engine
	attache *proc.Process
	envoy   *proc.Envoy
	url     string // of Envoy's listener
	admin   string // of attache
	ports   struct{ extproc, xds, admin int }
	setup   setup
}

// setup is what differs between tests.
type setup struct {
	mode       string // ads, attach or static
	body       string // BUFFERED or FULL_DUPLEX_STREAMED; "" is BUFFERED
	engines    int
	engineArgs []string
	furnish    func(*rig, *engine) // completes an engine before it starts; nil: nothing
	config     string              // further YAML, top-level sections
	pool       string              // further lines of the pool
	extproc    string              // further lines of extproc
	gateway    string              // further lines of xds.gateway
	files      map[string]string   // to be there; DIR in configuration is their folder
	socket     bool                // attache takes requests on a Unix socket
	header     map[string]string   // that the first request needs
	failClosed bool
	health     string // Envoy's health check interval of attache
}

// engine is one simulated worker.
type engine struct {
	*proc.Process

	name   string
	host   string
	port   int
	args   []string
	worker string // further keys in the workers file
}

func (e *engine) address() string { return e.host + ":" + strconv.Itoa(e.port) }

// start brings everything up and waits until requests are served.
func start(t *testing.T, s setup) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), setup: s}
	for _, p := range []*int{&r.ports.extproc, &r.ports.xds, &r.ports.admin} {
		*p = freePort(t)
	}
	r.admin = "http://127.0.0.1:" + strconv.Itoa(r.ports.admin)
	for i := range s.engines {
		r.addEngine(fmt.Sprintf("engine-%d", i))
	}
	r.writeConfig(r.engines)
	r.startAttache()
	r.startEnvoy()
	r.eventually("every engine is ready", func() bool { return len(r.workers("ready")) == s.engines })
	r.eventually("Envoy serves a steered request", func() bool {
		a, err := r.chat(t.Context(), chatRequest{prompt: "hello", tokens: 1, header: s.header})
		return err == nil && a.status == 200 && r.metric(`attache_router_decisions_total{pool="default"}`) > 0
	})
	t.Cleanup(func() {
		if t.Failed() {
			r.dumpLogs()
		}
	})
	return r
}

// lastPort counts the ports that were tried. Ports are below those that systems give to outgoing connections, and none is
// given out twice, so that what is free now is free when a process takes it, and again after that was killed.
var lastPort atomic.Int32

func freePort(t *testing.T) int { return freePorts(t, 1) }

// freePorts is the first of n ports in a row.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for range 1000 {
		port := 18_000 + os.Getpid()%1000*10 + int(lastPort.Add(int32(n))) - n + 1
		if free(port, n) {
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

func free(port, n int) bool {
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port+i))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

// log opens a log file of the rig that the child and nobody else writes to.
func (r *rig) log(name string) io.Writer {
	f, err := os.OpenFile(filepath.Join(r.dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { f.Close() })
	return f
}

// logText is what a process of the rig has logged so far.
func (r *rig) logText(name string) string {
	text, err := os.ReadFile(filepath.Join(r.dir, name+".log"))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

func (r *rig) dumpLogs() {
	files, _ := filepath.Glob(filepath.Join(r.dir, "*.log"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		r.t.Logf("--- the end of %s\n%s", filepath.Base(f), text[max(0, len(text)-3000):])
	}
}

func (r *rig) addEngine(name string) *engine {
	e := &engine{name: name, host: "127.0.0.1", port: freePort(r.t), args: slices.Clone(r.setup.engineArgs)}
	r.engines = append(r.engines, e)
	if r.setup.furnish != nil {
		r.setup.furnish(r, e)
	}
	r.startEngine(e)
	return e
}

func (r *rig) startEngine(e *engine) {
	args := append([]string{"engine", "--listen", e.address(), "--name", e.name, "--model", model, "--speed", "20"}, e.args...)
	p, err := proc.Start(context.Background(), r.log(e.name), os.Getenv("ATTACHE"), args...)
	if err != nil {
		r.t.Fatal(err)
	}
	e.Process = p
	r.t.Cleanup(p.Kill)
	r.eventually(e.name+" is healthy", func() bool {
		resp, err := http.Get("http://" + e.address() + "/health")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
}

// writeConfig writes attache.yaml; the engines are in a watched file, so that tests can add and remove some.
func (r *rig) writeConfig(engines []*engine) {
	r.writeWorkers(engines, nil)
	body, failOpen, health := r.setup.body, !r.setup.failClosed, r.setup.health
	if body == "" {
		body = "BUFFERED"
	}
	if health == "" {
		health = "250ms"
	}
	extproc := "127.0.0.1:" + strconv.Itoa(r.ports.extproc)
	if r.setup.socket {
		extproc = "unix://DIR/attache.sock"
	}
	text := fmt.Sprintf(`
pools:
- name: default
  workers_file: %s
%sextproc:
  listen: %s
  drain_wait: 600ms
%sxds:
  listen: 127.0.0.1:%d
  gateway:
    listen: 127.0.0.1:0
    admin: 127.0.0.1:0
    body_mode: %s
    fail_open: %v
    health_interval: %s
%sadmin:
  listen: 127.0.0.1:%d
%s`, r.workersFile(), r.setup.pool, extproc, r.setup.extproc, r.ports.xds, body, failOpen, health, r.setup.gateway, r.ports.admin, r.setup.config)
	text = strings.ReplaceAll(text, "DIR", r.dir)
	for name, content := range r.setup.files {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	r.cfg = filepath.Join(r.dir, "attache.yaml")
	if err := os.WriteFile(r.cfg, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) workersFile() string { return filepath.Join(r.dir, "workers", "workers.yaml") }

// writeWorkers replaces the watched file in one step, as a careful operator does.
func (r *rig) writeWorkers(engines []*engine, draining map[string]bool) {
	var b strings.Builder
	b.WriteString("workers:\n")
	for _, e := range engines {
		fmt.Fprintf(&b, "- {name: %s, address: %q, drain: %v%s}\n", e.name, e.address(), draining[e.name], e.worker)
	}
	dir := filepath.Dir(r.workersFile())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".new"), []byte(b.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, ".new"), r.workersFile()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) startAttache() {
	p, err := proc.Start(context.Background(), r.log("attache"), os.Getenv("ATTACHE"), "serve", "--config", r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.attache = p
	r.t.Cleanup(p.Kill)
	r.eventually("attache answers", func() bool {
		resp, err := http.Get(r.admin + "/healthz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
}

// envoyConfig is what a user would paste: the output of `attache envoy-config`.
func (r *rig) envoyConfig() string {
	cmd := exec.Command(os.Getenv("ATTACHE"), "envoy-config", "--config", r.cfg, "--mode", r.setup.mode)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("attache envoy-config: %v\n%s", err, errs.String())
	}
	return string(out)
}

func (r *rig) startEnvoy() {
	binary, err := proc.FindEnvoy()
	if err != nil {
		r.t.Fatal(err)
	}
	if r.envoy, err = proc.StartEnvoy(context.Background(), binary, r.dir, r.envoyConfig()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(r.envoy.Kill)
	address, err := r.envoy.Listener(r.t.Context(), "llm")
	if err != nil {
		r.t.Fatal(err)
	}
	r.url = "http://" + address
}

// eventually waits, within bounds, until something holds.
func (r *rig) eventually(what string, holds func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(wait)
	for !holds() {
		if time.Now().After(deadline) {
			r.dumpLogs()
			r.t.Fatalf("not within %s: %s", wait, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// workers are the names of the workers in a state, as the admin API shows them; "" means all.
func (r *rig) workers(state string) []string {
	var list []struct {
		Name  string `json:"name"`
		State string `json:"state"`
	}
	if r.api("workers", &list) != nil {
		return nil
	}
	var names []string
	for _, w := range list {
		if state == "" || w.State == state {
			names = append(names, w.Name)
		}
	}
	return names
}

// api reads one resource of the admin API, which may have a query. The API wraps lists in an object of the same name.
func (r *rig) api(name string, into any) error {
	text, err := readAll(r.admin + "/api/v1/" + name)
	if err != nil {
		return err
	}
	body := []byte(text)
	name, _, _ = strings.Cut(name, "?")
	var wrapped map[string]json.RawMessage
	if json.Unmarshal(body, &wrapped) == nil && wrapped[name] != nil {
		body = wrapped[name]
	}
	return json.Unmarshal(body, into)
}

func readAll(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// metric reads one sample of attache's /metrics by its exact name and labels.
func (r *rig) metric(sample string) float64 {
	text, err := readAll(r.admin + "/metrics")
	if err != nil {
		return -1
	}
	for line := range strings.SplitSeq(text, "\n") {
		if value, ok := strings.CutPrefix(line, sample+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return -1
			}
			return v
		}
	}
	return -1
}

// chatRequest is one turn.
type chatRequest struct {
	prompt string   // of a single user message, unless messages are given
	turns  []string // alternating user and assistant texts
	tokens int      // max_tokens
	stream bool
	model  string
	header map[string]string
	path   string
	raw    []byte // instead of all that
}

func (c chatRequest) body() []byte {
	if c.raw != nil {
		return c.raw
	}
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	turns := c.turns
	if turns == nil {
		turns = []string{c.prompt}
	}
	var messages []message
	for i, text := range turns {
		messages = append(messages, message{[2]string{"user", "assistant"}[i%2], text})
	}
	m := c.model
	if m == "" {
		m = model
	}
	body, err := json.Marshal(map[string]any{"model": m, "messages": messages, "max_tokens": max(c.tokens, 1), "stream": c.stream})
	if err != nil {
		panic(err)
	}
	return body
}

// answer is what the client saw.
type answer struct {
	status  int
	engine  string // who served
	bytes   int    // of the body that the engine received
	sha256  string
	text    string // the whole body, or all events of a stream
	done    bool   // a stream came to its end
	header  http.Header
	chunks  int
	elapsed time.Duration
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4096, MaxConnsPerHost: 0, DisableCompression: true}}

// chat sends one request through Envoy. The error is a transport failure; HTTP errors are in the status.
func (r *rig) chat(ctx context.Context, c chatRequest) (answer, error) { return send(ctx, r.url, c) }

// send is chat to any server.
func send(ctx context.Context, url string, c chatRequest) (answer, error) {
	path := c.path
	if path == "" {
		path = "/v1/chat/completions"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, bytes.NewReader(c.body()))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range c.header {
		req.Header.Set(k, v)
	}
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	a := answer{status: resp.StatusCode, engine: resp.Header.Get("x-sim-engine"), sha256: resp.Header.Get("x-sim-body-sha256"),
		text: string(text), header: resp.Header, elapsed: time.Since(began)}
	a.bytes, _ = strconv.Atoi(resp.Header.Get("x-sim-body-bytes"))
	a.done = strings.HasSuffix(strings.TrimSpace(a.text), "data: [DONE]")
	a.chunks = strings.Count(a.text, "data: ")
	if err == nil && c.stream && a.status == 200 && !a.done {
		err = errors.New("the stream ended without [DONE]")
	}
	return a, err
}

// must is chat for requests that have to work.
func (r *rig) must(c chatRequest) answer {
	r.t.Helper()
	a, err := r.chat(r.t.Context(), c)
	if err != nil || a.status != 200 {
		r.t.Fatalf("request failed: status %d, %v\n%s", a.status, err, a.text)
	}
	return a
}

func (r *rig) engine(name string) *engine {
	for _, e := range r.engines {
		if e.name == name {
			return e
		}
	}
	r.t.Fatalf("no engine %q", name)
	return nil
}

// addEngineFor starts an engine of another model; it is not written to the watched file.
func (r *rig) addEngineFor(name, model string) *engine {
	e := &engine{name: name, host: "127.0.0.1", port: freePort(r.t), args: []string{"--model", model}}
	r.startEngine(e)
	return e
}

// rewriteConfig changes attache.yaml; a restart reads it.
func (r *rig) rewriteConfig(change func(string) string) {
	text, err := os.ReadFile(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.cfg, []byte(change(string(text))), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// inFlight is how many requests are booked on a worker.
func (r *rig) inFlight(worker string) int {
	return int(r.metric(fmt.Sprintf(`attache_router_in_flight{pool="default",worker=%q}`, worker)))
}
