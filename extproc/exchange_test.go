package extproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/mem"

	"attache/internal/openai"
	"attache/internal/router"
	"attache/scoring/queue"
)

// fakeRouter names two workers and remembers what it was asked.
type fakeRouter struct {
	asked  []router.Request
	bodies []string
	model  string // rewrite to
	strict bool
	pool   string
	err    error
	waits  bool // requests wait, for so long at most
	most   time.Duration
}

func (f *fakeRouter) Route(_ context.Context, req *router.Request) (*router.Decision, error) {
	f.asked = append(f.asked, *req)
	f.bodies = append(f.bodies, string(req.Body))
	if f.waits {
		req.Waiting(f.most)
	}
	if f.err != nil {
		return nil, f.err
	}
	pool := f.pool
	if pool == "" {
		pool = "default"
	}
	return &router.Decision{ID: "r.1", Replica: "r", Pool: pool, Model: f.model, Strict: f.strict, Destinations: "10.0.0.1:8000,10.0.0.2:8000"}, nil
}

func (f *fakeRouter) Models() []string { return []string{"llama", "qwen"} }

func testServer(t testing.TB, f Router, change func(*Config)) *Server {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	if change != nil {
		change(&cfg)
	}
	s, err := New(Params{Config: cfg, Router: f, DefaultPool: "default", Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.grpc.Stop(); _ = s.listener.Close() })
	return s
}

// chat is a chat body of exactly n bytes.
func chat(n int) string {
	const head, tail = `{"model":"llama","messages":[{"role":"user","content":"`, `"}]}`
	return head + strings.Repeat("x", max(0, n-len(head)-len(tail))) + tail
}

// conversation plays one line of a script, such as "headers", "body 200 end" or "trailers", as Envoy would send it.
type conversation struct {
	t       *testing.T
	x       *exchange
	mode    filter.ProcessingMode_BodySendMode
	first   bool
	replies []string
}

func converse(t *testing.T, s *Server, mode filter.ProcessingMode_BodySendMode) *conversation {
	c := &conversation{t: t, mode: mode, first: true}
	c.x = &exchange{server: s, ctx: t.Context(), send: func(r reply) error {
		c.replies = append(c.replies, describe(parseReply(t, r)))
		if r.tail != nil {
			r.tail.Free()
		}
		return nil
	}}
	return c
}

func (c *conversation) say(line string, extra ...string) {
	c.t.Helper()
	words := strings.Fields(line)
	end := words[len(words)-1] == "end"
	var m extprocv3.ProcessingRequest
	body := func() *extprocv3.HttpBody {
		b := &extprocv3.HttpBody{EndOfStream: end}
		if n, err := strconv.Atoi(words[1]); err == nil {
			b.Body = []byte(chat(n))
			if n < 60 {
				b.Body = b.Body[:n]
			}
		} else {
			b.Body = []byte(words[1])
		}
		return b
	}
	switch words[0] {
	case "headers":
		h := []string{":method", "POST", ":path", "/v1/chat/completions", "x-request-id", "abc", "x-client-id", "alice"}
		if len(words) > 1 && words[1] != "end" {
			h = []string{":method", words[1], ":path", words[2]}
		}
		m.Request = &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headersOf(append(h, extra...)...), EndOfStream: end}}
	case "body":
		m.Request = &extprocv3.ProcessingRequest_RequestBody{RequestBody: body()}
	case "trailers":
		m.Request = &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}
	case "response-headers":
		m.Request = &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: headersOf(append([]string{":status", "200"}, extra...)...), EndOfStream: end}}
	case "response-body":
		m.Request = &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: body()}
	case "response-trailers":
		m.Request = &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}
	case "nothing":
	default:
		c.t.Fatalf("script: %q", line)
	}
	if c.first && c.mode >= 0 {
		m.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: c.mode}
		if c.mode == filter.ProcessingMode_FULL_DUPLEX_STREAMED {
			m.ProtocolConfig.ResponseBodyMode = c.mode
		}
		if c.mode == filter.ProcessingMode_STREAMED {
			m.ProtocolConfig.SendBodyWithoutWaitingForHeaderResponse = true
		}
	}
	c.first = false
	decoded := decodeMessage(c.t, wireOf(c.t, &m))
	if err := c.x.handle(decoded); err != nil {
		c.t.Errorf("%s: %v", line, err)
	}
}

// describe says in a line what a reply does.
func describe(r *extprocv3.ProcessingResponse) string {
	var words []string
	common := func(name string, c *extprocv3.CommonResponse) {
		words = append(words, name)
		for _, h := range c.GetHeaderMutation().GetSetHeaders() {
			words = append(words, h.GetHeader().GetKey()+"="+string(h.GetHeader().GetRawValue()))
		}
		for _, h := range c.GetHeaderMutation().GetRemoveHeaders() {
			words = append(words, "-"+h)
		}
		if c.GetClearRouteCache() {
			words = append(words, "reroute")
		}
		if b, ok := c.GetBodyMutation().GetMutation().(*extprocv3.BodyMutation_Body); ok {
			words = append(words, fmt.Sprintf("body(%d)", len(b.Body)))
		}
		if s := c.GetBodyMutation().GetStreamedResponse(); s != nil {
			words = append(words, fmt.Sprintf("echo(%d)", len(s.GetBody())))
			if s.GetEndOfStream() {
				words = append(words, "end")
			}
		}
	}
	switch v := r.GetResponse().(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		common("headers", v.RequestHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_RequestBody:
		common("body", v.RequestBody.GetResponse())
	case *extprocv3.ProcessingResponse_RequestTrailers:
		words = append(words, "trailers")
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		common("response-headers", v.ResponseHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_ResponseBody:
		common("response-body", v.ResponseBody.GetResponse())
	case *extprocv3.ProcessingResponse_ResponseTrailers:
		words = append(words, "response-trailers")
	case *extprocv3.ProcessingResponse_ImmediateResponse:
		words = append(words, fmt.Sprintf("answer(%d %s)", v.ImmediateResponse.GetStatus().GetCode(), v.ImmediateResponse.GetDetails()))
		for _, h := range v.ImmediateResponse.GetHeaders().GetSetHeaders() {
			words = append(words, h.GetHeader().GetKey()+"="+string(h.GetHeader().GetRawValue()))
		}
	}
	if d := r.GetOverrideMessageTimeout(); d != nil {
		words = append(words, fmt.Sprintf("wait(%v)", d.AsDuration()))
	}
	if mode := r.GetModeOverride(); mode != nil {
		words = append(words, fmt.Sprintf("mode(request %s %s response %s %s)", mode.GetRequestHeaderMode(), mode.GetRequestBodyMode(),
			mode.GetResponseHeaderMode(), mode.GetResponseBodyMode()))
	}
	if lb := r.GetDynamicMetadata().GetFields()["envoy.lb"]; lb != nil {
		words = append(words, "steer="+lb.GetStructValue().GetFields()["x-gateway-destination-endpoint"].GetStringValue())
	}
	return strings.Join(words, " ")
}

const (
	toBoth   = "x-gateway-destination-endpoint=10.0.0.1:8000,10.0.0.2:8000"
	steered  = " steer=10.0.0.1:8000,10.0.0.2:8000"
	decision = toBoth + steered
)

// TestExchange plays what gateways send, in every mode and in odd orders, and shows every reply they get.
func TestExchange(t *testing.T) {
	const (
		buffered = filter.ProcessingMode_BUFFERED
		duplex   = filter.ProcessingMode_FULL_DUPLEX_STREAMED
		streamed = filter.ProcessingMode_STREAMED
		none     = filter.ProcessingMode_NONE
		unstated = filter.ProcessingMode_BodySendMode(-1)
	)
	for _, c := range []struct {
		name   string
		mode   filter.ProcessingMode_BodySendMode
		script string
		want   string
	}{
		{"buffered: headers at once, the decision with the body", buffered, "headers; body 200 end",
			"headers; body " + decision},
		{"buffered: with request trailers the body does not say that it ends", buffered, "headers; body 200; trailers",
			"headers; body " + decision + "; trailers"},
		{"buffered: no body at all", buffered, "headers GET /health end", "headers " + decision},
		{"buffered: an empty body", buffered, "headers; body 0 end", "body-empty"},
		{"buffered: headers a second time", buffered, "headers; headers; body 200 end", "headers; headers; body " + decision},
		{"buffered: a body a second time", buffered, "headers; body 200 end; body 200 end", "headers; body " + decision + "; body"},
		{"buffered: a body before any headers is routed by load", buffered, "body 200 end; headers", "body " + decision + "; headers"},
		{"buffered: every response phase passes", buffered,
			"headers; body 200 end; response-headers; response-body 10; response-body 5 end; response-trailers",
			"headers; body " + decision + "; response-headers; response-body; response-body; response-trailers"},
		{"a response without a request", buffered, "response-headers; response-trailers", "response-headers; response-trailers"},
		{"a message without a phase is owed nothing", buffered, "nothing; headers; nothing; body 200 end", "headers; body " + decision},
		{"buffered: models are answered here", buffered, "headers GET /v1/models end",
			"answer(200 attache_models) content-type=application/json"},
		{"buffered: malformed", buffered, `headers; body {"model": end`,
			"headers; answer(400 attache_malformed_body) content-type=application/json"},
		{"buffered: nothing follows an answer", buffered, `headers; body {"model": end; trailers; response-headers`,
			"headers; answer(400 attache_malformed_body) content-type=application/json"},
		{"buffered: too large", buffered, "headers; body 100001 end",
			"headers; answer(413 attache_body_too_large) content-type=application/json"},
		{"no mode stated means buffered here", unstated, "headers; body 200 end", "headers; body " + decision},

		{"duplex: the headers wait for the whole body", duplex, "headers; body 200; body 0 end",
			"headers " + decision + "; body echo(200) end"},
		{"duplex: one chunk that ends", duplex, "headers; body 200 end", "headers " + decision + "; body echo(200) end"},
		{"duplex: chunks of at most 62,000 bytes go back", duplex, "headers; body 70000 end",
			"headers " + decision + "; body echo(62000); body echo(8000) end"},
		{"duplex: an empty body is one empty chunk", duplex, "headers; body 0 end", "duplex-empty"},
		{"duplex: trailers end the body", duplex, "headers; body 200; trailers",
			"headers " + decision + "; body echo(200); trailers"},
		{"duplex: trailers without a body", duplex, "headers; trailers", "headers " + decision + "; trailers"},
		{"duplex: the end a second time is ignored", duplex, "headers; body 200 end; body 0 end; body 200 end",
			"headers " + decision + "; body echo(200) end"},
		{"duplex: no body", duplex, "headers GET /health end", "headers " + decision},
		{"duplex: too large while gathering", duplex, "headers; body 60000; body 60000; body 10 end",
			"answer(413 attache_body_too_large) content-type=application/json"},
		{"duplex: the response is echoed", duplex, "headers; body 200 end; response-headers; response-body 70000; response-body 0 end; response-trailers",
			"headers " + decision + "; body echo(200) end; response-headers; response-body echo(62000); response-body echo(8000);" +
				" response-body echo(0) end; response-trailers"},

		{"streamed with the header reply withheld: one reply per message", streamed, "headers; body 100; body 200 end", "streamed-two"},
		{"none: by load, from the headers alone", none, "headers", "headers " + decision},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fakeRouter{}
			s := testServer(t, f, func(cfg *Config) { cfg.MaxBody = 100_000; cfg.MaxMessage = 4 << 20 })
			talk := converse(t, s, c.mode)
			for line := range strings.SplitSeq(c.script, ";") {
				talk.say(strings.TrimSpace(line))
			}
			talk.x.close()
			want := c.want
			switch want {
			case "body-empty":
				want = "headers; body " + decision
			case "duplex-empty":
				want = "headers " + decision + "; body echo(0) end"
			case "streamed-two":
				want = "answer(400 attache_malformed_body) content-type=application/json" // two chats in a row are no JSON
			}
			if got := strings.Join(talk.replies, "; "); got != want {
				t.Errorf("script  %s\nreplies %s\nwant    %s", c.script, got, want)
			}
		})
	}
}

func TestExchangeInPiecesIsScannedWhole(t *testing.T) {
	for _, mode := range []filter.ProcessingMode_BodySendMode{filter.ProcessingMode_FULL_DUPLEX_STREAMED, filter.ProcessingMode_STREAMED} {
		f := &fakeRouter{}
		s := testServer(t, f, nil)
		talk := converse(t, s, mode)
		whole := chat(300)
		talk.say("headers")
		for i, piece := range []string{whole[:100], whole[100:250], whole[250:]} {
			m := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
				RequestBody: &extprocv3.HttpBody{Body: []byte(piece), EndOfStream: i == 2}}}
			if err := talk.x.handle(decodeMessage(t, wireOf(t, m))); err != nil {
				t.Fatal(err)
			}
		}
		if len(f.bodies) != 1 || f.bodies[0] != whole || f.asked[0].Scan == nil {
			t.Errorf("%s: the router was asked with %d bodies", mode, len(f.bodies))
		}
		want := "headers " + decision + "; body echo(100); body echo(150); body echo(50) end"
		if mode == filter.ProcessingMode_STREAMED {
			want = "headers " + decision + "; body; body; body"
		}
		if got := strings.Join(talk.replies, "; "); got != want {
			t.Errorf("%s: replies %s\nwant %s", mode, got, want)
		}
	}
}

func TestForgedSteeringIsRemoved(t *testing.T) {
	forged := []string{"x-attache-pool", "attache_workers.gold", "x-gateway-destination-endpoint", "10.6.6.6:1",
		"x-gateway-destination-endpoint-served", "10.6.6.6:1"}
	const gone = "-x-attache-pool -x-gateway-destination-endpoint -x-gateway-destination-endpoint-served reroute"
	talk := converse(t, testServer(t, &fakeRouter{}, nil), filter.ProcessingMode_BUFFERED)
	talk.say("headers", forged...)
	talk.say("body 200 end")
	if got, want := strings.Join(talk.replies, "; "), "headers "+gone+"; body "+decision; got != want {
		t.Errorf("buffered: %s\nwant %s", got, want)
	}
	talk = converse(t, testServer(t, &fakeRouter{}, nil), filter.ProcessingMode_FULL_DUPLEX_STREAMED)
	talk.say("headers", forged...)
	talk.say("body 200 end")
	want := "headers " + toBoth + " -x-attache-pool -x-gateway-destination-endpoint-served reroute" + steered + "; body echo(200) end"
	if got := strings.Join(talk.replies, "; "); got != want {
		t.Errorf("duplex: %s\nwant %s", got, want)
	}
}

// TestExtensionsAreForThoseWhoKnowThem: nvext goes to every engine but those that would answer 400.
func TestExtensionsAreForThoseWhoKnowThem(t *testing.T) {
	const extended = `{"model":"a", "nvext":{"annotations":["x"]},"prompt":"hi","nv\u0065xt":1}`
	for name, c := range map[string]struct {
		router fakeRouter
		body   string
		want   string // empty for: as it came
	}{
		"kept":                  {fakeRouter{}, extended, ""},
		"removed":               {fakeRouter{strict: true}, extended, `{"model":"a","prompt":"hi"}`},
		"removed and rewritten": {fakeRouter{strict: true, model: "b"}, extended, `{"model":"b","prompt":"hi"}`},
		"nothing to remove":     {fakeRouter{strict: true}, `{"model":"a","prompt":"nvext"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := testServer(t, &c.router, nil)
			scan := &openai.Request{}
			if err := openai.Scan(scan, openai.Completions, []byte(c.body)); err != nil {
				t.Fatal(err)
			}
			req := &router.Request{Body: []byte(c.body), Scan: scan}
			d, err := c.router.Route(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.changeFor(s.settings.Load(), d, req); string(got.body) != c.want || got.replace != (c.want != "") {
				t.Errorf("the body becomes %q (%t), want %q", got.body, got.replace, c.want)
			}
		})
	}
}

func TestModelIsRewrittenInPlace(t *testing.T) {
	for mode, want := range map[filter.ProcessingMode_BodySendMode]string{
		filter.ProcessingMode_BUFFERED: "headers; body " + toBoth + " x-attache-pool=attache_workers.big content-length=205 reroute body(205)" + steered,
		filter.ProcessingMode_FULL_DUPLEX_STREAMED: "headers " + toBoth + " x-attache-pool=attache_workers.big reroute" + steered +
			"; body echo(205) end",
	} {
		talk := converse(t, testServer(t, &fakeRouter{model: "llama-70b!", pool: "big"}, nil), mode)
		talk.say("headers")
		talk.say("body 200 end")
		if got := strings.Join(talk.replies, "; "); got != want {
			t.Errorf("%s: %s\nwant %s", mode, got, want)
		}
	}
}

// TestTheGatewayIsAskedForTime: once, before the decision, in every phase and mode that has a time limit.
func TestTheGatewayIsAskedForTime(t *testing.T) {
	const (
		buffered = filter.ProcessingMode_BUFFERED
		duplex   = filter.ProcessingMode_FULL_DUPLEX_STREAMED
		none     = filter.ProcessingMode_NONE
	)
	usual := Gateway{MessageTimeout: 2 * time.Second, MaxMessageTimeout: time.Minute}
	for _, c := range []struct {
		name    string
		mode    filter.ProcessingMode_BodySendMode
		gateway Gateway
		most    time.Duration
		script  string
		want    string
	}{
		{"with the body", buffered, usual, 30*time.Second + 5, "headers; body 200 end", "headers; wait(32.000000005s); body " + decision},
		{"with the headers, when there is no body", buffered, usual, 30 * time.Second, "headers GET /health end", "wait(32s); headers " + decision},
		{"not with the headers, when a body comes", buffered, usual, 30 * time.Second, "headers", "headers"},
		{"where no body comes", none, usual, 30 * time.Second, "headers", "wait(32s); headers " + decision},
		{"no longer than it takes", buffered, usual, 2 * time.Minute, "headers; body 200 end", "headers; wait(1m0s); body " + decision},
		{"a wait without end", buffered, usual, 0, "headers; body 200 end", "headers; wait(1m0s); body " + decision},
		{"not one that gives none", buffered, Gateway{}, time.Second, "headers; body 200 end", "headers; body " + decision},
		{"not in full duplex", duplex, usual, 30 * time.Second, "headers; body 200 end", "headers " + decision + "; body echo(200) end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := testServer(t, &fakeRouter{waits: true, most: c.most}, nil)
			s.gateway = c.gateway
			talk := converse(t, s, c.mode)
			for line := range strings.SplitSeq(c.script, "; ") {
				talk.say(line)
			}
			if got := strings.Join(talk.replies, "; "); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
			talk.x.close()
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
		body string
	}{
		{&router.NoWorkerError{Pool: "default", Why: "2 unhealthy"},
			"answer(503 attache_no_worker) content-type=application/json x-llm-d-request-dropped-reason=rejected-no-endpoints",
			`no worker of pool \"default\" can take the request: 2 unhealthy`},
		{&router.ShedError{Pool: "default", Limit: 8, Reason: queue.RejectedSaturated, RetryAfter: 1500 * time.Millisecond},
			"answer(429 attache_shed) content-type=application/json retry-after=2 x-llm-d-request-dropped-reason=rejected-saturated",
			`every worker of pool \"default\" already has 8 requests in flight, its limit; try again in 2 s`},
		{&router.ShedError{Pool: "default", Reason: queue.RejectedTTLExpired, RetryAfter: time.Second},
			"answer(429 attache_shed) content-type=application/json retry-after=1 x-llm-d-request-dropped-reason=rejected-ttl-expired",
			`no worker of pool \"default\" had room for the request as long as it was allowed to wait; try again in 1 s`},
		{&router.ShedError{Pool: "default", Reason: queue.EvictedPriority, RetryAfter: time.Second},
			"answer(429 attache_shed) content-type=application/json retry-after=1 x-llm-d-request-dropped-reason=evicted-priority",
			`a more urgent request took the place of this one in the queue of pool \"default\"; try again in 1 s`},
		{&router.ShedError{Pool: "default", Reason: queue.RejectedSaturated, Detail: `class "batch": requests: 5 waiting, at most 5`, RetryAfter: 12 * time.Second},
			"answer(429 attache_shed) content-type=application/json retry-after=12 x-llm-d-request-dropped-reason=rejected-saturated",
			`is saturated, and its queue is full: class \"batch\": requests: 5 waiting, at most 5; try again in 12 s`},
		{&router.ShedError{Pool: "default", Reason: queue.RejectedShuttingDown, RetryAfter: time.Second},
			"answer(503 attache_shed) content-type=application/json retry-after=1 x-llm-d-request-dropped-reason=rejected-shutting-down",
			"the gateway is shutting down; try again in 1 s"},
		{&router.UnknownModelError{Model: "gpt-9", Known: []string{"llama", "qwen-*"}},
			"answer(404 attache_unknown_model) content-type=application/json",
			`the model \"gpt-9\" does not exist; served here: llama, qwen-*`},
		{context.Canceled, "answer(503 attache_cancelled) content-type=application/json x-llm-d-request-dropped-reason=rejected-context-cancelled",
			"the request was given up before a worker was chosen"},
		{errors.New("boom"), "answer(500 attache_internal) content-type=application/json", "no worker could be chosen: boom"},
	} {
		r := refusalOf(c.err).reply()
		if got := describe(parseReply(t, r)); got != c.want {
			t.Errorf("%v: %s\nwant %s", c.err, got, c.want)
		}
		if body := string(parseReply(t, r).GetImmediateResponse().GetBody()); !strings.Contains(body, c.body) || !strings.HasPrefix(body, `{"error":{`) {
			t.Errorf("%v: body %s", c.err, body)
		}
	}
}

func TestWhatTheRouterIsAsked(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*Config)
		headers string
		body    string
		extra   []string
		kind    openai.Kind
		scanned bool
		asked   bool
	}{
		{"a chat", nil, "headers", "body 200 end", nil, openai.Chat, true, true},
		{"an unknown path goes by load", nil, "headers POST /v2/things", "body 200 end", nil, openai.Other, false, true},
		{"or not at all", func(c *Config) { c.Other = "pass" }, "headers POST /v2/things", "body 200 end", nil, openai.Other, false, false},
		{"a compressed body cannot be read", nil, "headers", "body 200 end", []string{"content-encoding", "gzip"}, openai.Chat, false, true},
		{"a malformed body passes where configured", func(c *Config) { c.Malformed = "pass" }, "headers", "body nonsense end", nil, openai.Chat, false, true},
		{"models pass where configured", func(c *Config) { c.AnswerModels = false }, "headers GET /v1/models end", "", nil, openai.Models, false, true},
	} {
		f := &fakeRouter{}
		talk := converse(t, testServer(t, f, c.change), filter.ProcessingMode_BUFFERED)
		talk.say(c.headers, c.extra...)
		if c.body != "" {
			talk.say(c.body)
		}
		if len(f.asked) == 0 != !c.asked {
			t.Errorf("%s: asked %d times", c.name, len(f.asked))
			continue
		}
		if c.asked && (f.asked[0].Kind != c.kind || (f.asked[0].Scan != nil) != c.scanned) {
			t.Errorf("%s: asked %+v", c.name, f.asked[0])
		}
		if c.headers == "headers" && (f.asked[0].ID != "abc" || f.asked[0].Tenant != "alice") {
			t.Errorf("%s: id %q, tenant %q", c.name, f.asked[0].ID, f.asked[0].Tenant)
		}
	}
}

func TestEchoFreesEveryPiece(t *testing.T) {
	pool := &countingPool{}
	data := make([]byte, 200_000)
	piece := mem.NewBuffer(&data, pool)
	n := 0
	err := echoPieces(func(r reply) error {
		if r.tail != nil {
			r.tail.Free()
		}
		if n++; n == 2 {
			return io.ErrClosedPipe
		}
		return nil
	}, phaseRequestBody, []mem.Buffer{piece}, true)
	if !errors.Is(err, io.ErrClosedPipe) || pool.put != 1 {
		t.Errorf("error %v, %d buffers came back, want 1", err, pool.put)
	}
}

type countingPool struct{ put int }

func (p *countingPool) Get(n int) *[]byte { b := make([]byte, n); return &b }
func (p *countingPool) Put(*[]byte)       { p.put++ }

// piece plays a piece of the answer's body.
func (c *conversation) piece(body string, end bool) {
	c.t.Helper()
	m := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: end}}}
	if err := c.x.handle(decodeMessage(c.t, wireOf(c.t, m))); err != nil {
		c.t.Error(err)
	}
}
