package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attache/internal/admin"
	"attache/internal/golden"
)

// explaining is an attache that answers every question alike, and what it was asked.
func explaining(t *testing.T, status int, answer any) (address string, asked *http.Request) {
	t.Helper()
	asked = new(http.Request)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = *r
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func bodyFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "body.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestExplainTables(t *testing.T) {
	one := func(worker, rank string, held, inFlight int, queue, prefill, decode, evict float64) admin.Contender {
		c := admin.Contender{
			Worker: worker, Address: "10.0.0.1:8000", Rank: rank, CachedTokens: held, TierBlocks: admin.Tiers{Device: held / 16}, Evidence: "exact", InFlight: inFlight,
			SpeedFactor: admin.Known(1), PredictedTTFTS: admin.Known(queue + prefill), Total: admin.Known(queue + prefill + decode + evict), Unit: "s",
			Terms: []admin.Term{{Name: "queue", Value: admin.Known(queue)}, {Name: "prefill", Value: admin.Known(prefill)}, {Name: "decode", Value: admin.Known(decode)}},
		}
		if evict > 0 {
			c.Terms = append(c.Terms, admin.Term{Name: "evict", Value: admin.Known(evict)})
		}
		return c
	}
	second := one("gpu-a", "", 0, 3, 0, .54, .02, .11)
	second.SpeedFactor, second.Preference = admin.Known(1.42), -2
	third := one("gpu-c", "1", 8192, 17, 1.9, .2, .05, 0)
	third.Saturated, third.Bound, third.Doubt, third.TierBlocks.Host = true, true, .25, 100
	full := admin.Explanation{
		Pool: "chat", Model: "llama", SentModel: "llama-3.3", Policy: "time", Chosen: "gpu-b", PromptTokens: 13_000, BlockTokens: 16, Rung: "exact",
		Why:       "gpu-b holds 12,288 of 13,000 tokens and is expected to answer 0.41 s sooner than the next, gpu-a",
		Available: 12_288, Captured: 12_288, PredictedTTFTS: admin.Known(.13), Queue: admin.QueuePlace{Class: "default", Waiting: 3, Capacity: 500},
		Candidates: []admin.Contender{one("gpu-b", "", 12_288, 11, .08, .05, .03, 0), second, third},
		Excluded:   []admin.Excluded{{Worker: "gpu-g", Address: "10.0.0.7:8000", Reason: "unhealthy", Text: "unhealthy", Detail: "connection\x1b[2J refused"}, {Worker: "gpu-p", Address: "10.0.0.9:8000", Reason: "role", Text: "for prefill only"}},
		Others: []admin.OtherChoice{{Policy: "time", Worker: "gpu-b", Same: true, CachedTokens: 12_288, PredictedTTFTS: admin.Known(.13), Total: admin.Known(.16), Unit: "s"},
			{Policy: "dynamo", Worker: "gpu-c", Rank: "1", CachedTokens: 8192, PredictedTTFTS: admin.Known(2.1), Total: admin.Known(168.3), Unit: "blocks"},
			{Policy: "random", Worker: "gpu-b", Same: true, PredictedTTFTS: admin.Known(.13), Unit: "none"}},
		Hints: []string{"session", "output_tokens"}, IgnoredHints: []admin.IgnoredHint{{Hint: "worker", Reason: "it is not believed"}},
	}
	nobody := admin.Explanation{
		Pool: "chat", Model: "llama", Policy: "time", Why: `nobody: no worker of pool "chat" can take the request: 1 unhealthy`,
		Refusal: &admin.Refusal{Status: 503, Message: "no worker"}, Excluded: full.Excluded[:1],
	}
	for _, c := range []struct {
		file string
		x    admin.Explanation
	}{{"explain.txt", full}, {"explain_nobody.txt", nobody}} {
		address, asked := explaining(t, 200, c.x)
		var out, errs bytes.Buffer
		status := run(t.Context(), []string{"explain", "--server", address, "--body", bodyFile(t, "{}"), "--path", "/v1/completions", "--header", "a: b,c", "--header", "d: e",
			"--policy", "dynamo;overlap_score_credit=1"}, &out, &errs)
		if status != 0 {
			t.Fatalf("status %d: %s", status, errs.String())
		}
		if want := "h=a%3A+b%2Cc&h=d%3A+e&path=%2Fv1%2Fcompletions&policy=dynamo%3Boverlap_score_credit%3D1"; asked.Method != "POST" || asked.URL.RawQuery != want {
			t.Errorf("asked %s ?%s", asked.Method, asked.URL.RawQuery)
		}
		golden.Compare(t, c.file, out.String())
	}
}

func TestExplainAsJSON(t *testing.T) {
	address, _ := explaining(t, 200, admin.Explanation{Chosen: "gpu-b", Why: "because"})
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"explain", "--admin", address, "--body", bodyFile(t, "{}"), "--json"}, &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	var x admin.Explanation
	if err := json.Unmarshal(out.Bytes(), &x); err != nil || x.Chosen != "gpu-b" {
		t.Errorf("%v, %+v", err, x)
	}
}

func TestExplainFails(t *testing.T) {
	refuses, _ := explaining(t, 400, map[string]any{"error": map[string]any{"message": "body: byte 6: expected '}'"}})
	older, _ := explaining(t, 404, map[string]any{"error": "no such path", "paths": map[string]string{"/": "dashboard"}})
	other, _ := explaining(t, 200, "hello")
	body := bodyFile(t, "{}")
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"a request that is refused", []string{"--server", refuses, "--body", body}, "a client would be answered 400: body: byte 6: expected '}'"},
		{"another version", []string{"--server", older, "--body", body}, "it seems to run another version of attache"},
		{"another server", []string{"--server", other, "--body", body}, "does not answer as attache does"},
		{"nobody there", []string{"--server", "127.0.0.1:1", "--body", body}, "no attache at http://127.0.0.1:1"},
		{"no file", []string{"--server", refuses, "--body", "/nowhere/body.json"}, "--body: open /nowhere/body.json"},
		{"no URL", []string{"--server", "ftp://x", "--body", body}, "must be a URL"},
	} {
		var out, errs bytes.Buffer
		if status := run(t.Context(), append([]string{"explain"}, c.args...), &out, &errs); status != 1 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s: status %d, %s; want %s", c.name, status, errs.String(), c.want)
		}
	}
}

// TestExplainManyWorkers: a large pool does not push the rest off the screen.
func TestExplainManyWorkers(t *testing.T) {
	x := admin.Explanation{Candidates: make([]admin.Contender, 500), Excluded: make([]admin.Excluded, 26)}
	text := string(explained(&x))
	if lines := strings.Count(text, "\n"); lines > 80 || !strings.Contains(text, "and 475 more; --json shows all") || !strings.Contains(text, "and 1 more;") {
		t.Errorf("%d lines:\n%s", lines, text)
	}
}
