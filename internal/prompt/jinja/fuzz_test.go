package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// seed gives a fuzz target the snippets and the templates.
func seed(f *testing.F) {
	f.Helper()
	f.Add("{{ '\xb7'|title }}") // no UTF-8
	for line := range strings.SplitSeq(string(readFile(f, "testdata", "snippets.txt")), "\n") {
		f.Add(strings.ReplaceAll(line, `\n`, "\n"))
	}
	paths, err := filepath.Glob("testdata/templates/*.jinja")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(source))
	}
}

func FuzzParse(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, source string) {
		template, err := Parse("fuzz", source)
		if err == nil {
			template.LoopsOver("messages", "content")
			template.Variables()
			return
		}
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Line < 1 || syntax.Column < 1 {
			t.Errorf("found %v, expected a syntax error with a position", err)
		}
	})
}

func FuzzRender(f *testing.F) {
	seed(f)
	all := conversations(f)
	vars := all["tools"].copy()
	var golden struct{ Variables json.RawMessage }
	readJSON(f, &golden, "testdata", "snippets.json")
	for _, e := range parseJSON(f, golden.Variables).entries {
		vars.set(e.key, e.value)
	}
	const maxOutput = 1 << 16
	f.Fuzz(func(t *testing.T, source string) {
		template, err := Parse("fuzz", source)
		if err != nil {
			return
		}
		prefix := []byte("before")
		begin := time.Now()
		out, err := template.Render(prefix, vars, Options{MaxSteps: 1 << 16, MaxOutput: maxOutput, Now: oracleTime})
		if spent := time.Since(begin); spent > 10*time.Second {
			t.Errorf("took %v, expected the budget of steps to end it", spent)
		}
		if !bytes.HasPrefix(out, prefix) || len(out) > len(prefix)+maxOutput {
			t.Errorf("found %d bytes of output, expected at most %d", len(out)-len(prefix), maxOutput)
		}
		if err == nil {
			return
		}
		var fault *Fault
		var raised *RaisedError
		var budget *BudgetError
		if !errors.As(err, &fault) && !errors.As(err, &raised) && !errors.As(err, &budget) {
			t.Errorf("found the error %T %v, expected one of this package", err, err)
		}
		if strings.Contains(err.Error(), ":0:") {
			t.Errorf("found %v, expected a position", err)
		}
	})
}

// FuzzFromJSON compares with the standard library: what one of them takes, both take, and they see the same in it.
func FuzzFromJSON(f *testing.F) {
	for _, s := range []string{
		`{"a": [1, -2.5e3, "x\n\u00e9\ud83d\ude00\ud800", true, false, null, {}], "b": {"c": []}}`, `{"a":1,"a":2}`, ` [ ] `,
		`01`, `-`, `1.`, `"\x"`, `"` + "\n" + `"`, `{"a" 1}`, `[1,]`, `12345678901234567890123`, `1e999`, `nul`, `"abcdefgh\"ijklm"`, "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := FromJSON(data)
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var want any
		wantErr := d.Decode(&want)
		if wantErr == nil && d.More() || !json.Valid(data) {
			wantErr = errors.New("more behind the value")
		}
		var dataError *DataError
		if err != nil && (!errors.As(err, &dataError) || dataError.Offset > len(data)) {
			t.Errorf("found the error %v, expected one with an offset in the data", err)
		}
		if (err == nil) != (wantErr == nil) {
			if err != nil && (!utf8.Valid(data) || strings.Contains(err.Error(), "levels") || strings.Contains(err.Error(), "digits")) {
				return // where this package is stricter
			}
			t.Fatalf("%q: got %v, the standard library %v", data, err, wantErr)
		}
		if err == nil && !reflect.DeepEqual(plain(got), numbers(want)) {
			t.Fatalf("%q: got %v, the standard library %v", data, plain(got), numbers(want))
		}
	})
}

// plain makes a value what the standard library makes of JSON.
func plain(v Value) any {
	switch v.Kind() {
	case KindBool:
		return v.truth()
	case KindInt:
		return asBig(v).String()
	case KindFloat:
		return v.float()
	case KindString:
		return v.Text()
	case KindList:
		items := []any{}
		for _, item := range v.Items() {
			items = append(items, plain(item))
		}
		return items
	case KindDict:
		m := map[string]any{}
		for _, e := range v.Dict().entries {
			m[e.key.Text()] = plain(e.value)
		}
		return m
	}
	return nil
}

// numbers replaces numbers by floats, or by the text of integers.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if !strings.ContainsAny(string(v), ".eE") {
			if v == "-0" {
				return "0"
			}
			return string(v)
		}
		f, err := v.Float64()
		if err != nil && !math.IsInf(f, 0) {
			return err
		}
		return f
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	}
	return v
}
