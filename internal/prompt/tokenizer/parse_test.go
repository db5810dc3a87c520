package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestParseErrors: an error says where, what and what was expected.
func TestParseErrors(t *testing.T) {
	split := func(s string) map[string]string { return map[string]string{"pre_tokenizer": s} }
	regex := func(p string) map[string]string {
		return split(`{"type":"Split","pattern":{"Regex":"` + p + `"},"behavior":"Isolated","invert":false}`)
	}
	for _, c := range []struct {
		name, base string
		set        map[string]string
		want       []string // parts of the message
	}{
		{"no model", "small", map[string]string{"model": `null`}, []string{"model: missing", "BPE or Unigram"}},
		{"model type", "small", map[string]string{"model.type": `"WordPiece"`}, []string{`model: type "WordPiece"`, "BPE or Unigram"}},
		{"dropout", "small", map[string]string{"model.dropout": `0.1`}, []string{"model.dropout: 0.1", "expected none"}},
		{"prefix", "small", map[string]string{"model.continuing_subword_prefix": `"##"`}, []string{"continuing_subword_prefix", `"##"`}},
		{"suffix", "small", map[string]string{"model.end_of_word_suffix": `"</w>"`}, []string{"end_of_word_suffix", `"</w>"`}},
		{"no vocabulary", "small", map[string]string{"model.vocab": `{}`}, []string{"model.vocab: empty"}},
		{"vocabulary of another kind", "small", map[string]string{"model.vocab": `[1]`}, []string{"model", "vocab"}},
		{"id too large", "small", map[string]string{"model.vocab": `{"a":99999999}`}, []string{`model.vocab: "a"`, "99999999", "expected less than"}},
		{"id negative", "small", map[string]string{"model.vocab": `{"a":-1}`}, []string{"model", "vocab", "-1"}},
		{"id twice", "small", map[string]string{"model.vocab": `{"a":1,"b":1}`, "model.merges": `[]`}, []string{`"a"`, `"b"`, "the id 1", "one token"}},
		{"merge of unknown", "small", map[string]string{"model.merges": `[["zq","qz"]]`}, []string{`model.merges[0]: "zq" and "qz"`, "model.vocab"}},
		{"merge without blank", "small", map[string]string{"model.merges": `["ab"]`}, []string{`model.merges[0]: "ab"`, "a blank"}},
		{"merge of three", "small", map[string]string{"model.merges": `["a b c"]`}, []string{`model.merges[0]: "a b c"`}},
		{"unknown token", "small", map[string]string{"model.unk_token": `"<nope>"`}, []string{`model.unk_token: "<nope>"`}},
		{"byte without id", "small", map[string]string{"model.vocab": `{"a":0}`, "model.merges": `[]`}, []string{"model.vocab", "byte 0x00", "'Ā'", "all 256"}},
		{"normalizer", "small", map[string]string{"normalizer": `{"type":"Precompiled","precompiled_charsmap":""}`},
			[]string{`normalizer: type "Precompiled"`, "expected NFC"}},
		{"normalizer within", "small", map[string]string{"normalizer": `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"What"}]}`},
			[]string{`normalizer.normalizers[1]: type "What"`}},
		{"replace by expression", "small", map[string]string{"normalizer": `{"type":"Replace","pattern":{"Regex":" +"},"content":" "}`},
			[]string{"normalizer.pattern", "regular expression", "plain text"}},
		{"replace that explodes", "small", map[string]string{"normalizer": `{"type":"Sequence","normalizers":[` +
			strings.Repeat(`{"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"},`, 9) + `{"type":"NFC"}]}`},
			[]string{"normalizer", "times as long", "at most 1024"}},
		{"pre_tokenizer", "small", split(`{"type":"Punctuation"}`), []string{`pre_tokenizer: type "Punctuation"`, "expected ByteLevel"}},
		{"pre_tokenizer within", "small", split(`{"type":"Sequence","pretokenizers":[{"type":"X"}]}`),
			[]string{`pre_tokenizer.pretokenizers[0]: type "X"`}},
		{"behind ByteLevel", "small", split(`{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]}`),
			[]string{"behind ByteLevel", "at the end"}},
		{"split at text removed", "small", split(`{"type":"Split","pattern":{"String":" "},"behavior":"Removed","invert":false}`),
			[]string{"pre_tokenizer", `"Removed"`, "Isolated"}},
		{"behaviour", "small", split(`{"type":"Split","pattern":{"Regex":"a"},"behavior":"Odd","invert":false}`),
			[]string{"pre_tokenizer", `"Odd"`, "Contiguous"}},
		{"broken expression", "small", regex(`(a`), []string{"pre_tokenizer", `"(a"`}},
		{"possessive", "small", regex(`a++b`), []string{"pre_tokenizer", `a++b`}},
		{"intersection", "small", regex(`[a-z&&[^x]]`), []string{"pre_tokenizer", `"&&"`}},
		{"negated within", "small", regex(`[a[^b]]`), []string{"pre_tokenizer", `"[^"`}},
		{"POSIX set", "small", regex(`[[:alpha:]]`), []string{"pre_tokenizer", `"[:"`}},
		{"dot all", "small", regex(`(?im:a.b)`), []string{"pre_tokenizer", `"(?im:a.b"`}},
		{"escape", "small", regex(`\\h+`), []string{"pre_tokenizer", `\\h`}},
		{"set without end", "small", regex(`[a`), []string{"pre_tokenizer", "without an end"}},
		{"metaspace scheme", "pieces", split(`{"type":"Metaspace","replacement":"▁","prepend_scheme":"maybe"}`),
			[]string{"pre_tokenizer.prepend_scheme", `"maybe"`, "always, first or never"}},
		{"metaspace twice", "pieces", split(`{"type":"Sequence","pretokenizers":[{"type":"Metaspace","replacement":"▁"},` +
			`{"type":"Metaspace","replacement":"▁"}]}`), []string{"pre_tokenizer: 2 stages", "at most one"}},
		{"decoder", "small", map[string]string{"decoder": `{"type":"CTC"}`}, []string{"decoder", "CTC", "expected ByteLevel"}},
		{"post_processor", "small", map[string]string{"post_processor": `{"type":"X"}`}, []string{`post_processor: type "X"`}},
		{"template", "small", map[string]string{"post_processor": `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"q"}},` +
			`{"Sequence":{"id":"A"}}],"special_tokens":{}}`}, []string{"post_processor.single[0]", `"q"`, "special_tokens"}},
		{"template without text", "small", map[string]string{"post_processor": `{"type":"TemplateProcessing","single":[],"special_tokens":{}}`},
			[]string{"post_processor.single", "0 times", "expected once"}},
		{"added token too long", "small", map[string]string{"added_tokens": `[{"id":0,"content":"` + strings.Repeat("x", 2000) + `"}]`},
			[]string{"added_tokens[0]: 2000 bytes", "at most 1024"}},
		{"unigram twice", "unigram", map[string]string{"model.vocab": `[["a",0],["a",0]]`, "model.unk_id": "0"},
			[]string{`model.vocab[1]: "a"`, "distinct"}},
		{"unigram unknown", "unigram", map[string]string{"model.unk_id": `5000`}, []string{"model.unk_id: 5000", "expected less than"}},
		{"unigram empty", "unigram", map[string]string{"model.vocab": `[]`}, []string{"model.vocab: empty"}},
		{"unigram of bytes", "unigram", split(`{"type":"ByteLevel"}`), []string{"Unigram behind a ByteLevel", "expected Metaspace"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(with(t, c.base, c.set))
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

func TestParseNoJSON(t *testing.T) {
	for _, text := range []string{"", "[]", "{", `{"model":3}`, "\x00", `{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}}`} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("Parse(%q) without an error", text)
		}
	}
}

// TestOpen: the folder small is like that of a model.
func TestOpen(t *testing.T) {
	tok, err := Open("testdata/small")
	if err != nil {
		t.Fatal(err)
	}
	if notes := tok.Notes(); len(notes) > 0 {
		t.Errorf("notes %q, expected none", notes)
	}
	for token, want := range map[string]uint32{"<|endoftext|>": 1500, "<|im_start|>": 1501, "<tool_call>": 1503, "</think>": 1506} {
		if id, ok := tok.ID(token); !ok || id != want {
			t.Errorf("ID(%q) = %d, %v, want %d", token, id, ok, want)
		}
	}
	if id, ok := tok.ID("Ġthe"); !ok || string(tok.AppendText(nil, []uint32{id})) != " the" {
		t.Errorf("ID(Ġthe) = %d, %v", id, ok)
	}
	if id, ok := tok.ID("no such token"); ok {
		t.Errorf("an id %d for what is no token", id)
	}
	if got := tok.Vocabulary(); got != 1507 {
		t.Errorf("Vocabulary() = %d, want 1507", got)
	}
}

func TestOpenErrors(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"tokenizer.json":        {},
		"not a tokenizer.json":  {"tokenizer.json": "[]"},
		"tokenizer_config.json": {"tokenizer.json": string(baseFile(t, "small")), "tokenizer_config.json": "{"},
		`bos_token: "<none>"`: {"tokenizer.json": string(baseFile(t, "small")),
			"tokenizer_config.json": `{"tokenizer_class":"LlamaTokenizerFast","bos_token":"<none>"}`},
	} {
		dir := t.TempDir()
		for file, text := range files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v, expected %s in it and the folder", err, name)
		}
	}
}

// TestConfigure: the tokenizers of the Llama family take BOS and EOS from tokenizer_config.json, others do not.
func TestConfigure(t *testing.T) {
	const pieces = `"bos_token":{"content":"<s>"},"eos_token":"</s>"`
	for _, c := range []struct {
		config string
		want   []uint32
	}{
		{`{"tokenizer_class":"Qwen2Tokenizer","add_bos_token":true,` + pieces + `}`, []uint32{1}},
		{`{"tokenizer_class":"LlamaTokenizer",` + pieces + `}`, []uint32{1}},
		{`{"tokenizer_class":"LlamaTokenizerFast","add_bos_token":false,"add_eos_token":true,` + pieces + `}`, []uint32{2}},
		{`{"tokenizer_class":"GemmaTokenizer","add_bos_token":true,"add_eos_token":true,` + pieces + `}`, []uint32{1, 2}},
	} {
		tok := mustParse(t, baseFile(t, "pieces"))
		if err := tok.configure([]byte(c.config)); err != nil {
			t.Fatal(err)
		}
		if got := tok.AppendSpecial(nil, nil); string(marshal(t, got)) != string(marshal(t, c.want)) {
			t.Errorf("%s: %v around nothing, want %v", c.config, got, c.want)
		}
	}
}

// TestNotes: an id that engines would not give and a pattern of our own are told.
func TestNotes(t *testing.T) {
	tok := mustParse(t, with(t, "small", map[string]string{
		"added_tokens":  `[{"id":1502,"content":"<x>"},{"id":1501,"content":"<y>"}]`,
		"pre_tokenizer": `{"type":"Split","pattern":{"Regex":"[a-z]+"},"behavior":"Isolated","invert":false}`,
	}))
	notes := strings.Join(tok.Notes(), "\n")
	for _, part := range []string{"pre_tokenizer", `"[a-z]+"`, "added_tokens[0]", `"<x>"`, "1502", "engines give it 1500"} {
		if !strings.Contains(notes, part) {
			t.Errorf("%s\nwithout %s", notes, part)
		}
	}
	if strings.Contains(notes, "<y>") {
		t.Errorf("%s\nabout what is as it should be", notes)
	}
}
