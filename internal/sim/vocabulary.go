package sim

import (
	"errors"
	"fmt"

	"attache/internal/openai"
	realprompt "attache/internal/prompt"
)

// vocabulary is a real model's template and tokenizer, with which an engine makes of a request the tokens that a real one
// would make, and words that are one token each for its answers.
type vocabulary struct {
	model *realprompt.Model
	words []string // " the": with a space in front, letters only
	ids   []uint32
}

// fewestWords is how many words answers are made of at least.
const fewestWords = 8

// openVocabulary reads a model's folder.
func openVocabulary(dir string) (*vocabulary, error) {
	model, err := realprompt.OpenModel(realprompt.ModelConfig{ModelDir: dir})
	if err != nil {
		return nil, err
	}
	v := &vocabulary{model: model}
	t := model.Tokenizer()
	for id := range uint32(t.Vocabulary()) {
		text := t.AppendText(nil, []uint32{id})
		if !plainWord(text) {
			continue
		}
		// Twice in a row, because what a tokenizer does to the beginning of a text is another matter.
		twice := t.Append(nil, append(append([]byte{}, text...), text...))
		if len(twice) == 2 && twice[1] == id {
			v.words, v.ids = append(v.words, string(text)), append(v.ids, id)
		}
	}
	if len(v.words) < fewestWords {
		return nil, fmt.Errorf("%s: the vocabulary has %d plain words, expected at least %d", dir, len(v.words), fewestWords)
	}
	return v, nil
}

// plainWord tells a space followed by 2 to 12 small letters.
func plainWord(text []byte) bool {
	if len(text) < 3 || len(text) > 13 || text[0] != ' ' {
		return false
	}
	for _, c := range text[1:] {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

// word is the nth token of the answer that belongs to seed.
func (v *vocabulary) word(seed uint64, n int) (text string, id uint32) {
	i := scramble(seed+uint64(n)) % uint64(len(v.words))
	return v.words[i], v.ids[i]
}

// tokens are those of the text that the request's body asks about.
func (v *vocabulary) tokens(raw []byte, b *body) ([]uint32, error) {
	if len(b.Prompt.ids) > 0 {
		return b.Prompt.ids, nil
	}
	kind := openai.Completions
	if len(b.Messages) > 0 {
		kind = openai.Chat
	}
	var req openai.Request
	if err := openai.Scan(&req, kind, raw); err != nil {
		return nil, badRequest("", "%v", err)
	}
	var r realprompt.Rendered
	if err := v.model.Render(&r, raw, &req, realprompt.VLLM); err != nil {
		if u := new(realprompt.UnknownError); errors.As(err, &u) && u.Why == realprompt.Refused {
			return nil, badRequest("messages", "%v", u.Err)
		}
		return nil, badRequest("", "%v", err)
	}
	return v.model.Tokens(nil, &r), nil
}
