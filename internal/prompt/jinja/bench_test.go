package jinja

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

type message struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	ToolCalls []any  `json:"tool_calls,omitempty"`
}

// conversation makes a body of n messages with contents of some size, every fifth a call of a tool.
func conversation(b *testing.B, n, size int, tools bool) []byte {
	b.Helper()
	body := map[string]any{"add_generation_prompt": true}
	text := strings.Repeat("Some words of a turn, with \"quotes\".\n", size/37+1)[:size]
	messages := []message{{Role: "system", Content: "You are helpful."}}
	for i := len(messages); i < n; i++ {
		m := message{Role: []string{"assistant", "user"}[i%2], Content: text}
		if tools && i%5 == 2 {
			m = message{Role: "assistant", Content: text, ToolCalls: []any{map[string]any{
				"type": "function", "function": map[string]any{"name": "look", "arguments": map[string]any{"query": "x", "limit": i}},
			}}}
		}
		if tools && i%5 == 3 {
			m.Role = "tool"
		}
		messages = append(messages, m)
	}
	body["messages"] = messages
	if tools {
		var list []any
		for i := range 4 {
			list = append(list, map[string]any{"type": "function", "function": map[string]any{
				"name": fmt.Sprintf("tool_%d", i), "description": "Looks something up.",
				"parameters": map[string]any{"type": "object", "required": []string{"query"}, "properties": map[string]any{
					"query": map[string]any{"type": "string", "description": "What to look for"}, "limit": map[string]any{"type": "integer"},
				}},
			}})
		}
		body["tools"] = list
	}
	data, err := json.Marshal(body)
	if err != nil {
		b.Fatal(err)
	}
	return data
}

var shapes = []struct {
	name    string
	n, size int
	tools   bool
}{{"10messages+tools", 10, 200, true}, {"200messages", 200, 200, false}, {"400KB", 40, 10_000, true}}

func BenchmarkRender(b *testing.B) {
	template := mustParse(b, string(readFile(b, "testdata", "templates", "qwen3.jinja")))
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			v, err := FromJSON(conversation(b, s.n, s.size, s.tools))
			if err != nil {
				b.Fatal(err)
			}
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				if out, err = template.Render(out[:0], v.Dict(), Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(out)))
		})
	}
}

func BenchmarkFromJSON(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			data := conversation(b, s.n, s.size, s.tools)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := FromJSON(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	source := string(readFile(b, "testdata", "templates", "qwen3.jinja"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("qwen3", source); err != nil {
			b.Fatal(err)
		}
	}
}
