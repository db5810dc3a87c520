package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attache/internal/golden"
)

// explanationAtNoon is of a request that goes where its prompt is.
func explanationAtNoon() *Explanation {
	one := func(worker string, held, inFlight int, queue, prefill float64) Contender {
		return Contender{
			Worker: worker, Address: "10.0.3.1:8000", CachedTokens: held, TierBlocks: Tiers{Device: held / 16}, Evidence: "exact", InFlight: inFlight,
			QueueS: Known(queue), SpeedFactor: Known(1), PredictedTTFTS: Known(queue + prefill), Total: Known(queue + prefill), Unit: "s",
			Terms: []Term{{"queue", Known(queue)}, {"prefill", Known(prefill)}},
		}
	}
	return &Explanation{
		At: noon, Pool: "chat", Model: "llama", Policy: "time", Chosen: "gpu-b", Why: "gpu-b holds 12,288 of 13,000 tokens",
		PromptTokens: 13_000, BlockTokens: 16, Rung: "exact", Available: 12_288, Captured: 12_288, PredictedTTFTS: Known(.13),
		Candidates:   []Contender{one("gpu-b", 12_288, 11, .08, .05), one("gpu-a", 0, 3, 0, .54)},
		Excluded:     []Excluded{{"gpu-g", "10.0.3.7:8000", "unhealthy", "unhealthy", "connection refused"}},
		Others:       []OtherChoice{{Policy: "time", Worker: "gpu-b", Same: true, CachedTokens: 12_288, Total: Known(.13), Unit: "s"}},
		IgnoredHints: []IgnoredHint{{"worker", "it is not believed"}},
	}
}

// ask posts a question.
func ask(s *Server, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

func TestExplainGolden(t *testing.T) {
	golden.Compare(t, "explain.json", ask(stopped(t, quiet(), newFake()), "/api/v1/explain", `{}`).Body.String())
}

func TestExplainQuestion(t *testing.T) {
	f := newFake()
	s := stopped(t, quiet(), f)
	if w := ask(s, "/api/v1/explain", `{"a":1}`); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	ask(s, "/api/v1/explain?path=/v1/completions&policy=dynamo%3Brouter_temperature=1&h=X-Session-Id:%207&h=a:b:c", `{}`, "X-Attache-Header-X-Tenant-Id", "t")
	want := []Question{
		{Path: "/v1/chat/completions", Body: []byte(`{"a":1}`)},
		{Path: "/v1/completions", Policy: "dynamo;router_temperature=1", Body: []byte(`{}`), Headers: [][2]string{{"x-session-id", "7"}, {"a", "b:c"}, {"x-tenant-id", "t"}}},
	}
	if diff := cmp.Diff(want, f.asks); diff != "" {
		t.Error(diff)
	}
}

func TestExplainRefuses(t *testing.T) {
	many := "/api/v1/explain?" + strings.Repeat("h=a:b&", maxAsked+1)
	for _, c := range []struct {
		name, target, body string
		refusal            error
		status             int
		want               string
	}{
		{"a header without a value", "/api/v1/explain?h=x", "{}", nil, 400, `"message": "h: \"\": must be name:value, as x-session-id:7"`},
		{"a name that is none", "/api/v1/explain?h=a%20b:c", "{}", nil, 400, `must be name:value`},
		{"too many headers", many, "{}", nil, 400, "at most 64 headers"},
		{"no path", "/api/v1/explain?path=v1", "{}", nil, 400, `"param": "path"`},
		{"too large", "/api/v1/explain", strings.Repeat(" ", maxQuestion+1), nil, 413, `"code": "request_too_large"`},
		{"what the server refuses", "/api/v1/explain", "{", &RefusedError{Status: 404, Body: []byte(`{"error":{"message":"byte 1"}}`)}, 404, `{"error":{"message":"byte 1"}}`},
		{"what went wrong", "/api/v1/explain", "{", errors.New("no reason"), 500, `"type": "internal_error"`},
	} {
		f := newFake()
		f.refusal = c.refusal
		w := ask(stopped(t, quiet(), f), c.target, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s; want %d, %s", c.name, w.Code, w.Body, c.status, c.want)
		}
	}
	if w := call(stopped(t, quiet(), newFake()), "GET", "/api/v1/explain"); w.Code != 405 {
		t.Errorf("GET: %d", w.Code)
	}
	if w := ask(stopped(t, quiet(), newFake()), "/api/v1/explain", "{}", "Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"); w.Code != 403 {
		t.Errorf("from another origin: %d", w.Code)
	}
}

// FuzzExplain: whatever is asked, the answer is JSON: an explanation or an error in OpenAI's form.
func FuzzExplain(f *testing.F) {
	f.Add("path=/v1/completions&h=a:b", "X-Attache-Header-A", "b", "{}")
	f.Add("h=:&h=%00:x&policy=;;", "x-attache-header-", "", "")
	f.Fuzz(func(t *testing.T, query, header, value, body string) {
		src := newFake()
		s := &Server{cfg: quiet(), view: reader{src: src}, explaining: make(chan struct{}, 1)}
		r := httptest.NewRequest(http.MethodPost, "/api/v1/explain", strings.NewReader(body))
		r.URL.RawQuery = query
		r.Header[http.CanonicalHeaderKey(header)] = []string{value}
		w := httptest.NewRecorder()
		s.explain(w, r)
		var answer struct {
			Why   string
			Error struct{ Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
		if w.Code == 200 && answer.Why == "" || w.Code != 200 && answer.Error.Message == "" {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		for _, q := range src.asks {
			if q.Path == "" || q.Path[0] != '/' || len(q.Headers) > maxAsked || string(q.Body) != body {
				t.Fatalf("%+v", q)
			}
			for _, h := range q.Headers {
				if h[0] == "" || h[0] != strings.ToLower(h[0]) || strings.ContainsAny(h[0], " :\r\n\x00") {
					t.Fatalf("header %q", h)
				}
			}
		}
		if len(s.explaining) != 0 {
			t.Fatal("a place was not given back")
		}
	})
}
