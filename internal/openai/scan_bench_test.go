package openai

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// conversation is a chat body of about size bytes: a system prompt, tools, and turns of prose and code with an escape
// about every gap bytes.
func conversation(size, gap int) []byte {
	r := rand.New(rand.NewPCG(uint64(size), uint64(gap)))
	var b strings.Builder
	b.WriteString(`{"model":"llama-3.1-8b-instruct","stream":true,"temperature":0.7,"max_tokens":512,"messages":[` +
		`{"role":"system","content":"You are a helpful assistant."}`)
	for turn := 0; b.Len() < size-400; turn++ {
		role := [...]string{"user", "assistant"}[turn%2]
		fmt.Fprintf(&b, `,{"role":"%s","content":"`, role)
		for end := min(b.Len()+2000, size-200); b.Len() < end; {
			for n := 1 + r.IntN(2*gap); n > 0; {
				word := [...]string{"the ", "gateway ", "routes ", "tokens ", "to ", "workers ", "if x.y(z) ", "größer "}[r.IntN(8)]
				b.WriteString(word)
				n -= len(word)
			}
			b.WriteString([...]string{`\n`, `\n`, `\n`, `\"`, `\t`, `\\`, `\"`}[r.IntN(7)])
		}
		b.WriteString(`"}`)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func BenchmarkScan(b *testing.B) {
	for _, gap := range []int{30, 80, 1 << 20} {
		for _, kb := range []int{8, 64, 256} {
			name := fmt.Sprintf("escape every %d/%dKB", gap, kb)
			if gap == 1<<20 {
				name = fmt.Sprintf("no escapes/%dKB", kb)
			}
			b.Run(name, func(b *testing.B) {
				body := conversation(kb<<10, gap)
				if gap == 1<<20 {
					body = []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("the gateway routes ", kb*1024/19) + `"}]}`)
				}
				var r Request
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if err := Scan(&r, Chat, body); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
