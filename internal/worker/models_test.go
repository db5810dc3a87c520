package worker

import (
	"slices"
	"strings"
	"testing"
)

func TestParseModels(t *testing.T) {
	for _, c := range []struct{ name, text, want, err string }{
		{"names of the base model, without adapters",
			`{"object":"list","data":[{"id":"qwen","root":"/m","parent":null},{"id":"alias","parent":null},{"id":"lora-a","parent":"qwen"}]}`,
			"alias qwen", ""},
		{"no parents at all, as of other engines", `{"data":[{"id":"m"}]}`, "m", ""},
		{"no models", `{"data":[]}`, "", ""},
		{"no list", `[]`, "", "GET /v1/models"},
	} {
		names, err := parseModels([]byte(c.text))
		if got := strings.Join(names, " "); got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v; want %q, error %q", c.name, got, err, c.want, c.err)
		}
	}
}

func FuzzParseModels(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"m","parent":"b"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		names, err := parseModels(text)
		if err == nil && slices.Contains(names, "") {
			t.Errorf("a name that is empty: %q", names)
		}
	})
}
