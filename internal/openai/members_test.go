package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAppendWithout(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{"model":"m","nvext":{"a":1},"stream":true}`, `{"model":"m","stream":true}`},
		{`{"nvext":{"a":1},"model":"m"}`, `{"model":"m"}`},
		{`{"model":"m" , "nvext" : {"a":1} }`, `{"model":"m" }`},
		{` { "nvext":1 } `, ` {  } `},
		{`{"nvext":1,"nvext":2}`, `{}`},
		{`{"nvext":1,"model":"m","nvext":2}`, `{"model":"m"}`},
		{`{"\u006evext":1,"model":"m"}`, `{"model":"m"}`},
		{`{"model":{"nvext":1}}`, `{"model":{"nvext":1}}`},
		{`{}`, `{}`},
		{`{"nvext":1,"model":`, `{"nvext":1,"model":`},
		{`[1]`, `[1]`},
	} {
		if got := string(AppendWithout([]byte("> "), []byte(c.body), "other", "nvext")); got != "> "+c.want {
			t.Errorf("%s\n got %s\nwant > %s", c.body, got, c.want)
		}
	}
}

func TestAppendWithMember(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{"model":"m"}`, `{"cache_salt":"s","model":"m"}`},
		{`{}`, `{"cache_salt":"s"}`},
		{`{ "cache_salt" : null , "a":1}`, `{ "cache_salt" : "s" , "a":1}`},
		{`{"cache_salt":"a","cache_salt":"b"}`, `{"cache_salt":"a","cache_salt":"s"}`},
		{`{"model":`, `{"model":`},
		{``, ``},
	} {
		if got := string(AppendWithMember([]byte("> "), []byte(c.body), "cache_salt", `"s"`)); got != "> "+c.want {
			t.Errorf("%s\n got %s\nwant > %s", c.body, got, c.want)
		}
	}
}

// TestMembersChangeNothingElse draws bodies and holds what becomes of them against maps.
func TestMembersChangeNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := writer{t: t}
		w.object(4, []string{"model", "user", "user", "messages", "other"})
		body := w.b.Bytes()
		var before, without, with members
		if json.Unmarshal(body, &before) != nil {
			t.Skip("not JSON")
		}
		if err := json.Unmarshal(AppendWithout(nil, body, "user"), &without); err != nil {
			t.Fatalf("%s\nbecame %s: %v", body, AppendWithout(nil, body, "user"), err)
		}
		if err := json.Unmarshal(AppendWithMember(nil, body, "user", "7"), &with); err != nil {
			t.Fatalf("%s\nbecame %s: %v", body, AppendWithMember(nil, body, "user", "7"), err)
		}
		delete(before, "user")
		if string(with["user"]) != "7" {
			t.Fatalf("%s\nbecame %s", body, AppendWithMember(nil, body, "user", "7"))
		}
		delete(with, "user")
		for _, after := range []members{without, with} {
			if !maps.EqualFunc(before, after, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
				t.Fatalf("%s\nbecame %s\nand %s", body, AppendWithout(nil, body, "user"), AppendWithMember(nil, body, "user", "7"))
			}
		}
	})
}

func TestMembersAndElements(t *testing.T) {
	for _, c := range []struct{ object, want string }{
		{` {"a" : 1 ,"\u0062":{"c":[2]}, "a":null}`, `a=1 b={"c":[2]} a=null`},
		{`{}`, ``},
		{``, ``},
		{`7`, ``},
		{`[1]`, ``},
		{`{"a":1,"b":}`, `a=1`},
	} {
		var got []string
		for key, value := range Members([]byte(c.object)) {
			got = append(got, string(key)+"="+string(value))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("Members(%s): %q, want %q", c.object, got, c.want)
		}
	}
	for _, c := range []struct{ array, want string }{
		{` [1 , "a",[2],{"b":3} ]`, `1 "a" [2] {"b":3}`},
		{`[]`, ``},
		{``, ``},
		{`{"a":1}`, ``},
		{`[1,`, `1`},
	} {
		var got []string
		for value := range Elements([]byte(c.array)) {
			got = append(got, string(value))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("Elements(%s): %q, want %q", c.array, got, c.want)
		}
	}
	for key := range Members([]byte(`{"a":1,"b":2}`)) {
		if string(key) != "a" {
			t.Error("goes on after the loop was left")
		}
		break
	}
	for value := range Elements([]byte(`[1,2]`)) {
		if string(value) != "1" {
			t.Error("goes on after the loop was left")
		}
		break
	}
}
