package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

func TestApply(t *testing.T) {
	name := `a/"b"` + "\n"
	model, usage := Edit{Model: &name}, Edit{IncludeUsage: true}
	both := Edit{Model: &name, IncludeUsage: true}
	for _, c := range []struct {
		edit       Edit
		body, want string
	}{
		{Edit{}, ` {"model" : "x" } `, ` {"model" : "x" } `},
		{model, `{"model":"x","a":1}`, `{"model":"a/\"b\"\n","a":1}`},
		{model, ` { "model" : "" } `, ` { "model" : "a/\"b\"\n" } `},
		{model, `{"model":null}`, `{"model":"a/\"b\"\n"}`},
		{model, `{"a":1}`, `{"model":"a/\"b\"\n","a":1}`},
		{model, `{}`, `{"model":"a/\"b\"\n"}`},
		{model, ` {
}`, ` {"model":"a/\"b\"\n"
}`},
		{model, `{"model":"x","model":"y"}`, `{"model":"x","model":"a/\"b\"\n"}`},
		{model, `{"model":"x","\u006dodel":null}`, `{"model":"x","\u006dodel":"a/\"b\"\n"}`},
		{usage, `{"stream":false}`, `{"stream":false}`},
		{usage, `{"messages":[]}`, `{"messages":[]}`},
		{usage, `{"stream":true}`, `{"stream_options":{"include_usage":true},"stream":true}`},
		{usage, `{"stream":true,"stream_options":null}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		{usage, `{"stream":true,"stream_options":{ }}`, `{"stream":true,"stream_options":{"include_usage":true }}`},
		{usage, `{"stream":true,"stream_options":{"x":{}}}`, `{"stream":true,"stream_options":{"include_usage":true,"x":{}}}`},
		{usage, `{"stream":true,"stream_options":{"include_usage": false }}`, `{"stream":true,"stream_options":{"include_usage": true }}`},
		{usage, `{"stream":true,"stream_options":{"include_usage":null,"x":1}}`, `{"stream":true,"stream_options":{"include_usage":true,"x":1}}`},
		{usage, `{"stream":true,"stream_options":{"include_usage":true}}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		{usage, `{"stream":true,"stream_options":{"include_usage":true,"include_usage":false}}`,
			`{"stream":true,"stream_options":{"include_usage":true,"include_usage":true}}`},
		{usage, `{"stream":true,"stream_options":{"include_usage":true},"stream_options":{}}`,
			`{"stream":true,"stream_options":{"include_usage":true},"stream_options":{"include_usage":true}}`},
		{usage, `{"stream":true,"stream_options":{},"stream_options":{"include_usage":true}}`,
			`{"stream":true,"stream_options":{},"stream_options":{"include_usage":true}}`},
		{usage, `{"stream":true,"stream_options":7}`, `{"stream":true,"stream_options":7}`},
		{both, `{"stream":true,"model":"x"}`, `{"stream_options":{"include_usage":true},"stream":true,"model":"a/\"b\"\n"}`},
		{both, `{"stream":true}`, `{"model":"a/\"b\"\n","stream_options":{"include_usage":true},"stream":true}`},
		{both, `{"stream_options":{},"model":"x","stream":true}`, `{"stream_options":{"include_usage":true},"model":"a/\"b\"\n","stream":true}`},
		{both, `{"model":"x","stream_options":null,"stream":true}`, `{"model":"a/\"b\"\n","stream_options":{"include_usage":true},"stream":true}`},
	} {
		var r Request
		if err := Scan(&r, Chat, []byte(c.body)); err != nil {
			t.Fatalf("%s: %v", c.body, err)
		}
		if got := string(r.Apply([]byte("> "), []byte(c.body), c.edit)); got != "> "+c.want {
			t.Errorf("%s\n got %s\nwant > %s", c.body, got, c.want)
		}
	}
}

func TestApplyKnowsWhoHasStreamOptions(t *testing.T) {
	body := []byte(`{"stream":true}`)
	for kind, changes := range map[Kind]bool{Chat: true, Completions: true, Responses: false, Messages: false, Embeddings: false} {
		var r Request
		if err := Scan(&r, kind, body); err != nil {
			t.Fatal(err)
		}
		if got := !bytes.Equal(AppendWithUsage(nil, body, &r), body); got != changes {
			t.Errorf("%v: changed %v, want %v", kind, got, changes)
		}
	}
}

func TestApplyAllocatesNothing(t *testing.T) {
	body, name := []byte(`{"stream":true,"messages":[]}`), "m"
	var r Request
	if err := Scan(&r, Chat, body); err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, 0, 200)
	if n := testing.AllocsPerRun(5, func() { r.Apply(dst, body, Edit{Model: &name, IncludeUsage: true}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// checkApply holds an edited body against what encoding/json reads of it: only the edited members may differ.
func checkApply(t interface{ Fatalf(string, ...any) }, kind Kind, body []byte, model string) {
	var r Request
	if Scan(&r, kind, body) != nil {
		return
	}
	edited := r.Apply(nil, body, Edit{Model: &model, IncludeUsage: true})
	var before, after members
	if json.Unmarshal(body, &before) != nil {
		t.Fatalf("%s: accepted by Scan alone", body)
	}
	if err := json.Unmarshal(edited, &after); err != nil {
		t.Fatalf("%s\nbecame %s: %v", body, edited, err)
	}
	if name, _ := asString(after["model"]); name != string([]rune(model)) {
		t.Fatalf("%s\nbecame %s: model %q, want %q", body, edited, name, model)
	}
	_, isObject := asObject(before["stream_options"])
	if r.Stream && (kind == Chat || kind == Completions) && (isObject || absent(before["stream_options"])) {
		options, _ := asObject(after["stream_options"])
		if string(options["include_usage"]) != "true" {
			t.Fatalf("%s\nbecame %s: without usage", body, edited)
		}
		was, _ := asObject(before["stream_options"])
		delete(options, "include_usage")
		delete(was, "include_usage")
		if !maps.EqualFunc(options, was, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
			t.Fatalf("%s\nbecame %s: other options changed", body, edited)
		}
		delete(after, "stream_options")
		delete(before, "stream_options")
	}
	delete(after, "model")
	delete(before, "model")
	if !maps.EqualFunc(before, after, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
		t.Fatalf("%s\nbecame %s: other members changed", body, edited)
	}
	if same := r.Apply(nil, body, Edit{}); !bytes.Equal(same, body) {
		t.Fatalf("%s\nbecame %s without an edit", body, same)
	}
	var again Request
	if err := Scan(&again, kind, edited); err != nil || !again.IncludeUsage && r.Stream && kind == Chat && (isObject || r.edits.options.value.Empty()) {
		t.Fatalf("%s\nbecame %s: %v, usage %v", body, edited, err, again.IncludeUsage)
	}
	if twice := again.Apply(nil, edited, Edit{Model: &model, IncludeUsage: true}); !bytes.Equal(twice, edited) {
		t.Fatalf("%s\nbecame %s\nand then %s", body, edited, twice)
	}
}

func TestApplyChangesNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := writer{t: t}
		w.object(5, []string{"model", "stream", "stream", "stream_options", "stream_options", "messages", "other"})
		model := rapid.SampledFrom(words).Draw(t, "model")
		checkApply(t, rapid.SampledFrom(kinds).Draw(t, "api"), w.b.Bytes(), model)
	})
}

func FuzzApply(f *testing.F) {
	for _, c := range bodies {
		f.Add(uint8(1), []byte(c.body), "m\xff\"")
	}
	f.Add(uint8(1), []byte(`{"stream":true,"stream_options":{"include_usage":false}}`), "m")
	f.Fuzz(func(t *testing.T, kind uint8, body []byte, model string) {
		checkApply(t, kinds[int(kind)%len(kinds)], body, model)
	})
}
