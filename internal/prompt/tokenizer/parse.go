package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Limits on what is read. The largest vocabularies in use have 262,144 tokens in 35 MB.
const (
	maxFile   = 256 << 20 // bytes
	maxTokens = 4 << 20   // ids, of the model and added ones
	maxMerges = 8 << 20
	maxAdded  = 1 << 10 // bytes of an added token

	maxAddedTokens = 1 << 16
	maxGrowth      = 1 << 10 // times that a normalizer may make a text longer
)

// Open reads the vocabulary in a model's folder: tokenizer.json or, without one, tekken.json or a file of ranks (*.tiktoken,
// tiktoken.model). The tokenizer_config.json beside it may decide what AppendSpecial puts around a text. An error names the
// file.
func Open(dir string) (*Tokenizer, error) {
	config, err := readFile(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	path := filepath.Join(dir, "tokenizer.json")
	data, err := readFile(path)
	parse := Parse
	if errors.Is(err, os.ErrNotExist) {
		if other, how := otherForm(dir, config); how != nil {
			path, parse = other, how
			data, err = readFile(path)
		}
	}
	if err != nil {
		return nil, err
	}
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if config != nil {
		if err := t.configure(config); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "tokenizer_config.json"), err)
		}
	}
	return t, nil
}

// otherForm finds a vocabulary that is no tokenizer.json, and how to read it.
func otherForm(dir string, config []byte) (string, func([]byte) (*Tokenizer, error)) {
	path := filepath.Join(dir, "tekken.json")
	if _, err := os.Stat(path); err == nil {
		return path, parseTekken
	}
	for _, name := range []string{"*.tiktoken", "tiktoken.model"} {
		if paths, _ := filepath.Glob(filepath.Join(dir, name)); len(paths) > 0 {
			return paths[0], func(ranks []byte) (*Tokenizer, error) { return parseTiktoken(ranks, config) }
		}
	}
	return "", nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s: %d bytes, expected at most %d", path, info.Size(), maxFile)
	}
	return os.ReadFile(path)
}

// Parse reads a tokenizer.json. What it asks for and this package does not know is an error that shows it.
func Parse(tokenizerJSON []byte) (*Tokenizer, error) {
	if len(tokenizerJSON) > maxFile {
		return nil, fmt.Errorf("%d bytes, expected at most %d", len(tokenizerJSON), maxFile)
	}
	parts, err := members(string(tokenizerJSON))
	if err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	part := func(key string) json.RawMessage { return json.RawMessage(parts[key]) }
	t := &Tokenizer{chars: sharedTables()}
	if err := t.parseNormalizer("normalizer", part("normalizer")); err != nil {
		return nil, err
	}
	if err := t.checkGrowth(); err != nil {
		return nil, err
	}
	if err := t.parsePreTokenizer("pre_tokenizer", part("pre_tokenizer")); err != nil {
		return nil, err
	}
	byteLevel, err := t.closeStages()
	if err != nil {
		return nil, err
	}
	if err := t.parseDecoder("decoder", part("decoder"), byteLevel); err != nil {
		return nil, err
	}
	tokens, err := t.parseModel(parts["model"], byteLevel)
	if err != nil {
		return nil, err
	}
	var added []addedEntry
	if !isNull(part("added_tokens")) {
		if err := read("added_tokens", part("added_tokens"), &added); err != nil {
			return nil, err
		}
	}
	if err := t.addTokens(added, tokens); err != nil {
		return nil, err
	}
	if err := t.parsePostProcessor("post_processor", part("post_processor")); err != nil {
		return nil, err
	}
	return t, nil
}

// isNull tells that a part is absent or null.
func isNull(part json.RawMessage) bool { return len(part) == 0 || string(part) == "null" }

// typeOf reads the type of a part.
func typeOf(at string, part json.RawMessage) (string, error) {
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(part, &head); err != nil {
		return "", fmt.Errorf("%s: %w", at, err)
	}
	return head.Type, nil
}

// read reads a part into its struct.
func read(at string, part json.RawMessage, into any) error {
	if err := json.Unmarshal(part, into); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// pattern is what Split and Replace look for: a plain text or a regular expression.
type pattern struct {
	String *string
	Regex  *string
}
