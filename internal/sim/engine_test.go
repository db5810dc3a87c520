package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"attache/internal/bubble"
	"attache/internal/openai"
)

// rig is an engine that runs, and a client.
type rig struct {
	*Engine

	t      *testing.T
	client *http.Client
}

func start(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Listen, cfg.Name, cfg.Speed = "127.0.0.1:0", "one", 50
	if change != nil {
		change(&cfg)
	}
	e, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	transport := &http.Transport{}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run ended with %v", err)
		}
		transport.CloseIdleConnections()
	})
	return &rig{Engine: e, t: t, client: &http.Client{Transport: transport, Timeout: 20 * time.Second}}
}

func (r *rig) url(path string) string { return "http://" + r.Addr().String() + path }

// send returns the response and all of its body; the error is that of either.
func (r *rig) send(ctx context.Context, method, path, body string) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url(path), strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

func (r *rig) must(method, path, body string) (*http.Response, string) {
	r.t.Helper()
	resp, text, err := r.send(r.t.Context(), method, path, body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s %s: %v %v %s", method, path, resp, err, text)
	}
	return resp, text
}

// eventually waits, within bounds, until something holds.
func (r *rig) eventually(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within 10s: %s", what)
		}
	}
}

func chatBody(prompt string, tokens int, more string) string {
	return fmt.Sprintf(`{"model":"sim-model","messages":[{"role":"user","content":%q}],"max_tokens":%d%s}`, prompt, tokens, more)
}

// events are the data of a stream.
func events(t *testing.T, text string) []string {
	t.Helper()
	var all []string
	for r := openai.NewEventReader(strings.NewReader(text)); ; {
		data, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(data))
	}
}

func TestChatStream(t *testing.T) {
	r := start(t, nil)
	prompt := strings.Repeat("a long prompt ", 30)
	body := chatBody(prompt, 3, `,"stream":true,"stream_options":{"include_usage":true}`)
	r.must("POST", "/v1/chat/completions", body)
	resp, text := r.must("POST", "/v1/chat/completions", body)
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream; charset=utf-8" {
		t.Errorf("content-type %q", kind)
	}
	got := events(t, text)
	if len(got) != 6 || got[5] != "[DONE]" {
		t.Fatalf("%d events, want role, 3 tokens, usage, [DONE]:\n%s", len(got), text)
	}
	var answer strings.Builder
	for i, data := range got[:5] {
		var chunk struct {
			ID      string `json:"id"`
			Object  string `json:"object"`
			Model   string `json:"model"`
			Choices []struct {
				Delta        message `json:"delta"`
				FinishReason *string `json:"finish_reason"`
			} `json:"choices"`
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if !strings.HasPrefix(chunk.ID, "chatcmpl-") || chunk.Object != "chat.completion.chunk" || chunk.Model != "sim-model" {
			t.Errorf("event %d: %s", i, data)
		}
		if i == 4 {
			usage, ok := openai.UsageOf([]byte(data))
			if want := (openai.Usage{PromptTokens: 114, CompletionTokens: 3, CachedTokens: 112, HasCached: true}); !ok || usage != want || len(chunk.Choices) != 0 {
				t.Errorf("usage %+v, want %+v: %s", usage, want, data)
			}
			continue
		}
		choice := chunk.Choices[0]
		if (choice.Delta.Role == "assistant") != (i == 0) || (choice.FinishReason != nil) != (i == 3) {
			t.Errorf("event %d: %s", i, data)
		}
		if i == 3 && *choice.FinishReason != "length" {
			t.Errorf("finish reason %s", *choice.FinishReason)
		}
		answer.WriteString(string(choice.Delta.Content))
	}
	if words := strings.Fields(answer.String()); len(words) != 3 {
		t.Errorf("answer %q", answer.String())
	}
	_, text = r.must("POST", "/v1/chat/completions", chatBody(prompt, 3, `,"stream":true`))
	if got := events(t, text); len(got) != 5 || strings.Contains(text, "usage") {
		t.Errorf("usage that nobody asked for: %s", text)
	}
}

func TestWholeAnswers(t *testing.T) {
	r := start(t, nil)
	for _, c := range []struct{ path, body, object, finish string }{
		{"/v1/chat/completions", chatBody("hi", 3, ""), "chat.completion", "length"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`, "chat.completion", "stop"},
		{"/v1/completions", `{"model":"sim-model","prompt":"hi","max_tokens":3}`, "text_completion", "length"},
	} {
		resp, text := r.must("POST", c.path, c.body)
		sum := sha256.Sum256([]byte(c.body))
		if resp.Header.Get(HeaderEngine) != "one" || resp.Header.Get(HeaderBodyBytes) != itoa(len(c.body)) ||
			resp.Header.Get(HeaderBodySum) != hex.EncodeToString(sum[:]) {
			t.Errorf("headers %v", resp.Header)
		}
		var answer struct {
			Object  string `json:"object"`
			Choices []struct {
				Message message `json:"message"`
				Text    content `json:"text"`
				Finish  string  `json:"finish_reason"`
			} `json:"choices"`
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatal(err)
		}
		usage, ok := openai.UsageOf([]byte(text))
		words := len(strings.Fields(string(answer.Choices[0].Message.Content + answer.Choices[0].Text)))
		if answer.Object != c.object || answer.Choices[0].Finish != c.finish || !ok || usage.CompletionTokens != words || !usage.HasCached {
			t.Errorf("%s: %d words, %s", c.body, words, text)
		}
	}
	_, text := r.must("POST", "/v1/completions", `{"prompt":"hi","max_tokens":2,"stream":true}`)
	if got := events(t, text); len(got) != 3 || !strings.Contains(got[0], `"text":"`) {
		t.Errorf("completion stream: %s", text)
	}
}

func TestOtherSurfaces(t *testing.T) {
	r := start(t, nil)
	for _, c := range []struct {
		method, path, body string
		status             int
		contains           string
	}{
		{"GET", "/health", "", 200, ""},
		{"GET", "/version", "", 200, `"version"`},
		{"GET", "/v1/models", "", 200, `"id":"sim-model"`},
		{"POST", "/tokenize", `{"prompt":"12345678"}`, 200, `"count":2`},
		{"POST", "/tokenize", `{"messages":[{"role":"user","content":"x"}],"add_generation_prompt":false}`, 200, `"tokens":[`},
		{"POST", "/tokenize", `{}`, 400, `"error":{"message"`},
		{"POST", "/reset_prefix_cache", "", 200, ""},
		{"POST", "/v1/chat/completions", `{"model":`, 400, `{"error":{"message":"invalid JSON body`},
		{"POST", "/v1/chat/completions", `{"model":"nope","messages":[]}`, 404, `"type":"NotFoundError","param":"model","code":404}}`},
		{"GET", "/v1/chat/completions", "", 404, `{"error":`},
		{"GET", "/nothing", "", 404, `{"error":`},
		{"GET", "/sim/fault", "", 200, `{"mode":"none"}`},
		{"POST", "/sim/fault", `{"mode":"lunch"}`, 400, "must be one of none, refuse"},
		{"POST", "/sim/fault", `{"mode":"refuse"}`, 400, "for: must be given"},
		{"POST", "/sim/fault", `{"mode":"slow","delay":"2 s"}`, 400, "must be a duration"},
	} {
		resp, text, err := r.send(t.Context(), c.method, c.path, c.body)
		if err != nil || resp.StatusCode != c.status || !strings.Contains(text, c.contains) {
			t.Errorf("%s %s %s: %v, %v, %s; want %d with %s", c.method, c.path, c.body, resp, err, text, c.status, c.contains)
		}
		if resp != nil && resp.Header.Get(HeaderEngine) != "one" {
			t.Errorf("%s: without the header that names the engine", c.path)
		}
	}
}

func TestMetrics(t *testing.T) {
	r := start(t, nil)
	prompt := strings.Repeat("word", 61) // 70 tokens with what is around it
	for range 2 {
		r.must("POST", "/v1/chat/completions", chatBody(prompt, 3, ""))
	}
	_, text := r.must("GET", "/metrics", "")
	for _, want := range []string{
		`vllm:num_requests_running{engine="0",model_name="sim-model"} 0`,
		`vllm:num_requests_waiting{engine="0",model_name="sim-model"} 0`,
		`vllm:kv_cache_usage_perc{engine="0",model_name="sim-model"} 0`,
		`vllm:prefix_cache_queries_total{engine="0",model_name="sim-model"} 140`,
		`vllm:prefix_cache_hits_total{engine="0",model_name="sim-model"} 64`,
		`vllm:prompt_tokens_total{engine="0",model_name="sim-model"} 140`,
		`vllm:generation_tokens_total{engine="0",model_name="sim-model"} 6`,
		`vllm:request_success_total{engine="0",finished_reason="length",model_name="sim-model"} 2`,
		`vllm:time_to_first_token_seconds_count{engine="0",model_name="sim-model"} 2`,
		`vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",kv_cache_size_tokens="307328",num_gpu_blocks="19208"} 1`,
		`process_start_time_seconds 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("without %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestAbortOverHTTP(t *testing.T) {
	r := start(t, func(c *Config) { c.MinStep = 20 * time.Millisecond })
	for _, more := range []string{"", `,"stream":true`} {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _, _ = r.send(ctx, "POST", "/v1/chat/completions", chatBody("hello", 10_000, more))
		}()
		r.eventually("it runs", func() bool { s := r.Stats(); return s.Running == 1 && s.Held > 600 })
		cancel()
		<-gone
		r.eventually("its memory is free", func() bool { s := r.Stats(); return s.Running == 0 && s.Held == 0 })
	}
	_, text := r.must("GET", "/metrics", "")
	if want := `vllm:request_success_total{engine="0",finished_reason="abort",model_name="sim-model"} 2`; !strings.Contains(text, want) {
		t.Errorf("without %s:\n%s", want, text)
	}
}

func TestManyStreams(t *testing.T) {
	const streams = 300
	r := start(t, func(c *Config) { c.MinStep, c.MaxSeqs = 50*time.Millisecond, streams })
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			_, text, err := r.send(t.Context(), "POST", "/v1/chat/completions", chatBody(fmt.Sprint("stream ", i), 4, `,"stream":true`))
			if err != nil || len(events(t, text)) != 6 {
				t.Errorf("%v: %s", err, text)
			}
		})
	}
	wg.Wait()
}

func TestLargeBodies(t *testing.T) {
	r := start(t, nil)
	body := chatBody(strings.Repeat("many words ", 2<<20), 1, "")
	resp, text := r.must("POST", "/v1/chat/completions", body)
	if usage, _ := openai.UsageOf([]byte(text)); resp.Header.Get(HeaderBodyBytes) != itoa(len(body)) || usage.PromptTokens != r.cfg.window()-1 {
		t.Errorf("%s bytes arrived of %d, usage %+v", resp.Header.Get(HeaderBodyBytes), len(body), usage)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url("/v1/chat/completions"), bytes.NewReader(make([]byte, maxBody+1)))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := r.client.Do(req); err == nil { // the engine may cut the rest of the body off
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("64 MiB and a byte: status %d", resp.StatusCode)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Speed, cfg.MaxTokens, cfg.Profile, cfg.Fault.Mode = 0, 10, "abacus", "lunch"
	_, err := New(cfg, slog.New(slog.DiscardHandler))
	for _, want := range []string{"speed: 0: must be", "max-tokens: 10: must not be below max-seqs", "profile: \"abacus\": must be one of qwen3-32b-2xh100", "fault.mode"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestRunStopsWithStreamsOpen(t *testing.T) {
	r := start(t, func(c *Config) { c.MinStep = 10 * time.Millisecond })
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, text, err := r.send(t.Context(), "POST", "/v1/chat/completions", chatBody("hello", 10_000, `,"stream":true`))
			if err == nil && strings.Contains(text, "[DONE]") {
				t.Error("a stream of 10,000 tokens came to its end")
			}
		})
	}
	r.eventually("all run", func() bool { return r.Stats().Running == 20 })
	t.Cleanup(wg.Wait) // after the engine has stopped
}

// Tokens come when the model says, not a moment later, whatever happens on the way. The clock is that of the bubble.
func TestLoopKeepsTheTimeOfTheModel(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Listen, cfg.Speed = "127.0.0.1:0", 1
		e, err := New(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer e.gate.Close()
		ctx, cancel := context.WithCancel(t.Context())
		l := e.current.Load()
		go l.run(ctx)
		time.Sleep(time.Hour)
		core := NewCore(cfg) // tells when tokens are due
		j := &job{prompt: 9000, output: 5}
		if err := core.Submit(0, Request{ID: 1, Prompt: j.prompt, Output: j.output}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s, err := l.submit(j, -1)
		if err != nil {
			t.Fatal(err)
		}
		due := time.Duration(0)
		for have := 0; have < j.output; {
			took, events := core.Step(0)
			if due += took; len(events) == 0 {
				continue
			}
			if have, err = s.wait(ctx, l.stopped, have); err != nil {
				t.Fatal(err)
			}
			if have != events[0].Token || time.Since(began) != due {
				t.Errorf("token %d after %s, want token %d after %s", have, time.Since(began), events[0].Token, due)
			}
		}
		l.leave(s, j)
		cancel()
		<-l.stopped
	})
}

func newRequest(r *rig, path, body string) *http.Request {
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url(path), strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	return req
}
