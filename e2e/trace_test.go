package e2e

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// spanStore is an OpenTelemetry collector that keeps what it is sent.
type spanStore struct {
	*httptest.Server

	mu    sync.Mutex
	spans []*tracev1.Span
}

func collect(t *testing.T) *spanStore {
	s := &spanStore{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("x-token") != "open sesame" || proto.Unmarshal(body, &req) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, resource := range req.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				s.spans = append(s.spans, scope.GetSpans()...)
			}
		}
		w.Header().Set("content-type", "application/x-protobuf")
	}))
	t.Cleanup(s.Close)
	return s
}

// of are the spans of a trace.
func (s *spanStore) of(trace string) (spans []*tracev1.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.spans {
		if hex.EncodeToString(span.GetTraceId()) == trace {
			spans = append(spans, span)
		}
	}
	return spans
}

// attribute is what a span says, as text.
func attribute(s *tracev1.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			if v := a.GetValue(); v.GetStringValue() != "" {
				return v.GetStringValue()
			}
			return strconv.FormatInt(a.GetValue().GetIntValue(), 10)
		}
	}
	return ""
}

var (
	traceForm  = regexp.MustCompile(`^id="([^"]+)", worker="engine-0", cached=(\d+), waited=0\.000$`)
	timingForm = regexp.MustCompile(`^attache;dur=[\d.]+, receive;dur=[\d.]+, parse;dur=[\d.]+, chain;dur=[\d.]+, overlap;dur=[\d.]+, ` +
		`queue;dur=0\.000, pick;dur=[\d.]+, reply;dur=[\d.]+, worker;dur=[\d.]+$`)
)

// TestARequestTellsOfItself: headers of the answer and spans agree, in both ways in which Envoy sends bodies. What the worker itself
// says of its timing stays.
func TestARequestTellsOfItself(t *testing.T) {
	for _, body := range []string{"BUFFERED", "FULL_DUPLEX_STREAMED"} {
		t.Run(body, func(t *testing.T) {
			store := collect(t)
			r := start(t, setup{mode: "ads", body: body, engines: 1, extproc: "  response_headers: both\n",
				files: map[string]string{"headers.yaml": "x-token: open sesame\n"},
				config: "tracing:\n  endpoint: " + strings.TrimPrefix(store.URL, "http://") + "\n  insecure: true\n  ratio: 0\n" +
					"  headers_file: DIR/headers.yaml\n"})
			prompt := strings.Repeat("all that was said before ", 400)
			r.must(chatRequest{prompt: prompt, tokens: 2, stream: true})
			a := r.must(chatRequest{prompt: prompt, tokens: 2, stream: true, header: map[string]string{"traceparent": traceparent, "x-request-id": "told"}})
			told := traceForm.FindStringSubmatch(a.header.Get("x-attache-trace"))
			if timing := a.header.Get("server-timing"); told == nil || !timingForm.MatchString(timing) {
				t.Fatalf("x-attache-trace: %s\nserver-timing: %s", a.header.Get("x-attache-trace"), timing)
			}
			if cached, _ := strconv.Atoi(told[2]); cached < 1000 {
				t.Errorf("%d tokens cached of a prompt that was sent before", cached)
			}
			if decision := r.decision("told"); strconv.Itoa(decision.predicted()) != told[2] || decision.Chosen != "engine-0" {
				t.Errorf("the header says %q, the admin API %+v", told[0], decision)
			}

			var spans []*tracev1.Span
			r.eventually("the spans arrive", func() bool {
				spans = store.of(traceparent[3:35])
				return len(spans) > 0
			})
			var names []string
			var root *tracev1.Span
			for _, s := range spans {
				if names = append(names, s.GetName()); s.GetName() == "attache default" {
					root = s
				}
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); root == nil || got != "attache default chain first_token overlap parse pick receive reply" {
				t.Fatalf("spans %q", got)
			}
			for key, want := range map[string]string{"attache.decision": told[1], "attache.captured_tokens": told[2], "attache.worker": "engine-0",
				"attache.served": "engine-0", "attache.outcome": "ok", "attache.request_id": "told", "attache.policy": "time"} {
				if got := attribute(root, key); got != want {
					t.Errorf("%s is %q, want %q", key, got, want)
				}
			}
			if hex.EncodeToString(root.GetParentSpanId()) != traceparent[36:52] {
				t.Errorf("the root's parent is %x", root.GetParentSpanId())
			}
			for _, s := range spans {
				if s != root && string(s.GetParentSpanId()) != string(root.GetSpanId()) || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
					t.Errorf("%s is no child of the root, or ends before it begins", s.GetName())
				}
			}
			store.mu.Lock()
			if n := len(store.spans); n != len(spans) {
				t.Errorf("%d spans in all, %d of the request that was to be traced", n, len(spans))
			}
			store.mu.Unlock()

			r.throughProxy(func(resp *http.Response) {
				resp.Header.Set("server-timing", "engine;dur=5")
				resp.Header.Set("x-attache-trace", "forged")
			})
			a = r.must(chatRequest{prompt: "hello", tokens: 1})
			all := strings.Join(a.header.Values("server-timing"), ", ")
			if !strings.HasPrefix(all, "engine;dur=5, attache;dur=") || !traceForm.MatchString(strings.Join(a.header.Values("x-attache-trace"), "|")) {
				t.Errorf("server-timing %q, x-attache-trace %q", all, a.header.Values("x-attache-trace"))
			}
			if text := r.logText("attache"); strings.Contains(text, "sesame") {
				t.Error("the collector's token is in the log")
			}
			if config, err := readAll(r.admin + "/api/v1/config"); err != nil || strings.Contains(config, "sesame") {
				t.Errorf("the collector's token is in the configuration that is shown (%v)", err)
			}
		})
	}
}

// throughProxy puts a proxy in front of the first engine, which may change the headers of its answers, or hold them back.
func (r *rig) throughProxy(change func(*http.Response)) {
	target := &url.URL{Scheme: "http", Host: r.engines[0].address()}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(resp *http.Response) error {
		resp.Header.Set("x-behind-proxy", "yes")
		change(resp)
		return nil
	}
	server := httptest.NewServer(proxy)
	r.t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		r.t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		r.t.Fatal(err)
	}
	r.writeWorkers([]*engine{{name: "engine-0", host: at.Hostname(), port: port}}, nil)
	r.eventually("the worker behind the proxy answers", func() bool {
		a, err := r.chat(r.t.Context(), chatRequest{prompt: "hello", tokens: 1})
		return err == nil && a.header.Get("x-behind-proxy") != ""
	})
}

// TestAnswersTellNothingByDefault, and then Envoy does not ask.
func TestAnswersTellNothingByDefault(t *testing.T) {
	r := start(t, setup{mode: "attach", engines: 1})
	a := r.must(chatRequest{prompt: "hello", tokens: 1})
	if a.header.Get("x-attache-trace") != "" || a.header.Get("server-timing") != "" {
		t.Errorf("headers %v", a.header)
	}
	if !strings.Contains(r.envoyConfig(), "response_header_mode: SKIP") {
		t.Error("Envoy is to send headers of answers although nobody adds to them")
	}
}

// TestAnAnswerOutlivesAttache: attache dies before the answer begins, so that nobody is there to be asked then.
func TestAnAnswerOutlivesAttache(t *testing.T) {
	r := start(t, setup{mode: "attach", engines: 1, extproc: "  response_headers: both\n"})
	var armed atomic.Bool
	killed := make(chan struct{})
	release := sync.OnceFunc(func() { close(killed) })
	r.throughProxy(func(resp *http.Response) {
		if armed.Load() && resp.Request.Method == http.MethodPost {
			<-killed
		}
	})
	t.Cleanup(release) // the proxy does not close before
	armed.Store(true)
	done := make(chan answer, 1)
	go func() {
		a, err := r.chat(t.Context(), chatRequest{prompt: "hello", tokens: 2, stream: true})
		if err != nil {
			a.text = err.Error()
		}
		done <- a
	}()
	r.eventually("the request is on its way", func() bool { return r.inFlight("engine-0") == 1 })
	r.attache.Kill()
	release()
	select {
	case a := <-done:
		if a.status != 200 || !a.done || a.header.Get("x-attache-trace") != "" {
			t.Errorf("status %d, complete %v, headers %v\n%.200s", a.status, a.done, a.header, a.text)
		}
	case <-time.After(2 * wait):
		t.Fatal("no answer")
	}
}
