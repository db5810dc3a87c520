package worker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParseModels(t *testing.T) {
	for _, c := range []struct{ name, text, want, err string }{
		{"names of the base model, adapters apart, the longest context",
			`{"object":"list","data":[{"id":"qwen","root":"/m","parent":null,"max_model_len":4096},{"id":"alias","parent":null,"max_model_len":8192},` +
				`{"id":"lora-a","parent":"qwen","max_model_len":null}]}`,
			"[alias qwen] [lora-a] 8192", ""},
		{"no parents at all, as of other engines", `{"data":[{"id":"m"}]}`, "[m] [] 0", ""},
		{"no models", `{"data":[]}`, "[] [] 0", ""},
		{"no list", `[]`, "", "GET /v1/models"},
	} {
		served, err := ParseModels([]byte(c.text))
		got := ""
		if err == nil {
			got = fmt.Sprint(served.Names, served.Adapters, served.MaxTokens)
		}
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v; want %q, error %q", c.name, got, err, c.want, c.err)
		}
	}
}

func TestParseServerInfo(t *testing.T) {
	for text, want := range map[string]int{
		`{"context_length":32768,"page_size":16}`: 32768, `{"context_length":null}`: 0, `{}`: 0, `{"context_length":-1}`: 0, `nonsense`: 0,
	} {
		if got := ParseServerInfo([]byte(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

func TestServedHas(t *testing.T) {
	said := &Served{Names: []string{"base", "base:v2"}, Adapters: []string{"lora"}}
	for model, want := range map[string]bool{
		"base": true, "base:v2": true, "lora": true, "base:lora": true, "base:other": false, "other:lora": false, "other": false, "": false,
	} {
		if got := said.Has(model); got != want {
			t.Errorf("%q: %v, want %v", model, got, want)
		}
	}
	var nothing *Served
	if nothing.Told() || nothing.Has("base") || new(Served).Told() || !said.Told() {
		t.Error("who told what is mixed up")
	}
}

func FuzzParseModels(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"m","parent":"b","max_model_len":10}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		served, err := ParseModels(text)
		if err == nil && (slices.Contains(served.Names, "") || slices.Contains(served.Adapters, "") || served.MaxTokens < 0) {
			t.Errorf("a name that is empty, or no length: %+v", served)
		}
	})
}
