package prompt

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"attache/internal/openai"
)

// smallModel is a folder with a small real vocabulary and other files, by name.
func smallModel(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	vocabulary, err := os.ReadFile("../demo/model/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("tokenizer.json", vocabulary)
	for name, text := range files {
		write(name, []byte(text))
	}
	return dir
}

const chatML = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

func ask(t testing.TB, k *Keyer, kind openai.Kind, body string) Chain {
	t.Helper()
	return chainOf(t, k, kind, body)
}

// TestModelFolders is what a folder may hold, and what comes of it for the chat of one message "hi".
func TestModelFolders(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		cfg   ModelConfig // ModelDir is set
		want  string      // the rendered text, or what the error says
	}{
		{"a template in its own file", map[string]string{"chat_template.jinja": "[{{ messages[0].content }}]"}, ModelConfig{}, "[hi]"},
		{"in the configuration", map[string]string{"tokenizer_config.json": `{"chat_template":"({{ messages[0].content }})"}`}, ModelConfig{}, "(hi)"},
		{"its own file wins", map[string]string{"chat_template.jinja": "[]", "tokenizer_config.json": `{"chat_template":"()"}`}, ModelConfig{}, "[]"},
		{"the older file", map[string]string{"chat_template.json": `{"chat_template":"old"}`, "tokenizer_config.json": `{"chat_template":"()"}`}, ModelConfig{}, "old"},
		{"named ones", map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"tool_use","template":"tools"},{"name":"default","template":"plain"}]}`},
			ModelConfig{}, "plain"},
		{"special tokens as texts and as objects", map[string]string{"chat_template.jinja": "{{ bos_token }}{{ eos_token }}{{ pad_token }}",
			"tokenizer_config.json": `{"bos_token":{"content":"<s>","lstrip":false},"eos_token":"</s>","pad_token":null}`, "special_tokens_map.json": `{"pad_token":"<p>"}`},
			ModelConfig{}, "<s></s><p>"},
		{"variables that are configured", map[string]string{"chat_template.jinja": "{{ enable_thinking }}"},
			ModelConfig{ChatTemplateKwargs: `{"enable_thinking":false}`}, "False"},
		{"none", nil, ModelConfig{}, "no_template"},
		{"a template that is none", map[string]string{"chat_template.jinja": "{% if %}"}, ModelConfig{}, "chat template:1:"},
		{"a configuration that is none", map[string]string{"tokenizer_config.json": "{"}, ModelConfig{}, "tokenizer_config.json: "},
		{"templates that are none", map[string]string{"tokenizer_config.json": `{"chat_template":7}`}, ModelConfig{},
			"tokenizer_config.json: chat_template: must be a template, or a list of objects with name and template"},
		{"a vocabulary that is none", map[string]string{"tokenizer.json": "[]"}, ModelConfig{}, "tokenizer.json: "},
		{"a template file that is missing", nil, ModelConfig{ChatTemplate: "nowhere.jinja"}, "chat_template: open nowhere.jinja: no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.ModelDir = smallModel(t, c.files)
			m, err := OpenModel(c.cfg)
			got := ""
			if err == nil {
				var req openai.Request
				body := []byte(`{"messages":[{"role":"user","content":"hi"}]}`)
				if err := openai.Scan(&req, openai.Chat, body); err != nil {
					t.Fatal(err)
				}
				var r Rendered
				err = m.Render(&r, body, &req, VLLM)
				got = string(r.Text)
			}
			if err != nil {
				got = err.Error()
			}
			if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if _, err := New(Params{Config: DefaultConfig(), Model: ModelConfig{ModelDir: "nowhere"}}); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a folder that is missing: %v", err)
	}
}

// TestRungs: a pool with a model takes the best way that each request allows.
func TestRungs(t *testing.T) {
	dir := smallModel(t, map[string]string{"chat_template.jinja": `{% if messages[0].content == "no" %}{{ raise_exception("no") }}{% endif %}` + chatML})
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	k, err := New(Params{Config: DefaultConfig(), Model: ModelConfig{ModelDir: dir}, Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	const hi = `{"messages":[{"role":"user","content":"hi"}]}`
	if c := ask(t, k, openai.Chat, hi); c.Rung != Approximate || c.Why != Loading || c.BlockTokens != 16 {
		t.Errorf("before the model is loaded: %s (%s), blocks of %d", c.Rung, c.Why, c.BlockTokens)
	}
	if err := k.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		kind openai.Kind
		body string
		rung Rung
		why  Reason
	}{
		{"a chat", openai.Chat, hi, Exact, ""},
		{"a completion", openai.Completions, `{"prompt":"hi"}`, Exact, ""},
		{"token ids", openai.Completions, `{"prompt":[1,2]}`, Exact, ""},
		{"a batch", openai.Completions, `{"prompt":["a","b"]}`, Exact, ""},
		{"another API", openai.Responses, `{"input":"hi"}`, Approximate, OtherAPI},
		{"Anthropic's", openai.Messages, hi, Approximate, OtherAPI},
		{"embeddings", openai.Embeddings, `{"input":"hi"}`, Approximate, OtherAPI},
		{"its own template", openai.Chat, `{"messages":[{"role":"user","content":"hi"}],"chat_template":"x"}`, Approximate, OwnTemplate},
		{"a refusal", openai.Chat, `{"messages":[{"role":"user","content":"no"}]}`, Approximate, Refused},
		{"a refusal again", openai.Chat, `{"messages":[{"role":"user","content":"no"}]}`, Approximate, Refused},
		{"nothing", openai.Chat, `{}`, None, NoPrompt},
	} {
		got := ask(t, k, c.kind, c.body)
		if got.Rung != c.rung || got.Why != c.why {
			t.Errorf("%s: %s (%s), want %s (%s)", c.name, got.Rung, got.Why, c.rung, c.why)
		}
		if exact := c.rung == Exact && c.name != "a batch"; (got.Count == got.Tokens && got.Count > 0) != exact {
			t.Errorf("%s: %d tokens are claimed of %d", c.name, got.Count, got.Tokens)
		}
	}
	for reason, want := range map[Reason]int{Refused: 1, OtherAPI: 1, OwnTemplate: 1, Loading: 0, NoPrompt: 0} {
		if got := strings.Count(log.String(), "reason="+string(reason)); got != want {
			t.Errorf("%s was logged %d times, want %d", reason, got, want)
		}
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader("# HELP attache_prompt_model_loaded 1 when the pool's model folder has been read.\n"+
		"# TYPE attache_prompt_model_loaded gauge\nattache_prompt_model_loaded 1\n"), "attache_prompt_model_loaded"); err != nil {
		t.Error(err)
	}
}

// TestMedia: what comes before an image is the engine's own, what comes after depends on the image.
func TestMedia(t *testing.T) {
	dir := smallModel(t, map[string]string{
		"config.json": `{"image_token_id":1998}`,
		"chat_template.jinja": `{% for m in messages %}<|im_start|>{{ m.role }}
{% for c in m.content %}{% if c.type == "image" %}<tool_response>{% else %}{{ c.text }}{% endif %}{% endfor %}<|im_end|>
{% endfor %}`,
	})
	body := func(image, question string) string {
		return fmt.Sprintf(`{"messages":[{"role":"system","content":%q},{"role":"user","content":[{"type":"image_url","image_url":{"url":%q}},{"type":"text","text":%q}]}]}`,
			strings.Repeat("be brief ", 40), image, question)
	}
	for _, known := range []int{0, 100} {
		k, err := New(Params{Config: DefaultConfig(), Model: ModelConfig{ModelDir: dir, MediaTokens: known}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		long := strings.Repeat("what is it ", 20)
		cat := ask(t, k, openai.Chat, body("data:cat", long))
		again := ask(t, k, openai.Chat, body("data:cat", long+"really"))
		dog := ask(t, k, openai.Chat, body("data:dog", long))
		text := ask(t, k, openai.Chat, `{"messages":[{"role":"system","content":"`+strings.Repeat("be brief ", 40)+`"},{"role":"user","content":[]}]}`)
		switch {
		case cat.Rung != Exact || cat.Why != MediaParts:
			t.Fatalf("%s (%s)", cat.Rung, cat.Why)
		case cat.Own < 3 || !slices.Equal(cat.Hashes[:cat.Own], text.Hashes[:cat.Own]):
			t.Errorf("%d blocks are the engine's own, and should be those of the text before the image", cat.Own)
		case shared(cat, again) <= cat.Own+2:
			t.Errorf("the same image again shares %d of %d blocks", shared(cat, again), len(cat.Hashes))
		case shared(cat, dog) != cat.Own:
			t.Errorf("another image shares %d blocks, want the %d before it", shared(cat, dog), cat.Own)
		}
		run := known
		if known == 0 {
			run = assumedMediaTokens
		}
		if without := ask(t, k, openai.Chat, strings.Replace(body("", long), `{"type":"image_url","image_url":{"url":""}},`, "", 1)); cat.Tokens != without.Tokens+run {
			t.Errorf("%d tokens with the image, %d without it, want %d more", cat.Tokens, without.Tokens, run)
		}
		if (cat.Count > 0) != (known > 0) {
			t.Errorf("media_tokens %d: a count of %d is claimed", known, cat.Count)
		}
	}
}

// shared is how many leading blocks two chains have in common.
func shared(a, b Chain) (n int) {
	for n < min(len(a.Hashes), len(b.Hashes)) && a.Hashes[n] == b.Hashes[n] {
		n++
	}
	return n
}

// TestTrustIsLostAndRegained: with counts that differ the pool goes on by length, looks at a prompt now and then, and comes
// back when counts agree.
func TestTrustIsLostAndRegained(t *testing.T) {
	var log bytes.Buffer
	k, err := New(Params{Config: DefaultConfig(), Model: ModelConfig{ModelDir: smallModel(t, map[string]string{"chat_template.jinja": chatML})},
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	send := func(off int) Chain {
		c := ask(t, k, openai.Chat, `{"messages":[{"role":"user","content":"hi"}]}`)
		if c.Count > 0 {
			k.Compare(c.Count, c.Count+off, "r.1")
		}
		return c
	}
	for range 2 * checkLeast {
		send(0)
	}
	for range checkLeast {
		send(1)
	}
	if c := send(1); c.Rung != Approximate || c.Why != Mismatch {
		t.Errorf("with counts that differ: %s (%s)", c.Rung, c.Why)
	}
	n := 0
	for ; send(0).Rung != Exact && n < 100*checkWindow; n++ {
	}
	if n == 100*checkWindow || n < checkWindow {
		t.Errorf("trusted again after %d requests, want at least %d", n, checkWindow)
	}
	if strings.Count(log.String(), "token counts differ") != 1 || !strings.Contains(log.String(), "example_request=r.1") ||
		strings.Count(log.String(), "token counts agree") != 1 {
		t.Errorf("logged:\n%s", log.String())
	}
}

// TestReasonsAreExplained: what metrics and the log say can be looked up.
func TestReasonsAreExplained(t *testing.T) {
	docs, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Reasons() {
		if !strings.Contains(string(docs), "\n| `"+string(r)+"` |") {
			t.Errorf("docs/operations.md does not explain %s", r)
		}
	}
}
