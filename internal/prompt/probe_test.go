package prompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"attache/internal/openai"
)

// TestProbes: engines are asked once after each start, and one whose tokens differ is found out with the place; when most
// of them differ, prompts are not exact until they agree again.
func TestProbes(t *testing.T) {
	var log bytes.Buffer
	k, err := New(Params{Config: DefaultConfig(), Model: ModelConfig{ModelDir: smallModel(t, map[string]string{"chat_template.jinja": chatML})},
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	right := k.exact.Load().probeTokens(t)
	wrong := slices.Clone(right)
	wrong[3] = 7
	// Each engine answers with these tokens; nil: not at all.
	engine := func(tokens *[]uint32) Probed {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if *tokens == nil {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			text, _ := json.Marshal(map[string]any{"tokens": *tokens})
			_, _ = w.Write(text)
		}))
		t.Cleanup(server.Close)
		return Probed{Address: strings.TrimPrefix(server.URL, "http://")}
	}
	defer k.asker.client.CloseIdleConnections()
	a, b, c := right, wrong, []uint32(nil)
	pool := []Probed{engine(&a), engine(&b), engine(&c)}
	now := time.Now()
	rounds := func(n int) {
		for range n {
			now = now.Add(time.Second)
			k.Probe(t.Context(), pool, now)
		}
	}
	for _, step := range []struct {
		name   string
		change func()
		rounds int
		exact  bool
	}{
		{"one of three differs", func() {}, 5, true},
		{"another starts with other tokens", func() { a = wrong; pool[0].Epoch++ }, 2, false},
		{"it is not asked again at once", func() { a, b = right, right }, 3, false},
		{"but later", func() { now = now.Add(probeAgain) }, 3, true},
		{"who is gone does not count", func() { b = wrong; pool[1].Epoch++; pool = pool[1:2] }, 2, false},
		{"nobody is left to doubt", func() { pool = nil }, 1, true},
	} {
		step.change()
		rounds(step.rounds)
		chain := chainOf(t, k, openai.Chat, hiBody)
		if exact := chain.Rung == Exact; exact != step.exact {
			t.Errorf("%s: rung %s (%s), want exact %t", step.name, chain.Rung, chain.Why, step.exact)
		}
	}
	if want := fmt.Sprintf("first_difference_at_token=3 here=%q", fmt.Sprintf("%d %q", right[3:8], k.exact.Load().model.tokenizer.AppendText(nil, right[3:8]))); !strings.Contains(log.String(), want) {
		t.Errorf("logged:\n%s\nwant %s", log.String(), want)
	}
}

const hiBody = `{"messages":[{"role":"user","content":"hi"}]}`

// probeTokens are ours for the chat that engines are asked about.
func (e *exact) probeTokens(t *testing.T) []uint32 {
	t.Helper()
	var req openai.Request
	if err := openai.Scan(&req, openai.Chat, []byte(probeBody)); err != nil {
		t.Fatal(err)
	}
	var r Rendered
	if err := e.model.Render(&r, []byte(probeBody), &req, VLLM); err != nil {
		t.Fatal(err)
	}
	return e.model.Tokens(nil, &r)
}

// TestProbingBesideRequests is for the race detector.
func TestProbingBesideRequests(t *testing.T) {
	k, err := New(Params{Config: DefaultConfig(), Model: ModelConfig{ModelDir: smallModel(t, map[string]string{"chat_template.jinja": chatML})},
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := k.Load(t.Context()); err != nil {
			t.Error(err)
		}
		for range 20 {
			k.Probe(t.Context(), []Probed{{Address: "127.0.0.1:1"}}, time.Now())
		}
	})
	for range 4 {
		running.Go(func() {
			for range 200 {
				if c := chainOf(t, k, openai.Chat, hiBody); c.Rung == None {
					t.Error("no chain")
				}
			}
		})
	}
	running.Wait()
}
