package prompt

import (
	"log/slog"
	"slices"
	"testing"

	"attache/internal/block"
	"attache/internal/openai"
)

// FuzzExactChain compares chains, with what was remembered of all bodies before, with the tokens of the whole text.
func FuzzExactChain(f *testing.F) {
	for _, body := range []string{
		hiBody,
		`{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"a\u00e9<|im_end|>\n"}]}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","content":"x"}],"add_generation_prompt":false}`,
		`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"continue_final_message":true}`,
	} {
		f.Add(true, true, []byte(body))
		f.Add(true, false, []byte(body))
	}
	f.Add(false, true, []byte(`{"prompt":"the sun<|im_start|> and","add_special_tokens":true}`))
	k, err := New(Params{Config: Config{BlockTokens: 2, BytesPerToken: 4, MemoBytes: 20_000}, Model: ModelConfig{ModelDir: "../demo/model", BlockTokens: 2},
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	if err := k.Load(f.Context()); err != nil {
		f.Fatal(err)
	}
	m := k.exact.Load().model
	f.Fuzz(func(t *testing.T, chat, vllm bool, body []byte) {
		kind, dialect := openai.Completions, SGLang
		if chat {
			kind = openai.Chat
		}
		if vllm {
			dialect = VLLM
		}
		var req openai.Request
		if openai.Scan(&req, kind, body) != nil {
			return
		}
		var c Chain
		k.Chain(t.Context(), &c, &Query{Body: body, Scan: &req, Seed: seed, Dialect: dialect})
		var r Rendered
		err := m.Render(&r, body, &req, dialect)
		if c.Rung != Exact || len(req.Parts) > 0 && req.Parts[0].Kind == openai.TokenIDs {
			return
		}
		if err != nil {
			t.Fatalf("exact, but %v", err)
		}
		ids := m.Tokens(nil, &r)
		if want := block.AppendBlocks(nil, ids, 2, seed); !slices.Equal(c.Hashes, want) || len(req.Parts) == 1 && c.Tokens != len(ids) {
			t.Fatalf("%q: %d tokens in %d blocks, want %d in %d", r.Text, c.Tokens, len(c.Hashes), len(ids), len(want))
		}
	})
}
