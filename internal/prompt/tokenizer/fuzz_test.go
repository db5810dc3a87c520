package tokenizer

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"unicode/utf8"
)

// FuzzParse: no file makes Parse panic, and what it accepts tokenizes.
func FuzzParse(f *testing.F) {
	for _, name := range variantNames(f) {
		v := openVariant(f, name)
		f.Add(shrink(f, v.file))
	}
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":4194303},"merges":["a b"]},"added_tokens":[{"id":2,"content":"<x>"}]}`))
	f.Add([]byte(`{"model":{"type":"Unigram","unk_id":0,"vocab":[["a",-1e308],["",0]]}}`))
	f.Add([]byte(`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?=a)|\\b"},"behavior":"Isolated"},"model":{"vocab":{"a":0},"merges":[]}}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		tok, err := Parse(file)
		if err != nil {
			return
		}
		for _, text := range []string{"", "a b <x>\n\u00e9", "\xff\x00"} {
			ids := tok.AppendSpecial(nil, []byte(text))
			for _, id := range ids {
				if int64(id) >= int64(tok.Vocabulary()) && !slices.Contains(tok.before, id) && !slices.Contains(tok.after, id) {
					t.Errorf("%q: id %d of %d", text, id, tok.Vocabulary())
				}
			}
			tok.AppendText(nil, ids)
		}
	})
}

// shrink leaves of a vocabulary what is needed for its shape, so that the fuzzer gets through it.
func shrink(tb testing.TB, file []byte) []byte {
	top := unmarshal[map[string]json.RawMessage](tb, file)
	model := unmarshal[map[string]json.RawMessage](tb, top["model"])
	model["merges"] = json.RawMessage(`[]`)
	if string(model["type"]) != `"Unigram"` {
		vocab := map[string]int{"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3}
		for _, r := range alphabet {
			vocab[string(r)] = len(vocab)
		}
		model["vocab"] = marshal(tb, vocab)
	} else {
		model["vocab"] = json.RawMessage(`[["<pad>",0],["</s>",0],["<unk>",0],["▁",-2],["a",-3],["ab",-4],["<0x0A>",-5]]`)
	}
	top["model"] = marshal(tb, model)
	return marshal(tb, top)
}

// fuzzed are the tokenizers that FuzzAppend runs, with their twins.
var fuzzed = []string{"small", "llama3_whole", "deepseek", "gpt2", "o200k", "kimi", "unsplit", "pieces", "pieces_no_fallback", "gemma", "unigram"}

// FuzzAppend: a dumb twin merges the same words to the same ids; and what byte-level ids decode to is the normalized text.
func FuzzAppend(f *testing.F) {
	toks := make([]*Tokenizer, len(fuzzed))
	for i, name := range fuzzed {
		toks[i] = mustParse(f, openVariant(f, name).file)
	}
	for i, text := range goldenTexts(f) {
		f.Add(byte(i), []byte(text))
	}
	f.Fuzz(func(t *testing.T, which byte, text []byte) {
		name := fuzzed[int(which)%len(fuzzed)]
		tok := toks[int(which)%len(fuzzed)]
		got := tok.Append(nil, text)
		if again := tok.Append(nil, text); !slices.Equal(got, again) {
			t.Errorf("%s: %q is %v and then %v", name, text, got, again)
		}
		if b, ok := tok.model.(*bpe); ok {
			if want := slowAppend(tok, b, text); !slices.Equal(got, want) {
				t.Errorf("%s: %q is %v, by its twin %v", name, text, got, want)
			}
			if want := tok.normalize(bytes.Clone(text)); b.byteLevel && utf8.Valid(text) && !tokensIn(tok, string(text)) {
				if back := tok.AppendText(nil, got); !bytes.Equal(back, want) {
					t.Errorf("%s: %q came back as %q", name, want, back)
				}
			}
		}
	})
}

// slowAppend is Append in the most straightforward way: no table of words, no heap, no state.
func slowAppend(tok *Tokenizer, b *bpe, text []byte) []uint32 {
	var out []uint32
	w := &workspace{}
	var words func(stages []stage, text []byte, atStart bool)
	words = func(stages []stage, text []byte, atStart bool) {
		switch {
		case len(text) == 0:
		case len(stages) > 0 && stages[0].shortcut:
			words(stages[1:], text, atStart)
		case len(stages) == 0:
			out = append(out, slowMerge(b, text)...)
		default:
			if stages[0].rewrite != nil {
				text = stages[0].rewrite(nil, text, atStart)
			}
			for len(text) > 0 {
				n := len(text)
				if stages[0].next != nil {
					n = stages[0].next(tok.chars, text)
				}
				words(stages[1:], text[:n], atStart)
				text, atStart = text[n:], false
			}
		}
	}
	var s scan
	for {
		start, end, token := tok.raw.next(tok.chars, text, &s)
		if token == nil {
			start = len(text)
		}
		part := text[s.done:start]
		for _, n := range tok.normalizer {
			part = n.append(w, tok.chars, nil, part)
		}
		words(tok.stages, part, s.done == 0)
		if token == nil {
			return out
		}
		out = append(out, token.id)
		s.done = end
	}
}

// slowMerge joins the first of the best pairs until there is none.
func slowMerge(b *bpe, word []byte) []uint32 {
	if id, ok := b.vocab.id(word); ok && b.whole {
		return []uint32{id}
	}
	var ids []uint32
	if b.byteLevel {
		ids = b.appendBytes(nil, word)
	} else {
		ids = b.appendChars(nil, word)
	}
	for {
		best, at := merged{rank: none}, 0
		for i := 1; i < len(ids); i++ {
			if m := b.pairs.get(ids[i-1], ids[i]); m.rank < best.rank {
				best, at = m, i
			}
		}
		if best.rank == none {
			return ids
		}
		ids[at-1] = best.id
		ids = slices.Delete(ids, at, at+1)
	}
}

// FuzzCut: cutting at the added tokens that NextAdded finds changes no ids, and what follows changes no cut.
func FuzzCut(f *testing.F) {
	toks := make([]*Tokenizer, len(cutVariants))
	for i, name := range cutVariants {
		toks[i] = mustParse(f, openVariant(f, name).file)
	}
	for i, text := range goldenTexts(f) {
		f.Add(byte(i), []byte(text), []byte("long word"))
	}
	f.Fuzz(func(t *testing.T, which byte, text, other []byte) {
		checkCuts(t, toks[int(which)%len(toks)], text, other)
	})
}

// FuzzNormalForm: the quick check and the parts that NFC leaves alone do not change its result, and twice is once.
func FuzzNormalForm(f *testing.F) {
	chars := sharedTables()
	for _, text := range goldenTexts(f) {
		f.Add([]byte(text))
	}
	if data, err := os.ReadFile("normform.go"); err == nil {
		f.Add(data[:min(len(data), 2000)])
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var w workspace
		nfc := normalForm{compose: true}
		got := nfc.append(&w, chars, nil, text)
		if want := nfc.appendPart(&w, chars, nil, text); !bytes.Equal(got, want) {
			t.Errorf("%q is %q and as a whole %q", text, got, want)
		}
		if again := nfc.append(&w, chars, nil, got); !bytes.Equal(got, again) {
			t.Errorf("%q is %q and again %q", text, got, again)
		}
		if nfc.keeps(chars, text) && !bytes.Equal(got, text) {
			t.Errorf("%q becomes %q but was to stay", text, got)
		}
	})
}

// FuzzChunk: the words of a text are those of its chunks, wherever it may be cut into some.
func FuzzChunk(f *testing.F) {
	var toks []*Tokenizer
	for _, name := range variantNames(f) {
		if tok := mustParse(f, openVariant(f, name).file); tok.chunked {
			toks = append(toks, tok)
		}
	}
	if len(toks) < 9 {
		f.Fatalf("only %d variants are chunked", len(toks))
	}
	texts := goldenTexts(f)
	for i, text := range texts {
		f.Add([]byte(text), 1)
		f.Add([]byte(text+"\n"+texts[len(texts)-1-i]), chunkLeast)
	}
	f.Fuzz(func(t *testing.T, text []byte, least int) {
		least = max(1, least%100)
		for _, tok := range toks {
			whole := slowWords(tok, tok.stages, text)
			var parts []string
			for rest := text; len(rest) > 0; {
				n := nextChunk(rest, least)
				parts = append(parts, slowWords(tok, tok.stages, rest[:n])...)
				rest = rest[n:]
			}
			if !slices.Equal(whole, parts) {
				t.Errorf("%q is %q and in chunks %q", text, whole, parts)
			}
		}
	})
}

// slowWords returns the words of a text.
func slowWords(tok *Tokenizer, stages []stage, text []byte) []string {
	if len(stages) == 0 {
		return []string{string(text)}
	}
	var out []string
	for len(text) > 0 {
		n := stages[0].next(tok.chars, text)
		out = append(out, slowWords(tok, stages[1:], text[:n])...)
		text = text[n:]
	}
	return out
}

// TestChunkBorders tries what fuzzing would take long to find: all short ends and beginnings on both sides of a cut.
func TestChunkBorders(t *testing.T) {
	units := []string{"a", "\u00aa", "\u0301", "1", "/", "!", "'s", "'", " ", "\t", "\n", "\r", "\u65e5", "\x00", "\xff"}
	var toks []*Tokenizer
	for _, name := range variantNames(t) {
		if tok := mustParse(t, openVariant(t, name).file); tok.chunked {
			toks = append(toks, tok)
		}
	}
	for _, left := range units {
		for _, mid := range units {
			for _, border := range []string{"\n", "a b", " ", "\r\n", "\n \t"} {
				for _, right := range units {
					for _, end := range units {
						checkBorders(t, toks, left+mid+border+right+end)
					}
				}
			}
		}
	}
}

func checkBorders(t *testing.T, toks []*Tokenizer, text string) {
	t.Helper()
	for _, tok := range toks {
		n := nextChunk([]byte(text), 1)
		if n == len(text) {
			return
		}
		whole := slowWords(tok, tok.stages, []byte(text))
		parts := append(slowWords(tok, tok.stages, []byte(text[:n])), slowWords(tok, tok.stages, []byte(text[n:]))...)
		if !slices.Equal(whole, parts) {
			t.Fatalf("%q is %q and in chunks %q", text, whole, parts)
		}
	}
}
