package warm

import (
	"testing"

	"attache/internal/openai"
)

func TestOneToken(t *testing.T) {
	for _, c := range []struct {
		name       string
		kind       openai.Kind
		body, want string
	}{
		{"a chat that says nothing", openai.Chat, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
			`{"stream":false,"max_tokens":1,"model":"m","messages":[{"role":"user","content":"hi"}]}`},
		{"its own limit, at its place", openai.Chat, `{"max_tokens": 500, "stream":true, "messages":[]}`, `{"max_tokens": 1, "stream":false, "messages":[]}`},
		{"the newer limit", openai.Chat, `{"max_tokens":9,"max_completion_tokens":500,"stream":true,"stream_options":{"include_usage":true},"messages":[]}`,
			`{"max_completion_tokens":1,"stream":false,"messages":[]}`},
		{"what is not the prompt's goes, tools stay", openai.Chat,
			`{"stream":true,"max_tokens":2,"min_tokens":2,"n":4,"logprobs":true,"top_logprobs":3,"prompt_logprobs":1,"priority":-3,"request_id":"x","rid":"y",` +
				`"nvext":{"cache_control":{"type":"ephemeral"}},"tools":[{"type":"function"}],"tool_choice":"required","cache_salt":"s"}`,
			`{"stream":false,"max_tokens":1,"tools":[{"type":"function"}],"tool_choice":"required","cache_salt":"s"}`},
		{"a completion", openai.Completions, `{"prompt":"once","max_tokens":16,"best_of":2,"echo":true,"stream":false}`,
			`{"prompt":"once","max_tokens":1,"stream":false}`},
		{"a response is not stored", openai.Responses, `{"input":"hi","max_output_tokens":99,"stream":true,"background":true,"store":true}`,
			`{"input":"hi","max_output_tokens":1,"stream":false,"store":false}`},
		{"Anthropic's", openai.Messages, `{"max_tokens":1024,"stream":true,"messages":[]}`, `{"max_tokens":1,"stream":false,"messages":[]}`},
		{"a limit that is said twice", openai.Chat, `{"max_tokens":7,"stream":false,"max_tokens":8}`, `{"max_tokens":7,"stream":false,"max_tokens":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(oneToken(c.kind, []byte(c.body))); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}
