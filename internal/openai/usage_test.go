package openai

import (
	"encoding/json"
	"testing"
)

// answers are bodies as engines send them, shortened.
var answers = []struct {
	name string
	body string
	want Usage
	ok   bool
}{
	{"chat", `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","function_call":null},"finish_reason":"length"}],"usage":{"prompt_tokens":93,"total_tokens":98,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":64,"created_cache_tokens":0,"multimodal_tokens":null},"completion_tokens_details":null},"prompt_logprobs":null}`,
		Usage{93, 5, 64, true}, true},
	{"nothing cached", `{"usage":{"prompt_tokens":93,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}}`, Usage{93, 5, 0, true}, true},
	{"details off", `{"usage":{"prompt_tokens":93,"completion_tokens":5,"prompt_tokens_details":null}}`, Usage{93, 5, 0, false}, true},
	{"details without the figure", `{"usage":{"prompt_tokens":93,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":null}}}`, Usage{93, 5, 0, false}, true},
	{"usage chunk of a stream", `{"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":1,"total_tokens":4,"completion_tokens":3}}`, Usage{1, 3, 0, false}, true},
	{"other chunk", `{"choices":[{"index":0,"delta":{"content":"usage"}}],"usage":null}`, Usage{}, false},
	{"a response", `{"object":"response","usage":{"input_tokens":31,"input_tokens_details":{"cached_tokens":16,"cache_write_tokens":0,"input_tokens_per_turn":[]},"output_tokens":16,"total_tokens":47},"user":null}`,
		Usage{31, 16, 16, true}, true},
	{"a response's last event", `{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":3,"output_tokens":4,"input_tokens_details":{"cached_tokens":0}}}}`,
		Usage{3, 4, 0, true}, true},
	{"a response's first event", `{"type":"response.created","response":{"id":"r","usage":null}}`, Usage{}, false},
	{"Anthropic", `{"type":"message","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":31,"output_tokens":5,"cache_creation_input_tokens":10,"cache_read_input_tokens":100}}`,
		Usage{141, 5, 100, true}, true},
	{"Anthropic's first event", `{"type":"message_start","message":{"role":"assistant","usage":{"input_tokens":31,"output_tokens":0,"cache_read_input_tokens":0}}}`,
		Usage{31, 0, 0, true}, true},
	{"Anthropic's last event", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`, Usage{0, 5, 0, false}, true},
	{"the last of equal keys", `{"usage":{"prompt_tokens":1},"usage":{"prompt_tokens":2,"prompt_tokens":3}}`, Usage{3, 0, 0, false}, true},
	{"usage of another type", `{"usage":[1],"message":"x","response":{"usage":{"prompt_tokens":"5"}}}`, Usage{}, false},
	{"negative counts", `{"usage":{"prompt_tokens":-5,"completion_tokens":2}}`, Usage{0, 2, 0, false}, true},
	{"an error", `{"error":{"message":"m","type":"NotFoundError","param":"model","code":404}}`, Usage{}, false},
	{"a list", `[1]`, Usage{}, false},
	{"the end of a stream", `[DONE]`, Usage{}, false},
	{"nothing", ``, Usage{}, false},
	{"garbage behind", `{"usage":{"prompt_tokens":1}} x`, Usage{}, false},
}

func TestUsageOf(t *testing.T) {
	for _, c := range answers {
		if u, ok := UsageOf([]byte(c.body)); u != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.name, u, ok, c.want, c.ok)
		}
		for i := range c.body {
			if u, ok := UsageOf([]byte(c.body[:i])); ok && c.name != "garbage behind" {
				t.Errorf("%s: the first %d bytes give %+v", c.name, i, u)
			}
		}
	}
}

func TestUsageOfAStream(t *testing.T) {
	var total Usage
	for _, event := range []string{
		`{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1,"cache_read_input_tokens":32}}}`,
		`{"type":"content_block_delta","delta":{"text":"x"}}`,
		`{"type":"message_delta","usage":{"output_tokens":5}}`,
	} {
		if u, ok := UsageOf([]byte(event)); ok {
			total.Update(u)
		}
	}
	if want := (Usage{42, 5, 32, true}); total != want {
		t.Errorf("%+v, want %+v", total, want)
	}
}

func FuzzUsageOf(f *testing.F) {
	for _, c := range answers {
		f.Add([]byte(c.body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		u, ok := UsageOf(body)
		if ok && !json.Valid(body) {
			t.Errorf("%s: %+v of what is no JSON", body, u)
		}
		if !ok && u != (Usage{}) {
			t.Errorf("%s: %+v, but not ok", body, u)
		}
	})
}
