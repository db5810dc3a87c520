package hints

import (
	"testing"

	"attache/internal/openai"
)

// ordinary are the headers of a client that gives no hints, as a gateway passes them on.
var ordinary = [][2]string{
	{":authority", "llm.example.com"}, {":path", "/v1/chat/completions"}, {":method", "POST"}, {":scheme", "https"},
	{"content-type", "application/json"}, {"accept", "text/event-stream"}, {"user-agent", "OpenAI/Python 1.99.0"},
	{"x-request-id", "6f0d4f0e-6f0d-4f0e-8f0d-4f0e6f0d4f0e"}, {"x-forwarded-proto", "https"}, {"x-forwarded-for", "10.0.0.1"},
	{"x-stainless-lang", "python"}, {"x-stainless-runtime-version", "3.12.4"}, {"x-stainless-package-version", "1.99.0"},
	{"x-stainless-os", "Linux"}, {"x-stainless-arch", "x64"}, {"x-stainless-async", "false"}, {"x-stainless-retry-count", "0"},
	{"content-length", "8192"}, {"accept-encoding", "gzip, deflate"}, {"x-envoy-expected-rq-timeout-ms", "15000"},
}

// speaking are headers with hints.
var speaking = [][2]string{
	{"x-dynamo-request-priority", "5"}, {"x-dynamo-session-id", "research-run-42:researcher"}, {"x-llm-d-slo-ttft-ms", "500"},
}

func inBytes(headers [][2]string) (list [][2][]byte) {
	for _, h := range headers {
		list = append(list, [2][]byte{[]byte(h[0]), []byte(h[1])})
	}
	return list
}

func BenchmarkHeaders(b *testing.B) {
	for _, c := range []struct {
		name string
		list [][2][]byte
	}{{"20 without hints", inBytes(ordinary)}, {"20 without hints and 3 hints", inBytes(append(ordinary[:20:20], speaking...))}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var h Headers
				var into Hints
				for _, one := range c.list {
					h.Add(one[0], one[1])
				}
				h.Read(&into, everything, false)
			}
		})
	}
}

func BenchmarkBody(b *testing.B) {
	for _, c := range []struct{ name, body string }{
		{"without hints", `{"model":"m","messages":[],"user":"u"}`},
		{"a cache key", `{"model":"m","messages":[],"prompt_cache_key":"k"}`},
		{"nvext", `{"model":"m","messages":[],"nvext":{"agent_hints":{"priority":5,"osl":1024},"cache_control":{"type":"ephemeral","ttl":"1h"}}}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			body := []byte(c.body)
			var r openai.Request
			if err := openai.Scan(&r, openai.Chat, body); err != nil {
				b.Fatal(err)
			}
			trust := DefaultConfig().Trusted()
			b.ReportAllocs()
			for b.Loop() {
				var h Hints
				h.ReadBody(&r, body, trust)
			}
		})
	}
}

func TestNothingSaidAllocatesNothing(t *testing.T) {
	headers := inBytes(ordinary)
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"nvext"}],"user":"u","max_tokens":5}`)
	var r openai.Request
	if err := openai.Scan(&r, openai.Chat, body); err != nil {
		t.Fatal(err)
	}
	var into Hints
	if n := testing.AllocsPerRun(100, func() {
		var h Headers
		for _, one := range headers {
			h.Add(one[0], one[1])
		}
		h.Read(&into, everything, false)
		into.ReadBody(&r, body, everything&^GroupTenant)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if into != (Hints{}) {
		t.Errorf("hints from nowhere: %+v", into)
	}
}
