package tokenizer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// speedSizes are the lengths of the texts in bytes. testdata/speed.py takes the same ones.
var speedSizes = []int{4 << 10, 16 << 10, 128 << 10}

// BenchmarkAppend runs on the vocabularies in TOKENIZERS if it is set, else on the small one; and on the texts in the folder
// SPEED_TEXTS (NAME.txt) if it is set, else on documents and code of this package.
func BenchmarkAppend(b *testing.B) {
	for name, tok := range speedTokenizers(b) {
		for kind, text := range speedTexts(b) {
			for _, size := range speedSizes {
				if len(text) < size {
					continue
				}
				b.Run(fmt.Sprintf("%s/%s/%dK", name, kind, size>>10), func(b *testing.B) {
					part := []byte(text[:size])
					dst := tok.Append(nil, part)
					b.SetBytes(int64(size))
					b.ReportAllocs()
					for b.Loop() {
						dst = tok.Append(dst[:0], part)
					}
					b.ReportMetric(float64(len(dst)), "tokens")
				})
			}
		}
	}
}

// BenchmarkAppendCold is BenchmarkAppend without words remembered from before.
func BenchmarkAppendCold(b *testing.B) {
	for name, tok := range speedTokenizers(b) {
		for kind, text := range speedTexts(b) {
			for _, size := range speedSizes {
				if len(text) < size {
					continue
				}
				b.Run(fmt.Sprintf("%s/%s/%dK", name, kind, size>>10), func(b *testing.B) {
					part := []byte(text[:size])
					dst := tok.Append(nil, part)
					b.SetBytes(int64(size))
					for b.Loop() {
						tok.forget()
						dst = tok.Append(dst[:0], part)
					}
				})
			}
		}
	}
}

// BenchmarkStream runs through many different prompts, one after the other: the lines of the file SPEED_STREAM, each with a
// prompt in "input". New has no words remembered at the start, Again has seen the same prompts.
func BenchmarkStream(b *testing.B) {
	path := os.Getenv("SPEED_STREAM")
	if path == "" {
		b.Skip("SPEED_STREAM is not set: a file of prompts")
	}
	var prompts [][]byte
	size := int64(0)
	for _, line := range gzipLines(b, path) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		text := unmarshal[struct {
			Input string `json:"input"`
		}](b, line).Input
		prompts = append(prompts, []byte(text))
		size += int64(len(text))
	}
	for name, tok := range speedTokenizers(b) {
		for _, kind := range []string{"new", "again"} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.SetBytes(size)
				var dst []uint32
				for b.Loop() {
					if kind == "new" {
						tok.forget()
					}
					for _, p := range prompts {
						dst = tok.Append(dst[:0], p)
					}
				}
			})
		}
	}
}

// forget clears the words and chunks of all workspaces that no call uses.
func (t *Tokenizer) forget() {
	for _, w := range t.spaces.free {
		clear(w.words)
		clear(w.chunks.tags)
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, name := range realNames(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				openReal(b, name)
			}
		})
	}
}

// TestMemory holds loaded vocabularies to 60 MB each, apart from the tables that all share.
func TestMemory(t *testing.T) {
	sharedTables()
	for _, name := range realNames(t) {
		before := heap()
		tok := openReal(t, name)
		tok.Append(nil, []byte("warm"))
		after := heap()
		used := float64(after-before) / 1e6
		t.Logf("%s: %.1f MB for %d ids", name, used, tok.Vocabulary())
		if limit := 60 * max(1, float64(tok.Vocabulary())/150_000); used > limit {
			t.Errorf("%s: %.1f MB, expected at most %.0f", name, used, limit)
		}
		runtime.KeepAlive(tok)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func speedTokenizers(b *testing.B) map[string]*Tokenizer {
	out := make(map[string]*Tokenizer)
	if os.Getenv("TOKENIZERS") == "" {
		tok, err := Open("testdata/small")
		if err != nil {
			b.Fatal(err)
		}
		out["small"] = tok
		return out
	}
	for _, name := range realNames(b) {
		out[name] = openReal(b, name)
	}
	return out
}

func speedTexts(b *testing.B) map[string]string {
	out := make(map[string]string)
	if dir := os.Getenv("SPEED_TEXTS"); dir != "" {
		paths, _ := filepath.Glob(filepath.Join(dir, "*.txt"))
		for _, p := range paths {
			out[strings.TrimSuffix(filepath.Base(p), ".txt")] = mustRead(b, p)
		}
		return out
	}
	var text strings.Builder
	paths, _ := filepath.Glob("*.go")
	for _, p := range paths {
		if p != "tables.go" {
			text.WriteString(mustRead(b, p))
		}
	}
	out["code"] = text.String()
	return out
}

func mustRead(tb testing.TB, path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}
