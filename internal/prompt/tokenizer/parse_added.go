package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// addedEntry is one of added_tokens.
type addedEntry struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Left       bool   `json:"lstrip"`
	Right      bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
}

// addTokens is placeTokens with other ids than the file has: an added token that is one of the model's has the model's id. The
// others get the next free one in the order of the file, as upstream, whatever id the file gives them.
func (t *Tokenizer) addTokens(entries []addedEntry, tokens map[string]uint32) error {
	next := uint32(len(tokens))
	ids := make(map[string]uint32)
	for i := range entries {
		e := &entries[i]
		if e.Content == "" {
			continue // upstream ignores it
		}
		id, ok := ids[e.Content]
		if !ok {
			if id, ok = tokens[e.Content]; !ok {
				id = next
			}
			ids[e.Content] = id
			next = max(next, id+1)
		}
		if id != e.ID {
			t.notef("added_tokens[%d]: %q is written with the id %d; engines give it %d", i, e.Content, e.ID, id)
		}
		e.ID = id
	}
	return t.placeTokens(entries, tokens)
}

// placeTokens sets the matchers and, with the tokens of the model, what ids decode to.
func (t *Tokenizer) placeTokens(entries []addedEntry, tokens map[string]uint32) error {
	if len(entries) > maxAddedTokens {
		return fmt.Errorf("added_tokens: %d, expected at most %d", len(entries), maxAddedTokens)
	}
	t.size = highest(tokens) + 1
	t.added = make(map[string]uint32, len(entries))
	seen := make(map[string]bool)
	var raw, normalized []addedToken
	for i, e := range entries {
		if e.Content == "" {
			continue
		}
		if len(e.Content) > maxAdded {
			return fmt.Errorf("added_tokens[%d]: %d bytes, expected at most %d", i, len(e.Content), maxAdded)
		}
		t.added[e.Content] = e.ID
		t.size = max(t.size, int(e.ID)+1)
		a := addedToken{content: e.Content, id: e.ID, singleWord: e.SingleWord, left: e.Left, right: e.Right}
		if e.Normalized {
			a.content = string(t.normalize([]byte(e.Content)))
		}
		if a.content == "" || seen[a.content] {
			continue
		}
		seen[a.content] = true
		if e.Normalized {
			normalized = append(normalized, a)
		} else {
			raw = append(raw, a)
		}
	}
	if len(t.normalizer) == 0 && separate(raw, normalized) {
		raw, normalized = append(raw, normalized...), nil
	}
	t.raw, t.normalized = newMatcher(raw), newMatcher(normalized)
	t.setTexts(tokens)
	return nil
}

// separate tells that it makes no difference whether two kinds of tokens are looked for one after the other or both at once:
// none of the one kind ever stands within or across the border of one of the other, and none of the second minds what touches
// it. Then texts can be cut at all of them.
func separate(first, second []addedToken) bool {
	for _, b := range second {
		if b.singleWord || b.left || b.right || strings.ContainsFunc(b.content, unicode.IsSpace) {
			return false
		}
		for _, a := range first {
			if overlap(a.content, b.content) || overlap(b.content, a.content) {
				return false
			}
		}
	}
	return true
}

// overlap tells whether an end of a is a beginning of b, or all of b stands in a.
func overlap(a, b string) bool {
	for i := range len(a) {
		if end := a[i:]; strings.HasPrefix(b, end) || strings.HasPrefix(end, b) {
			return true
		}
	}
	return false
}

func (t *Tokenizer) setTexts(tokens map[string]uint32) {
	t.texts = newTexts(t.size)
	for s, id := range tokens {
		t.texts.set(id, t.decoding.spell(s))
	}
	for s, id := range t.added {
		t.texts.set(id, s)
	}
}

// maxNotes bounds what a file full of oddities can make a caller log.
const maxNotes = 20

func (t *Tokenizer) notef(format string, args ...any) {
	if len(t.notes) < maxNotes {
		t.notes = append(t.notes, fmt.Sprintf(format, args...))
	}
}

// normalize runs the normalizer on a text of its own.
func (t *Tokenizer) normalize(text []byte) []byte {
	var w workspace
	for _, n := range t.normalizer {
		text = n.append(&w, t.chars, nil, text)
	}
	return text
}

// parsePostProcessor sets what stands around a text.
func (t *Tokenizer) parsePostProcessor(at string, part json.RawMessage) error {
	if isNull(part) {
		return nil
	}
	kind, err := typeOf(at, part)
	if err != nil {
		return err
	}
	switch kind {
	case "ByteLevel":
		return nil // moves offsets only
	case "Sequence":
		var e struct {
			Processors []json.RawMessage `json:"processors"`
		}
		if err := read(at, part, &e); err != nil {
			return err
		}
		for i, p := range e.Processors {
			if err := t.parsePostProcessor(fmt.Sprintf("%s.processors[%d]", at, i), p); err != nil {
				return err
			}
		}
		return nil
	case "TemplateProcessing":
		return t.parseTemplate(at, part)
	case "BertProcessing", "RobertaProcessing":
		var e struct {
			Sep boundary `json:"sep"`
			Cls boundary `json:"cls"`
		}
		if err := read(at, part, &e); err != nil {
			return err
		}
		t.before = append([]uint32{e.Cls.id}, t.before...)
		t.after = append(t.after, e.Sep.id)
		return nil
	default:
		return fmt.Errorf("%s: type %q is not supported, expected ByteLevel, TemplateProcessing, RobertaProcessing, "+
			"BertProcessing or Sequence", at, kind)
	}
}

// boundary is a token written as ["</s>", 2].
type boundary struct{ id uint32 }

// UnmarshalJSON reads the pair.
func (b *boundary) UnmarshalJSON(data []byte) error {
	var token string
	return json.Unmarshal(data, &[]any{&token, &b.id})
}

// parseTemplate reads the template for a single text.
func (t *Tokenizer) parseTemplate(at string, part json.RawMessage) error {
	var e struct {
		Single []struct {
			Special *struct {
				ID string `json:"id"`
			} `json:"SpecialToken"`
			Sequence *struct {
				ID string `json:"id"`
			} `json:"Sequence"`
		} `json:"single"`
		Special map[string]struct {
			IDs []uint32 `json:"ids"`
		} `json:"special_tokens"`
	}
	if err := read(at, part, &e); err != nil {
		return err
	}
	var before, after []uint32
	texts := 0
	for i, piece := range e.Single {
		switch {
		case piece.Sequence != nil:
			texts++
		case piece.Special == nil:
			return fmt.Errorf("%s.single[%d]: neither SpecialToken nor Sequence", at, i)
		case texts == 0:
			before = append(before, e.Special[piece.Special.ID].IDs...)
		default:
			after = append(after, e.Special[piece.Special.ID].IDs...)
		}
		if piece.Special != nil && len(e.Special[piece.Special.ID].IDs) == 0 {
			return fmt.Errorf("%s.single[%d]: %q is not in special_tokens", at, i, piece.Special.ID)
		}
	}
	if texts != 1 {
		return fmt.Errorf("%s.single: the text stands in it %d times, expected once", at, texts)
	}
	t.before, t.after = append(before, t.before...), append(t.after, after...)
	return nil
}

// configure applies a tokenizer_config.json. The tokenizers of the Llama family take from it, and not from the post-processor,
// whether a text begins with BOS and ends with EOS.
func (t *Tokenizer) configure(data []byte) error {
	var c struct {
		Class  string      `json:"tokenizer_class"`
		AddBOS *bool       `json:"add_bos_token"`
		AddEOS bool        `json:"add_eos_token"`
		BOS    configToken `json:"bos_token"`
		EOS    configToken `json:"eos_token"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	switch strings.TrimSuffix(c.Class, "Fast") {
	case "LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer":
	default:
		return nil
	}
	t.before, t.after = nil, nil
	if c.AddBOS == nil || *c.AddBOS {
		id, ok := t.ID(string(c.BOS))
		if !ok {
			return fmt.Errorf("bos_token: %q is not in the vocabulary", c.BOS)
		}
		t.before = []uint32{id}
	}
	if c.AddEOS {
		id, ok := t.ID(string(c.EOS))
		if !ok {
			return fmt.Errorf("eos_token: %q is not in the vocabulary", c.EOS)
		}
		t.after = []uint32{id}
	}
	return nil
}

// configToken is a token written as a string or as an object with its content.
type configToken string

// UnmarshalJSON reads either form.
func (c *configToken) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var e struct {
			Content string `json:"content"`
		}
		err := json.Unmarshal(data, &e)
		*c = configToken(e.Content)
		return err
	}
	return json.Unmarshal(data, (*string)(c))
}
