package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestMarks: cutting before blank marks changes nothing, also where merges join over one.
func TestMarks(t *testing.T) {
	for _, c := range []struct {
		name, vocab, merges string
		cuts                bool
	}{
		{"unknown are dropped", `"▁":0,"a":1,"▁▁":2`, `"▁ ▁"`, false},
		{"none joins", `"?":9,"▁":0,"a":1,"b":2,"▁a":3,"▁▁":4,"ab":5`, `"▁ a","▁ ▁","a b"`, true},
		{"one joins", `"?":9,"▁":0,"a":1,"b":2,"a▁":3,"▁b":4,"a▁b":5`, `"▁ b","a ▁","a ▁b","a▁ b"`, true},
		{"marks join", `"?":9,"▁":0,"a":1,"b":2,"▁▁":3,"▁▁a":4,"b▁":5`, `"▁ ▁","▁▁ a","b ▁"`, true},
		{"bytes join", `"?":9,"▁":0,"a":1,"b":2,"<0x0A>":3,"<0x0A>▁":4`, `"<0x0A> ▁"`, false},
		{"unknown joins", `"?":9,"▁":0,"?▁":1`, `"? ▁"`, false},
		{"no mark", `"a":0,"b":1,"ab":2`, `"a b"`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			unknown := ""
			if strings.Contains(c.vocab, `"?"`) {
				unknown = `"unk_token":"?","fuse_unk":true,`
			}
			tok := mustParse(t, []byte(`{"model":{"type":"BPE",`+unknown+`"byte_fallback":true,"vocab":{`+c.vocab+`},"merges":[`+c.merges+`]}}`))
			if got := len(tok.stages) == 1; got != c.cuts {
				t.Fatalf("cuts: %v, want %v", got, c.cuts)
			}
			rng := rand.New(rand.NewPCG(5, 6))
			for range 3000 {
				text := ""
				for range rng.IntN(12) {
					text += []string{"a", "b", "▁", "\n", "c"}[rng.IntN(5)]
				}
				got := tok.Append(nil, []byte(text))
				if want := slowAppend(tok, tok.model.(*bpe), []byte(text)); !slices.Equal(got, want) {
					t.Fatalf("%q is %v, by its twin %v", text, got, want)
				}
			}
		})
	}
}
