package prompt

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attache/internal/openai"
)

// modelsAtHand are folders of models: real ones if the environment names some, else the small one of the tests.
func modelsAtHand(tb testing.TB) map[string]string {
	tb.Helper()
	dirs := map[string]string{"small": "tokenizer/testdata/small"}
	if root := os.Getenv("TOKENIZERS"); root != "" {
		dirs = map[string]string{}
		for _, name := range []string{"llama3_1", "qwen2_5", "qwen3", "deepseek_v3"} {
			dirs[name] = filepath.Join(root, name)
		}
	}
	return dirs
}

// agentPrompts are real prompts of a coding agent.
func agentPrompts(tb testing.TB) (prompts []string) {
	tb.Helper()
	f, err := os.Open("testdata/agent-prompts.jsonl.gz")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	lines := bufio.NewReaderSize(z, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			var call struct{ Input string }
			if err := json.Unmarshal(line, &call); err != nil {
				tb.Fatal(err)
			}
			prompts = append(prompts, call.Input)
		}
		if err == io.EOF {
			return prompts
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// agentTurn is the body of a turn of a coding agent's conversation, of about size bytes of real prompts, cut into messages
// of about 4 KB: tool calls and their results.
func agentTurn(tb testing.TB, size int) []byte {
	tb.Helper()
	var text strings.Builder
	for _, p := range agentPrompts(tb) {
		if text.WriteString(p); text.Len() > size {
			break
		}
	}
	var body strings.Builder
	body.WriteString(`{"model":"m","stream":true,"tools":[{"type":"function","function":{"name":"run","description":"Run a command.",` +
		`"parameters":{"type":"object","properties":{"command":{"type":"string"}}}}}],"messages":[{"role":"system","content":"You are a coding agent."}`)
	rest := text.String()[:size]
	for n := 0; len(rest) > 0; n++ {
		piece := rest[:min(len(rest), 4096)]
		rest = rest[len(piece):]
		body.WriteByte(',')
		if n%2 == 0 {
			fmt.Fprintf(&body, `{"role":"user","content":%s}`, openai.AppendString(nil, strings.ToValidUTF8(piece, "")))
		} else {
			fmt.Fprintf(&body, `{"role":"assistant","content":%s}`, openai.AppendString(nil, strings.ToValidUTF8(piece, "")))
		}
	}
	body.WriteString(`,{"role":"user","content":"And now, 00000000?"}]}`)
	return []byte(body.String())
}

func loadedKeyer(tb testing.TB, dir string, memo int) *Keyer {
	tb.Helper()
	k, err := New(Params{Config: Config{BlockTokens: 16, BytesPerToken: 4, MemoBytes: memo}, Model: ModelConfig{ModelDir: dir}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	if err := k.Load(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return k
}

// BenchmarkSharedSystem is a new conversation behind a system prompt that others have had before.
func BenchmarkSharedSystem(b *testing.B) {
	for name, dir := range modelsAtHand(b) {
		b.Run(name, func(b *testing.B) {
			k := loadedKeyer(b, dir, 1<<30)
			var system strings.Builder
			for _, p := range agentPrompts(b) {
				if system.WriteString(p); system.Len() > 200<<10 {
					break
				}
			}
			body := []byte(`{"messages":[{"role":"system","content":` + string(openai.AppendString(nil, system.String()[:200<<10])) +
				`},{"role":"user","content":"Question 00000000: why does the build fail?"}]}`)
			changing := body[bytes.LastIndex(body, []byte("00000000")):][:8]
			var req openai.Request
			var chain Chain
			before, _ := k.exact.Load().texts.memo.snapshot()
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			n := 0
			for ; b.Loop(); n++ {
				copy(changing, fmt.Sprintf("%08d", n+1))
				if err := openai.Scan(&req, openai.Chat, body); err != nil {
					b.Fatal(err)
				}
				k.Chain(b.Context(), &chain, &Query{Body: body, Scan: &req, Seed: 1})
			}
			after, _ := k.exact.Load().texts.memo.snapshot()
			made := after.tokens - after.reused - (before.tokens - before.reused)
			b.ReportMetric(float64(chain.Tokens), "tokens")
			b.ReportMetric(float64(made)/float64(n), "made/op")
		})
	}
}

// BenchmarkTurn is what a turn of an agent costs from its body to its chain: when nothing of it was seen before, and when
// all but the last message was.
func BenchmarkTurn(b *testing.B) {
	for name, dir := range modelsAtHand(b) {
		for _, kb := range []int{40, 400} {
			body := agentTurn(b, kb<<10)
			for _, seen := range []string{"nothing", "all but the last message"} {
				b.Run(fmt.Sprintf("%s/%dKB/seen=%s", name, kb, seen), func(b *testing.B) {
					memo := 0
					if seen != "nothing" {
						memo = 1 << 30
					}
					k := loadedKeyer(b, dir, memo)
					body := bytes.Clone(body)
					var req openai.Request
					var chain Chain
					turn := func(body []byte) {
						if err := openai.Scan(&req, openai.Chat, body); err != nil {
							b.Fatal(err)
						}
						k.Chain(b.Context(), &chain, &Query{Body: body, Scan: &req, Seed: 1})
						if chain.Rung != Exact {
							b.Fatalf("rung %s: %s", chain.Rung, chain.Why)
						}
					}
					turn(body)
					changing := body[bytes.LastIndex(body, []byte("00000000")):][:8] // what is new is never the same
					b.SetBytes(int64(len(body)))
					b.ReportAllocs()
					for n := 0; b.Loop(); n++ {
						copy(changing, fmt.Sprintf("%08d", n+1))
						turn(body)
					}
					b.ReportMetric(float64(chain.Tokens), "tokens")
				})
			}
		}
	}
}
