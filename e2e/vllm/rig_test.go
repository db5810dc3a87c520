// Package vllm tests the whole product with real engines: two unmodified vLLM servers on the CPU, behind a real Envoy and
// attache. Their model makes noise, but its tokens, block hashes, cache hits, usage and KV events are what any vLLM makes.
// It is not part of the other tests: `make e2e-vllm` installs the engines and runs it.
package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"attache/internal/proc"
)

const (
	// wait is the bound of what should happen soon, startWait of a vLLM's start, which takes a minute alone on two cores.
	wait      = 30 * time.Second
	startWait = 6 * time.Minute
	// remembered is how many decisions are: more than a scenario makes.
	remembered = 1000
)

func TestMain(m *testing.M) {
	_, err := proc.FindEnvoy()
	if os.Getenv("VLLM") == "" || os.Getenv("ATTACHE") == "" || err != nil {
		fmt.Fprintln(os.Stderr, "e2e/vllm: skipped, it needs VLLM (where a vLLM for the CPU is installed), ATTACHE and ENVOY; run `make e2e-vllm`")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rig is one installation: two servers, attache and Envoy, on ports that stay the same, so that what is killed can come
// back where it was.
type rig struct {
	whole   *testing.T // for as long as the installation lives
	t       *testing.T // of the scenario that runs
	dir     string
	servers []*server
	url     string // of Envoy's listener
	admin   string // of attache
	table   table
}

// start brings everything up and waits until both servers are used.
func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{whole: t, t: t, dir: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			r.dumpLogs()
		}
	})
	for i := range 2 {
		s := &server{name: fmt.Sprintf("vllm-%d", i), http: freePort(t), events: freePort(t), replay: freePort(t)}
		r.servers = append(r.servers, s)
		r.launch(s)
	}
	for _, s := range r.servers {
		r.awaitServer(s)
	}
	r.startGateway()
	r.within(wait, "both servers are ready", func() bool { return len(r.workers("ready")) == len(r.servers) })
	r.within(wait, "the model is loaded", func() bool { return r.metric(`attache_prompt_model_loaded{pool="default"}`) == 1 })
	r.within(wait, "Envoy serves a steered request", func() bool {
		_, err := r.send(r.url, chat{id: "first", messages: []message{{"user", "hello"}}})
		return err == nil && r.metric(`attache_router_decisions_total{pool="default"}`) > 0
	})
	return r
}

// startGateway starts attache and Envoy, configured as a user would: the workers in a file, Envoy by what
// `attache envoy-config` prints.
func (r *rig) startGateway() {
	extproc, xds, admin := freePort(r.t), freePort(r.t), freePort(r.t)
	r.admin = "http://127.0.0.1:" + strconv.Itoa(admin)
	var workers strings.Builder
	workers.WriteString("workers:\n")
	for _, s := range r.servers {
		fmt.Fprintf(&workers, "- {name: %s, address: %q%s}\n", s.name, s.address(), s.eventsYAML())
	}
	r.write("workers.yaml", workers.String())
	cfg := r.write("attache.yaml", fmt.Sprintf(`
pools:
- name: default
  engine: vllm
  workers_file: %s
  prompt: {model_dir: %s, block_tokens: %d}
workers:
  # The servers share the processors with their load: they are slow to answer, not ill.
  health: {timeout: 10s, failures: 5}
  metrics: {busy_interval: 1s, timeout: 10s}
router: {recent: %d}
extproc: {listen: 127.0.0.1:%d, include_usage: true}
xds:
  listen: 127.0.0.1:%d
  gateway: {listen: 127.0.0.1:0, admin: 127.0.0.1:0, message_timeout: 10s}
admin: {listen: 127.0.0.1:%d}
`, filepath.Join(r.dir, "workers.yaml"), modelDir(), blockTokens, remembered, extproc, xds, admin))

	p, err := proc.Start(context.Background(), r.log("attache"), os.Getenv("ATTACHE"), "serve", "--config", cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.Kill)
	r.within(wait, "attache answers", func() bool { return answers(r.admin + "/healthz") })

	cmd := exec.Command(os.Getenv("ATTACHE"), "envoy-config", "--config", cfg, "--mode", "ads")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	bootstrap, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("attache envoy-config: %v\n%s", err, errs.String())
	}
	binary, err := proc.FindEnvoy()
	if err != nil {
		r.t.Fatal(err)
	}
	envoy, err := proc.StartEnvoy(context.Background(), binary, r.dir, string(bootstrap))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(envoy.Kill)
	address, err := envoy.Listener(r.t.Context(), "llm")
	if err != nil {
		r.t.Fatal(err)
	}
	r.url = "http://" + address
}

func (r *rig) write(name, text string) string {
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// log opens a log file for a child.
func (r *rig) log(name string) io.Writer {
	f, err := os.OpenFile(filepath.Join(r.dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	r.whole.Cleanup(func() { f.Close() })
	return f
}

func (r *rig) dumpLogs() {
	files, _ := filepath.Glob(filepath.Join(r.dir, "*.log"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		r.t.Logf("--- the end of %s\n%s", filepath.Base(f), text[max(0, len(text)-3000):])
	}
}

// lastPort counts the ports that were tried. They are below those that systems give to outgoing connections, and above
// those of the other end-to-end tests.
var lastPort int

func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		lastPort++
		port := 29_000 + os.Getpid()%100*20 + lastPort
		if l, err := net.Listen("tcp", ":"+strconv.Itoa(port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// within waits until something holds.
func (r *rig) within(bound time.Duration, what string, holds func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(bound)
	for !holds() {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within %s: %s", bound, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func answers(url string) bool {
	resp, err := http.Get(url)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == 200
}

func readAll(url string) ([]byte, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// workers are the names of the workers in a state, as the admin API shows them.
func (r *rig) workers(state string) []string {
	text, err := readAll(r.admin + "/api/v1/workers")
	var list struct {
		Workers []struct{ Name, State string }
	}
	if err != nil || json.Unmarshal(text, &list) != nil {
		return nil
	}
	var names []string
	for _, w := range list.Workers {
		if w.State == state {
			names = append(names, w.Name)
		}
	}
	return names
}

// drain takes a worker out of new decisions, or gives it back.
func (r *rig) drain(worker string, on bool) {
	r.t.Helper()
	method, ready := http.MethodPost, len(r.servers)-1
	if !on {
		method, ready = http.MethodDelete, len(r.servers)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.admin+"/api/v1/workers/"+worker+"/drain", http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	resp.Body.Close()
	r.within(wait, fmt.Sprintf("%d workers are ready", ready), func() bool { return len(r.workers("ready")) == ready })
}

// on does something while one server alone gets requests.
func (r *rig) on(s *server, do func()) {
	r.t.Helper()
	for _, other := range r.servers {
		if other != s {
			r.drain(other.name, true)
			defer r.drain(other.name, false)
		}
	}
	do()
}

// metric reads one sample of attache's /metrics by its exact name and labels; -1 when there is none.
func (r *rig) metric(sample string) float64 {
	text, err := readAll(r.admin + "/metrics")
	if err != nil {
		return -1
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if value, ok := strings.CutPrefix(line, sample+" "); ok {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				return v
			}
		}
	}
	return -1
}
