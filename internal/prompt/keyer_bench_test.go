package prompt

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"attache/internal/block"
	"attache/internal/openai"
)

// bodyWith is a chat body of about size bytes whose texts hold an escape about every gap bytes; 0: none.
func bodyWith(size, gap int) []byte {
	r := rand.New(rand.NewPCG(uint64(size), uint64(gap)))
	var b strings.Builder
	b.WriteString(`{"model":"llama-3.1-8b-instruct","stream":true,"messages":[{"role":"system","content":"Be brief."}`)
	for turn := 0; b.Len() < size-200; turn++ {
		fmt.Fprintf(&b, `,{"role":"%s","content":"`, [...]string{"user", "assistant"}[turn%2])
		next := 1 + r.IntN(2*gap+1)
		for end := min(b.Len()+2000, size-100); b.Len() < end; {
			word := [...]string{"the ", "gateway ", "routes ", "tokens ", "to ", "workers ", "if x.y(z) "}[r.IntN(7)]
			b.WriteString(word)
			if next -= len(word); next < 0 && gap > 0 {
				b.WriteString([...]string{`\n`, `\n`, `\n`, `\"`, `\t`, `\\`, `\"`}[r.IntN(7)])
				next = 1 + r.IntN(2*gap)
			}
		}
		b.WriteString(`"}`)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

// BenchmarkScanAndChain is what a request costs from its body to its chain.
func BenchmarkScanAndChain(b *testing.B) {
	for _, gap := range []int{30, 80, 0} {
		for _, kb := range []int{8, 64, 256} {
			name := fmt.Sprintf("escape every %d/%dKB", gap, kb)
			if gap == 0 {
				name = fmt.Sprintf("no escapes/%dKB", kb)
			}
			b.Run(name, func(b *testing.B) {
				body := bodyWith(kb<<10, gap)
				k := newKeyer(b, 32, 4)
				var req openai.Request
				var chain Chain
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if err := openai.Scan(&req, openai.Chat, body); err != nil {
						b.Fatal(err)
					}
					k.Chain(b.Context(), &chain, &Query{Body: body, Scan: &req, Seed: block.Seed("llama-3.1-8b-instruct", "")})
				}
			})
		}
	}
}

func BenchmarkTokenIDs(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	body := []byte(`{"prompt":[1`)
	for range 32_000 {
		body = fmt.Appendf(body, ",%d", r.IntN(128_000))
	}
	body = append(body, "]}"...)
	k := newKeyer(b, 32, 4)
	var req openai.Request
	var chain Chain
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := openai.Scan(&req, openai.Completions, body); err != nil {
			b.Fatal(err)
		}
		k.Chain(b.Context(), &chain, &Query{Body: body, Scan: &req, Seed: 1})
	}
}
