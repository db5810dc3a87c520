package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ranksOf are the tokens of a byte-level tokenizer as bytes.
func ranksOf(tok *Tokenizer) map[string]uint32 {
	out := make(map[string]uint32)
	v := &tok.model.(*bpe).vocab
	for id := range v.spans {
		if v.spans[id].length != absent {
			out[string(v.text(uint32(id)))] = uint32(id)
		}
	}
	return out
}

func tiktokenFile(ranks map[string]uint32) []byte {
	var lines []string
	for token, rank := range ranks {
		lines = append(lines, fmt.Sprintf("%s %d\n", base64.StdEncoding.EncodeToString([]byte(token)), rank))
	}
	slices.Sort(lines)
	return []byte(strings.Join(lines, ""))
}

// TestTiktoken: a model's merges are in the order of its ids, so its ranks give the same ids as its tokenizer.json with
// ignore_merges.
func TestTiktoken(t *testing.T) {
	want := mustParse(t, with(t, "small", map[string]string{"model.ignore_merges": "true"}))
	dir := t.TempDir()
	config, err := os.ReadFile("testdata/small/tokenizer_config.json")
	if err != nil {
		t.Fatal(err)
	}
	config = []byte(strings.Replace(string(config), "Qwen2Tokenizer", "QWenTokenizer", 1))
	write(t, dir, "qwen.tiktoken", tiktokenFile(ranksOf(want)))
	write(t, dir, "tokenizer_config.json", config)
	got, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.Vocabulary() != want.Vocabulary() {
		t.Errorf("%d ids, want %d", got.Vocabulary(), want.Vocabulary())
	}
	sameIDs(t, got, want, 0)
}

// TestTekken: special tokens come first and shift the ranks.
func TestTekken(t *testing.T) {
	want := mustParse(t, with(t, "small", map[string]string{
		"model.ignore_merges": "true", "normalizer": "null", "added_tokens": "[]",
		"pre_tokenizer": `{"type":"Sequence","pretokenizers":[{"type":"Split","behavior":"Isolated","invert":false,"pattern":{"Regex":` +
			string(marshal(t, tekkenPattern)) + `}},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]}`,
	}))
	dir := t.TempDir()
	write(t, dir, "tekken.json", tekkenJSON(t, ranksOf(want), tekkenPattern))
	got, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	sameIDs(t, got, want, 10)
	if ids := got.AppendSpecial(nil, []byte("[INST]")); !slices.Equal(ids, []uint32{1, 3}) {
		t.Errorf("[INST] is %v, want [1 3]", ids)
	}
	if got.Vocabulary() != 1510 {
		t.Errorf("%d ids, want 1510", got.Vocabulary())
	}
}

const tekkenPattern = lead + capitals + `*` + smalls + `+|` + lead + capitals + `+` + smalls +
	`*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + tail

func tekkenJSON(tb testing.TB, ranks map[string]uint32, pattern string) []byte {
	type entry struct {
		Rank  uint32 `json:"rank"`
		Bytes []byte `json:"token_bytes"`
		Text  string `json:"token_str"`
	}
	var vocab []entry
	for token, rank := range ranks {
		vocab = append(vocab, entry{rank, []byte(token), "?"})
	}
	vocab = append(vocab, entry{9999, []byte("beyond the size"), "?"})
	return marshal(tb, map[string]any{
		"config":         map[string]any{"pattern": pattern, "default_vocab_size": 1510, "default_num_special_tokens": 10},
		"vocab":          vocab,
		"special_tokens": []entry{{0, nil, "<unk>"}, {1, nil, "<s>"}, {3, nil, "[INST]"}},
	})
}

// sameIDs compares two tokenizers on the golden texts. shift is how much higher the ids of got are.
func sameIDs(t *testing.T, got, want *Tokenizer, shift uint32) {
	t.Helper()
	for _, text := range goldenTexts(t) {
		ids := want.Append(nil, []byte(text))
		for i := range ids {
			ids[i] += shift
		}
		back := got.Append(nil, []byte(text))
		if !slices.Equal(back, ids) {
			t.Errorf("%.100q: got %v, want %v", text, head(back), head(ids))
		}
		if s := string(got.AppendText(nil, back)); len(got.normalizer) == 0 && s != text {
			t.Errorf("%.100q came back as %.100q", text, s)
		}
	}
}

func TestRankErrors(t *testing.T) {
	all := ranksOf(mustParse(t, baseFile(t, "small")))
	qwen := []byte(`{"tokenizer_class":"QWenTokenizer"}`)
	tiktoken := func(ranks string, config []byte) func() error {
		return func() error { _, err := parseTiktoken([]byte(ranks), config); return err }
	}
	tekken := func(change func(f map[string]json.RawMessage)) func() error {
		return func() error {
			f := unmarshal[map[string]json.RawMessage](t, tekkenJSON(t, all, tekkenPattern))
			change(f)
			_, err := parseTekken(marshal(t, f))
			return err
		}
	}
	for _, c := range []struct {
		name  string
		parse func() error
		want  []string
	}{
		{"no config", tiktoken("IQ== 0\n", nil), []string{"tokenizer_config.json"}},
		{"class", tiktoken("IQ== 0\n", []byte(`{"tokenizer_class":"Odd"}`)), []string{`"Odd"`, "QWenTokenizer", "tokenizer.json"}},
		{"rank", tiktoken("IQ== 0\nIg== x\n", qwen), []string{`line 2: "Ig== x"`, "expected a token in base64"}},
		{"base64", tiktoken("!! 0\n", qwen), []string{"line 1", "base64"}},
		{"no tokens", tiktoken("\n", qwen), []string{"no tokens", "256 bytes"}},
		{"byte", tiktoken("IQ== 0\n", qwen), []string{"byte 0x00", "all 256"}},
		{"twice", tiktoken(string(tiktokenFile(all))+"YWFhYWFhYWE= 5\n", qwen), []string{"the id 5", "one token for an id"}},
		{"added", tiktoken("IQ== 0\n", []byte(`{"tokenizer_class":"QWenTokenizer","added_tokens_decoder":{"x":{}}}`)),
			[]string{"added_tokens_decoder", `"x"`}},
		{"no tekken", func() error { _, err := parseTekken([]byte("[")); return err }, []string{"not a tekken.json"}},
		{"sizes", tekken(func(f map[string]json.RawMessage) { f["config"] = json.RawMessage(`{}`) }), []string{"config: 0 ids"}},
		{"no special tokens", tekken(func(f map[string]json.RawMessage) { delete(f, "special_tokens") }), []string{"special_tokens: missing"}},
		{"special rank", tekken(func(f map[string]json.RawMessage) {
			f["special_tokens"] = json.RawMessage(`[{"rank":10,"token_str":"<x>"}]`)
		}), []string{`special_tokens[0]: "<x>"`, "less than 10"}},
		{"empty token", tekken(func(f map[string]json.RawMessage) { f["vocab"] = json.RawMessage(`[{"rank":0}]`) }), []string{"vocab[0]"}},
		{"pattern", tekken(func(f map[string]json.RawMessage) {
			f["config"] = json.RawMessage(`{"pattern":"(","default_vocab_size":1510,"default_num_special_tokens":10}`)
		}), []string{"config.pattern", `"("`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.parse()
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v\nwithout %s", err, part)
				}
			}
		})
	}
}

// TestRealRanks: Llama 3's vocabulary as ranks gives the ids of its tokenizer.json.
func TestRealRanks(t *testing.T) {
	for _, name := range realNames(t) {
		if !strings.HasPrefix(name, "llama3") {
			continue
		}
		want := openReal(t, name)
		model, err := newRankedBPE(ranksOf(want))
		if err != nil {
			t.Fatal(err)
		}
		got := openReal(t, name)
		got.model = model
		sameIDs(t, got, want, 0)
		t.Logf("%s: %d slots for pairs, %d from merges", name, len(model.pairs.slots), len(want.model.(*bpe).pairs.slots))
	}
}

func write(tb testing.TB, dir, name string, data []byte) {
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		tb.Fatal(err)
	}
}
