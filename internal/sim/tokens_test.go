package sim

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func tokensOf(t *testing.T, text string) *tokenizer {
	t.Helper()
	var b body
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	cfg := Config{BlockTokens: 16, Model: "m"}
	tokens, err := cfg.tokens([]byte(text), &b, 1<<20, true)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func TestEqualTextsHaveEqualTokens(t *testing.T) {
	want := tokensOf(t, `{"messages":[{"role":"user","content":"Aé, and more"}]}`)
	for _, same := range []string{
		`{"messages": [ {"content": "\u0041\u00e9, and more", "role": "user", "name": "x"} ], "temperature": 1}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"Aé, "},{"type":"text","text":"and more"}]}]}`,
	} {
		if got := tokensOf(t, same); !slices.Equal(got.ids, want.ids) {
			t.Errorf("%s: tokens %d, want %d", same, got.ids, want.ids)
		}
	}
	for _, other := range []string{
		`{"messages":[{"role":"system","content":"Aé, and more"}]}`,
		`{"messages":[{"role":"user","content":"Aé, and more","tool_calls":[]}]}`,
		`{"messages":[{"role":"user","content":"Aé, and more"}],"tools":[{}]}`,
		`{"messages":[{"role":"user","content":[{"type":"image_url","text":"Aé, and more"}]}]}`,
		`{"messages":[{"role":"user","content":null}]}`,
		`{"prompt":"Aé, and more"}`,
	} {
		if got := tokensOf(t, other); slices.Equal(got.ids, want.ids) {
			t.Errorf("%s: the tokens of another prompt", other)
		}
	}
}

func TestPromptForms(t *testing.T) {
	for _, c := range []struct {
		body string
		n    int
	}{{`{"prompt":"12345678"}`, 2}, {`{"prompt":"123456789"}`, 3}, {`{"prompt":["12345678"]}`, 2}, {`{"prompt":[1,2,3]}`, 3}, {`{"prompt":[[1,2,3]]}`, 3}} {
		if got := tokensOf(t, c.body); got.n != c.n || len(got.ids) != c.n {
			t.Errorf("%s: %d tokens, want %d", c.body, got.n, c.n)
		}
	}
}

// The next turn begins with all of this one, the answer included, so that the engine finds its own blocks.
func TestNextTurnFindsTheAnswer(t *testing.T) {
	cfg := DefaultConfig()
	turn := func(messages ...message) *job {
		raw, err := json.Marshal(map[string]any{"messages": messages, "max_tokens": 50})
		if err != nil {
			t.Fatal(err)
		}
		j, err := cfg.parse(raw, chat)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	question := message{Role: "user", Content: content(strings.Repeat("odd length ", 21))}
	first := turn(question)
	second := turn(question, message{Role: "assistant", Content: content(first.text())}, message{Role: "user", Content: "go on"})
	full := (first.prompt + first.output) / cfg.BlockTokens
	if len(first.chain) != full || full < 6 || !slices.Equal(second.chain[:full], first.chain) {
		t.Errorf("%d blocks, want %d that the next turn begins with", len(first.chain), full)
	}
	if again := turn(question); again.text() != first.text() {
		t.Error("the same prompt got another answer")
	}
	if other := turn(message{Role: "user", Content: question.Content + "!"}); other.text() == first.text() {
		t.Error("another prompt got the same answer")
	}
}

func TestLexicon(t *testing.T) {
	words := strings.Split(strings.TrimSuffix(lexicon, " "), " ")
	slices.Sort(words)
	if len(words) != 64 || len(slices.Compact(words)) != 64 || len(lexicon) != 64*wordBytes {
		t.Errorf("%d words in %d bytes", len(words), len(lexicon))
	}
}
