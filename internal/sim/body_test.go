package sim

import (
	"errors"
	"strings"
	"testing"
)

func TestRefusals(t *testing.T) {
	cfg := DefaultConfig()
	for _, c := range []struct {
		surface surface
		body    string
		code    int
		message string
	}{
		{chat, ``, 400, "invalid JSON"},
		{chat, `{"messages":[`, 400, "invalid JSON"},
		{chat, `{"model":7}`, 400, "model"},
		{chat, `{"model":"sim-model"}`, 400, "messages: must be"},
		{chat, `{"messages":[]}`, 400, "messages: must be"},
		{chat, `{"messages":[{"content":"x"}]}`, 400, "messages[0].role"},
		{chat, `{"messages":[{"role":"user","content":{}}]}`, 400, "invalid JSON"},
		{chat, `{"messages":[{"role":"user","content":[7]}]}`, 400, "invalid JSON"},
		{chat, `{"model":"nope","messages":[{"role":"user","content":"x"}]}`, 404, "The model `nope` does not exist."},
		{chat, `{"messages":[{"role":"user","content":"x"}],"max_tokens":0}`, 400, "max_tokens: 0: must be at least 1"},
		{completions, `{}`, 400, "prompt: is missing"},
		{completions, `{"prompt":null}`, 400, "prompt: is missing"},
		{completions, `{"prompt":""}`, 400, "prompt: must not be empty"},
		{completions, `{"prompt":[]}`, 400, "prompt: must not be empty"},
		{completions, `{"prompt":["a","b"]}`, 400, "prompt: must be a string"},
		{completions, `{"prompt":[-1]}`, 400, "prompt: must be a string"},
	} {
		_, err := cfg.parse([]byte(c.body), c.surface)
		var refusal *apiError
		if !errors.As(err, &refusal) || refusal.Code != c.code || !strings.Contains(refusal.Message, c.message) {
			t.Errorf("%s: %+v, want %d with %q", c.body, err, c.code, c.message)
		}
	}
}

func TestLengths(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxModelTokens = 100
	long := strings.Repeat("word", 200)
	for _, c := range []struct {
		body           string
		prompt, output int
		finish         string
	}{
		{`{"prompt":"hi"}`, 1, 64, "stop"},
		{`{"prompt":"hi","max_tokens":7}`, 1, 7, "length"},
		{`{"prompt":"hi","max_completion_tokens":8}`, 1, 8, "length"},
		{`{"prompt":"hi","max_tokens":1000}`, 1, 99, "length"},
		{`{"prompt":"` + long[:4*90] + `"}`, 90, 10, "length"},
		{`{"prompt":"` + long + `"}`, 99, 1, "length"},
	} {
		j, err := cfg.parse([]byte(c.body), completions)
		if err != nil {
			t.Fatal(err)
		}
		if j.prompt != c.prompt || j.output != c.output || j.finish != c.finish || len(j.chain) != (c.prompt+c.output)/16 {
			t.Errorf("%.40s: prompt %d, output %d, %s, %d blocks; want %d, %d, %s", c.body, j.prompt, j.output, j.finish, len(j.chain), c.prompt, c.output, c.finish)
		}
	}
}

// Namespaces do not share blocks.
func TestSaltKeepsBlocksApart(t *testing.T) {
	cfg := DefaultConfig()
	prompt := strings.Repeat("word", 20)
	seen := map[uint64]string{}
	for _, body := range []string{`{"prompt":"` + prompt + `"}`, `{"prompt":"` + prompt + `","cache_salt":"a"}`, `{"prompt":"` + prompt + `","cache_salt":"b"}`} {
		j, err := cfg.parse([]byte(body), completions)
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := seen[j.chain[0]]; taken {
			t.Errorf("%s has the first block of %s", body, other)
		}
		seen[j.chain[0]] = body
	}
}

// Whatever arrives, a body is refused with a status or becomes a request that the engine can run.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"sim-model","prompt":["a"],"max_tokens":3}`, `{"prompt":[[1,2]]}`, `{"messages":[{"role":"tool","content":[{"type":"text","text":"a"},{}]}]}`, `{`,
	} {
		f.Add([]byte(s))
	}
	cfg := DefaultConfig()
	cfg.KVBlocks = 100
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, s := range []surface{chat, completions} {
			j, err := cfg.parse(raw, s)
			if err != nil {
				var refusal *apiError
				if !errors.As(err, &refusal) || refusal.Code < 400 {
					t.Fatalf("%T %v", err, err)
				}
				continue
			}
			if err := NewCore(cfg).Submit(0, Request{ID: 1, Prompt: j.prompt, Output: j.output, Chain: j.chain}); err != nil {
				t.Fatal(err)
			}
			if len(j.text()) != wordBytes*j.output || len(j.chain) != (j.prompt+j.output)/cfg.BlockTokens {
				t.Fatalf("%+v", j)
			}
		}
	})
}
