package extproc

import (
	"strings"
	"testing"
	"time"

	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"attache/internal/hints"
	"attache/internal/openai"
	"attache/internal/router"
	"attache/internal/worker"
)

func trusting(groups ...string) func(*Config) {
	return func(c *Config) { c.Hints.Trust = groups }
}

const hinted = `{"model":"llama","prompt_cache_key":"k","priority":3,"nvext":{"agent_hints":{"osl":64},"dp_rank":1},"messages":[]}`

func TestTheRouterIsToldTheHints(t *testing.T) {
	headers := []string{"x-dynamo-session-id", "s", "x-llm-d-slo-ttft-ms", "250", "x-dynamo-request-priority", "7", "x-data-parallel-rank", "2"}
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   hints.Hints
	}{
		{"by default what harms nobody", nil, hints.Hints{Session: "s", SessionFrom: hints.FromDynamo, TTFT: 250 * time.Millisecond,
			PromptCacheKey: "k", OutputTokens: 64}},
		{"priority and pin, where they are believed", trusting("priority", "pin"),
			hints.Hints{Priority: 7, PriorityFrom: hints.FromDynamo, Rank: 2, Ranked: true}},
		{"nothing, where nothing is believed", trusting("none"), hints.Hints{}},
	} {
		for _, mode := range []filter.ProcessingMode_BodySendMode{filter.ProcessingMode_BUFFERED, filter.ProcessingMode_FULL_DUPLEX_STREAMED} {
			f := &fakeRouter{}
			talk := converse(t, testServer(t, f, c.change), mode)
			talk.say("headers", headers...)
			talk.say("body " + hinted + " end")
			if len(f.asked) != 1 {
				t.Fatalf("%s: %s: asked %d times, replies %q", c.name, mode, len(f.asked), talk.replies)
			}
			got := f.asked[0].Hints
			got.Problems = hints.Problems{}
			if got != c.want {
				t.Errorf("%s: %s: the router is told\n%+v\nwant\n%+v", c.name, mode, got, c.want)
			}
		}
	}
}

func TestHintsWithoutABody(t *testing.T) {
	f := &fakeRouter{}
	talk := converse(t, testServer(t, f, nil), filter.ProcessingMode_NONE)
	talk.say("headers", "x-session-id", "s", "x-vllm-priority", "-9")
	if got, want := strings.Join(talk.replies, "; "), "headers "+toBoth+" -x-vllm-priority"+steered; got != want {
		t.Errorf("replies %s\nwant %s", got, want)
	}
	if h := f.asked[0].Hints; h.Session != "s" || h.PriorityFrom != hints.Nowhere {
		t.Errorf("the router is told %+v", h)
	}
}

func TestUnbelievedHintsAreTakenOut(t *testing.T) {
	headers := []string{"x-vllm-priority", "1", "x-data-parallel-rank", "2", "x-data-parallel-rank", "3", "x-dynamo-worker-instance-id", "w",
		"x-session-id", "s"}
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"by default", nil, "headers -x-vllm-priority -x-dynamo-worker-instance-id -x-data-parallel-rank; body " + decision},
		{"priority believed", trusting("priority"), "headers -x-dynamo-worker-instance-id -x-data-parallel-rank; body " + decision},
		{"all believed", trusting("all"), "headers; body " + decision},
		{"told to engines otherwise", func(c *Config) { c.Hints.Trust, c.Hints.ForwardPriority = []string{"all"}, true },
			"headers -x-vllm-priority; body " + decision},
	} {
		talk := converse(t, testServer(t, &fakeRouter{}, c.change), filter.ProcessingMode_BUFFERED)
		talk.say("headers", headers...)
		talk.say("body 200 end")
		if got := strings.Join(talk.replies, "; "); got != c.want {
			t.Errorf("%s:\nreplies %s\nwant    %s", c.name, got, c.want)
		}
	}
}

// TestBodiesOfHints shows the body that the worker gets.
func TestBodiesOfHints(t *testing.T) {
	const (
		plain  = `{"model":"a", "messages":[]}`
		own    = `{"model":"a","priority" : 3 ,"messages":[]}`
		pinned = `{"data_parallel_rank":1,"model":"a","routed_dp_rank":2,"messages":[]}`
	)
	said := hints.Hints{Priority: 4.6, PriorityFrom: hints.FromDynamo}
	forward := func(c *Config) { c.Hints.Trust, c.Hints.ForwardPriority = []string{"all"}, true }
	for _, c := range []struct {
		name     string
		change   func(*Config)
		kind     openai.Kind
		hints    hints.Hints
		decision router.Decision
		body     string
		want     string // empty for: as it came
	}{
		{"nothing said", forward, openai.Chat, hints.Hints{}, router.Decision{Engine: worker.VLLM}, plain, ""},
		{"vLLM serves lower numbers first", forward, openai.Chat, said, router.Decision{Engine: worker.VLLM}, plain,
			`{"priority":-5,"model":"a", "messages":[]}`},
		{"SGLang serves higher numbers first", forward, openai.Chat, said, router.Decision{Engine: worker.SGLang}, plain,
			`{"priority":5,"model":"a", "messages":[]}`},
		{"TensorRT-LLM takes none", forward, openai.Chat, said, router.Decision{Engine: worker.TRTLLM}, plain, ""},
		{"nobody knows what runs", forward, openai.Chat, said, router.Decision{Engine: worker.Auto}, plain, ""},
		{"only where the operator wants it", trusting("all"), openai.Chat, said, router.Decision{Engine: worker.VLLM}, plain, ""},
		{"the hint replaces the body's own", forward, openai.Chat, said, router.Decision{Engine: worker.VLLM}, own,
			`{"model":"a","priority" : -5 ,"messages":[]}`},
		{"a priority of 0 is told too", forward, openai.Chat, hints.Hints{PriorityFrom: hints.FromDynamo}, router.Decision{Engine: worker.VLLM}, own,
			`{"model":"a","priority" : 0 ,"messages":[]}`},
		{"the largest", forward, openai.Chat, hints.Hints{Priority: 2147483647, PriorityFrom: hints.FromDynamo}, router.Decision{Engine: worker.VLLM}, plain,
			`{"priority":-2147483647,"model":"a", "messages":[]}`},
		{"what the body says itself stays", forward, openai.Chat, hints.Hints{Priority: 3, PriorityFrom: hints.FromMember},
			router.Decision{Engine: worker.SGLang}, own, ""},
		{"an API of vLLM alone", forward, openai.Responses, said, router.Decision{Engine: worker.VLLM}, `{"model":"a","input":"x"}`,
			`{"priority":-5,"model":"a","input":"x"}`},
		{"an API without priorities", forward, openai.Messages, said, router.Decision{Engine: worker.VLLM}, plain, ""},
		{"not with SGLang", forward, openai.Responses, said, router.Decision{Engine: worker.SGLang}, `{"model":"a","input":"x"}`, ""},
		{"together with the other changes", forward, openai.Chat, said, router.Decision{Engine: worker.VLLM, Model: "b", Strict: true},
			`{"model":"a","nvext":{},"messages":[]}`, `{"priority":-5,"model":"b","messages":[]}`},

		{"an unbelieved priority", nil, openai.Chat, hints.Hints{}, router.Decision{Engine: worker.VLLM}, own, `{"model":"a" ,"messages":[]}`},
		{"a believed one", trusting("priority"), openai.Chat, hints.Hints{}, router.Decision{Engine: worker.VLLM}, own, ""},
		{"a priority of null is none", nil, openai.Chat, hints.Hints{}, router.Decision{}, `{"priority":null,"messages":[]}`, ""},
		{"unbelieved pins", nil, openai.Chat, hints.Hints{}, router.Decision{Engine: worker.SGLang}, pinned, `{"model":"a","messages":[]}`},
		{"believed pins", trusting("pin"), openai.Chat, hints.Hints{}, router.Decision{Engine: worker.SGLang}, pinned, ""},
		{"nvext stays for engines that know it", nil, openai.Chat, hints.Hints{}, router.Decision{}, `{"nvext":{"dp_rank":1},"messages":[]}`, ""},
		{"and goes for others", nil, openai.Chat, hints.Hints{}, router.Decision{Strict: true}, `{"nvext":{"dp_rank":1},"messages":[]}`, `{"messages":[]}`},
		{"everything at once", nil, openai.Chat, hints.Hints{}, router.Decision{Strict: true, Model: "b"},
			`{"model":"a","nvext":1,"priority":1,"routed_dp_rank":0,"messages":[]}`, `{"model":"b","messages":[]}`},
	} {
		s := testServer(t, &fakeRouter{}, c.change)
		scan := &openai.Request{}
		if err := openai.Scan(scan, c.kind, []byte(c.body)); err != nil {
			t.Fatal(err)
		}
		got := s.changeFor(s.settings.Load(), &c.decision, &router.Request{Kind: c.kind, Body: []byte(c.body), Scan: scan, Hints: c.hints})
		if string(got.body) != c.want || got.replace != (c.want != "") {
			t.Errorf("%s: the body becomes\n%s (%t), want\n%s", c.name, got.body, got.replace, c.want)
		}
		if got.replace && openai.Scan(scan, c.kind, got.body) != nil {
			t.Errorf("%s: %s is no request", c.name, got.body)
		}
	}
}

func TestMistakenHints(t *testing.T) {
	wrong := []string{"x-llm-d-slo-ttft-ms", "soon", "x-dynamo-request-priority", "5"}
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"go on", nil, "headers -x-dynamo-request-priority; body " + decision},
		{"are answered where that is wanted", func(c *Config) { c.Hints.Strict = true },
			"headers -x-dynamo-request-priority; answer(400 attache_malformed_hint) content-type=application/json"},
	} {
		f := &fakeRouter{}
		s := testServer(t, f, c.change)
		talk := converse(t, s, filter.ProcessingMode_BUFFERED)
		talk.say("headers", wrong...)
		talk.say("body 200 end")
		if got := strings.Join(talk.replies, "; "); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
		for _, label := range [][2]string{{"ttft", "wrong_type"}, {"priority", "untrusted"}} {
			if n := testutil.ToFloat64(s.metrics.hints.WithLabelValues(label[0], label[1])); n != 1 {
				t.Errorf("%s: %s is counted %v times as %s", c.name, label[0], n, label[1])
			}
		}
	}
	// What is only not believed is never answered.
	f := &fakeRouter{}
	talk := converse(t, testServer(t, f, func(c *Config) { c.Hints.Strict = true }), filter.ProcessingMode_BUFFERED)
	talk.say("headers", "x-dynamo-request-priority", "soon")
	talk.say("body 200 end")
	if got, want := strings.Join(talk.replies, "; "), "headers -x-dynamo-request-priority; body "+decision; got != want {
		t.Errorf("unbelieved: %s\nwant %s", got, want)
	}
}
