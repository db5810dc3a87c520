package tokenizer

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestGolden compares with what upstream makes of the same texts, for every variant that testdata/golden.py has written.
func TestGolden(t *testing.T) {
	texts := goldenTexts(t)
	bases := make(map[string][][]uint32)
	for _, name := range variantNames(t) {
		v := openVariant(t, name)
		if name == v.base {
			bases[name] = v.ids
		}
	}
	for _, name := range variantNames(t) {
		t.Run(name, func(t *testing.T) {
			v := openVariant(t, name)
			tok := mustParse(t, v.file)
			if len(v.ids) != len(texts) {
				t.Fatalf("%d rows for %d texts", len(v.ids), len(texts))
			}
			for i, text := range texts {
				want := v.ids[i]
				if want == nil {
					want = bases[v.base][i]
				}
				if got := tok.Append(nil, []byte(text)); !slices.Equal(got, want) {
					t.Errorf("%.100q: got %v, want %v", text, head(got), head(want))
				}
			}
			for i, want := range v.special {
				if got := tok.AppendSpecial(nil, []byte(texts[i])); !slices.Equal(got, want) {
					t.Errorf("AppendSpecial(%q) = %v, want %v", texts[i], got, want)
				}
			}
		})
	}
}

// variant is a golden file.
type variant struct {
	base    string
	file    []byte     // the tokenizer.json
	special [][]uint32 // of the first texts
	ids     [][]uint32 // of every text, nil where they are those of the base
}

func variantNames(tb testing.TB) []string {
	paths, err := filepath.Glob("testdata/golden/*.jsonl.gz")
	if err != nil || len(paths) < 2 {
		tb.Fatalf("no golden files (%v)", err)
	}
	var names []string
	for _, p := range paths {
		if name := strings.TrimSuffix(filepath.Base(p), ".jsonl.gz"); name != "texts" {
			names = append(names, name)
		}
	}
	return names
}

func goldenTexts(tb testing.TB) []string {
	var texts []string
	for _, line := range goldenLines(tb, "texts") {
		texts = append(texts, unmarshal[string](tb, line))
	}
	return texts
}

func openVariant(tb testing.TB, name string) variant {
	lines := goldenLines(tb, name)
	head := unmarshal[struct {
		Base    string                     `json:"base"`
		Set     map[string]json.RawMessage `json:"set"`
		Special [][]uint32                 `json:"special"`
	}](tb, lines[0])
	v := variant{base: head.Base, special: head.Special}
	v.file = splice(tb, baseFile(tb, head.Base), head.Set)
	for _, line := range lines[1:] {
		v.ids = append(v.ids, unmarshal[[]uint32](tb, line))
	}
	return v
}

func baseFile(tb testing.TB, base string) []byte {
	data, err := os.ReadFile(filepath.Join("testdata", base, "tokenizer.json"))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// splice replaces parts of a tokenizer.json, those named "model.key" within the model.
func splice(tb testing.TB, file []byte, set map[string]json.RawMessage) []byte {
	top := unmarshal[map[string]json.RawMessage](tb, file)
	model := unmarshal[map[string]json.RawMessage](tb, top["model"])
	for key, value := range set {
		inner, ok := strings.CutPrefix(key, "model.")
		switch {
		case !ok:
			top[key] = value
		case string(value) == `{"strings":true}`:
			var lines []string
			for _, m := range unmarshal[[][2]string](tb, model["merges"]) {
				lines = append(lines, m[0]+" "+m[1])
			}
			model[inner] = marshal(tb, lines)
		case string(value) == `"bytes"`:
			vocab := unmarshal[[]any](tb, model["vocab"])
			for b := range 256 {
				vocab = append(vocab, []any{fmt.Sprintf("<0x%02X>", b), -20})
			}
			model[inner] = marshal(tb, vocab)
		default:
			model[inner] = value
		}
	}
	if set["model"] == nil {
		top["model"] = marshal(tb, model)
	}
	return marshal(tb, top)
}

// with is splice on the base small for parts written as JSON.
func with(tb testing.TB, base string, set map[string]string) []byte {
	raw := make(map[string]json.RawMessage)
	for key, value := range maps.All(set) {
		raw[key] = json.RawMessage(value)
	}
	return splice(tb, baseFile(tb, base), raw)
}

func mustParse(tb testing.TB, file []byte) *Tokenizer {
	tb.Helper()
	tok, err := Parse(file)
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}

func goldenLines(tb testing.TB, name string) [][]byte {
	return gzipLines(tb, filepath.Join("testdata/golden", name+".jsonl.gz"))
}

func gzipLines(tb testing.TB, path string) [][]byte {
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	var lines [][]byte
	for r := bufio.NewReader(z); ; {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			return lines
		}
		if err != nil {
			tb.Fatal(err)
		}
		lines = append(lines, line)
	}
}

func unmarshal[T any](tb testing.TB, data []byte) (v T) {
	tb.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		tb.Fatal(err)
	}
	return v
}

func marshal(tb testing.TB, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}
