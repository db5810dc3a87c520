package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attache/internal/admin"
)

// trustAll are lines of extproc that believe every hint.
const trustAll = "  hints: {trust: [all]}\n"

// attacheExplain is what `attache explain` says of a body.
func (r *rig) attacheExplain(body []byte, args ...string) string {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "body.json")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(os.Getenv("ATTACHE"), append([]string{"explain", "--server", r.admin, "--body", file}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("attache explain: %v\n%s", err, out)
	}
	return string(out)
}

func (r *rig) explanation(body []byte, args ...string) (x admin.Explanation) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.attacheExplain(body, append(args, "--json")...)), &x); err != nil {
		r.t.Fatal(err)
	}
	return x
}

// idle waits until nothing is booked, and all has been learnt from the requests that were served.
func (r *rig) idle() {
	r.t.Helper()
	r.eventually("nothing is in flight", func() bool {
		for _, e := range r.engines {
			if r.metric(fmt.Sprintf(`attache_router_in_flight{pool="default",worker=%q}`, e.name)) != 0 {
				return false
			}
		}
		var made []admin.Decision
		return r.api("decisions", &made) == nil && !slices.ContainsFunc(made, func(d admin.Decision) bool { return d.Outcome == "" })
	})
}

// TestExplainAgreesWithTheNextRequest: what is foretold happens, and foretelling leaves no trace.
func TestExplainAgreesWithTheNextRequest(t *testing.T) {
	r := start(t, setup{mode: "ads", engines: 3, extproc: trustAll})
	turns := []string{words("first", 16_000)}
	home := r.must(chatRequest{turns: turns, tokens: 4}).engine
	for turn := range 4 {
		turns = append(turns, words(fmt.Sprintf("answer-%d", turn), 400), words(fmt.Sprintf("question-%d", turn), 400))
		c := chatRequest{turns: turns, tokens: 4}
		r.idle()
		made := r.metric(`attache_router_decisions_total{pool="default"}`)
		x := r.explanation(c.body(), "--header", "x-session-id: s7")
		if n := r.metric(`attache_router_decisions_total{pool="default"}`); n != made {
			t.Errorf("explaining made %g decisions", n-made)
		}
		if x.Chosen != home || len(x.Candidates) != 3 || x.Captured < x.PromptTokens/2 || strings.Join(x.Hints, " ") != "session" {
			t.Errorf("turn %d: %+v; the conversation lives on %s", turn, x, home)
		}
		if a := r.must(c); a.engine != x.Chosen {
			t.Errorf("turn %d: went to %s; foretold was %s", turn, a.engine, x.Why)
		}
		var decisions []admin.Decision
		if err := r.api("decisions?limit=1&worker="+home, &decisions); err != nil || len(decisions) != 1 {
			t.Fatalf("%v, %d decisions", err, len(decisions))
		}
		if d := decisions[0]; d.Chosen != x.Chosen || d.PromptTokens != x.PromptTokens || d.CapturedTokens != x.Captured || d.AvailableTokens != x.Available ||
			d.Policy != x.Policy || d.Rung != x.Rung {
			t.Errorf("turn %d: decided %+v; foretold %+v", turn, d, x)
		}
	}
	body := chatRequest{turns: turns}.body()
	r.engine(home).Kill()
	r.eventually("its death is known", func() bool { return len(r.workers("ready")) == 2 })
	text := r.attacheExplain(body)
	for _, want := range []string{"Who may serve", home + "  ", "unhealthy", "What each policy would choose", "round-robin"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "speaks of blocks") {
		t.Errorf("the prompt is shown:\n%s", text)
	}
	if log := r.logText("attache"); strings.Contains(log, "speaks of blocks") {
		t.Error("the prompt is in the log")
	}
}

// TestPins: through Envoy a request goes to the worker that it names, to those with the taint that it requires, or nowhere.
func TestPins(t *testing.T) {
	r := start(t, setup{mode: "ads", engines: 3, extproc: trustAll, furnish: func(r *rig, e *engine) {
		e.worker = fmt.Sprintf(", labels: {zone: z%d}", len(r.engines)%2)
	}})
	pin := func(value string) map[string]string { return map[string]string{"x-dynamo-worker-instance-id": value} }
	for i := range 12 {
		e := r.engines[i%3]
		by := [2]string{e.name, e.address()}[i%2]
		if a := r.must(chatRequest{prompt: "hello", header: pin(by)}); a.engine != e.name {
			t.Errorf("request %d for %s was answered by %s", i, by, a.engine)
		}
	}
	tainted := []byte(fmt.Sprintf(`{"model":%q,"max_tokens":1,"messages":[{"role":"user","content":"hi"}],"nvext":{"routing_constraints":{"required_taints":["zone=z0"]}}}`, model))
	x := r.explanation(tainted)
	if len(x.Candidates)+len(x.Excluded) != 3 || len(x.Excluded) == 0 || x.Excluded[0].Reason != "taint" {
		t.Errorf("%+v", x)
	}
	for range 6 {
		a := r.must(chatRequest{raw: tainted})
		for _, e := range x.Excluded {
			if a.engine == e.Worker {
				t.Errorf("%s answered, which lacks the taint", a.engine)
			}
		}
	}
	refused := chatRequest{prompt: "hello", header: pin("engine-9")}
	a, err := r.chat(t.Context(), refused)
	if err != nil || a.status != 503 {
		t.Fatalf("a pin to nobody: status %d, %v", a.status, err)
	}
	if x := r.explanation(refused.body(), "--header", "x-dynamo-worker-instance-id: engine-9"); x.Chosen != "" || x.Refusal == nil || x.Refusal.Status != 503 ||
		!strings.Contains(x.Why, "3 not the worker that the request names") {
		t.Errorf("%+v", x)
	}
	if n := r.metric(`attache_router_excluded_total{pool="default",reason="worker"}`); n != 13 {
		t.Errorf("%g requests counted that left workers out by name, 13 did", n)
	}
}

// TestTooLong: what no worker's context takes is refused with both numbers, before it costs anything.
func TestTooLong(t *testing.T) {
	r := start(t, setup{mode: "ads", engines: 2})
	long := chatRequest{path: "/v1/completions", raw: []byte(fmt.Sprintf(`{"model":%q,"prompt":[1,2,3],"max_tokens":16000000}`, model))}
	r.eventually("the workers' context length is known", func() bool {
		a, err := r.chat(t.Context(), long)
		return err == nil && a.status == 400
	})
	x := r.explanation(long.raw, "--path", "/v1/completions")
	if x.Refusal == nil || x.Refusal.Status != 400 || !strings.Contains(x.Why, "16000003: 3 in the prompt and up to 16000000 in the answer") ||
		len(x.Excluded) != 2 || x.Excluded[0].Reason != "context_length" {
		t.Errorf("%+v", x)
	}
}
