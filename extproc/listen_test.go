package extproc

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"

	"attache/internal/router"
)

// kept is a keeper that writes down what it is given.
type kept struct {
	bodies []string
	next   []string
}

func (k *kept) Keep(p *router.Prompt) func(*router.Place) {
	k.bodies = append(k.bodies, string(p.Body))
	return func(at *router.Place) { k.next = append(k.next, string(at.Next)) }
}

func (*kept) Forget(uint64) {}

// askAhead is a chat whose next turn's prompt is wanted.
func askAhead() string {
	return `{"messages":[{"role":"user","content":"` + strings.Repeat("x", 4000) + `"}],"nvext":{"agent_hints":{"speculative_prefill":true}}}`
}

const events = "content-type=text/event-stream;charset=utf-8"

// TestListening: answers are listened to where that is wanted and possible, every message is replied to at once and changes nothing, and
// what was heard is handed over when it is complete.
func TestListening(t *testing.T) {
	const (
		mode = "response-headers mode(request SEND BUFFERED response SEND STREAMED)"
		next = `{"role":"assistant","content":"hello"},{"role":"user","content":""}`
		half = `data:{"choices":[{"index":0,"delta":{"content":"hel`
		rest = "lo\"},\"finish_reason\":\"stop\"}]}\n\ndata:[DONE]\n\n"
		json = `{"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}]}`
	)
	buffered, duplex := filter.ProcessingMode_BUFFERED, filter.ProcessingMode_FULL_DUPLEX_STREAMED
	for _, c := range []struct {
		name    string
		mode    filter.ProcessingMode_BodySendMode
		body    string
		headers []string
		pieces  []string // of the answer; the last one ends it
		open    bool     // it does not
		reply   string   // to the answer's headers
		next    string
	}{
		{"a stream", buffered, askAhead(), []string{events}, []string{half, rest}, false, mode, next},
		{"a stream with trailers", buffered, askAhead(), []string{events}, []string{half, rest, ""}, true, mode, next},
		{"a stream that breaks off", buffered, askAhead(), []string{events}, []string{half}, true, mode, ""},
		{"a document", buffered, askAhead(), []string{"content-type=application/json"}, []string{json[:20], json[20:]}, false, mode, next},
		{"a document of no kind", buffered, askAhead(), nil, nil, false, "response-headers", ""},
		{"a compressed answer", buffered, askAhead(), []string{events, "content-encoding=gzip"}, nil, false, "response-headers", ""},
		{"an error", buffered, askAhead(), []string{events, ":status=500"}, nil, false, "response-headers", ""},
		{"who does not want it", buffered, strings.Replace(askAhead(), "true", "false", 1), []string{events}, nil, false, "response-headers", ""},
		{"a gateway that cannot", duplex, askAhead(), []string{events}, nil, false, "response-headers", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &kept{}
			router := newTickingWith(t, k)
			talk := converse(t, testServer(t, router, nil), c.mode)
			talk.say("headers")
			talk.say("body " + c.body + " end")
			var headers []string
			for _, h := range c.headers {
				key, value, _ := strings.Cut(h, "=")
				headers = append(headers, key, value)
			}
			talk.say("response-headers", headers...)
			if got := talk.replies[len(talk.replies)-1]; got != c.reply {
				t.Errorf("the headers got %s\nwant %s", got, c.reply)
			}
			for i, piece := range c.pieces {
				talk.piece(piece, i == len(c.pieces)-1 && !c.open)
				if got := talk.replies[len(talk.replies)-1]; got != "response-body" {
					t.Errorf("piece %d got %s", i, got)
				}
			}
			id := talk.x.decision.ID
			talk.x.close()
			router.Report(id, outcome)
			if c.next != "" && !slices.Equal(k.next, []string{c.next}) || c.next == "" && strings.Join(k.next, "") != "" {
				t.Errorf("heard %q, want %q", k.next, c.next)
			}
			if len(k.bodies) > 1 || len(k.bodies) == 1 && k.bodies[0] != c.body {
				t.Errorf("kept %q", k.bodies)
			}
		})
	}
}

var outcome = router.Outcome{Status: 200, Attempts: 1, Served: netip.MustParseAddrPort("10.0.0.1:8000")}
