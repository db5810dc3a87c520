package prompt

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"attache/internal/block"
	"attache/internal/openai"
)

const seed = 1337

func chainOf(t interface{ Fatalf(string, ...any) }, k *Keyer, kind openai.Kind, body string) Chain {
	var req openai.Request
	if err := openai.Scan(&req, kind, []byte(body)); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var c Chain
	k.Chain(context.Background(), &c, &Query{Body: []byte(body), Scan: &req, Seed: seed})
	return c
}

func newKeyer(t testing.TB, blockTokens, bytesPerToken int) *Keyer {
	t.Helper()
	k, err := New(Params{Config: Config{BlockTokens: blockTokens, BytesPerToken: bytesPerToken}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// hashesOf is the dumb twin of the chaining: it has the whole canonical text in hand.
func hashesOf(text string, piece int) []block.Hash {
	var chain []block.Hash
	for i := 0; i+piece <= len(text); i += piece {
		var parent block.Hash
		if i > 0 {
			parent = chain[len(chain)-1]
		}
		chain = append(chain, block.Next(parent, block.Local([]byte(text[i:i+piece]), seed), i == 0))
	}
	return chain
}

func TestCanonicalText(t *testing.T) {
	k := newKeyer(t, 1, 1) // a block for each byte: the chain shows the whole text
	media := string(binary.LittleEndian.AppendUint64(nil, block.Local([]byte(`{"url":"x"}`), 0)))
	for _, c := range []struct {
		kind       openai.Kind
		body, text string
	}{
		{openai.Chat, `{"messages":[{"role":"system","content":"Be \u0062rief."},{"role":"user","content":"Hi\n\"you\""}]}`,
			"\xf6system\xfbBe brief.\xf6user\xfbHi\\n\\\"you\\\""},
		{openai.Chat, `{"messages":[{"content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}},{"type":"text","text":""}]}],"tools":[{"a": 1}]}`,
			"\xf5[{\"a\": 1}]\xf6\xfba\xfa" + media},
		{openai.Chat, `{"messages":[{"role":"assistant","content":null,"reasoning_content":"Hm","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1}"}},
			{"function":{"name":"g","arguments":{"a":1}}}]},{"role":"tool","tool_call_id":"c","name":"n","content":"x"}]}`,
			"\xf6assistant\xf9Hm\xfef\xff{\\\"a\\\":1}\xfeg\xff\xfc{\"a\":1}\xf6tool\xf7n\xf8c\xfbx"},
		{openai.Responses, `{"input":"Hi","instructions":"Be brief."}`, "\xf6system\xfbBe brief.\xf6user\xfbHi"},
		{openai.Messages, `{"messages":[{"role":"user","content":"Hi"}],"system":"S"}`, "\xf6system\xfbS\xf6user\xfbHi"},
		{openai.Messages, `{"messages":[{"role":"user","content":"Hi"}],"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1f;"},{"type":"text","text":"S"}]}`,
			"\xf6system\xfbS\xf6user\xfbHi"},
		{openai.Completions, `{"prompt":"Once \u0075pon\u000a"}`, `Once upon\n`},
		{openai.Completions, `{"prompt":["one","two"]}`, "one"},
	} {
		got := chainOf(t, k, c.kind, c.body)
		if want := hashesOf(c.text, 1); !slices.Equal(got.Hashes, want) {
			n := 0
			for n < min(len(want), len(got.Hashes)) && want[n] == got.Hashes[n] {
				n++
			}
			t.Errorf("%s\n%d bytes, want %q (%d), equal up to %q", c.body, len(got.Hashes), c.text, len(want), c.text[:n])
		}
	}
}

func TestChain(t *testing.T) {
	k := newKeyer(t, 2, 4)
	for _, c := range []struct {
		name           string
		kind           openai.Kind
		body           string
		blocks, tokens int
		rung           Rung
	}{
		{"a prompt of 17 bytes", openai.Completions, `{"prompt":"01234567890123456"}`, 2, 5, Approximate},
		{"a prompt of 16 bytes", openai.Completions, `{"prompt":"0123456789012345"}`, 2, 4, Approximate},
		{"an empty prompt", openai.Completions, `{"prompt":""}`, 0, 0, Approximate},
		{"token ids", openai.Completions, `{"prompt":[1,2, 3 ,4,5]}`, 2, 5, Exact},
		{"a batch of texts: the first is the chain, all are load", openai.Completions, `{"prompt":["0123456789","01234"]}`, 1, 5, Approximate},
		{"a batch of token ids", openai.Completions, `{"prompt":[[1,2,3],[4],[]]}`, 1, 4, Exact},
		{"a chat: 1+4+1+8 bytes", openai.Chat, `{"messages":[{"role":"user","content":"01234567"}]}`, 1, 4, Approximate},
		{"an image is not its bytes", openai.Chat, `{"messages":[{"role":"user","content":[{"image_url":"` + strings.Repeat("A", 10_000) + `"}]}]}`, 1, 4, Approximate},
		{"embeddings", openai.Embeddings, `{"input":"0123456789"}`, 1, 3, Approximate},
		{"no prompt", openai.Chat, `{"model":"m"}`, 0, 0, None},
		{"no messages", openai.Chat, `{"messages":[],"tools":[{"a":"0123456789"}]}`, 0, 0, None},
		{"another API", openai.Other, `{"prompt":"0123456789"}`, 0, 0, None},
	} {
		got := chainOf(t, k, c.kind, c.body)
		if len(got.Hashes) != c.blocks || got.Tokens != c.tokens || got.Rung != c.rung || got.BlockTokens != 2 {
			t.Errorf("%s: %d blocks of %d, %d tokens, %v; want %d of 2, %d, %v",
				c.name, len(got.Hashes), got.BlockTokens, got.Tokens, got.Rung, c.blocks, c.tokens, c.rung)
		}
	}
}

// Dynamo's vector for the tokens 1 to 12: token ids are cut and hashed as the engine's are.
func TestTokenIDsAreCutExactly(t *testing.T) {
	k := newKeyer(t, 4, 4)
	want := []block.Hash{14643705804678351452, 4945711292740353085, 12583592247330656132}
	for _, body := range []string{`{"prompt":[1,2,3,4,5,6,7,8,9,10,11,12,13]}`, `{"prompt":[[1,2,3,4,5,6,7,8,9,10,11,12],[1]]}`} {
		if got := chainOf(t, k, openai.Completions, body); !slices.Equal(got.Hashes, want) {
			t.Errorf("%s: %d, want %d", body, got.Hashes, want)
		}
	}
	var ids []string
	var bytes []byte
	for id := range uint32(5000) { // more than the scratch buffer holds
		ids = append(ids, fmt.Sprint(id*857_143))
		bytes = binary.LittleEndian.AppendUint32(bytes, id*857_143)
	}
	got := chainOf(t, k, openai.Completions, `{"prompt":[`+strings.Join(ids, ", ")+`]}`)
	if !slices.Equal(got.Hashes, hashesOf(string(bytes), 16)) || got.Tokens != 5000 {
		t.Errorf("5000 ids: %d blocks, %d tokens", len(got.Hashes), got.Tokens)
	}
}

func TestNamespacesShareNothing(t *testing.T) {
	k := newKeyer(t, 1, 4)
	body := []byte(`{"prompt":"one prompt for everybody"}`)
	var req openai.Request
	if err := openai.Scan(&req, openai.Completions, body); err != nil {
		t.Fatal(err)
	}
	var a, b Chain
	k.Chain(t.Context(), &a, &Query{Body: body, Scan: &req, Seed: block.Seed("m", "")})
	k.Chain(t.Context(), &b, &Query{Body: body, Scan: &req, Seed: block.Seed("m", "salt")})
	for i := range a.Hashes {
		if slices.Contains(b.Hashes, a.Hashes[i]) {
			t.Errorf("block %d is shared", i)
		}
	}
}

// talk is a conversation as a client has it in mind.
type talk struct {
	tools    bool
	messages []message
}

type message struct{ role, text, tool string }

func drawTalk(t *rapid.T) (c talk) {
	c.tools = rapid.Bool().Draw(t, "tools")
	for range rapid.IntRange(1, 6).Draw(t, "messages") {
		c.messages = append(c.messages, drawMessage(t))
	}
	return c
}

func drawMessage(t *rapid.T) message {
	return message{
		role: rapid.SampledFrom([]string{"system", "user", "assistant"}).Draw(t, "role"),
		text: rapid.StringOfN(rapid.SampledFrom([]rune("ab \n\t\"\\/\x00é漢😀")), 0, 40, -1).Draw(t, "text"),
		tool: rapid.SampledFrom([]string{"", "", "f", "gé"}).Draw(t, "tool"),
	}
}

// quote writes a string with random escapes.
func quote(t *rapid.T, s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		plain := openai.AppendString(nil, string(r))
		switch way := rapid.IntRange(0, 2).Draw(t, "escape"); {
		case way == 0 && r < 0x10000:
			fmt.Fprintf(&b, `\u%04X`, r)
		case way == 1 && r == '/':
			b.WriteString(`\/`)
		default:
			b.Write(plain[1 : len(plain)-1])
		}
	}
	b.WriteByte('"')
	return b.String()
}

// object writes members in random order, with random space.
func object(t *rapid.T, members ...string) string {
	space := rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "space")
	return "{" + space + strings.Join(rapid.Permutation(members).Draw(t, "order"), space+","+space) + space + "}"
}

// body writes a conversation in one of the ways in which clients may.
func (c talk) body(t *rapid.T) string {
	var list []string
	for _, m := range c.messages {
		members := []string{quote(t, "role") + ":" + quote(t, m.role)}
		content := quote(t, m.text)
		switch rapid.IntRange(0, 2).Draw(t, "content") {
		case 0:
			content = "[" + object(t, `"type":`+quote(t, "text"), `"text":`+content) + "]"
		case 1:
			if m.text == "" {
				content = rapid.SampledFrom([]string{"null", "[]", `""`}).Draw(t, "nothing")
			}
		}
		members = append(members, `"content":`+content)
		if m.tool != "" {
			members = append(members, `"tool_calls":[`+object(t, `"type":"function"`,
				`"function":`+object(t, `"name":`+quote(t, m.tool), `"arguments":`+quote(t, `{"a":"b"}`)))+`]`)
		} else if rapid.Bool().Draw(t, "spell it out") {
			members = append(members, `"tool_calls":null`, `"function_call":null`, `"name":null`, `"reasoning":null`)
		}
		list = append(list, object(t, members...))
	}
	members := []string{`"messages":[` + strings.Join(list, ",") + `]`, `"temperature":1`}
	if c.tools {
		members = append(members, `"tools":[{"function":{"name":"f"}}]`)
	}
	return object(t, members...)
}

func TestSpellingMakesNoDifference(t *testing.T) {
	k := newKeyer(t, 1, 1)
	rapid.Check(t, func(t *rapid.T) {
		c := drawTalk(t)
		one, other := c.body(t), c.body(t)
		if a, b := chainOf(t, k, openai.Chat, one), chainOf(t, k, openai.Chat, other); !slices.Equal(a.Hashes, b.Hashes) {
			t.Fatalf("%s\n%s\nhave different chains", one, other)
		}
	})
}

func TestNextTurnAppends(t *testing.T) {
	k := newKeyer(t, 5, 1)
	rapid.Check(t, func(t *rapid.T) {
		c := drawTalk(t)
		before := chainOf(t, k, openai.Chat, c.body(t))
		c.messages = append(c.messages, drawMessage(t), drawMessage(t))
		after := chainOf(t, k, openai.Chat, c.body(t))
		if len(after.Hashes) < len(before.Hashes) || !slices.Equal(after.Hashes[:len(before.Hashes)], before.Hashes) {
			t.Fatalf("%d blocks are not the beginning of the next turn's %d", len(before.Hashes), len(after.Hashes))
		}
		if after.Tokens < before.Tokens {
			t.Fatalf("%d tokens after %d", after.Tokens, before.Tokens)
		}
	})
}

func TestDifferentPromptsDiffer(t *testing.T) {
	k := newKeyer(t, 1, 1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawTalk(t), drawTalk(t)
		if rapid.Bool().Draw(t, "alike") {
			// Move text between neighbours, or change one role: what a careless rendering confuses.
			b = talk{a.tools, slices.Clone(a.messages)}
			m := &b.messages[rapid.IntRange(0, len(b.messages)-1).Draw(t, "which")]
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				m.role += m.text
				m.text = ""
			case 1:
				m.role = "tool"
			default:
				m.text += m.tool
				m.tool = ""
			}
		}
		x, y := chainOf(t, k, openai.Chat, a.body(t)), chainOf(t, k, openai.Chat, b.body(t))
		same := a.tools == b.tools && slices.Equal(a.messages, b.messages)
		if slices.Equal(x.Hashes, y.Hashes) != same {
			t.Fatalf("%+v and %+v: equal chains %v, want %v", a, b, !same, same)
		}
	})
}

// The pool may lose its writer to a garbage collection, and does so at random under the race detector; an allocation per
// message or per escape would be hundreds.
func TestAllocationsDoNotGrowWithThePrompt(t *testing.T) {
	k := newKeyer(t, 16, 4)
	body := bodyWith(64<<10, 30)
	var req openai.Request
	var c Chain
	run := func() {
		if err := openai.Scan(&req, openai.Chat, body); err != nil {
			t.Error(err)
		}
		k.Chain(t.Context(), &c, &Query{Body: body, Scan: &req, Seed: seed})
	}
	run()
	if n := testing.AllocsPerRun(20, run); n > 3 {
		t.Errorf("%v allocations", n)
	}
}

func TestKeyerIsSafeForConcurrentUse(t *testing.T) {
	k := newKeyer(t, 16, 4)
	bodies := []string{string(bodyWith(8<<10, 30)), string(bodyWith(9<<10, 0)), `{"messages":[{"role":"user","content":"Hi"}]}`}
	want := make([]Chain, len(bodies))
	for i, b := range bodies {
		want[i] = chainOf(t, k, openai.Chat, b)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				if got := chainOf(t, k, openai.Chat, bodies[i%3]); !slices.Equal(got.Hashes, want[i%3].Hashes) {
					t.Errorf("body %d: another chain", i%3)
				}
			}
		})
	}
	wg.Wait()
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	err := Config{BlockTokens: 0, BytesPerToken: 65, MemoBytes: -1}.Validate()
	for _, want := range []string{"block_tokens: 0: must be 1 to 4096 tokens", "bytes_per_token: 65: must be 1 to 64 bytes",
		"memo_bytes: -1: must be 0 (remember nothing) or more bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestRungNames(t *testing.T) {
	for rung, want := range map[Rung]string{None: "none", Approximate: "approximate", Engine: "engine", Exact: "exact", Exact + 1: "unknown"} {
		if got := rung.String(); got != want {
			t.Errorf("rung %d is %q, want %q", rung, got, want)
		}
	}
}

func FuzzChain(f *testing.F) {
	f.Add(uint8(1), []byte(`{"messages":[{"role":"user","content":"a\u00e9\n"}],"tools":[1]}`))
	f.Add(uint8(2), []byte(`{"prompt":[[1,2],[3,99999999999]]}`))
	f.Add(uint8(3), []byte(`{"input":"\ud83d","instructions":[{"type":"x","y":1}]}`))
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		k := newKeyer(t, 1, 3)
		var req openai.Request
		if openai.Scan(&req, openai.Kind(kind%8), body) != nil {
			return
		}
		var c Chain
		k.Chain(t.Context(), &c, &Query{Body: body, Scan: &req, Seed: seed})
		if len(c.Hashes) > c.Tokens {
			t.Errorf("%s: %d blocks of 1 token, %d tokens", body, len(c.Hashes), c.Tokens)
		}
	})
}
