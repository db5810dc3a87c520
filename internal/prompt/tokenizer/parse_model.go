package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// bpeEntry is the model of type BPE without its large parts.
type bpeEntry struct {
	Dropout      *float64 `json:"dropout"`
	Unknown      *string  `json:"unk_token"`
	Prefix       string   `json:"continuing_subword_prefix"`
	Suffix       string   `json:"end_of_word_suffix"`
	Fuse         bool     `json:"fuse_unk"`
	Fallback     bool     `json:"byte_fallback"`
	IgnoreMerges bool     `json:"ignore_merges"`

	vocab  map[string]uint32
	merges string // as JSON
}

// parseModel sets t.model and returns its tokens as they are spelled.
func (t *Tokenizer) parseModel(text string, byteLevel bool) (map[string]uint32, error) {
	if text == "" || text == "null" {
		return nil, errors.New("model: missing, expected one of type BPE or Unigram")
	}
	parts, err := members(text)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	// Files of before there were types are told apart by what a BPE alone has.
	switch _, merges := parts["merges"]; {
	case parts["type"] == `"BPE"`, parts["type"] == "" && merges:
		return t.parseBPE(parts, byteLevel)
	case parts["type"] == `"Unigram"`:
		return t.parseUnigram(json.RawMessage(text), byteLevel)
	default:
		return nil, fmt.Errorf("model: type %s is not supported, expected BPE or Unigram", parts["type"])
	}
}

func (t *Tokenizer) parseBPE(parts map[string]string, byteLevel bool) (map[string]uint32, error) {
	small := make(map[string]json.RawMessage)
	for key, value := range maps.All(parts) {
		if key != "vocab" && key != "merges" {
			small[key] = json.RawMessage(value)
		}
	}
	text, err := json.Marshal(small)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	e := bpeEntry{merges: parts["merges"]}
	if err := read("model", text, &e); err != nil {
		return nil, err
	}
	if e.vocab, err = readVocabulary(parts["vocab"]); err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	if err := e.check(); err != nil {
		return nil, err
	}
	b, err := e.build(byteLevel)
	if err != nil {
		return nil, err
	}
	t.model = b
	t.appendMarks(b)
	return e.vocab, nil
}

// check refuses what would be understood wrongly.
func (e *bpeEntry) check() error {
	switch {
	case e.Dropout != nil && *e.Dropout != 0:
		return fmt.Errorf("model.dropout: %v, expected none: ids would be random", *e.Dropout)
	case e.Prefix != "":
		return fmt.Errorf("model.continuing_subword_prefix: %q is not supported, expected none", e.Prefix)
	case e.Suffix != "":
		return fmt.Errorf("model.end_of_word_suffix: %q is not supported, expected none", e.Suffix)
	case len(e.vocab) == 0:
		return errors.New("model.vocab: empty, expected tokens with their ids")
	}
	return nil
}

// build makes the model.
func (e *bpeEntry) build(byteLevel bool) (*bpe, error) {
	b := &bpe{byteLevel: byteLevel, fallback: e.Fallback, fuse: e.Fuse, unknown: none, whole: e.IgnoreMerges}
	words := e.vocab
	var odd map[string]uint32
	if byteLevel {
		words, odd = rawTokens(e.vocab)
	}
	v, err := newVocabulary(words, highest(e.vocab)+1)
	if err != nil {
		return nil, err
	}
	b.vocab, b.vocab.odd = v, odd
	if e.Unknown != nil {
		id, ok := e.vocab[*e.Unknown]
		if !ok {
			return nil, fmt.Errorf("model.unk_token: %q is not in model.vocab", *e.Unknown)
		}
		b.unknown = id
	}
	if byteLevel {
		b.byteIDs = alphabetIDs(e.vocab)
		for c, id := range b.byteIDs {
			if id == none && inUTF8(byte(c)) {
				return nil, fmt.Errorf("model.vocab: byte 0x%02X has no token %q, expected tokens for all 256", c, alphabet[c])
			}
		}
	} else {
		b.byteIDs = fallbackIDs(e.vocab)
	}
	return b, e.buildPairs(b)
}

func (e *bpeEntry) buildPairs(b *bpe) error {
	count := 0
	pairs := newPairTable(len(e.vocab))
	var both []byte
	err := readMerges(e.merges, func(rank int, left, right string) error {
		both = append(append(both[:0], left...), right...)
		leftID, okLeft := e.vocab[left]
		rightID, okRight := e.vocab[right]
		id, okBoth := e.vocab[string(both)]
		switch {
		case !okLeft || !okRight || !okBoth:
			return fmt.Errorf("[%d]: %q and %q, expected both and what they make together in model.vocab", rank, left, right)
		case rank >= maxMerges:
			return fmt.Errorf(": more than %d, expected fewer", maxMerges)
		}
		if count++; tableSize(count) > len(pairs.slots) {
			pairs = pairs.grown()
		}
		pairs.put(leftID, rightID, merged{uint32(rank), id})
		return nil
	})
	if err != nil {
		return fmt.Errorf("model.merges%w", err)
	}
	b.pairs = pairs
	return nil
}

// rawTokens turns spellings in the byte alphabet into bytes. Those that are none are apart, as their bytes could be those of
// another token.
func rawTokens(tokens map[string]uint32) (raw, odd map[string]uint32) {
	raw, odd = make(map[string]uint32, len(tokens)), make(map[string]uint32)
	for s, id := range tokens {
		if r, ok := fromAlphabet(s); ok {
			raw[r] = id
		} else {
			odd[strings.Clone(s)] = id
		}
	}
	return raw, odd
}

// inUTF8 tells whether a byte occurs in UTF-8 at all. Some vocabularies miss the others.
func inUTF8(c byte) bool { return c < 0xC0 || 0xC1 < c && c < 0xF5 }

func highest(tokens map[string]uint32) int {
	top := uint32(0)
	for _, id := range tokens {
		top = max(top, id)
	}
	return int(top)
}
