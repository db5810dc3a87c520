package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// withModel is an installation whose engines and attache know the same model.
func withModel(t *testing.T, mode string) setup {
	t.Helper()
	dir, err := filepath.Abs("../internal/demo/model")
	if err != nil {
		t.Fatal(err)
	}
	return setup{mode: "ads", body: mode, engines: 3, engineArgs: []string{"--model-dir", dir}, extproc: "  include_usage: true\n",
		pool: fmt.Sprintf("  prompt: {model_dir: %q}\n", dir)}
}

// agent is a conversation with tools, as a client of an agent sends it: the whole of it, every time.
type agent struct {
	System   string
	messages []any
}

func (a *agent) say(message map[string]any) { a.messages = append(a.messages, message) }

// calls adds a tool call of the assistant's and its result.
func (a *agent) calls(id, command, result string) {
	arguments, err := json.Marshal(map[string]any{"command": command, "timeout": 10})
	if err != nil {
		panic(err)
	}
	a.say(map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{
		"id": id, "type": "function", "function": map[string]any{"name": "run", "arguments": string(arguments)}}}})
	a.say(map[string]any{"role": "tool", "tool_call_id": id, "content": result})
}

func (a *agent) body(stream bool) []byte {
	tools := []any{map[string]any{"type": "function", "function": map[string]any{"name": "run", "description": "Run a command in a shell.",
		"parameters": map[string]any{"type": "object", "properties": map[string]any{"command": map[string]any{"type": "string"},
			"timeout": map[string]any{"type": "integer"}}, "required": []string{"command"}}}}}
	body, err := json.Marshal(map[string]any{"model": model, "max_tokens": 4, "stream": stream, "tools": tools,
		"messages": append([]any{map[string]any{"role": "system", "content": a.System}}, a.messages...)})
	if err != nil {
		panic(err)
	}
	return body
}

// TestPredictedIsDelivered: turn after turn of a conversation with tools, the reuse that attache predicts is, token for
// token, what the engine reports, because both cut the prompt into the same blocks.
func TestPredictedIsDelivered(t *testing.T) {
	for _, mode := range []string{"BUFFERED", "FULL_DUPLEX_STREAMED"} {
		t.Run(mode, func(t *testing.T) {
			r := start(t, withModel(t, mode))
			r.eventually("the model is loaded", func() bool { return r.metric(`attache_prompt_model_loaded{pool="default"}`) == 1 })
			talk := agent{System: "You are an agent that works in a shell. " + words("rules", 2_000)}
			talk.say(map[string]any{"role": "user", "content": "Why does the build fail? " + words("task", 500)})
			for turn := range 5 {
				id := fmt.Sprintf("%s-turn-%d", mode, turn)
				r.must(chatRequest{raw: talk.body(turn%2 == 1), stream: turn%2 == 1, header: map[string]string{"x-request-id": id}})
				d := r.decision(id)
				predicted := d.predicted()
				switch {
				case d.Rung != "exact":
					t.Errorf("turn %d: rung %s", turn, d.Rung)
				case d.Delivered == nil:
					t.Errorf("turn %d: nothing is known of what was reused", turn)
				case *d.Delivered != predicted:
					t.Errorf("turn %d: %d of %d tokens predicted, %d delivered", turn, predicted, d.Prompt, *d.Delivered)
				case turn > 0 && predicted < d.Prompt/2:
					t.Errorf("turn %d: only %d of %d tokens predicted", turn, predicted, d.Prompt)
				}
				talk.calls(fmt.Sprintf("call-%d", turn), fmt.Sprintf("make step-%d", turn), "error: "+words(id, 300))
			}
			if got := r.metric(`attache_prompt_counts_total{pool="default",result="agree"}`); got < 5 {
				t.Errorf("%v token counts agreed, want at least the 5 turns", got)
			}
			if got := r.metric(`attache_prompt_counts_total{pool="default",result="differ"}`); got != 0 {
				t.Errorf("%v token counts differ", got)
			}
		})
	}
}

// TestCompletionsAreExact: a text, and a text that goes on where another ended.
func TestCompletionsAreExact(t *testing.T) {
	r := start(t, withModel(t, "BUFFERED"))
	r.eventually("the model is loaded", func() bool { return r.metric(`attache_prompt_model_loaded{pool="default"}`) == 1 })
	text := words("story", 3_000)
	for i, prompt := range []string{text, text + " and so on"} {
		body, err := json.Marshal(map[string]any{"model": model, "prompt": prompt, "max_tokens": 1})
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("completion-%d", i)
		r.must(chatRequest{raw: body, path: "/v1/completions", header: map[string]string{"x-request-id": id}})
		d := r.decision(id)
		if d.Rung != "exact" || d.Delivered == nil || *d.Delivered != d.predicted() {
			t.Errorf("request %d: rung %s, predicted %d, delivered %v", i, d.Rung, d.predicted(), d.Delivered)
		}
		if i == 1 && d.predicted() < d.Prompt*9/10 {
			t.Errorf("only %d of %d tokens predicted", d.predicted(), d.Prompt)
		}
	}
}

// TestAWrongModelIsNoticed: engines that make other tokens than the model folder says are found out by themselves, and the
// pool goes on by length.
func TestAWrongModelIsNoticed(t *testing.T) {
	s := withModel(t, "BUFFERED")
	s.engineArgs = nil // these count 4 bytes as one token
	r := start(t, s)
	r.eventually("counts are not trusted", func() bool { return r.metric(`attache_prompt_counts_trusted{pool="default"}`) == 0 })
	r.must(chatRequest{prompt: words("after", 400), header: map[string]string{"x-request-id": "after"}})
	if d := r.decision("after"); d.Rung != "approximate" || d.RungReason != "count_mismatch" {
		t.Errorf("afterwards the rung is %s (%s), want approximate (count_mismatch)", d.Rung, d.RungReason)
	}
	if log := r.logText("attache"); !strings.Contains(log, "an engine makes other tokens") || !strings.Contains(log, "first_difference_at_token=") {
		t.Errorf("the log should say so, with the place:\n%s", log)
	}
}
