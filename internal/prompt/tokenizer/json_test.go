package tokenizer

import (
	"encoding/json"
	"maps"
	"testing"
)

// TestReadVocabulary compares with encoding/json.
func TestReadVocabulary(t *testing.T) {
	for _, text := range []string{
		`{}`, ` { } `, `{"a":1}`, "{\n\t\"a\" : 1 ,\r\"b\":2\n}", `{"é":1,"\u00e9x":2,"\ud83d\ude00":3,"😀x":4}`, `{"\"":1,"\\":2,"\n":3}`,
		`{"a":1,"a":2}`, "{\"\xff\":1,\"\xc3\":2}", `{"\ud800":1}`, `{"a":0}`,
		``, `[]`, `{`, `{"a"}`, `{"a":}`, `{"a":1`, `{"a":1,}`, `{"a":-1}`, `{"a":1.0}`, `{"a":1e3}`, `{"a":"1"}`, `{"a":99999999999}`,
		`{"a":1}x`, "{\"a\nb\":1}", `{"a\`, `{"a\x":1}`, `{a:1}`, `null`,
	} {
		var want map[string]uint32
		wantErr := json.Unmarshal([]byte(text), &want)
		got, err := readVocabulary(text)
		if text == `null` {
			wantErr = err // nothing is no vocabulary
		}
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%q: %v, encoding/json: %v", text, err, wantErr)
		} else if err == nil && !maps.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestMembers(t *testing.T) {
	for _, c := range []struct {
		text string
		want map[string]string // nil for an error
	}{
		{`{"a": [1, {"b": "]}\""}] , "c":null,"d":"x","e":-1.5}`, map[string]string{"a": `[1, {"b": "]}\""}]`, "c": "null", "d": `"x"`, "e": "-1.5"}},
		{`{}`, map[string]string{}},
		{`{"a":1,"a":2}`, map[string]string{"a": "2"}},
		{`{"a":}`, nil},
		{`{"a":[}`, nil},
		{`{"a":"x`, nil},
		{`{"a":1} 2`, nil},
		{`[1]`, nil},
		{``, nil},
	} {
		got, err := members(c.text)
		if (err == nil) != (c.want != nil) || err == nil && !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.text, got, err, c.want)
		}
	}
}
