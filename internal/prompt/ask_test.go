package prompt

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"attache/internal/block"
	"attache/internal/openai"
)

// TestEnginesAreAsked is the middle rung: what is not known here is asked for, once; where the engine does not tell, the
// text is cut by length.
func TestEnginesAreAsked(t *testing.T) {
	const chat = `{"model":"m","messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function"}],"add_generation_prompt":false,"temperature":1}`
	for _, c := range []struct {
		name     string
		kind     openai.Kind
		body     string
		status   int
		answer   string
		question string // what the engine is asked; empty: nothing
		rung     Rung
		why      Reason
		tokens   int
	}{
		{"a chat", openai.Chat, chat, 200, `{"count":5,"tokens":[1,2,3,4,5],"max_model_len":9}`,
			`{"model":"served","messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function"}],"add_generation_prompt":false}`, Engine, NoModel, 5},
		{"a completion", openai.Completions, `{"prompt":"a \u00e9\"","add_special_tokens":false}`, 200, `{"tokens":[7,8]}`,
			`{"model":"served","prompt":"a \u00e9\"","add_special_tokens":false}`, Engine, NoModel, 2},
		{"an error", openai.Chat, chat, 500, `{}`, "-", Approximate, AskFailed, 8},
		{"nonsense", openai.Chat, chat, 200, `{"tokens":"all"}`, "-", Approximate, AskFailed, 8},
		{"no tokens", openai.Chat, chat, 200, `{}`, "-", Approximate, AskFailed, 8},
		{"another API", openai.Responses, `{"input":"Hi"}`, 200, `{"tokens":[1]}`, "", Approximate, AskFailed, 2},
		{"a cut prompt", openai.Completions, `{"prompt":"aaaa","truncate_prompt_tokens":1}`, 200, `{"tokens":[1]}`, "", Approximate, AskFailed, 1},
		{"token ids are known", openai.Completions, `{"prompt":[1,2,3]}`, 200, `{"tokens":[1]}`, "", Exact, "", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked []string
			engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				asked = append(asked, r.Method+" "+r.URL.Path+" "+string(text))
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.answer)
			}))
			defer engine.Close()
			k, err := New(Params{Config: Config{BlockTokens: 2, BytesPerToken: 4}, Model: ModelConfig{Tokenize: true}, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer k.asker.client.CloseIdleConnections()
			var req openai.Request
			if err := openai.Scan(&req, c.kind, []byte(c.body)); err != nil {
				t.Fatal(err)
			}
			q := Query{Body: []byte(c.body), Scan: &req, Seed: seed, Model: "served", Engine: strings.TrimPrefix(engine.URL, "http://")}
			var chain Chain
			for range 3 {
				k.Chain(t.Context(), &chain, &q)
			}
			if chain.Rung != c.rung || chain.Why != c.why || chain.Tokens != c.tokens {
				t.Errorf("rung %s (%s), %d tokens; want %s (%s), %d", chain.Rung, chain.Why, chain.Tokens, c.rung, c.why, c.tokens)
			}
			want := 1 // answers are remembered, and after a failure there is a pause
			if c.question == "" {
				want = 0
			}
			if len(asked) != want || want == 1 && c.question != "-" && asked[0] != "POST /tokenize "+c.question {
				t.Errorf("asked %q, want %q", asked, c.question)
			}
		})
	}
}

// TestAskedTokensMakeTheSameBlocks: the rungs Engine and Exact are two ways to one chain.
func TestAskedTokensMakeTheSameBlocks(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"tokens":[1,2,3,4,5,6,7,8,9,10,11,12,13]}`)
	}))
	defer engine.Close()
	k, err := New(Params{Config: Config{BlockTokens: 4, BytesPerToken: 4}, Model: ModelConfig{Tokenize: true}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer k.asker.client.CloseIdleConnections()
	var asked, given Chain
	for body, chain := range map[string]*Chain{`{"prompt":"text"}`: &asked, `{"prompt":[1,2,3,4,5,6,7,8,9,10,11,12,13]}`: &given} {
		var req openai.Request
		if err := openai.Scan(&req, openai.Completions, []byte(body)); err != nil {
			t.Fatal(err)
		}
		k.Chain(t.Context(), chain, &Query{Body: []byte(body), Scan: &req, Seed: block.Seed("m", ""), Engine: strings.TrimPrefix(engine.URL, "http://")})
	}
	if fmt.Sprint(asked.Hashes) != fmt.Sprint(given.Hashes) || asked.Own != 3 || given.Own != 3 || asked.Count != 13 {
		t.Errorf("asked %+v, given %+v", asked, given)
	}
}

// TestEnginesDoNotVouchForUs: while our counts are not trusted, an engine that is asked agrees with itself, which says nothing of
// the model folder; only what we count ourselves does. The same holds for token ids.
func TestEnginesDoNotVouchForUs(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"tokens":[1,2,3]}`) }))
	defer engine.Close()
	k, err := New(Params{Config: DefaultConfig(), Model: ModelConfig{ModelDir: smallModel(t, map[string]string{"chat_template.jinja": chatML}), Tokenize: true},
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer k.asker.client.CloseIdleConnections()
	for range checkLeast {
		k.Compare(1, 2, "r.1")
	}
	ours := 0
	for range 4 * shadowed {
		var c Chain
		var req openai.Request
		if err := openai.Scan(&req, openai.Chat, []byte(hiBody)); err != nil {
			t.Fatal(err)
		}
		k.Chain(t.Context(), &c, &Query{Body: []byte(hiBody), Scan: &req, Engine: strings.TrimPrefix(engine.URL, "http://")})
		if c.Rung != Engine {
			t.Fatalf("rung %s (%s)", c.Rung, c.Why)
		}
		if c.Ours {
			ours++
			if c.Count == 3 {
				t.Error("the engine's count is taken for ours")
			}
		}
	}
	if ours != 4 {
		t.Errorf("%d of %d requests were counted here, want one in %d", ours, 4*shadowed, shadowed)
	}
	if c := chainOf(t, k, openai.Completions, `{"prompt":[1,2,3]}`); c.Ours {
		t.Error("token ids say nothing of the model folder")
	}
}

func TestTokenMemoryIsBounded(t *testing.T) {
	a := newAsker()
	for i := range 100 {
		var key [1]byte
		key[0] = byte(i)
		a.memory.put(xxh3.Hash128(key[:]), make([]uint32, 1<<20))
		if a.memory.bytes > askMemory || len(a.memory.order) != len(a.memory.tokens) {
			t.Fatalf("%d bytes, %d and %d entries", a.memory.bytes, len(a.memory.order), len(a.memory.tokens))
		}
	}
	if len(a.memory.tokens) == 0 {
		t.Error("nothing is remembered")
	}
}
