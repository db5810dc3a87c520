package extproc

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"attache/internal/hints"
	"attache/internal/openai"
	"attache/internal/router"
)

func TestUnderstand(t *testing.T) {
	body := `{"model":"m","messages":[{"role":"user","content":"hi"}],"nvext":{"routing_constraints":{"required_taints":["zone=a"]}}}`
	p := &Preview{Path: "/v1/chat/completions", Body: []byte(body), Headers: [][2]string{
		{"X-Request-Id", "r7"}, {"x-client-id", "alice"}, {"X-Session-ID", "s"}, {"x-dynamo-worker-instance-id", "gpu-a"},
	}}
	cfg := DefaultConfig()
	req, err := cfg.Understand(p)
	if err != nil {
		t.Fatal(err)
	}
	if req.ID != "r7" || req.Tenant != "alice" || req.Kind != openai.Chat || req.Hints.Session != "s" || req.Hints.Worker != "" || req.Hints.Required[0] != "" ||
		!slices.Contains(req.Hints.Problems.All(), hints.Problem{Kind: hints.Worker, Reason: hints.Untrusted}) {
		t.Errorf("%+v", req)
	}
	cfg.Hints.Trust = []string{"all"}
	if req, err = cfg.Understand(p); err != nil || req.Hints.Worker != "gpu-a" || req.Hints.Required[0] != "zone=a" {
		t.Errorf("%+v, %v", req, err)
	}
}

func TestUnderstandRefuses(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxBody, cfg.Hints.Strict = 100, true
	for _, c := range []struct {
		name, path, body string
		status           int
		want             string
	}{
		{"where JSON ends", "/v1/chat/completions", `{"mess`, 400, "body: byte 6:"},
		{"what is wrong", "/v1/chat/completions", `{"messages":5}`, 400, `body: byte 12: "messages" must be`},
		{"no inference", "/metrics", `{}`, 400, "path: requests to /metrics are not routed"},
		{"too large", "/v1/chat/completions", strings.Repeat(" ", 101), 413, "at most 100"},
		{"a hint that cannot be understood", "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, 400, "hint ttft cannot be understood"},
	} {
		var refused *RefusedError
		_, err := cfg.Understand(&Preview{Path: c.path, Body: []byte(c.body), Headers: [][2]string{{"x-slo-ttft-ms", "soon"}}})
		if !errors.As(err, &refused) || refused.Status != c.status || !strings.Contains(refused.Error(), c.want) {
			t.Errorf("%s: %v; want %d, %s", c.name, err, c.status, c.want)
		}
	}
}

func TestRefusalOfALongRequest(t *testing.T) {
	r := RefusalOf(&router.TooLongError{Pool: "p", PromptTokens: 9000, AnswerTokens: 500, Limit: 8192})
	for _, want := range []string{`"code":"context_length_exceeded"`, `"type":"invalid_request_error"`, "8192 tokens", "9500: 9000 in the prompt and up to 500"} {
		if r.Status != 400 || !strings.Contains(string(r.Body), want) {
			t.Errorf("%d %s: lacks %s", r.Status, r.Body, want)
		}
	}
}

// FuzzUnderstand: no body and no header makes it panic, and a refusal is always a client error with a message.
func FuzzUnderstand(f *testing.F) {
	f.Add("/v1/chat/completions", "x-attache-policy", "dynamo;router_temperature=1", []byte(`{"messages":[{"role":"user","content":"x"}]}`))
	f.Add("/v1/completions", "x-slo-ttft-ms", "1e9", []byte(`{"prompt":[1,2]}`))
	f.Fuzz(func(t *testing.T, path, name, value string, body []byte) {
		cfg := DefaultConfig()
		cfg.Hints.Trust = []string{"all"}
		req, err := cfg.Understand(&Preview{Path: path, Headers: [][2]string{{name, value}}, Body: body})
		var refused *RefusedError
		switch {
		case err == nil && (req.Scan == nil || !req.Kind.Inference()):
			t.Fatalf("%+v", req)
		case err != nil && (!errors.As(err, &refused) || refused.Status < 400 || refused.Status > 499 || refused.Error() == "the request is refused"):
			t.Fatalf("%v", err)
		}
	})
}
