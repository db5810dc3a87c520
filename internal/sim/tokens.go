package sim

import (
	"encoding/binary"

	"attache/internal/block"
)

// tokenizer turns rendered prompts into pseudo tokens: every 4 bytes of a text are one, a shorter rest is one, too, and
// each text of a conversation (a role, the content of a message) begins with a token of its own. So the tokens of a
// conversation never change when it goes on, as with real chat templates, and an answer of 4-byte words has the same
// tokens when it comes back as a message. Texts are UTF-8, so no token of theirs looks like a special one.
type tokenizer struct {
	chain block.Chainer
	limit int // tokens beyond it are cut off
	n     int
	mix   uint64 // hash of all tokens
	ids   []uint32
	keep  bool // gather ids
}

// The special tokens.
const (
	beginMessage = 0xffffff00 + iota
	endOfRole
	endMessage
	toolList
	toolCalls
)

func newTokenizer(blockTokens int, namespace uint64, limit int) *tokenizer {
	t := &tokenizer{limit: limit, mix: namespace}
	t.chain.Reset(4*blockTokens, namespace, nil)
	return t
}

// add appends one token.
func (t *tokenizer) add(id uint32) {
	if t.n == t.limit {
		return
	}
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], id)
	t.chain.Write(b[:])
	t.count(id)
}

// count does what concerns a token beside the chain.
func (t *tokenizer) count(id uint32) {
	t.n++
	t.mix = scramble(t.mix ^ uint64(id))
	if t.keep {
		t.ids = append(t.ids, id)
	}
}

// text appends the tokens of a text.
func (t *tokenizer) text(s string) {
	whole := min(len(s)/4, t.limit-t.n)
	t.chain.WriteString(s[:4*whole])
	for ; whole > 0; whole-- {
		t.count(uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24)
		s = s[4:]
	}
	if len(s) > 0 {
		var rest [4]byte
		copy(rest[:], s)
		t.add(binary.LittleEndian.Uint32(rest[:])) // nothing, if s is what lies beyond the limit
	}
}

// conversation renders messages the way chat templates do: tools first, then one message after the other, then, with
// answer, the beginning of the assistant's.
func (t *tokenizer) conversation(tools string, messages []message, answer bool) {
	if tools != "" {
		t.add(toolList)
		t.text(tools)
	}
	for _, m := range messages {
		t.add(beginMessage)
		t.text(m.Role)
		t.add(endOfRole)
		t.text(string(m.Content))
		if len(m.ToolCalls) > 0 {
			t.add(toolCalls)
			t.text(string(m.ToolCalls))
		}
		t.add(endMessage)
	}
	if answer {
		t.add(beginMessage)
		t.text("assistant")
		t.add(endOfRole)
	}
}

// scramble is the finalizer of SplitMix64: every bit of x reaches every bit of the result.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// lexicon is what answers are made of: 64 words of 3 letters and a space, a token each.
const lexicon = "the sun and sea are old now all our men can see how far one way has led you may yet ask who put her own ten " +
	"red cup box map pen key lid jar ink rug bed hat dog cat hen cow fox bee ant elm oak ivy fir hay ice fog dew mud sky " +
	"oat rye nut jam pie egg tea bun "

const wordBytes = 4

// word is the nth token of the answer that belongs to seed.
func word(seed uint64, n int) string {
	i := scramble(seed+uint64(n)) % uint64(len(lexicon)/wordBytes)
	return lexicon[wordBytes*i : wordBytes*i+wordBytes]
}
