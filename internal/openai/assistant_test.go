package openai

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// events makes a stream of deltas.
func events(deltas ...string) string {
	var b strings.Builder
	b.WriteString(": hello\n\n")
	for _, d := range deltas {
		b.WriteString(`data: {"id":"x","choices":[{"index":0,"delta":` + d + `,"finish_reason":null}]}` + "\n\n")
	}
	return b.String()
}

const (
	stop = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	over = `data: {"choices":[],"usage":{"prompt_tokens":3}}` + "\n\ndata: [DONE]\n\n"
	user = `,{"role":"user","content":""}`
)

var turns = []struct {
	name   string
	stream bool
	text   string
	want   string // "": there is no next turn
}{
	{"a stream", true, events(`{"role":"assistant","content":""}`, `{"content":"Hel"}`, `{"content":"lo \"you\"\n"}`) + stop + over,
		`{"role":"assistant","content":"Hello \"you\"\n"}` + user},
	{"lines that end as on Windows", true, strings.ReplaceAll(events(`{"content":"hi"}`)+stop+over, "\n", "\r\n"), `{"role":"assistant","content":"hi"}` + user},
	{"thoughts in members of their own", true, events(`{"reasoning_content":"hm"}`, `{"reasoning":"hm"}`, `{"content":"yes"}`) + stop,
		`{"role":"assistant","content":"yes"}` + user},
	{"thoughts within the text", true, events(`{"content":"<think>hm</thi"}`, `{"content":"nk>\n\nyes"}`) + stop, `{"role":"assistant","content":"yes"}` + user},
	{"nothing but thoughts", true, events(`{"content":"<think>hm"}`) + stop, ""},
	{"nothing at all", true, events(`{"content":""}`) + stop, ""},
	{"tool calls in pieces", true, events(`{"content":null,"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"look","arguments":""}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]}`, `{"tool_calls":[{"index":1,"id":"c2","function":{"name":"go","arguments":"{}"}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}`) + stop,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"a\":1}"}},` +
			`{"id":"c2","type":"function","function":{"name":"go","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":""}`},
	{"other choices", true, `data: {"choices":[{"delta":{"content":"no"},"index":1},{"delta":{"content":"yes"},"index":0,"finish_reason":"stop"}]}` + "\n\n",
		`{"role":"assistant","content":"yes"}` + user},
	{"a stream that breaks off", true, events(`{"content":"hi"}`), ""},
	{"a stream of something else", true, "data: nonsense\n\ndata: {\"choices\":7}\n\n", ""},
	{"a document", false, `{"choices":[{"index":0,"message":{"role":"assistant","content":"hi","reasoning_content":"hm"},"finish_reason":"length"}],"usage":{}}`,
		`{"role":"assistant","content":"hi"}` + user},
	{"a document with calls", false, `{"choices":[{"finish_reason":"tool_calls","message":{"content":"so","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},` +
		`{"id":"d","function":{"name":"g","arguments":""}}]}}]}`,
		`{"role":"assistant","content":"so","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},` +
			`{"id":"d","type":"function","function":{"name":"g","arguments":""}}]},{"role":"tool","tool_call_id":"c","content":""}`},
	{"an error", false, `{"error":{"message":"no"}}`, ""},
	{"half a document", false, `{"choices":[{"index":0,"message":{"content":"hi"`, ""},
	{"no document", false, "", ""},
}

// TestNextTurn holds wherever the answer is cut into pieces.
func TestNextTurn(t *testing.T) {
	for _, c := range turns {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				a := NewAnswer(c.stream, 1<<20)
				for rest := []byte(c.text); len(rest) > 0; {
					n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
					piece := append([]byte(nil), rest[:n]...)
					a.Add(piece)
					clear(piece) // it is its owner's
					rest = rest[n:]
				}
				got, ok := a.NextTurn()
				if string(got) != c.want || ok != (c.want != "") {
					t.Fatalf("\n got %s, %t\nwant %s", got, ok, c.want)
				}
			})
		})
	}
}

func TestAnswersAreBounded(t *testing.T) {
	for _, stream := range []bool{true, false} {
		a := NewAnswer(stream, 1000)
		for range 1000 {
			a.Add([]byte(events(`{"content":"0123456789"}`)))
		}
		a.Add([]byte(stop))
		if _, ok := a.NextTurn(); ok || cap(a.text)+cap(a.rest) > 8<<10 {
			t.Errorf("stream %t: complete %t, %d bytes", stream, ok, cap(a.text)+cap(a.rest))
		}
	}
	a := NewAnswer(true, 1000)
	for range 200 {
		a.Add(make([]byte, 64<<10)) // a line without an end
	}
	if _, ok := a.NextTurn(); ok || cap(a.rest) > 4*MaxEvent {
		t.Errorf("complete %t, %d bytes", ok, cap(a.rest))
	}
}

// FuzzAnswer: whatever comes, in whatever pieces, what is handed over can stand in a body.
func FuzzAnswer(f *testing.F) {
	for _, c := range turns {
		f.Add(c.stream, uint8(7), []byte(c.text))
	}
	f.Fuzz(func(t *testing.T, stream bool, piece uint8, text []byte) {
		a := NewAnswer(stream, 1<<12)
		for at := 0; at < len(text); at += int(piece) + 1 {
			a.Add(text[at:min(len(text), at+int(piece)+1)])
		}
		next, ok := a.NextTurn()
		if !ok {
			return
		}
		var r Request
		if err := Scan(&r, Chat, []byte(`{"messages":[{"role":"user","content":"x"},`+string(next)+`]}`)); err != nil {
			t.Fatalf("%v: %s", err, next)
		}
		if r.Turns != 3 {
			t.Fatalf("%d messages: %s", r.Turns, next)
		}
	})
}
