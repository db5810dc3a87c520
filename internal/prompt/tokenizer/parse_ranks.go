package tokenizer

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// tekkenFile is a tekken.json: a pattern, tokens with ranks, and special tokens whose ids come before all ranks.
type tekkenFile struct {
	Config struct {
		Pattern  string `json:"pattern"`
		Size     int    `json:"default_vocab_size"`
		Specials int    `json:"default_num_special_tokens"`
	} `json:"config"`
	Vocab []struct {
		Rank  int    `json:"rank"`
		Bytes []byte `json:"token_bytes"`
	} `json:"vocab"`
	Special []struct {
		Rank int    `json:"rank"`
		Text string `json:"token_str"`
	} `json:"special_tokens"`
}

// parseTekken reads a tekken.json. Unlike its authors' library, the tokenizer recognises special tokens in a text, as all others
// here do; AppendSpecial puts <s> before it.
func parseTekken(tekkenJSON []byte) (*Tokenizer, error) {
	if len(tekkenJSON) > maxFile {
		return nil, fmt.Errorf("%d bytes, expected at most %d", len(tekkenJSON), maxFile)
	}
	var f tekkenFile
	if err := json.Unmarshal(tekkenJSON, &f); err != nil {
		return nil, fmt.Errorf("not a tekken.json: %w", err)
	}
	inner := f.Config.Size - f.Config.Specials
	switch {
	case f.Config.Specials < 0 || inner <= 0 || f.Config.Size > maxTokens:
		return nil, fmt.Errorf("config: %d ids of which %d are special, expected more, and at most %d", f.Config.Size, f.Config.Specials, maxTokens)
	case len(f.Special) == 0:
		return nil, errors.New("special_tokens: missing, expected a list as files have since version v7")
	}
	ranks := make(map[string]uint32, inner)
	for i, e := range f.Vocab {
		if e.Rank < 0 || len(e.Bytes) == 0 {
			return nil, fmt.Errorf("vocab[%d]: %d bytes of rank %d, expected some and a rank of 0 or more", i, len(e.Bytes), e.Rank)
		}
		if e.Rank < inner { // what is beyond is there for larger vocabularies
			ranks[string(e.Bytes)] = uint32(e.Rank + f.Config.Specials)
		}
	}
	var added []addedEntry
	for i, e := range f.Special {
		if e.Rank < 0 || e.Rank >= f.Config.Specials {
			return nil, fmt.Errorf("special_tokens[%d]: %q has the rank %d, expected less than %d", i, e.Text, e.Rank, f.Config.Specials)
		}
		added = append(added, addedEntry{ID: uint32(e.Rank), Content: e.Text})
	}
	t, err := newRanked(ranks, f.Config.Pattern, nil, added)
	if err != nil {
		return nil, err
	}
	if bos, ok := t.added["<s>"]; ok {
		t.before = []uint32{bos}
	}
	t.size = max(t.size, f.Config.Size)
	return t, nil
}

// rankedModels are the tokenizer classes whose vocabularies come as .tiktoken files, with what only their Python code says.
var rankedModels = map[string]struct {
	pattern    string
	normalizer []normalizer
}{
	"QWenTokenizer":     {qwenPattern, []normalizer{normalForm{compose: true}}},
	"TikTokenTokenizer": {kimiPattern, nil},
}

// parseTiktoken reads a .tiktoken file, which holds ranks and nothing else, and the tokenizer_config.json beside it, which names
// the class of the tokenizer and the special tokens.
func parseTiktoken(ranks, tokenizerConfigJSON []byte) (*Tokenizer, error) {
	var config struct {
		Class string                `json:"tokenizer_class"`
		Added map[string]addedEntry `json:"added_tokens_decoder"`
	}
	if err := json.Unmarshal(tokenizerConfigJSON, &config); err != nil {
		return nil, fmt.Errorf("tokenizer_config.json: %w", err)
	}
	known, ok := rankedModels[config.Class]
	if !ok {
		return nil, fmt.Errorf("tokenizer_config.json: tokenizer_class %q does not tell how words are split, expected one of %q or a "+
			"tokenizer.json", config.Class, slices.Sorted(maps.Keys(rankedModels)))
	}
	tokens, err := readRanks(ranks)
	if err != nil {
		return nil, err
	}
	var added []addedEntry
	for key, e := range config.Added {
		id, err := strconv.ParseUint(key, 10, 32)
		if err != nil || id >= maxTokens {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %q, expected an id less than %d", key, maxTokens)
		}
		e.ID = uint32(id)
		added = append(added, e)
	}
	slices.SortFunc(added, func(a, b addedEntry) int { return int(a.ID) - int(b.ID) })
	return newRanked(tokens, known.pattern, known.normalizer, added)
}

// readRanks reads lines of a token in base64 and its rank.
func readRanks(data []byte) (map[string]uint32, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%d bytes, expected at most %d", len(data), maxFile)
	}
	out := make(map[string]uint32)
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		if lines.Text() == "" {
			continue
		}
		text, number, _ := strings.Cut(lines.Text(), " ")
		token, err := base64.StdEncoding.DecodeString(text)
		rank, bad := strconv.ParseUint(number, 10, 32)
		if err != nil || bad != nil || len(token) == 0 || rank >= maxTokens {
			return nil, fmt.Errorf("line %d: %.80q, expected a token in base64, a blank and a rank less than %d", n, lines.Text(), maxTokens)
		}
		out[string(token)] = uint32(rank)
	}
	return out, lines.Err()
}

// newRanked makes a byte-level tokenizer in which any two neighbours that together are a token may be joined, those with the
// lowest id first. The ids of added tokens are those given.
func newRanked(tokens map[string]uint32, pattern string, n []normalizer, added []addedEntry) (*Tokenizer, error) {
	t := &Tokenizer{chars: sharedTables(), normalizer: n}
	known := patterns[pattern]
	s := stage{next: known.next, role: known.role, byteLevel: true}
	if s.next == nil {
		var err error
		if s.regex, err = newRegexSplit(pattern, "Isolated", false); err != nil {
			return nil, fmt.Errorf("config.pattern: %w", err)
		}
		t.notef("config.pattern: %q is not one of the common ones: it is slow, and characters newer than Unicode %s may get other ids "+
			"than an engine gives them", pattern, unicode.Version)
	}
	t.stages = []stage{s}
	t.chunked = chunks(t.stages)
	model, err := newRankedBPE(tokens)
	if err != nil {
		return nil, err
	}
	t.model = model
	return t, t.placeTokens(added, tokens)
}

func newRankedBPE(tokens map[string]uint32) (*bpe, error) {
	if len(tokens) == 0 {
		return nil, errors.New("no tokens, expected at least all 256 bytes")
	}
	b := &bpe{byteLevel: true, unknown: none, whole: true}
	var err error
	if b.vocab, err = newVocabulary(tokens, highest(tokens)+1); err != nil {
		return nil, err
	}
	for c := range b.byteIDs {
		id, ok := tokens[string([]byte{byte(c)})]
		if !ok {
			return nil, fmt.Errorf("byte 0x%02X has no token, expected tokens for all 256", c)
		}
		b.byteIDs[c] = id
	}
	type pair struct {
		merged

		left, right uint32
	}
	var pairs []pair
	for s, id := range tokens {
		for i := 1; i < len(s) && len(s) <= maxAdded; i++ {
			left, okLeft := tokens[s[:i]]
			right, okRight := tokens[s[i:]]
			if okLeft && okRight {
				pairs = append(pairs, pair{merged{id, id}, left, right})
			}
		}
		if len(pairs) > maxMerges {
			return nil, fmt.Errorf("more than %d pairs of tokens make a token, expected fewer", maxMerges)
		}
	}
	b.pairs = newPairTable(len(pairs))
	for _, p := range pairs {
		b.pairs.put(p.left, p.right, p.merged)
	}
	return b, nil
}
