package openai

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bodies are well-formed requests and what is read of them.
var bodies = []struct {
	name string
	kind Kind
	body string
	want string // lines of describe
}{
	{"a chat", Chat, `{"model":"llama","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi\n\"you\""}]}`, `
		model llama
		turns 2
		role system
		text Be brief.
		role user
		text Hi
"you"`},
	{"members in any order, spread over lines", Chat, "{ \"messages\" : [ { \"content\" : \"Hi\" ,\n\t\"role\" : \"user\" } ] ,\r\n \"model\" : \"m\" }\n", `
		model m
		turns 1
		role user
		text Hi`},
	{"keys with escapes", Chat, `{"m\u006fdel":"m","\u006d\u0065ssages":[{"r\u006Fle":"user","c\u006fntent":"Hi"}]}`, `
		model m
		turns 1
		role user
		text Hi`},
	{"options", Chat, `{"model":"a\/b","stream":true,"stream_options":{"x":1,"include_usage":true},"max_tokens":5,"cache_salt":"s","user":"u",
		"prompt_cache_key":"k","session_id":"i","priority":-3,"safety_identifier":"f","metadata":{"a":"b"},"vllm_xargs":{},"nvext":{"dp_rank":1},
		"data_parallel_rank":2,"temperature":0.5,"stop":["a",{"b":[null,false]}]}`, `
		model a/b
		stream
		usage
		max 5
		priority -3
		salt s
		user u
		cache key k
		session i
		safety f
		extension {"dp_rank":1}
		metadata {"a":"b"}
		arguments {}
		given priority -3
		given rank 2`},
	{"options of other types count as absent", Chat, `{"model":null,"stream":"yes","stream_options":7,"max_tokens":"5","cache_salt":null,"user":5,
		"prompt_cache_key":[],"session_id":{},"priority":null,"safety_identifier":1,"metadata":[],"vllm_xargs":"","nvext":null,"routed_dp_rank":null,"tools":{},"messages":null}`, ``},
	{"an answer's bound", Chat, `{"max_completion_tokens":7,"max_tokens":5}`, `max 7`},
	{"bounds beyond reason", Chat, `{"max_tokens":1e300,"priority":-99999999999}`, "max 2147483647\npriority -2147483648\ngiven priority -99999999999"},
	{"fractions are cut off", Chat, `{"max_tokens":16.0}`, `max 16`},
	{"negative bounds are none", Chat, `{"max_tokens":-1}`, ``},
	{"what a template is given", Chat, `{"add_generation_prompt":false,"continue_final_message":true,"add_special_tokens":null,"documents":[{"t":1}],
		"chat_template_kwargs":{"enable_thinking":false},"chat_template":"{{x}}","reasoning_effort":"low","truncate_prompt_tokens":5}`,
		`documents [{"t":1}]
kwargs {"enable_thinking":false}
template {{x}}
effort low
choices [2 1 0]
truncated`},
	{"a salt that is a list", Chat, `{"cache_salt":["a","b"]}`, `salt ["a","b"]`},
	{"the last of equal keys counts", Chat, `{"model":"a","model":"b","stream":true,"stream":false,"stream_options":{"include_usage":true},
		"stream_options":{},"user":"a","user":null,"messages":[{"role":"user","content":"x","content":"y"},{}],
		"messages":[{"role":"a","role":"b","content":["x"],"content":[{"type":"text","text":"y","text":"z"}]}]}`, `
		model b
		turns 1
		role b
		text z`},
	{"tools", Chat, `{"tools":[{"type":"function","function":{"name":"f"}}],"messages":[]}`, `tools [{"type":"function","function":{"name":"f"}}]`},
	{"no tools", Chat, `{"tools":[ ],"messages":[]}`, ``},
	{"content parts", Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"What is"},{"text":" this?","type":"text"},
		{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},"loose",5,null]}]}`, `
		turns 1
		role user
		text What is
		text  this?
		media
		text loose
		media`},
	{"content that is nothing", Chat, `{"messages":[{"role":"assistant","content":null},{"content":[]},{"role":7,"content":8}]}`,
		"turns 3\nrole assistant\nrole \n" + "role raw 7\nmedia"},
	{"tool calls, told in any order", Chat, `{"messages":[
		{"tool_calls":[{"id":"c1","type":"function","function":{"arguments":"{\"city\":\"Rome\"}","name":"weather"}},{"function":{"name":"g","arguments":{"a": 1}}}],
			"content":"Let me see.","reasoning_content":"Rome?","role":"assistant","function_call":null,"reasoning":null},
		{"role":"tool","tool_call_id":"c1","content":"sunny"},
		{"role":"user","name":"Ann","content":"Thanks"}]}`, `
		turns 3
		role assistant
		reasoning Rome?
		text Let me see.
		tool weather
		arguments {"city":"Rome"}
		tool g
		arguments raw {"a":1}
		role tool
		call c1
		text sunny
		role user
		name Ann
		text Thanks`},
	{"odd tool calls", Chat, `{"messages":[{"role":"assistant","tool_calls":[1,{"function":2},{}],"function_call":{"name":"f","x":0}},{"role":"x","tool_calls":3}]}`, `
		turns 2
		role assistant
		tool f
		role x`},
	{"a completion", Completions, `{"prompt":"Once upon","stream":true}`, "stream\nturns 1\nprompt Once upon"},
	{"several prompts", Completions, `{"prompt":["a","b\u00e9"]}`, "turns 2\nprompt a\nprompt bé"},
	{"token ids", Completions, `{"prompt":[1, 20 ,0]}`, "turns 1\nids raw [1,20,0]"},
	{"lists of token ids", Completions, `{"prompt":[[1,2],[3]]}`, "turns 2\nids raw [1,2]\nids raw [3]"},
	{"no prompt", Completions, `{"prompt":null,"messages":[{"role":"user","content":"not read"}]}`, ``},
	{"the last prompt counts", Completions, `{"prompt":{"wrong":1},"prompt":"a","prompt":"b"}`, "turns 1\nprompt b"},
	{"an empty list", Completions, `{"prompt":[]}`, ``},
	{"embeddings", Embeddings, `{"input":["a","b"]}`, "turns 2\nprompt a\nprompt b"},
	{"embeddings of media", Embeddings, `{"input":[{"image":"x"}],"messages":[]}`, ``},
	{"a response, one text", Responses, `{"input":"Hi","max_output_tokens":9}`, "usage\nmax 9\nturns 1\nuser role\ntext Hi"},
	{"a response, instructions come first", Responses, `{"input":[{"role":"user","content":[{"type":"input_text","text":"Hi"}]},
		{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"42"}],
		"instructions":"Be brief."}`, `
		usage
		turns 3
		system role
		text Be brief.
		role user
		text Hi
		role function_call
		name f
		call c
		arguments {}
		role function_call_output
		call c
		text 42`},
	{"Anthropic's blocks", Messages, `{"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"max_tokens":10,"messages":[
		{"role":"user","content":"Hi"},
		{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"abc"},{"type":"tool_use","id":"t1","name":"f","input":{"a": [1]}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"42"}],"is_error":false},
			{"type":"image","source":{"type":"base64","data":"AAAA"},"cache_control":{"type":"ephemeral"}}]}]}`, `
		usage
		max 10
		turns 3
		system role
		text Be brief.
		role user
		text Hi
		role assistant
		reasoning Hm.
		tool f
		arguments raw {"a":[1]}
		role user
		text 42
		call t1
		media`},
	{"what is not known", Other, `{"model":"m","messages":[1],"prompt":{},"input":7}`, `model m`},
	{"nothing", Chat, ` { } `, ``},
	{"bytes that are not UTF-8", Chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\xff\xfeb\"}]}", "turns 1\nrole user\ntext a\ufffd\ufffdb"},
}

func TestScan(t *testing.T) {
	var r Request // used again and again
	for _, c := range bodies {
		if err := Scan(&r, c.kind, []byte(c.body)); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		want := strings.TrimPrefix(strings.ReplaceAll(c.want, "\n\t\t", "\n"), "\n")
		if diff := cmp.Diff(want, strings.Join(describe(&r, []byte(c.body)), "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if !json.Valid([]byte(c.body)) {
			t.Errorf("%s: the test's body is no JSON", c.name)
		}
	}
}

func TestScanSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		body string
		want string
	}{
		{Chat, ``, `body: byte 0: expected '{' at the beginning of a JSON object, found the end of the body`},
		{Chat, `[]`, `body: byte 0: expected '{' at the beginning of a JSON object, found '['`},
		{Chat, `"x"`, `body: byte 0: expected '{' at the beginning of a JSON object, found '"'`},
		{Chat, "\xef\xbb\xbf{}", `body: byte 0: expected '{' at the beginning of a JSON object, found byte 0xef`},
		{Chat, `{"model":"mistral"} x`, `body: byte 20: expected the end of the body, found 'x'`},
		{Chat, `{"model":"mist"}}`, `body: byte 16: expected the end of the body, found '}'`},
		{Chat, `{"model" "mist"}`, `body: byte 9: expected ':' after the object key, found '"'`},
		{Chat, `{"model":}`, `body: byte 9: expected a value, found '}'`},
		{Chat, `{"model":"a" "b"}`, `body: byte 13: expected ',' or '}' after the object member, found '"'`},
		{Chat, `{"model":"a",}`, `body: byte 13: expected an object key, found '}'`},
		{Chat, `{,"model":"a"}`, `body: byte 1: expected an object key, found ','`},
		{Chat, `{model:"a"}`, `body: byte 1: expected an object key, found 'm'`},
		{Chat, `{"a":[1,]}`, `body: byte 8: expected a value, found ']'`},
		{Chat, `{"a":[1 2]}`, `body: byte 8: expected ',' or ']' after the array element, found '2'`},
		{Chat, `{"a":[1}}`, `body: byte 7: expected ',' or ']' after the array element, found '}'`},
		{Chat, `{"a":{"b":1]}`, `body: byte 11: expected ',' or '}' after the object member, found ']'`},
		{Chat, `{"a":{]}`, `body: byte 6: expected an object key, found ']'`},
		{Chat, `{"a":01}`, `body: byte 6: expected ',' or '}' after the object member, found '1'`},
		{Chat, `{"a":-}`, `body: byte 6: expected a digit, found '}'`},
		{Chat, `{"a":1.}`, `body: byte 7: expected a digit, found '}'`},
		{Chat, `{"a":1e+}`, `body: byte 8: expected a digit, found '}'`},
		{Chat, `{"a":+1}`, `body: byte 5: expected a value, found '+'`},
		{Chat, `{"a":.5}`, `body: byte 5: expected a value, found '.'`},
		{Chat, `{"a":nul}`, `body: byte 8: expected null, found '}'`},
		{Chat, `{"a":True}`, `body: byte 5: expected a value, found 'T'`},
		{Chat, `{"a":trueish}`, `body: byte 9: expected ',' or '}' after the object member, found 'i'`},
		{Chat, `{"a":"x`, `body: byte 7: expected '"' at the end of the string, found the end of the body`},
		{Chat, `{"a":"x\"}`, `body: byte 10: expected '"' at the end of the string, found the end of the body`},
		{Chat, "{\"a\":\"x\ny\"}", `body: byte 7: expected an escape sequence for a control character, found byte 0xa`},
		{Chat, `{"a":"\x41"}`, `body: byte 7: expected a valid escape sequence, found 'x'`},
		{Chat, `{"a":"\u00g0"}`, `body: byte 10: expected a valid escape sequence, found 'g'`},
		{Chat, "{\"a\":\x001}", `body: byte 5: expected a value, found byte 0x0`},
		{Chat, `{"messages":[{"role":"user","content":["a","b"}]}`, `body: byte 46: expected ',' or ']' after the array element, found '}'`},
		{Chat, `{"model":7,"messages":[{]}`, `body: byte 24: expected an object key, found ']'`},

		{Chat, `{"model":7}`, `body: byte 9: "model" must be a string`},
		{Chat, `{"messages":"Hi"}`, `body: byte 12: "messages" must be an array`},
		{Chat, `{"messages":[{},"Hi",3]}`, `body: byte 16: "messages[1]" must be an object`},
		{Responses, `{"input":5}`, `body: byte 9: "input" must be an array`},
		{Completions, `{"prompt":5}`, `body: byte 10: "prompt" must be a string, an array of strings, of token ids, or of arrays of token ids`},
		{Completions, `{"prompt":[1,"a"]}`, `body: byte 13: "prompt" must be a string, an array of strings, of token ids, or of arrays of token ids`},
		{Completions, `{"prompt":["a",1]}`, `body: byte 15: "prompt" must be a string, an array of strings, of token ids, or of arrays of token ids`},
		{Completions, `{"prompt":[1,2.5]}`, `body: byte 13: "prompt" must be a string, an array of strings, of token ids, or of arrays of token ids`},
		{Completions, `{"prompt":[[1],[-2]]}`, `body: byte 16: "prompt" must be a string, an array of strings, of token ids, or of arrays of token ids`},
	} {
		var r Request
		err := Scan(&r, c.kind, []byte(c.body))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s\n got %v\nwant %s", c.body, err, c.want)
		}
	}
}

func TestScanBoundsDepth(t *testing.T) {
	nested := func(n int) []byte {
		return []byte(`{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`)
	}
	var r Request
	if err := Scan(&r, Chat, nested(maxDepth)); err != nil {
		t.Errorf("depth %d: %v", maxDepth, err)
	}
	var syntax *SyntaxError
	if err := Scan(&r, Chat, nested(maxDepth+1)); !errors.As(err, &syntax) || syntax.Offset != 5+maxDepth-1 {
		t.Errorf("depth %d: %v", maxDepth+1, err)
	}
	contents := `{"messages":[` + strings.Repeat(`{"content":[`, 100_000)
	if err := Scan(&r, Chat, []byte(contents)); !errors.As(err, &syntax) || !strings.Contains(err.Error(), "at most 128 nested") {
		t.Errorf("content in content: %v", err)
	}
}

func TestScanRefusesEveryTruncation(t *testing.T) {
	var r Request
	for _, c := range bodies {
		whole := strings.TrimRight(c.body, " \n")
		for i := range whole {
			var syntax *SyntaxError
			if err := Scan(&r, c.kind, []byte(whole[:i])); !errors.As(err, &syntax) || syntax.Offset != i {
				t.Errorf("%s, the first %d bytes: %v, want a syntax error at byte %d", c.name, i, err, i)
			}
		}
	}
}

func TestCheckFindsMissingPrompts(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		body string
		want string // the field
	}{
		{Chat, `{"model":"m"}`, "messages"},
		{Chat, `{"messages":[]}`, "messages"},
		{Chat, `{"messages":null}`, "messages"},
		{Chat, `{"messages":[{}]}`, ""},
		{Messages, `{"system":"x"}`, "messages"},
		{Completions, `{}`, "prompt"},
		{Completions, `{"prompt":[]}`, "prompt"},
		{Completions, `{"prompt":""}`, ""},
		{Completions, `{"prompt_embeds":"AAAA"}`, ""},
		{Completions, `{"prompt_embeds":null}`, "prompt"},
		{Responses, `{"instructions":"x"}`, "input"},
		{Responses, `{"input":""}`, ""},
		{Embeddings, `{}`, "input"},
		{Embeddings, `{"input":{"image":"x"}}`, ""},
		{Embeddings, `{"messages":[{}]}`, ""},
		{Other, `{}`, ""},
	} {
		var r Request
		if err := Scan(&r, c.kind, []byte(c.body)); err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		var field *FieldError
		if err := r.Check(); err == nil && c.want != "" || err != nil && (!errors.As(err, &field) || field.Field != c.want) {
			t.Errorf("%v %s: %v, want a complaint about %q", c.kind, c.body, err, c.want)
		}
	}
	var r Request
	if err := Scan(&r, Chat, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	const want = `body: "messages" is missing: it must be an array with at least one message`
	if err := r.Check(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestScanAllocatesNothing(t *testing.T) {
	var r Request
	for _, c := range bodies {
		body := []byte(c.body)
		if n := testing.AllocsPerRun(5, func() {
			if err := Scan(&r, c.kind, body); err != nil {
				t.Error(err)
			}
		}); n != 0 && !strings.Contains(c.body, "wrong") {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}
