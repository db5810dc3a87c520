package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// unigramEntry is the model of type Unigram. The id of a token is its place in the vocabulary.
type unigramEntry struct {
	Unknown  *uint32       `json:"unk_id"`
	Vocab    []scoredToken `json:"vocab"`
	Fallback bool          `json:"byte_fallback"`
}

// scoredToken is written as ["▁the", -3.2].
type scoredToken struct {
	token string
	score float64
}

// UnmarshalJSON reads the pair.
func (s *scoredToken) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&s.token, &s.score})
}

func (t *Tokenizer) parseUnigram(part json.RawMessage, byteLevel bool) (map[string]uint32, error) {
	var e unigramEntry
	if err := read("model", part, &e); err != nil {
		return nil, err
	}
	switch {
	case byteLevel:
		return nil, errors.New("model: a Unigram behind a ByteLevel pre_tokenizer is not supported, expected Metaspace")
	case len(e.Vocab) == 0:
		return nil, errors.New("model.vocab: empty, expected tokens with their scores")
	case len(e.Vocab) > maxTokens:
		return nil, fmt.Errorf("model.vocab: %d tokens, expected at most %d", len(e.Vocab), maxTokens)
	case e.Unknown != nil && int64(*e.Unknown) >= int64(len(e.Vocab)):
		return nil, fmt.Errorf("model.unk_id: %d, expected less than the %d tokens of model.vocab", *e.Unknown, len(e.Vocab))
	}
	tokens := make(map[string]uint32, len(e.Vocab))
	u := &unigram{scores: make([]float64, len(e.Vocab)), unknown: none}
	if e.Unknown != nil {
		u.unknown = *e.Unknown
	}
	low := math.Inf(1)
	for i, s := range e.Vocab {
		if before, ok := tokens[s.token]; ok {
			return nil, fmt.Errorf("model.vocab[%d]: %q is there as %d already, expected distinct tokens", i, s.token, before)
		}
		tokens[s.token], u.scores[i] = uint32(i), s.score
		low = min(low, s.score)
	}
	u.unkScore = low - unknownPenalty
	var err error
	if u.vocab, err = newVocabulary(tokens, len(e.Vocab)); err != nil {
		return nil, err
	}
	if u.trie, err = newByteTrie(&u.vocab); err != nil {
		return nil, err
	}
	u.fallback, u.byteIDs = e.Fallback, fallbackIDs(tokens)
	t.model = u
	return tokens, nil
}
