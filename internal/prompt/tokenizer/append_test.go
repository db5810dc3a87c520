package tokenizer

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestRoundTrip: the text of the ids of a text is the text.
func TestRoundTrip(t *testing.T) {
	for _, name := range []string{"llama3_whole", "gpt2", "deepseek", "pieces"} {
		tok := mustParse(t, openVariant(t, name).file)
		for _, text := range goldenTexts(t) {
			if name == "pieces" {
				text = strings.ReplaceAll(text, "▁", " ")
				if tokensIn(tok, text) {
					continue // added tokens in the text begin texts of their own, with a blank each
				}
			}
			ids := tok.Append(nil, []byte(text))
			if back := tok.AppendText(nil, ids); string(back) != text {
				t.Errorf("%s: %q came back as %q", name, text, back)
			}
		}
	}
}

func tokensIn(tok *Tokenizer, text string) bool {
	_, _, id := tok.raw.next(tok.chars, []byte(text), &scan{})
	return id != nil
}

// TestInvalidUTF8: bytes that are no UTF-8 survive.
func TestInvalidUTF8(t *testing.T) {
	for _, name := range variantNames(t) {
		tok := mustParse(t, openVariant(t, name).file)
		exact := len(tok.normalizer) == 0 && strings.HasPrefix(name, "llama3_whole")
		for _, text := range []string{"\xff", "a\xc3", "\xe2\x82", "\xed\xa0\x80", "x\x80y \xf0\x9f\x98", "\xf5\n\xf5", "e\u0301\xcc"} {
			ids := tok.Append(nil, []byte(text))
			if back := tok.AppendText(nil, ids); exact && string(back) != text {
				t.Errorf("%s: %q came back as %q", name, text, back)
			}
		}
	}
}

// TestAppendTextUnknown: ids that there are not have no text.
func TestAppendTextUnknown(t *testing.T) {
	tok := mustParse(t, baseFile(t, "small"))
	if got := tok.AppendText([]byte("x"), []uint32{1 << 31, 1502, 99999}); string(got) != "x<|im_end|>" {
		t.Errorf("%q", got)
	}
}

// TestAllocations: a call allocates nothing once its buffers have grown.
func TestAllocations(t *testing.T) {
	text := []byte(strings.Join(goldenTexts(t), "\n"))
	for _, name := range []string{"small", "llama3_whole", "deepseek", "o200k", "pieces", "unigram"} {
		tok := mustParse(t, openVariant(t, name).file)
		text := text[:min(len(text), 8<<10)] // larger buffers are given back
		dst := tok.Append(nil, text)
		if n := testing.AllocsPerRun(20, func() { dst = tok.Append(dst[:0], text) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestNextAdded cuts texts at the tokens of each kind.
func TestNextAdded(t *testing.T) {
	for _, c := range []struct {
		variant, text string
		start, end    int // 0, 0 for none
	}{
		{"small", "no token", 0, 0},
		{"small", "a<|im_end|>\n", 1, 11},
		{"small", "<|im_en<|im_end|>", 7, 17},
		{"flags", "a<r>  b<|endoftext|>", 7, 20},    // what follows decides where <r> ends
		{"flags", "<l>", 0, 0},                      // what follows decides whether <l> is one or begins another
		{"flags", "a<l>long<l>", 0, 0},              // a word token may touch its last letter
		{"flags", "a word <|endoftext|>", 7, 20},    // what follows decides whether word is one
		{"flags", "a\u030angstro\u0308m <l>", 0, 0}, // a token of the normalized text is not looked for
		{"metaspace_first", "a</s>b", 0, 0},         // only the start of a prompt gets a blank
		{"metaspace_always", "a</s>b", 1, 5},        //
	} {
		tok := mustParse(t, openVariant(t, c.variant).file)
		start, end, id, ok := tok.NextAdded([]byte(c.text))
		if start != c.start || end != c.end || ok != (c.end > 0) {
			t.Errorf("%s: NextAdded(%q) = %d, %d, %d, %v, want %d, %d", c.variant, c.text, start, end, id, ok, c.start, c.end)
		}
	}
}

// TestNextAddedSpace: what a token swallows before it goes with it.
func TestNextAddedSpace(t *testing.T) {
	tok := mustParse(t, with(t, "small", map[string]string{"added_tokens": `[{"content":"<l>","lstrip":true}]`}))
	if start, end, _, ok := tok.NextAdded([]byte("a \n<l> b")); start != 1 || end != 6 || !ok {
		t.Errorf("%d, %d, %v, want 1, 6", start, end, ok)
	}
}

// cutVariants are those of which the added tokens differ.
var cutVariants = []string{"small", "flags", "flags_nfd", "flags_lower", "strip", "pieces", "metaspace_always", "unigram", "gpt2_prefix"}

// checkCuts cuts a text at all tokens that NextAdded finds, and what came before each of them when another text follows.
func checkCuts(tb testing.TB, tok *Tokenizer, text, other []byte) {
	tb.Helper()
	var cut []uint32
	rest := text
	for {
		start, end, id, ok := tok.NextAdded(rest)
		if !ok {
			break
		}
		begun := slices.Concat(rest[:end], other)
		if s, e, i, ok := tok.NextAdded(begun); !ok || s != start || e != end || i != id {
			tb.Errorf("NextAdded(%q) = %d, %d, %d and in %q %d, %d, %d, %v", rest, start, end, id, begun, s, e, i, ok)
		}
		cut = append(tok.Append(cut, rest[:start]), id)
		rest = rest[end:]
	}
	cut = tok.Append(cut, rest)
	if whole := tok.Append(nil, text); !slices.Equal(whole, cut) {
		tb.Errorf("%q is %v and in parts %v", text, whole, cut)
	}
}

func TestCuts(t *testing.T) {
	texts := goldenTexts(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range cutVariants {
		tok := mustParse(t, openVariant(t, name).file)
		for _, text := range texts {
			checkCuts(t, tok, []byte(text), []byte(texts[rng.IntN(len(texts))]))
		}
	}
}

// TestConcurrent: calls at the same time do not disturb each other.
func TestConcurrent(t *testing.T) {
	texts := goldenTexts(t)
	for _, name := range []string{"small", "unigram", "unknown"} {
		tok := mustParse(t, openVariant(t, name).file)
		var want [][]uint32
		for _, text := range texts {
			want = append(want, tok.Append(nil, []byte(text)))
		}
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for i, text := range texts {
					if got := tok.Append(nil, []byte(text)); !slices.Equal(got, want[i]) {
						t.Errorf("%q: %v and alone %v", text, got, want[i])
					}
				}
			})
		}
		group.Wait()
	}
}

// TestHostile: texts made to be slow cost about as much per byte when they are four times as long.
func TestHostile(t *testing.T) {
	tok := mustParse(t, openVariant(t, "unsplit").file) // one word, however long
	letters := func(n int, of string) []byte {
		rng := rand.New(rand.NewPCG(3, 4))
		out := make([]byte, n)
		for i := range out {
			out[i] = of[rng.IntN(len(of))]
		}
		return out
	}
	for _, of := range []string{"a", " ", "ab", "abcdefghijklmnopqrstuvwxyz", "the ", "\n\t ", "=-", "\xcc\x81"} {
		work := func(n int) int {
			var s scratch
			tok.model.append(nil, letters(n, of), &s)
			return s.merge.looked
		}
		small, large := work(20_000), work(80_000)
		if large > 6*small {
			t.Errorf("%q: %d steps for 20,000 bytes, %d for 80,000", of, small, large)
		}
		if perByte := large / 80_000; perByte > 100 {
			t.Errorf("%q: %d steps for a byte", of, perByte)
		}
	}
}

// TestShortWords: words below the size for which there is a heap stay cheap, too.
func TestShortWords(t *testing.T) {
	tok := mustParse(t, openVariant(t, "unsplit").file)
	for _, unit := range []string{"a", "ab", "the", "=", " "} {
		var s scratch
		tok.model.append(nil, bytes.Repeat([]byte(unit), longWord)[:longWord], &s)
		if most := longWord * longWord; s.merge.looked > most {
			t.Errorf("%q: %d steps, expected at most %d", unit, s.merge.looked, most)
		}
	}
}

// TestSeparateTokens: tokens that are looked for behind the normalizer cut texts like all others, unless that could change what
// is found.
func TestSeparateTokens(t *testing.T) {
	plain := func(contents ...string) (tokens []addedToken) {
		for _, c := range contents {
			tokens = append(tokens, addedToken{content: c})
		}
		return tokens
	}
	for _, c := range []struct {
		name          string
		first, second []addedToken
		want          bool
	}{
		{"nothing in common", plain("<|a|>", "<|b|>"), plain("<|c|>", "[d]"), true},
		{"no others", nil, plain("a", "ab"), true},
		{"one within another", plain("<|a|>"), plain("a"), false},
		{"and the other way round", plain("a"), plain("<|a|>"), false},
		{"one goes on where another ends", plain("ab"), plain("bc"), false},
		{"and the other way round", plain("bc"), plain("ab"), false},
		{"the same beginning", plain("<|a|>"), plain("<|a|>b"), false},
		{"white space", plain("<|a|>"), plain("b c"), false},
		{"a flag", plain("<|a|>"), []addedToken{{content: "b", singleWord: true}}, false},
	} {
		if got := separate(c.first, c.second); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
