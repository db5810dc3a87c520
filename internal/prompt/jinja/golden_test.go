package jinja

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The expectations are written by testdata/oracle.py, which asks Python.

// outcome is what becomes of a template: its kind, and the text of the output or of a refusal.
type outcome struct{ kind, text string }

func (o *outcome) UnmarshalJSON(data []byte) error {
	var pair [2]string
	err := json.Unmarshal(data, &pair)
	o.kind, o.text = pair[0], pair[1]
	return err
}

// oracleTime is the time of day in the oracle.
func oracleTime() time.Time { return time.Date(2026, 11, 5, 9, 7, 3, 45_000, time.UTC) }

func outcomeOf(source string, vars *Dict) outcome {
	t, err := Parse("test", source)
	if err != nil {
		return outcome{"syntax", ""}
	}
	out, err := t.Render(nil, vars, Options{Now: oracleTime})
	var raised *RaisedError
	switch {
	case errors.As(err, &raised):
		return outcome{"raised", raised.Message}
	case err != nil:
		return outcome{"fault", ""}
	}
	return outcome{"ok", string(out)}
}

func readFile(t testing.TB, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func readJSON(t testing.TB, into any, path ...string) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, path...), into); err != nil {
		t.Fatal(err)
	}
}

func parseJSON(t testing.TB, data []byte) *Dict {
	t.Helper()
	v, err := FromJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	return v.Dict()
}

// conversations are the variables of testdata/conversations.json.
func conversations(t testing.TB) map[string]*Dict {
	t.Helper()
	data := parseJSON(t, readFile(t, "testdata", "conversations.json"))
	shared, _ := data.Get("shared")
	own, _ := data.Get("conversations")
	all := map[string]*Dict{}
	for _, e := range own.Dict().entries {
		vars := shared.Dict().copy()
		for _, v := range e.value.Dict().entries {
			vars.set(v.key, v.value)
		}
		all[e.key.Text()] = vars
	}
	return all
}

func check(t *testing.T, source string, vars *Dict, want outcome) bool {
	t.Helper()
	got := outcomeOf(source, vars)
	if got == want {
		return true
	}
	t.Errorf("%s:\n got %s %q\nwant %s %q", source, got.kind, got.text, want.kind, want.text)
	return false
}

func TestSnippets(t *testing.T) {
	var golden struct {
		Variables json.RawMessage
		Cases     [][3]string
	}
	readJSON(t, &golden, "testdata", "snippets.json")
	vars := parseJSON(t, golden.Variables)
	lines := 0
	for line := range strings.SplitSeq(string(readFile(t, "testdata", "snippets.txt")), "\n") {
		if line != "" && !strings.HasPrefix(line, "//") {
			lines++
		}
	}
	if lines-1 != len(golden.Cases) {
		t.Errorf("found %d cases in snippets.txt and %d in snippets.json: run the oracle again", lines-1, len(golden.Cases))
	}
	for _, c := range golden.Cases {
		check(t, strings.ReplaceAll(c[0], `\n`, "\n"), vars, outcome{c[1], c[2]})
	}
}

func TestTemplates(t *testing.T) {
	var golden map[string]map[string]outcome
	readJSON(t, &golden, "testdata", "templates.json")
	paths, err := filepath.Glob("testdata/templates/*.jinja")
	if err != nil || len(paths) != len(golden) {
		t.Errorf("found %d templates and %d in templates.json (%v): run the oracle again", len(paths), len(golden), err)
	}
	all := conversations(t)
	for name, cases := range golden {
		t.Run(name, func(t *testing.T) {
			source := string(readFile(t, "testdata", "templates", name+".jinja"))
			for conversation, want := range cases {
				if got := outcomeOf(source, all[conversation]); got != want {
					t.Errorf("%s:\n got %s %q\nwant %s %q", conversation, got.kind, got.text, want.kind, want.text)
				}
			}
		})
	}
}

// TestRealTemplates compares with Python on templates of models, which belong to others and are fetched: TEMPLATES_GOLDEN is
// what testdata/oracle.py real writes.
func TestRealTemplates(t *testing.T) {
	folder := os.Getenv("TEMPLATES_GOLDEN")
	if folder == "" {
		t.Skip("TEMPLATES_GOLDEN is not set")
	}
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("found no golden files in %s (%v)", folder, err)
	}
	all := conversations(t)
	exact, total := 0, 0
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			var golden struct {
				Source    string
				Variables []string // without those of the environment
				Parts     bool
				Cases     map[string]outcome
			}
			readJSON(t, &golden, path)
			template, err := Parse("test", golden.Source)
			if err != nil {
				t.Fatal(err)
			}
			names := slices.DeleteFunc(template.Variables(), func(name string) bool { return globals[name] != nil })
			slices.Sort(names)
			if !slices.Equal(names, golden.Variables) {
				t.Errorf("got the variables %v, want %v", names, golden.Variables)
			}
			if got := template.LoopsOver("messages", "content"); got != golden.Parts {
				t.Errorf("got content in parts %v, want %v", got, golden.Parts)
			}
			for conversation, want := range golden.Cases {
				total++
				got := outcomeOf(golden.Source, all[conversation])
				if got == want {
					exact++
					continue
				}
				at := 0
				for at < min(len(got.text), len(want.text)) && got.text[at] == want.text[at] {
					at++
				}
				from := max(0, at-40)
				t.Errorf("%s:\n got %s %q\nwant %s %q", conversation, got.kind, got.text[from:], want.kind, want.text[from:])
			}
		})
	}
	t.Logf("%d of %d renderings of %d templates are exact", exact, total, len(paths))
}
