package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// thinker stands in front of a simulated engine and answers streams with a text of its own, after some thought; it keeps the bodies that
// come.
type thinker struct {
	stream string // its answer as events
	half   func() // is called in the middle of it; nil: nothing

	mu     sync.Mutex // guards bodies
	bodies []string
}

func newThinker(said string) *thinker {
	var b strings.Builder
	b.WriteString(": comment\n\n")
	add := func(delta, reason string) {
		fmt.Fprintf(&b, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n", delta, reason)
	}
	for text := "<think>hm, " + said[:20] + "</think>\n\n" + said; text != ""; {
		n := min(7, len(text))
		piece, err := json.Marshal(map[string]string{"content": text[:n]})
		if err != nil {
			panic(err)
		}
		add(string(piece), "null")
		text = text[n:]
	}
	add("{}", `"stop"`)
	b.WriteString("data: [DONE]\n\n")
	return &thinker{stream: b.String()}
}

func (k *thinker) received() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.bodies...)
}

// before takes the engine's place, and has it listen elsewhere.
func (k *thinker) before(r *rig, e *engine) {
	port := strconv.Itoa(freePort(r.t))
	e.args = append(e.args, "--listen", "127.0.0.1:"+port)
	engine := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "127.0.0.1:" + port})
	engine.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	l, err := net.Listen("tcp", e.address())
	if err != nil {
		r.t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			engine.ServeHTTP(w, req)
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		k.mu.Lock()
		k.bodies = append(k.bodies, string(body))
		k.mu.Unlock()
		req.Body = io.NopCloser(bytes.NewReader(body))
		if !bytes.Contains(body, []byte(`"stream":true`)) {
			engine.ServeHTTP(w, req)
			return
		}
		engine.ServeHTTP(httptest.NewRecorder(), req)
		w.Header().Set("content-type", "text/event-stream")
		for rest := k.stream; rest != ""; { // events come torn
			if k.half != nil && len(rest) < len(k.stream)/2 {
				k.half()
			}
			n := min(200, len(rest))
			_, _ = io.WriteString(w, rest[:n])
			w.(http.Flusher).Flush()
			rest = rest[n:]
		}
	}))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	r.t.Cleanup(s.Close)
}

// TestTheNextTurnIsComputedAhead: the client sees every byte of the answer as it was, and finds its next turn's prompt, with the answer
// but without the thoughts, in the engine's cache.
func TestTheNextTurnIsComputedAhead(t *testing.T) {
	const question, length = "what is there to know?", 8_000
	said := words("said", length)
	cached := map[bool]int{}
	for _, ahead := range []bool{true, false} {
		t.Run(fmt.Sprint("ahead=", ahead), func(t *testing.T) {
			k := newThinker(said)
			r := start(t, setup{mode: "ads", engines: 1, furnish: k.before, config: fmt.Sprintf("warm: {speculative_prefill: %t}\n", ahead)})
			asked := words(question, length)
			body, err := json.Marshal(map[string]any{"model": model, "stream": true, "messages": []map[string]string{{"role": "user", "content": asked}},
				"max_tokens": 2, "nvext": map[string]any{"agent_hints": map[string]bool{"speculative_prefill": true}}})
			if err != nil {
				t.Fatal(err)
			}
			before := len(k.received())
			if a := r.must(chatRequest{raw: body, stream: true}); a.text != k.stream {
				t.Errorf("the client saw %d bytes, the engine sent %d, and they are not the same", len(a.text), len(k.stream))
			}
			want := 1
			if ahead {
				want = 2
				r.eventually("the next turn's prompt was sent", func() bool { return r.metric("attache_warm_sent_total") == 1 })
				if n := r.metric("attache_warm_prompts"); n != 0 {
					t.Errorf("%v prompts are kept after it", n)
				}
			}
			got := k.received()[before:]
			if len(got) != want {
				t.Fatalf("the engine got %d requests, want %d", len(got), want)
			}
			next := chatRequest{turns: []string{asked, said, "and then?"}}
			if ahead {
				var sent struct {
					Messages  []struct{ Role, Content string }
					Stream    bool
					MaxTokens int `json:"max_tokens"`
				}
				if err := json.Unmarshal([]byte(got[1]), &sent); err != nil {
					t.Fatal(err)
				}
				if m := sent.Messages; len(m) != 3 || m[0].Content != asked || m[1].Role != "assistant" || m[1].Content != said || m[2].Role != "user" || m[2].Content != "" ||
					sent.Stream || sent.MaxTokens != 1 {
					t.Errorf("sent: %s", got[1])
				}
			}
			// A document is listened to as well.
			document := bytes.Replace(body, []byte(`"stream":true`), []byte(`"stream":false`), 1)
			if a := r.must(chatRequest{raw: document}); !json.Valid([]byte(a.text)) || a.header.Get("content-length") != strconv.Itoa(len(a.text)) {
				t.Errorf("the client saw %q, with content-length %q", a.text, a.header.Get("content-length"))
			}
			if ahead {
				r.eventually("the next turn after a document was sent", func() bool { return r.metric("attache_warm_sent_total") == 2 })
			}
			cached[ahead] = r.must(next).cachedTokens(t)
			// Who does not ask for it is not listened to.
			plain := bytes.Replace(body, []byte(`"speculative_prefill":true`), []byte(`"speculative_prefill":false`), 1)
			if a := r.must(chatRequest{raw: plain, stream: true}); a.text != k.stream {
				t.Error("another client saw something else")
			}
		})
	}
	if gain := cached[true] - cached[false]; gain < length/8 {
		t.Errorf("%d tokens of the next turn were there, and %d without", cached[true], cached[false])
	}
}

// TestAnswersOutliveWhoListens: the client sees all of an answer that is listened to though attache dies in the middle of it.
func TestAnswersOutliveWhoListens(t *testing.T) {
	k := newThinker(words("said", 8_000))
	r := start(t, setup{mode: "ads", engines: 1, furnish: k.before, config: "warm: {speculative_prefill: true}\n"})
	k.half = sync.OnceFunc(func() { r.attache.Kill() })
	body, err := json.Marshal(map[string]any{"model": model, "stream": true, "messages": []map[string]string{{"role": "user", "content": words("asked", 8_000)}},
		"nvext": map[string]any{"agent_hints": map[string]bool{"speculative_prefill": true}}})
	if err != nil {
		t.Fatal(err)
	}
	if a := r.must(chatRequest{raw: body, stream: true}); a.text != k.stream {
		t.Errorf("the client saw %d bytes, the engine sent %d, and they are not the same", len(a.text), len(k.stream))
	}
}
