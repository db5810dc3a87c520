package prompt

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attache/internal/openai"
)

// shows is a template that shows what it is given, a message per line.
const shows = `{% for m in messages %}{{ m | tojson }}
{% endfor %}{{ tools | tojson }} {{ add_generation_prompt }}{% if enable_thinking is defined %} thinking {{ enable_thinking }}{% endif %}`

// overContent makes engines hand contents over as lists of parts.
const overContent = `{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}`

// renderedBy is what a template makes of a chat.
func renderedBy(t *testing.T, cfg ModelConfig, source, body string, d Dialect) (string, error) {
	t.Helper()
	m := &Model{}
	var err error
	if m.plain, err = parseTemplate(cfg, source); err != nil {
		t.Fatal(err)
	}
	m.tools = m.plain
	var req openai.Request
	if err := openai.Scan(&req, openai.Chat, []byte(body)); err != nil {
		t.Fatal(err)
	}
	var r Rendered
	err = m.Render(&r, []byte(body), &req, d)
	return string(r.Text), err
}

// TestWhatTemplatesAreGiven is what engines make of a request before its template sees it.
func TestWhatTemplatesAreGiven(t *testing.T) {
	for _, c := range []struct {
		name     string
		template string
		body     string
		vllm     string
		sglang   string // empty: the same
	}{
		{"only what means something", shows,
			`{"messages":[{"content":"Hi","role":"user","weight":1,"name":"Ann"}]}`,
			`{"role": "user", "content": "Hi", "name": "Ann"}` + "\nnull True", ""},
		{"contents in parts become lines", shows,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},"b",{"type":"text","text":null},{"type":"input_text","text":"c"}]}]}`,
			`{"role": "user", "content": "a\nb\nc"}` + "\nnull True",
			`{"role": "user", "content": "a b c"}` + "\nnull True"},
		{"texts become parts", overContent + shows,
			`{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null},{"role":"tool","content":[{"type":"text","text":"1"},{"type":"text","text":"2"}]},{"role":"user","content":"x"}]}`,
			`{"role": "user", "content": [{"type": "text", "text": "Hi"}]}` + "\n" + `{"role": "assistant", "content": []}` + "\n" +
				`{"role": "tool", "content": "1\n2"}` + "\n" + `{"role": "user", "content": [{"type": "text", "text": "x"}]}` + "\nnull True",
			`{"role": "user", "content": "Hi"}` + "\n" + `{"role": "assistant", "content": ""}` + "\n" +
				`{"role": "tool", "content": "1 2"}` + "\n" + `{"role": "user", "content": "x"}` + "\nnull True"},
		{"arguments are parsed", shows,
			`{"messages":[{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"b\":1,\"a\":[2.0]}"}}]},` +
				`{"role":"tool","tool_call_id":"1","content":"ok"}]}`,
			`{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": [2.0]}}}]}` +
				"\n" + `{"role": "tool", "content": "ok", "tool_call_id": "1"}` + "\nnull True", ""},
		{"a list of no calls is none", shows,
			`{"messages":[{"role":"assistant","content":"a","tool_calls":[]},{"role":"user","content":"b"}]}`,
			`{"role": "assistant", "content": "a"}` + "\n" + `{"role": "user", "content": "b"}` + "\nnull True",
			`{"role": "assistant", "content": "a", "tool_calls": []}` + "\n" + `{"role": "user", "content": "b"}` + "\nnull True"},
		{"thoughts go by two names", shows,
			`{"messages":[{"role":"assistant","content":"a","reasoning_content":"hm"},{"role":"user","content":"b"}]}`,
			`{"role": "assistant", "content": "a", "reasoning": "hm", "reasoning_content": "hm"}` + "\n" + `{"role": "user", "content": "b"}` + "\nnull True",
			`{"role": "assistant", "content": "a", "reasoning_content": "hm"}` + "\n" + `{"role": "user", "content": "b"}` + "\nnull True"},
		{"developers are the system where they are unknown", shows, `{"messages":[{"role":"developer","content":"Be brief."}]}`,
			`{"role": "system", "content": "Be brief.", "tools": null}` + "\nnull True", `{"role": "system", "content": "Be brief."}` + "\nnull True"},
		{"developers are themselves where they are known", shows + `{# developer #}`, `{"messages":[{"role":"developer","content":"Be brief."}]}`,
			`{"role": "developer", "content": "Be brief.", "tools": null}` + "\nnull True", `{"role": "developer", "content": "Be brief."}` + "\nnull True"},
		{"tools as the engines' types write them", shows,
			`{"messages":[{"role":"user","content":"a"}],"tools":[{"function":{"parameters":{"z":1,"a":2},"name":"f","strict":true},"type":"function"},{"type":"function","function":{"name":"g"}}]}`,
			`{"role": "user", "content": "a"}` + "\n" + `[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"z": 1, "a": 2}, "strict": true}}, ` +
				`{"type": "function", "function": {"name": "g", "description": null, "parameters": null}}] True`,
			`{"role": "user", "content": "a"}` + "\n" + `[{"type": "function", "function": {"description": null, "name": "f", "parameters": {"z": 1, "a": 2}, "strict": true}}, ` +
				`{"type": "function", "function": {"description": null, "name": "g", "parameters": null, "strict": false}}] True`},
		{"a choice of no tool", shows, `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"g"}}],"tool_choice":"none"}`,
			`{"role": "user", "content": "a"}` + "\n" + `[{"type": "function", "function": {"name": "g", "description": null, "parameters": null}}] True`,
			`{"role": "user", "content": "a"}` + "\nnull True"},
		{"a choice of one tool", `{{ tools | map(attribute="function.name") | join(",") }}`,
			`{"messages":[{"role":"user","content":"a"}],"tools":[{"function":{"name":"f"}},{"function":{"name":"g"}}],"tool_choice":{"type":"function","function":{"name":"g"}}}`,
			"f,g", "g"},
		{"no answer is begun", shows, `{"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false}`,
			`{"role": "user", "content": "a"}` + "\nnull False", `{"role": "user", "content": "a"}` + "\nnull True"},
		{"an answer is continued", `{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`,
			`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"So far "}],"continue_final_message":true,"add_generation_prompt":false}`,
			`<user>a</><assistant>So far`, `<user>a</><assistant>So far `},
		{"an answer at the end", `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}`,
			`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, `<user>a<assistant>b`, `<user>a<user>b`},
		{"effort", shows, `{"messages":[{"role":"user","content":"a"}],"reasoning_effort":"none"}`,
			`{"role": "user", "content": "a"}` + "\nnull True thinking False", `{"role": "user", "content": "a"}` + "\nnull True"},
		{"variables of the request win", shows, `{"messages":[{"role":"user","content":"a"}],"reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true}}`,
			`{"role": "user", "content": "a"}` + "\nnull True thinking True", ""},
		{"media in parts", `{% for m in messages %}{% for c in m.content %}{{ c | tojson }}{% endfor %}{% endfor %}`,
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}},{"type":"text","text":"?"}]}]}`,
			`{"type": "image"}{"type": "text", "text": "?"}`, ""},
		{"templates that want flat tools", `{% for t in tools %}{% if t.name is not defined %}{{ raise_exception("flat!") }}{% endif %}{{ t.name }}{% endfor %}`,
			`{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}]}`, "refused", "f"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wants := [2]string{VLLM: c.vllm, SGLang: c.sglang}
			if c.sglang == "" {
				wants[SGLang] = c.vllm
			}
			for d, want := range wants {
				got, err := renderedBy(t, ModelConfig{}, c.template, c.body, Dialect(d))
				if want == "refused" {
					if u := new(UnknownError); !errors.As(err, &u) || u.Why != Refused {
						t.Errorf("dialect %d: %q, %v; want a refusal", d, got, err)
					}
					continue
				}
				if err != nil || got != want {
					t.Errorf("dialect %d:\n got %s\nwant %s (%v)", d, got, want, err)
				}
			}
		})
	}
}

// TestWhyPromptsAreNotKnown: every way in which a chat cannot be rendered has its reason.
func TestWhyPromptsAreNotKnown(t *testing.T) {
	const plain = `{% for m in messages %}{{ m.content }}{% endfor %}`
	for _, c := range []struct {
		name, template, body string
		why                  Reason
	}{
		{"no template", "", `{"messages":[{"role":"user","content":"a"}]}`, NoTemplate},
		{"its own template", plain, `{"messages":[{"role":"user","content":"a"}],"chat_template":"x"}`, OwnTemplate},
		{"cut", plain, `{"messages":[{"role":"user","content":"a"}],"truncate_prompt_tokens":5}`, Truncation},
		{"an image for a template of texts", plain, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`, MediaParts},
		{"a part of an unknown type", plain, `{"messages":[{"role":"user","content":[{"type":"hologram"}]}]}`, MediaParts},
		{"a content that is none", plain, `{"messages":[{"role":"user","content":5}]}`, Odd},
		{"a call without its function", plain, `{"messages":[{"role":"assistant","content":"","tool_calls":[{"id":"1"}]}]}`, Odd},
		{"a refusal", `{{ raise_exception("no") }}`, `{"messages":[{"role":"user","content":"a"}]}`, Refused},
		{"an error", `{{ messages[7].content.x }}`, `{"messages":[{"role":"user","content":"a"}]}`, TemplateFailed},
		{"a template without end", `{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}`,
			`{"messages":[{"role":"user","content":"a"}]}`, TemplateFailed},
		{"nothing to continue", `x`, `{"messages":[{"role":"assistant","content":"abc"}],"continue_final_message":true}`, Odd},
	} {
		text, err := renderedBy(t, ModelConfig{}, c.template, c.body, VLLM)
		if u := new(UnknownError); !errors.As(err, &u) || u.Why != c.why {
			t.Errorf("%s: %q, %v; want %s", c.name, text, err, c.why)
		}
	}
}

// TestContentFormat: what is configured wins over what the template looks like; the engines' guesses differ.
func TestContentFormat(t *testing.T) {
	const body = `{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`
	const lists, texts = "list", "text"
	kind := `{{ "text" if messages[0].content is string else "list" }}`
	for _, c := range []struct {
		format, template string
		vllm, sglang     string
	}{
		{"", kind, texts, texts},
		{"", overContent + kind, lists, lists},
		{"", kind + "{# image #}", texts, lists},
		{formatOpenAI, kind, lists, lists},
		{formatString, overContent + kind, texts, texts},
	} {
		for d, want := range []string{c.vllm, c.sglang} {
			if got, err := renderedBy(t, ModelConfig{ContentFormat: c.format}, c.template, body, Dialect(d)); err != nil || got != want {
				t.Errorf("format %q, dialect %d, template %s: %s, %v; want %s", c.format, d, c.template, got, err, want)
			}
		}
	}
}

// TestRecordedRequests: what running vLLM servers answered as prompt_token_ids, for a model with Qwen2.5's tokenizer and
// template, comes out exactly. It needs that vocabulary, which `make test` brings.
func TestRecordedRequests(t *testing.T) {
	dir := filepath.Join(os.Getenv("TOKENIZERS"), "qwen2_5")
	if os.Getenv("TOKENIZERS") == "" {
		t.Skip("TOKENIZERS is not set: a folder with NAME/tokenizer.json")
	}
	m, err := OpenModel(ModelConfig{ModelDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("testdata/vllm-requests.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	n := 0
	for ; lines.Scan(); n++ {
		var recorded struct {
			Engine, Step, Path string
			Request            json.RawMessage
			IDs                []uint32 `json:"prompt_token_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &recorded); err != nil {
			t.Fatal(err)
		}
		kind := openai.KindOf("POST", recorded.Path)
		if kind == openai.Other { // tokenize
			kind = openai.Completions
			if strings.Contains(string(recorded.Request), `"messages"`) {
				kind = openai.Chat
			}
		}
		var req openai.Request
		if err := openai.Scan(&req, kind, recorded.Request); err != nil {
			t.Fatal(err)
		}
		var r Rendered
		if err := m.Render(&r, recorded.Request, &req, VLLM); err != nil {
			t.Errorf("%s, %s: %v", recorded.Engine, recorded.Step, err)
			continue
		}
		if got := m.Tokens(nil, &r); !slices.Equal(got, recorded.IDs) {
			t.Errorf("%s, %s:\n got %d\nwant %d", recorded.Engine, recorded.Step, got, recorded.IDs)
		}
	}
	if n == 0 {
		t.Error("no recordings")
	}
}
