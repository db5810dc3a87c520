package hints

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"attache/internal/openai"
)

// describe writes what hints say, by the names of the fields, in their order; problems last.
func describe(h *Hints) string {
	var words []string
	v := reflect.ValueOf(*h)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.IsExported() && f.Name != "Problems" && !v.Field(i).IsZero() {
			words = append(words, fmt.Sprintf("%s=%v", f.Name, v.Field(i).Interface()))
		}
	}
	for _, p := range h.Problems.All() {
		words = append(words, p.Kind.String()+":"+p.Reason.String())
	}
	return strings.Join(words, " ")
}

// read reads headers, "name: value" each, and a body.
func read(t *testing.T, headers []string, kind openai.Kind, body string, trust Groups) (h Hints, remove []string) {
	t.Helper()
	var gathered Headers
	for _, line := range headers {
		key, value, _ := strings.Cut(line, ": ")
		gathered.Add([]byte(key), []byte(value))
	}
	remove = gathered.Read(&h, trust, false)
	if body != "" {
		var r openai.Request
		if err := openai.Scan(&r, kind, []byte(body)); err != nil {
			t.Fatal(err)
		}
		h.ReadBody(&r, []byte(body), trust)
	}
	return h, remove
}

func TestHeaders(t *testing.T) {
	for _, c := range []struct{ name, headers, want string }{
		{"priority", "x-dynamo-request-priority: 5", "Priority=5 PriorityFrom=dynamo"},
		{"priority with a fraction below 0", "x-dynamo-request-priority: -0.5", "Priority=-0.5 PriorityFrom=dynamo"},
		{"vLLM's priority is lower first", "x-vllm-priority: 5", "Priority=-5 PriorityFrom=engine_header"},
		{"SGLang's is higher first", "x-override-priority: 5", "Priority=5 PriorityFrom=engine_header"},
		{"the router's wins over the engine's", "x-vllm-priority: 5|x-dynamo-request-priority: 1", "Priority=1 PriorityFrom=dynamo"},
		{"what is wrong leaves room for the next", "x-vllm-priority: 5|x-dynamo-request-priority: soon",
			"Priority=-5 PriorityFrom=engine_header priority:wrong_type"},
		{"priority that is infinite", "x-dynamo-request-priority: 1e999", "priority:out_of_range"},
		{"priority in words of Go", "x-dynamo-request-priority: Inf", "priority:wrong_type"},
		{"priority beyond 32 bits", "x-dynamo-request-priority: 2147483648", "priority:out_of_range"},
		{"strict priority", "x-dynamo-request-strict-priority: 4294967295", "StrictPriority=4294967295"},
		{"strict priority below 0", "x-dynamo-request-strict-priority: -1", "strict_priority:out_of_range"},
		{"strict priority with a fraction", "x-dynamo-request-strict-priority: 1.5", "strict_priority:wrong_type"},
		{"strict priority beyond 32 bits", "x-dynamo-request-strict-priority: 4294967296", "strict_priority:out_of_range"},
		{"objective", "x-llm-d-inference-objective: batch", "Objective=batch"},
		{"objective, the old name", "x-gateway-inference-objective: batch", "Objective=batch"},
		{"objective, the new name wins", "x-gateway-inference-objective: old|x-llm-d-inference-objective: new", "Objective=new"},
		{"policy class", "x-dynamo-meta-policy-class: premium", "PolicyClass=premium"},

		{"Dynamo's session", "x-dynamo-session-id: s|x-dynamo-parent-session-id: p|x-dynamo-session-final: true",
			"Session=s SessionFrom=dynamo ParentSession=p SessionFinal=true"},
		{"Dynamo's session wins over an agent's, its parent too", "x-claude-code-session-id: c|x-claude-code-parent-agent-id: q|x-dynamo-session-id: s",
			"Session=s SessionFrom=dynamo"},
		{"final in other words", "x-session-id: s|x-dynamo-session-final: 1", "Session=s SessionFrom=header SessionFinal=true"},
		{"final in no words", "x-dynamo-session-final: maybe", "session_final:unknown"},
		{"not final", "x-dynamo-session-final: False", ""},
		{"Claude Code", "x-claude-code-session-id: run", "Session=run SessionFrom=claude_code Program=run"},
		{"an agent of Claude Code", "x-claude-code-session-id: run|x-claude-code-agent-id: a",
			"Session=a SessionFrom=claude_code ParentSession=run Program=run"},
		{"an agent's agent", "x-claude-code-session-id: run|x-claude-code-agent-id: b|x-claude-code-parent-agent-id: a",
			"Session=b SessionFrom=claude_code ParentSession=a Program=run"},
		{"Codex", "thread-id: t|session-id: run", "Session=t SessionFrom=codex Program=run"},
		{"a thread that another started", "thread-id: t|x-codex-parent-thread-id: u", "Session=t SessionFrom=codex ParentSession=u"},
		{"older Codex", "session_id: run", "Session=run SessionFrom=codex Program=run"},
		{"a thread is not its own parent", "thread-id: t|x-codex-parent-thread-id: t", "Session=t SessionFrom=codex"},
		{"OpenCode", "x-opencode-session: o|x-parent-session-id: p", "Session=o SessionFrom=opencode ParentSession=p"},
		{"a session of nobody", "x-session-id: s|x-parent-session-id: p", "Session=s SessionFrom=header ParentSession=p"},
		{"a routing key", "x-smg-routing-key: k", "Session=k SessionFrom=header"},
		{"a token", "x-session-token: bnMvcG9k", "Session=bnMvcG9k SessionFrom=token"},
		{"a session wins over a token", "x-session-token: bnMvcG9k|x-session-id: s", "Session=s SessionFrom=header"},
		{"a parent alone is nobody's", "x-parent-session-id: p|x-dynamo-parent-session-id: q", ""},
		{"an empty session", "x-session-id: ", ""},
		{"spaces around", "x-session-id:  s ", "Session=s SessionFrom=header"},
		{"the longest session", "x-session-id: " + strings.Repeat("s", MaxText), "Session=" + strings.Repeat("s", MaxText) + " SessionFrom=header"},
		{"a longer one leaves room for the next", "x-dynamo-session-id: " + strings.Repeat("s", MaxText+1) + "|x-session-id: s",
			"Session=s SessionFrom=header session:too_long"},
		{"a session that is not UTF-8", "x-session-id: \xff", "session:not_text"},
		{"a session with control characters", "x-session-id: a\x01b", "session:not_text"},

		{"latencies", "x-llm-d-slo-ttft-ms: 500|x-llm-d-slo-tpot-ms: 12.5", "TTFT=500ms TPOT=12.5ms"},
		{"latencies, the old names", "x-slo-ttft-ms: 500|x-slo-tpot-ms: 20", "TTFT=500ms TPOT=20ms"},
		{"latencies, the new names win", "x-slo-ttft-ms: 500|x-llm-d-slo-ttft-ms: 100", "TTFT=100ms"},
		{"a latency of 0", "x-slo-ttft-ms: 0", "ttft:out_of_range"},
		{"a latency below a nanosecond", "x-slo-tpot-ms: 1e-9", "tpot:out_of_range"},
		{"a latency of an hour", "x-slo-tpot-ms: 3600000", "TPOT=1h0m0s"},
		{"a latency above", "x-slo-tpot-ms: 3600001", "tpot:out_of_range"},
		{"a latency with its unit", "x-slo-ttft-ms: 500ms", "ttft:wrong_type"},
		{"a latency that is no number", "x-slo-ttft-ms: NaN", "ttft:wrong_type"},

		{"flow", "x-llm-d-inference-fairness-id: f", "Flow=f"},
		{"flow, the old name", "x-gateway-inference-fairness-id: f|x-tenant-id: acme", "Flow=f Tenant=acme"},
		{"worker and rank", "x-dynamo-worker-instance-id: 10.0.0.1:8000|x-dynamo-dp-rank: 0", "Worker=10.0.0.1:8000 Ranked=true"},
		{"the router's rank wins over the engine's", "x-data-parallel-rank: 2|x-dynamo-dp-rank: 1", "Rank=1 Ranked=true"},
		{"the engine's rank", "x-data-parallel-rank: 2", "Rank=2 Ranked=true"},
		{"SGLang's rank", "x-override-routed-dp-rank: 3", "Rank=3 Ranked=true"},
		{"a rank below 0", "x-data-parallel-rank: -1", "rank:out_of_range"},
		{"a rank beyond reason", "x-data-parallel-rank: 65536", "rank:out_of_range"},
		{"headers that are only taken out", "x-prefiller-host-port: 10.0.0.1:1|x-override-bootstrap-host: evil|x-override-disagg-prefill-dp-rank: 1", ""},
		{"policy", "x-attache-policy: least-load", "Policy=least-load"},
		{"policy and weights", "x-attache-policy: dynamo; overlap_score_credit=0.5;prefill_load_scale=2;router_temperature=0",
			"Policy=dynamo Weights={{0.5 true} {2 true} {0 true}}"},
		{"weights alone", "x-attache-policy: ;router_temperature=1", "Weights={{0 false} {0 false} {1 true}}"},
		{"weights that are wrong", "x-attache-policy: dynamo;router_temperature=-1;overlap_score_credit;heat=1;prefill_load_scale=1e9",
			"Policy=dynamo weight:out_of_range weight:wrong_type weight:unknown weight:out_of_range"},
		{"model", "x-llm-d-model-name-rewrite: llama", "Model=llama"},
		{"model, the old name", "x-gateway-model-name-rewrite: llama", "Model=llama"},
		{"others", "x-request-id: a|content-type: b|x-dynamo-other: c|session: d|x: e", ""},
	} {
		h, remove := read(t, strings.Split(c.headers, "|"), openai.Chat, "", everything)
		if got := describe(&h); got != c.want || remove != nil {
			t.Errorf("%s:\n got %s, without %q\nwant %s", c.name, got, remove, c.want)
		}
	}
}

func TestBody(t *testing.T) {
	long := strings.Repeat("s", MaxText+1)
	for _, c := range []struct{ name, body, want string }{
		{"nothing", `{"model":"m"}`, ""},
		{"agent hints", `{"nvext":{"agent_hints":{"priority":5,"strict_priority":1,"osl":1024,"speculative_prefill":true}}}`,
			"Priority=5 PriorityFrom=extension StrictPriority=1 OutputTokens=1024 SpeculativePrefill=true"},
		{"agent hints of other types", `{"nvext":{"agent_hints":{"priority":"5","strict_priority":-1,"osl":1e9,"speculative_prefill":"yes"}}}`,
			"priority:wrong_type strict_priority:out_of_range output_tokens:wrong_type speculative_prefill:unknown"},
		{"agent hints of null", `{"nvext":{"agent_hints":{"priority":null,"strict_priority":null,"osl":null,"speculative_prefill":null}}}`, ""},
		{"the last of members that repeat", `{"nvext":{"agent_hints":{"priority":5,"priority":6,"strict_priority":1,"strict_priority":0}}}`,
			"Priority=6 PriorityFrom=extension"},
		{"an answer beyond reason", `{"nvext":{"agent_hints":{"osl":16777217}}}`, "output_tokens:out_of_range"},
		{"nvext that is no object", `{"nvext":[1]}`, ""},
		{"parts of nvext that are no objects", `{"nvext":{"agent_hints":[1],"cache_control":7,"agent_context":"x","routing_constraints":1,"extra_fields":["timing"]}}`,
			"cache_ttl:unknown"},

		{"cache control", `{"nvext":{"cache_control":{"type":"ephemeral"}}}`, "CacheTTL=5m0s"},
		{"an hour", `{"nvext":{"cache_control":{"ttl":"1h","type":"ephemeral"}}}`, "CacheTTL=1h0m0s"},
		{"seconds", `{"nvext":{"cache_control":{"type":"ephemeral","ttl":90}}}`, "CacheTTL=1m30s"},
		{"seconds in a text", `{"nvext":{"cache_control":{"type":"ephemeral","ttl":"90s"}}}`, "CacheTTL=1m30s"},
		{"a lifetime of null", `{"nvext":{"cache_control":{"type":"ephemeral","ttl":null}}}`, "CacheTTL=5m0s"},
		{"a lifetime in days", `{"nvext":{"cache_control":{"type":"ephemeral","ttl":"1d"}}}`, "cache_ttl:unknown"},
		{"a lifetime above a day", `{"nvext":{"cache_control":{"type":"ephemeral","ttl":"25h"}}}`, "cache_ttl:out_of_range"},
		{"a lifetime of 0", `{"nvext":{"cache_control":{"type":"ephemeral","ttl":"0s"}}}`, "cache_ttl:out_of_range"},
		{"another kind of cache", `{"nvext":{"cache_control":{"type":"persistent"}}}`, "cache_ttl:unknown"},

		{"agent context", `{"nvext":{"agent_context":{"session_id":"run","trajectory_id":"t","parent_trajectory_id":"p","session_type_id":"deep_research"}}}`,
			"Session=t SessionFrom=extension ParentSession=p Program=run ContextType=deep_research"},
		{"a session without trajectories", `{"nvext":{"agent_context":{"session_id":"run"}}}`, "Session=run SessionFrom=extension"},
		{"a salt", `{"nvext":{"cache_salt":"acme"}}`, "Tenant=acme"},
		{"pins", `{"nvext":{"backend_instance_id":18446744073709551615,"dp_rank":3}}`, "Worker=18446744073709551615 Rank=3 Ranked=true"},
		{"the instance wins over the one that decodes", `{"nvext":{"decode_worker_id":2,"backend_instance_id":1}}`, "Worker=1"},
		{"a worker by name", `{"nvext":{"decode_worker_id":"gpu-1"}}`, "Worker=gpu-1"},
		{"a worker that is none", `{"nvext":{"backend_instance_id":[1],"dp_rank":1.5}}`, "worker:wrong_type rank:wrong_type"},
		{"taints", `{"nvext":{"routing_constraints":{"required_taints":["gpu=h100"],"preferred_taints":{"zone=a":0.85,"zone=b":-1}}}}`,
			"Required=[gpu=h100   ] Preferred=[{zone=a 0.85} {zone=b -1} { 0} { 0}]"},
		{"too many required taints are none", `{"nvext":{"routing_constraints":{"required_taints":["a","b","c","d","e"]}}}`, "taints:too_many"},
		{"a required taint that is none", `{"nvext":{"routing_constraints":{"required_taints":["a",1]}}}`, "taints:wrong_type"},
		{"required taints that are no list", `{"nvext":{"routing_constraints":{"required_taints":"a"}}}`, "taints:wrong_type"},
		{"too many preferred taints", `{"nvext":{"routing_constraints":{"preferred_taints":{"a":1,"b":"2","c":3,"d":4,"e":5,"f":6}}}}`,
			"Preferred=[{a 1} {c 3} {d 4} {e 5}] taints:wrong_type taints:too_many"},

		{"the engine's priority", `{"priority":-3}`, "Priority=-3 PriorityFrom=member"},
		{"the extension's wins", `{"priority":-3,"nvext":{"agent_hints":{"priority":0}}}`, "PriorityFrom=extension"},
		{"the engine's rank", `{"routed_dp_rank":1}`, "Rank=1 Ranked=true"},
		{"the extension's rank wins", `{"data_parallel_rank":1,"nvext":{"dp_rank":2}}`, "Rank=2 Ranked=true"},
		{"OpenAI's members", `{"prompt_cache_key":"k","user":"u","safety_identifier":"i"}`, `PromptCacheKey=k User=i`},
		{"user alone", `{"user":"\u0075\/"}`, `User=u/`},
		{"texts that are too long", `{"prompt_cache_key":"` + long + `","user":"` + long + `"}`, "prompt_cache_key:too_long user:too_long"},
		{"far too long", `{"session_id":"` + strings.Repeat("s", 7*MaxText) + `"}`, "session:too_long"},
		{"escapes are not counted", `{"session_id":"` + strings.Repeat(`\u0061`, MaxText) + `"}`,
			"Session=" + strings.Repeat("a", MaxText) + " SessionFrom=member"},

		{"vLLM's session", `{"session_id":"s","vllm_xargs":{"session_id":"x"}}`, "Session=s SessionFrom=member"},
		{"vLLM's session in its arguments", `{"vllm_xargs":{"session_id":"x"}}`, "Session=x SessionFrom=member"},
		{"the extension's session wins", `{"session_id":"s","nvext":{"agent_context":{"session_id":"e"}}}`, "Session=e SessionFrom=extension"},
		{"agentic context", `{"vllm_xargs":{"agentic_context":{"program_id":"p","priority":9,"deadline_seconds":2.5,"expected_output_length":100,"kv_retention_ttl_seconds":60}}}`,
			"Program=p OutputTokens=100 Deadline=2.5s CacheTTL=1m0s"},
		{"agentic context behind nvext", `{"nvext":{"agent_hints":{"osl":5}},"vllm_xargs":{"agentic_context":{"expected_output_length":100}}}`, "OutputTokens=5"},

		{"Claude Code, as it was", `{"metadata":{"user_id":"user_ab12_account__session_5f0c"}}`, "Session=5f0c SessionFrom=claude_code"},
		{"Claude Code, as it is", `{"metadata":{"user_id":"{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"5f0c\"}"}}`,
			"Session=5f0c SessionFrom=claude_code"},
		{"a user of somebody else", `{"metadata":{"user_id":"alice","session_id":5,"topic":"x"}}`, ""},
		{"a session in metadata", `{"metadata":{"session_id":"s"}}`, "Session=s SessionFrom=metadata"},
		{"a plain session wins", `{"metadata":{"session_id":"s"},"session_id":"t"}`, "Session=t SessionFrom=member"},
	} {
		h, _ := read(t, nil, openai.Chat, c.body, everything)
		if got := describe(&h); got != c.want {
			t.Errorf("%s: %s\n got %s\nwant %s", c.name, c.body, got, c.want)
		}
	}
}

func TestHeadersWinOverTheBody(t *testing.T) {
	const body = `{"priority":7,"prompt_cache_key":"k","session_id":"body","nvext":{"dp_rank":2,"backend_instance_id":9,"cache_salt":"body",` +
		`"agent_hints":{"priority":5,"strict_priority":8,"osl":10},"agent_context":{"parent_trajectory_id":"p"}}}`
	for _, c := range []struct{ headers, want string }{
		{"x-other: 1", "Priority=5 PriorityFrom=extension StrictPriority=8 Session=body SessionFrom=member ParentSession=p PromptCacheKey=k OutputTokens=10" +
			" Tenant=body Worker=9 Rank=2 Ranked=true"},
		{"x-dynamo-request-priority: 0|x-dynamo-request-strict-priority: 0|x-dynamo-session-id: s|x-tenant-id: t|x-dynamo-dp-rank: 0|x-dynamo-worker-instance-id: w",
			"PriorityFrom=dynamo Session=s SessionFrom=dynamo PromptCacheKey=k OutputTokens=10 Tenant=t Worker=w Ranked=true"},
		{"x-dynamo-request-priority: high", "Priority=5 PriorityFrom=extension StrictPriority=8 Session=body SessionFrom=member ParentSession=p PromptCacheKey=k" +
			" OutputTokens=10 Tenant=body Worker=9 Rank=2 Ranked=true priority:wrong_type"},
	} {
		h, _ := read(t, strings.Split(c.headers, "|"), openai.Chat, body, everything)
		if got := describe(&h); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.headers, got, c.want)
		}
	}
}

// saysAll says something of every kind.
var saysAll = struct {
	headers []string
	body    string
}{
	[]string{"x-dynamo-request-priority: 5", "x-dynamo-request-strict-priority: 1", "x-llm-d-inference-objective: o", "x-dynamo-meta-policy-class: c",
		"x-dynamo-session-id: s", "x-llm-d-slo-ttft-ms: 1", "x-llm-d-inference-fairness-id: f", "x-tenant-id: t", "x-dynamo-worker-instance-id: w",
		"x-data-parallel-rank: 1", "x-prefiller-host-port: h:1", "x-attache-policy: random", "x-llm-d-model-name-rewrite: m", "x-vllm-priority: 1"},
	`{"prompt_cache_key":"k","user":"u","priority":1,"routed_dp_rank":1,"metadata":{"session_id":"s"},` +
		`"nvext":{"agent_hints":{"osl":5},"cache_control":{"type":"ephemeral"},"routing_constraints":{"required_taints":["a"]}}}`,
}

func TestTrust(t *testing.T) {
	pins := []string{"x-dynamo-worker-instance-id", "x-data-parallel-rank", "x-prefiller-host-port"}
	priorities := []string{"x-dynamo-request-priority", "x-vllm-priority", "x-dynamo-request-strict-priority", "x-llm-d-inference-objective", "x-dynamo-meta-policy-class"}
	both := slices.Concat(priorities, pins)
	for _, c := range []struct {
		trust  string
		want   string // without problems
		remove []string
	}{
		{"none", "", both},
		{"all", "Priority=5 PriorityFrom=dynamo StrictPriority=1 Objective=o PolicyClass=c Session=s SessionFrom=dynamo PromptCacheKey=k OutputTokens=5" +
			" TTFT=1ms CacheTTL=5m0s Flow=f User=u Tenant=t Worker=w Rank=1 Ranked=true Required=[a   ] Policy=random Model=m", nil},
		{"session", "Session=s SessionFrom=dynamo PromptCacheKey=k", both},
		{"length", "OutputTokens=5", both},
		{"slo", "TTFT=1ms", both},
		{"cache", "CacheTTL=5m0s", both},
		{"priority", "Priority=5 PriorityFrom=dynamo StrictPriority=1 Objective=o PolicyClass=c", pins},
		{"tenant", "Flow=f User=u Tenant=t", both},
		{"pin", "Worker=w Rank=1 Ranked=true Required=[a   ]", priorities},
		{"policy", "Policy=random", both},
		{"model", "Model=m", both},
		{"session length slo cache", "Session=s SessionFrom=dynamo PromptCacheKey=k OutputTokens=5 TTFT=1ms CacheTTL=5m0s", both},
	} {
		cfg := Config{Trust: strings.Fields(c.trust)}
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		h, remove := read(t, saysAll.headers, openai.Chat, saysAll.body, cfg.Trusted())
		for _, p := range h.Problems.All() {
			if p.Reason != Untrusted || cfg.Trusted().Has(p.Kind.Group()) {
				t.Errorf("%s: %s is %s", c.trust, p.Kind, p.Reason)
			}
		}
		if _, is := h.Problems.Malformed(); is {
			t.Errorf("%s: what is not believed counts as malformed", c.trust)
		}
		h.Problems = Problems{}
		if got := describe(&h); got != c.want || !reflect.DeepEqual(remove, c.remove) {
			t.Errorf("%s:\n got %s without %q\nwant %s without %q", c.trust, got, remove, c.want, c.remove)
		}
	}
	if got, want := DefaultConfig().Trusted(), GroupSession|GroupLength|GroupSLO|GroupCache; got != want {
		t.Errorf("by default %b is believed, want %b", got, want)
	}
}

// A priority that is told in the body must not be contradicted by a header, whether it is believed or not.
func TestForwardedPriorityReplacesHeaders(t *testing.T) {
	for _, trust := range []Groups{0, everything} {
		var gathered Headers
		var h Hints
		for _, name := range []string{"x-override-priority", "x-vllm-priority", "x-vllm-priority"} {
			gathered.Add([]byte(name), []byte("1"))
		}
		if got, want := gathered.Read(&h, trust, true), []string{"x-vllm-priority", "x-override-priority"}; !slices.Equal(got, want) {
			t.Errorf("without %q, want %q", got, want)
		}
	}
}

func TestUrgency(t *testing.T) {
	for _, c := range []struct {
		h             Hints
		lower, higher float64
	}{
		{Hints{}, 0, 0},
		{Hints{Priority: 5, PriorityFrom: FromDynamo}, 5, 5},
		{Hints{Priority: 5, PriorityFrom: FromExtension}, 5, 5},
		{Hints{Priority: 5, PriorityFrom: FromMember}, -5, 5},
	} {
		if l, h := c.h.Urgency(true), c.h.Urgency(false); l != c.lower || h != c.higher {
			t.Errorf("priority %v from %v: %v and %v, want %v and %v", c.h.Priority, c.h.PriorityFrom, l, h, c.lower, c.higher)
		}
	}
	if n := (Number{}); n.Or(7) != 7 {
		t.Error("an open number does not leave what holds")
	}
	if n := (Number{Said: true}); n.Or(7) != 0 {
		t.Error("a number of 0 counts as open")
	}
}

// Names stand twice, in the table and in the switch.
func TestEveryHeaderIsFound(t *testing.T) {
	for i, h := range headers {
		if h.name != strings.ToLower(h.name) || header(i) != headerOf([]byte(h.name)) {
			t.Errorf("%q is header %d, found as %d", h.name, i, headerOf([]byte(h.name)))
		}
	}
	for k := range kinds {
		if k.String() == "" || k.Group() == 0 {
			t.Errorf("kind %d has no name or no group", k)
		}
	}
	for i, name := range groupNames {
		if g, ok := groupOf(name); !ok || g != 1<<i {
			t.Errorf("group %q is not found", name)
		}
	}
}

func TestProblemsAreBounded(t *testing.T) {
	var lines []string
	for i := range 100 {
		lines = append(lines, "x-data-parallel-rank: -"+strconv.Itoa(i+1))
	}
	h, _ := read(t, lines, openai.Chat, "", everything)
	if n := len(h.Problems.All()); n != maxProblems {
		t.Errorf("%d problems", n)
	}
	if p, ok := h.Problems.Malformed(); !ok || p != (Problem{Rank, OutOfRange}) {
		t.Errorf("malformed: %v, %v", p, ok)
	}
}

// FuzzHints: whatever is said, what is taken keeps within its bounds.
func FuzzHints(f *testing.F) {
	for _, line := range saysAll.headers {
		key, value, _ := strings.Cut(line, ": ")
		f.Add(uint8(headerOf([]byte(key))), []byte(value), []byte(`{"agent_hints":{"priority":1e3},"cache_control":{"type":"ephemeral","ttl":"1h"}}`))
	}
	f.Add(uint8(attachePolicy), []byte("dynamo;router_temperature=0.5"), []byte(`{"routing_constraints":{"required_taints":["a"],"preferred_taints":{"b":1}}}`))
	f.Add(uint8(sessionToken), []byte("\xff"), []byte(`{"agent_context":{"session_id":"{\"session_id\":\"x\"}"},"backend_instance_id":7,"dp_rank":1}`))
	f.Fuzz(func(t *testing.T, which uint8, value, extension []byte) {
		var gathered Headers
		var h Hints
		gathered.Add([]byte(headers[int(which)%len(headers)].name), value)
		gathered.Read(&h, everything, false)
		// Twice the same bytes: as what a scan found, which may be anything here, and as an object in which the scan found it.
		b := reading{trust: everything}
		b.extension(extension)
		b.arguments(extension)
		b.metadata(extension)
		h.fill(&b.Hints)
		check(t, &h)
		body := []byte(`{"nvext":` + string(extension) + `}`)
		var r openai.Request
		if openai.Scan(&r, openai.Chat, body) == nil {
			var whole Hints
			whole.ReadBody(&r, body, everything)
			check(t, &whole)
		}
	})
}

func check(t *testing.T, h *Hints) {
	t.Helper()
	texts := append([]string{h.Session, h.ParentSession, h.Program, h.ContextType, h.PromptCacheKey, h.Flow, h.User, h.Tenant, h.Objective,
		h.PolicyClass, h.Worker, h.Policy, h.Model}, h.Required[:]...)
	for _, p := range h.Preferred {
		texts = append(texts, p.Name)
		if !(p.Weight >= -maxWeight && p.Weight <= maxWeight) {
			t.Errorf("a taint weighs %v", p.Weight)
		}
	}
	for _, s := range texts {
		if copied, why := text([]byte(s)); why != taken || copied != s {
			t.Errorf("text %q: %s", s, why)
		}
	}
	for _, n := range []Number{h.Weights.OverlapScoreCredit, h.Weights.PrefillLoadScale, h.Weights.RouterTemperature} {
		if !(n.Value >= 0 && n.Value <= maxWeight) {
			t.Errorf("weights %+v", h.Weights)
		}
	}
	for _, d := range []time.Duration{h.TTFT, h.TPOT, h.Deadline, h.CacheTTL} {
		if d < 0 || d > maxTTL {
			t.Errorf("a time of %s", d)
		}
	}
	if !(h.Priority >= -maxPriority && h.Priority <= maxPriority) || h.Rank < 0 || h.Rank > maxRank || h.OutputTokens < 0 || h.OutputTokens > MaxOutputTokens {
		t.Errorf("numbers: %s", describe(h))
	}
	if (h.Session == "") != (h.SessionFrom == Nowhere) {
		t.Errorf("session %q from %s", h.Session, h.SessionFrom)
	}
}
