package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The dumb twin of Scan: it decodes the body into maps with encoding/json, where the last of equal keys wins, and writes
// the same lines as describe. ok is false where Scan reports a FieldError.
type twin struct {
	kind  Kind
	lines []string
	ok    bool
}

type members = map[string]json.RawMessage

func (w *twin) sayf(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// asString is the text of a JSON string.
func asString(raw json.RawMessage) (string, bool) {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

func asObject(raw json.RawMessage) (members, bool) {
	var m members
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &m) != nil {
		return nil, false
	}
	return m, true
}

func asList(raw json.RawMessage) ([]json.RawMessage, bool) {
	var l []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &l) != nil {
		return nil, false
	}
	return l, true
}

func asInt(raw json.RawMessage) int {
	if len(raw) == 0 || !strings.ContainsRune("-0123456789", rune(raw[0])) {
		return 0
	}
	f, _ := strconv.ParseFloat(string(raw), 64)
	return int(max(-1<<31, min(f, 1<<31-1)))
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// describeTwin reads a body that encoding/json accepts.
func describeTwin(kind Kind, top members) ([]string, bool) {
	w := &twin{kind: kind, ok: true}
	if m := top["model"]; !absent(m) {
		name, is := asString(m)
		w.ok = w.ok && is
		if name != "" {
			w.sayf("model %s", name)
		}
	}
	if string(top["stream"]) == "true" {
		w.sayf("stream")
	}
	options, _ := asObject(top["stream_options"])
	if string(options["include_usage"]) == "true" || kind == Responses || kind == Messages {
		w.sayf("usage")
	}
	// Of max_tokens and max_output_tokens the later one counts, which a map cannot tell: the generator uses one of them.
	bound := max(asInt(top["max_tokens"]), asInt(top["max_output_tokens"]), 0)
	if n := asInt(top["max_completion_tokens"]); n > 0 {
		bound = n
	}
	if bound > 0 {
		w.sayf("max %d", bound)
	}
	if n := asInt(top["priority"]); n != 0 {
		w.sayf("priority %d", n)
	}
	if salt, is := asString(top["cache_salt"]); is && salt != "" {
		w.sayf("salt %s", salt)
	} else if !is && !absent(top["cache_salt"]) {
		w.sayf("salt %s", AppendUnescaped(nil, top["cache_salt"], Span{0, len(top["cache_salt"])}))
	}
	for _, m := range [][2]string{{"user", "user"}, {"cache key", "prompt_cache_key"}, {"session", "session_id"}, {"safety", "safety_identifier"}} {
		if s, _ := asString(top[m[1]]); s != "" {
			w.sayf("%s %s", m[0], s)
		}
	}
	w.aside(top)
	if tools, _ := asList(top["tools"]); len(tools) > 0 {
		w.sayf("tools %s", compact(top["tools"]))
	}
	w.template(top)
	w.prompt(top)
	return w.lines, w.ok
}

func (w *twin) aside(top members) {
	for _, m := range [][2]string{{"extension", "nvext"}, {"metadata", "metadata"}, {"arguments", "vllm_xargs"}} {
		if _, is := asObject(top[m[1]]); is {
			w.sayf("%s %s", m[0], compact(top[m[1]]))
		}
	}
	if !absent(top["priority"]) {
		w.sayf("given priority %s", compact(top["priority"]))
	}
	for _, key := range []string{"routed_dp_rank", "data_parallel_rank"} {
		if !absent(top[key]) {
			w.sayf("given rank %s", compact(top[key]))
			break
		}
	}
}

func (w *twin) template(top members) {
	if documents, _ := asList(top["documents"]); len(documents) > 0 {
		w.sayf("documents %s", compact(top["documents"]))
	}
	if _, is := asObject(top["chat_template_kwargs"]); is {
		w.sayf("kwargs %s", compact(top["chat_template_kwargs"]))
	}
	for _, m := range [][2]string{{"template", "chat_template"}, {"effort", "reasoning_effort"}} {
		if s, _ := asString(top[m[1]]); s != "" {
			w.sayf("%s %s", m[0], s)
		}
	}
	var choices [3]Choice
	for i, key := range []string{"add_generation_prompt", "continue_final_message", "add_special_tokens"} {
		choices[i] = map[string]Choice{"true": Yes, "false": No}[string(top[key])]
	}
	if choices != [3]Choice{} {
		w.sayf("choices %d", choices)
	}
	if asInt(top["truncate_prompt_tokens"]) != 0 {
		w.sayf("truncated")
	}
}

func (w *twin) prompt(top members) {
	switch w.kind {
	case Chat:
		w.messages(nil, top["messages"])
	case Messages:
		w.messages(top["system"], top["messages"])
	case Responses:
		if s, is := asString(top["input"]); is {
			w.sayf("turns 1")
			w.lead(top["instructions"])
			w.sayf("user role")
			w.sayf("text %s", s)
		} else {
			w.messages(top["instructions"], top["input"])
		}
	case Completions, Embeddings:
		raw := top["prompt"]
		if w.kind == Embeddings {
			raw = top["input"]
		}
		var prompts []string
		add := func(raw json.RawMessage) bool {
			if s, is := asString(raw); is {
				prompts = append(prompts, "prompt "+s)
				return true
			}
			ids, is := asList(raw)
			for _, id := range ids {
				is = is && isID(id)
			}
			prompts = append(prompts, "ids raw "+compact(raw))
			return is
		}
		list, isList := asList(raw)
		ok := true
		switch {
		case absent(raw):
		case isList && len(list) > 0 && isID(list[0]):
			ok = add(raw)
		case isList:
			for _, p := range list {
				ok = !isID(p) && add(p) && ok
			}
		default:
			ok = add(raw)
		}
		w.ok = w.ok && ok
		if len(prompts) > 0 {
			w.sayf("turns %d", len(prompts))
		}
		w.lines = append(w.lines, prompts...)
	}
}

func isID(raw json.RawMessage) bool { return strings.Trim(string(raw), "0123456789") == "" }

func (w *twin) lead(system json.RawMessage) {
	if !absent(system) {
		w.sayf("system role")
		w.content(system)
	}
}

func (w *twin) messages(system, raw json.RawMessage) {
	list, is := asList(raw)
	w.ok = w.ok && (is || absent(raw))
	if len(list) > 0 {
		w.sayf("turns %d", len(list))
	}
	w.lead(system)
	for _, raw := range list {
		m, is := asObject(raw)
		w.ok = w.ok && is
		role := m["role"]
		if absent(role) {
			role = m["type"]
		}
		if absent(role) {
			role = json.RawMessage(`""`)
		}
		w.part("role", role)
		w.part("name", m["name"])
		w.either("call", m["tool_call_id"], m["call_id"])
		w.either("reasoning", m["reasoning_content"], m["reasoning"])
		w.content(m["content"])
		w.content(m["output"])
		calls, _ := asList(m["tool_calls"])
		for _, raw := range calls {
			call, _ := asObject(raw)
			w.function(call["function"])
		}
		w.function(m["function_call"])
		w.part("arguments", m["arguments"])
	}
}

func (w *twin) function(raw json.RawMessage) {
	f, _ := asObject(raw)
	w.part("tool", f["name"])
	w.part("arguments", f["arguments"])
}

func (w *twin) either(name string, a, b json.RawMessage) {
	if absent(a) {
		a = b
	}
	w.part(name, a)
}

func (w *twin) part(name string, raw json.RawMessage) {
	if absent(raw) {
		return
	}
	if s, is := asString(raw); is {
		w.sayf("%s %s", name, s)
	} else if name == "media" {
		w.sayf("media")
	} else {
		w.sayf("%s raw %s", name, compact(raw))
	}
}

func (w *twin) content(raw json.RawMessage) {
	list, isList := asList(raw)
	_, isString := asString(raw)
	switch {
	case isString:
		w.part("text", raw)
	case !isList:
		w.part("media", raw)
	}
	for _, raw := range list {
		if _, is := asString(raw); is {
			w.part("text", raw)
		} else if m, is := asObject(raw); is {
			w.contentPart(m)
		} else {
			w.part("media", raw)
		}
	}
}

func (w *twin) contentPart(m members) {
	kind, _ := asString(m["type"])
	if strings.HasSuffix(kind, "text") || absent(m["type"]) && !absent(m["text"]) {
		w.part("text", m["text"])
		return
	}
	w.content(m["content"])
	switch {
	case strings.HasSuffix(kind, "tool_use"):
		w.part("tool", m["name"])
		w.part("arguments", m["input"])
	case strings.HasSuffix(kind, "tool_result"):
		w.part("call", m["tool_use_id"])
	case kind == "thinking":
		w.part("reasoning", m["thinking"])
	default:
		for _, key := range []string{"type", "text", "thinking", "name", "input", "tool_use_id", "content", "cache_control"} {
			delete(m, key)
		}
		if len(m) > 0 {
			w.sayf("media")
		}
	}
}

// depth of the brackets of a JSON text.
func depth(body []byte) (deepest int) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	for now := 0; ; {
		token, err := d.Token()
		if err != nil {
			return deepest
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			now++
			deepest = max(deepest, now)
		case json.Delim('}'), json.Delim(']'):
			now--
		}
	}
}

// compare holds Scan against its twin.
func compare(t interface{ Errorf(string, ...any) }, r *Request, kind Kind, body []byte) {
	err := Scan(r, kind, body)
	var syntax *SyntaxError
	var top members
	valid := json.Unmarshal(body, &top) == nil && top != nil && depth(body) <= maxDepth
	if got := !errors.As(err, &syntax); got != valid {
		t.Errorf("%s\nScan: %v; encoding/json takes it: %v", body, err, valid)
		return
	}
	if !valid {
		if syntax.Offset < 0 || syntax.Offset > len(body) {
			t.Errorf("%s\noffset %d of %d bytes", body, syntax.Offset, len(body))
		}
		return
	}
	lines, ok := describeTwin(kind, top)
	if ok != (err == nil) && kind != Embeddings {
		t.Errorf("%s\nScan: %v; its twin would take it: %v", body, err, ok)
	}
	if err != nil || !ok {
		return
	}
	want := ""
	if _, is := asList(top["messages"]); is && kind == Chat {
		want = string(top["messages"])
	}
	if got := string(r.Template.Messages.In(body)); got != want {
		t.Errorf("%s\nmessages %s, want %s", body, got, want)
	}
	if diff := cmp.Diff(lines, describe(r, body)); diff != "" {
		t.Errorf("%v %s\n(-twin +Scan):\n%s", kind, body, diff)
	}
}

// writer writes random JSON whose keys and values are the ones that matter, in random spelling.
type writer struct {
	t *rapid.T
	b bytes.Buffer
}

func (w *writer) space() {
	w.b.WriteString(rapid.SampledFrom([]string{"", "", "", "", " ", "\n", "\t \r"}).Draw(w.t, "space"))
}

// text writes a string; each character plainly or escaped.
func (w *writer) text(s string) {
	w.b.WriteByte('"')
	style := rapid.IntRange(0, 3).Draw(w.t, "style")
	for i, r := range s {
		switch {
		case style == 3 && i%2 == 0 && r < 0x10000:
			fmt.Fprintf(&w.b, `\u%04X`, r)
		case r == '/' && style == 2:
			w.b.WriteString(`\/`)
		default:
			quoted := AppendString(nil, string(r))
			w.b.Write(quoted[1 : len(quoted)-1])
		}
	}
	w.b.WriteByte('"')
}

var (
	topKeys = []string{"model", "messages", "messages", "prompt", "prompt", "input", "input", "system", "instructions", "tools",
		"stream", "stream_options", "max_tokens", "max_completion_tokens", "priority", "cache_salt", "user", "prompt_cache_key",
		"session_id", "safety_identifier", "nvext", "metadata", "vllm_xargs", "routed_dp_rank", "data_parallel_rank", "documents", "chat_template_kwargs", "chat_template", "reasoning_effort", "add_generation_prompt",
		"continue_final_message", "add_special_tokens", "truncate_prompt_tokens", "other", "Model", ""}
	messageKeys = []string{"role", "role", "content", "content", "content", "type", "name", "tool_calls", "tool_call_id", "call_id",
		"reasoning_content", "reasoning", "function_call", "arguments", "output", "other"}
	partKeys = []string{"type", "type", "type", "text", "text", "content", "content", "thinking", "name", "input", "tool_use_id",
		"cache_control", "image_url", "other"}
	words = []string{"", "user", "text", "input_text", "tool_use", "tool_result", "thinking", "image_url", "Hi \"there\"\n",
		"größer / 漢字 😀", "a\\b", "\x00\x1f\u007f\u2028", strings.Repeat("long ", 20)}
	literals = []string{"true", "true", "false", "null", "0", "-0", "7", "12345", "-3", "1.5", "2e3", "1E-2", "1e999",
		"[]", "{}", "[ ]", "[1,2,3]", "[[1],[2,3]]", "[[1.5]]", `["a"]`, `["a",["b"]]`}
)

// value writes a value for a key: mostly one of the type that belongs there, else anything.
func (w *writer) value(key string, deep int) {
	w.space()
	kind := "any"
	if rapid.IntRange(0, 5).Draw(w.t, "as it should be") > 0 {
		kind = key
	}
	if deep == 0 {
		kind = "literal"
	}
	switch kind {
	case "messages", "input":
		w.list(deep, messageKeys)
	case "content", "output", "system", "instructions":
		if rapid.Bool().Draw(w.t, "parts") {
			w.list(deep, partKeys)
		} else {
			w.text(rapid.SampledFrom(words).Draw(w.t, "word"))
		}
	case "tool_calls":
		w.list(deep, []string{"function", "function", "id"})
	case "function", "function_call":
		w.object(deep, []string{"name", "arguments", "other"})
	case "nvext", "metadata", "vllm_xargs":
		w.object(deep, messageKeys)
	case "stream_options":
		w.object(deep, []string{"include_usage", "other"})
	case "any":
		w.list(deep, partKeys)
	case "stream", "include_usage", "max_tokens", "max_completion_tokens", "priority", "routed_dp_rank", "data_parallel_rank", "prompt", "literal":
		w.b.WriteString(rapid.SampledFrom(literals).Draw(w.t, "literal"))
	default:
		w.text(rapid.SampledFrom(words).Draw(w.t, "word"))
	}
	w.space()
}

// list writes an array of objects, and now and then of something else.
func (w *writer) list(deep int, keys []string) {
	w.b.WriteByte('[')
	for i := range rapid.IntRange(0, 3).Draw(w.t, "elements") {
		if i > 0 {
			w.b.WriteByte(',')
		}
		if rapid.IntRange(0, 9).Draw(w.t, "odd") == 0 {
			w.value("literal", deep-1)
		} else {
			w.object(deep-1, keys)
		}
	}
	w.b.WriteByte(']')
}

func (w *writer) object(deep int, keys []string) {
	w.b.WriteByte('{')
	for i := range rapid.IntRange(0, 5).Draw(w.t, "members") {
		if i > 0 {
			w.b.WriteByte(',')
		}
		w.space()
		key := rapid.SampledFrom(keys).Draw(w.t, "key")
		w.text(key)
		w.space()
		w.b.WriteByte(':')
		w.value(key, max(deep-1, 0))
	}
	w.b.WriteByte('}')
}

var kinds = []Kind{Other, Chat, Completions, Responses, Messages, Embeddings}

func TestScanAgreesWithItsTwin(t *testing.T) {
	var r Request
	rapid.Check(t, func(t *rapid.T) {
		w := writer{t: t}
		w.object(9, topKeys)
		body := w.b.Bytes()
		if rapid.IntRange(0, 3).Draw(t, "break it") == 0 && len(body) > 2 {
			i := rapid.IntRange(0, len(body)-1).Draw(t, "where")
			body[i] = rapid.SampledFrom([]byte("{}[],:\"\\0-.ex\x00\n\xff")).Draw(t, "what")
		}
		compare(t, &r, rapid.SampledFrom(kinds).Draw(t, "api"), body)
	})
}

func FuzzScan(f *testing.F) {
	for _, c := range bodies {
		f.Add(uint8(c.kind), []byte(c.body))
	}
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		if bytes.Contains(body, []byte("max_")) && bytes.Count(body, []byte("_tokens")) > 1 {
			t.Skip("the twin does not know which bound came last")
		}
		var r Request
		compare(t, &r, kinds[int(kind)%len(kinds)], body)
	})
}
