package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// The parts of the patterns below that many share.
const (
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	tail         = `\s*[\r\n]+|\s+(?!\S)|\s+`
	capitals     = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	smalls       = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	lead         = `[^\r\n\p{L}\p{N}]?`
	noHan        = `&&[^\p{Han}]]`

	qwenPattern = contractions + `|` + lead + `\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + tail
	kimiPattern = `[\p{Han}]+|` +
		lead + `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}` + noHan + `*[\p{Ll}\p{Lm}\p{Lo}\p{M}` + noHan + `+` + contractions + `?|` +
		lead + `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}` + noHan + `+[\p{Ll}\p{Lm}\p{Lo}\p{M}` + noHan + `*` + contractions + `?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + tail
)

// known is a splitter with its role.
type known struct {
	next splitter
	role role
}

// patterns are the regular expressions for which there is a splitter, character by character as files have them.
var patterns = map[string]known{
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: {splitGPT2, other},
	`'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`:    {splitGPT2, other},

	contractions + `|` + lead + `\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + tail:                               {splitCL100K(3, letter), splitsLines},
	`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`: {splitCL100K(3, letter), splitsLines},
	qwenPattern: {splitCL100K(1, letter), splitsLines},
	contractions + `|` + lead + `[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|` + tail: {splitCL100K(1, letter|mark), splitsLines},

	lead + capitals + `*` + smalls + `+` + contractions + `?|` + lead + capitals + `+` + smalls + `*` + contractions +
		`?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + tail: {splitO200K(3, true), splitsLines},
	lead + capitals + `*` + smalls + `+|` + lead + capitals + `+` + smalls +
		`*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + tail: {splitO200K(1, false), splitsLines},

	kimiPattern: {splitKimi, splitsLines},

	`\p{N}{1,3}`: {splitDigits(3), separates},
	`\p{N}`:      {splitDigits(1), separates},
	`\p{N}+`:     {splitDigits(0), separates},

	"[一-龥\u3040-ゟ゠-ヿ]+": {splitCJK, separates},
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*" +
		"|\\s*[\r\n]+|\\s+(?!\\S)|\\s+": {splitDeepSeek, splitsLines},
}

// parsePreTokenizer appends the stages of a pre-tokenizer.
func (t *Tokenizer) parsePreTokenizer(at string, part json.RawMessage) error {
	if isNull(part) {
		return nil
	}
	kind, err := typeOf(at, part)
	if err != nil {
		return err
	}
	switch kind {
	case "Sequence":
		var e struct {
			Parts []json.RawMessage `json:"pretokenizers"`
		}
		if err := read(at, part, &e); err != nil {
			return err
		}
		for i, p := range e.Parts {
			if err := t.parsePreTokenizer(fmt.Sprintf("%s.pretokenizers[%d]", at, i), p); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel":
		return t.parseByteLevel(at, part)
	case "Split":
		return t.parseSplit(at, part)
	case "Digits":
		var e struct {
			Individual bool `json:"individual_digits"`
		}
		if err := read(at, part, &e); err != nil {
			return err
		}
		t.stages = append(t.stages, stage{next: splitDigitsType(e.Individual)})
		return nil
	case "Metaspace":
		return t.parseMetaspace(at, part)
	default:
		return fmt.Errorf("%s: type %q is not supported, expected ByteLevel, Split, Digits, Metaspace or Sequence", at, kind)
	}
}

func (t *Tokenizer) parseByteLevel(at string, part json.RawMessage) error {
	e := struct {
		Prefix bool  `json:"add_prefix_space"`
		Regex  *bool `json:"use_regex"`
	}{}
	if err := read(at, part, &e); err != nil {
		return err
	}
	s := stage{byteLevel: true}
	if e.Prefix {
		s.rewrite = func(dst, text []byte, _ bool) []byte {
			if text[0] != ' ' {
				dst = append(dst, ' ')
			}
			return append(dst, text...)
		}
	}
	if e.Regex == nil || *e.Regex {
		s.next = splitGPT2
	}
	t.stages = append(t.stages, s)
	return nil
}

func (t *Tokenizer) parseSplit(at string, part json.RawMessage) error {
	var e struct {
		Pattern  pattern `json:"pattern"`
		Behavior string  `json:"behavior"`
		Invert   bool    `json:"invert"`
	}
	if err := read(at, part, &e); err != nil {
		return err
	}
	s := stage{}
	switch {
	case e.Pattern.Regex != nil:
		if e.Behavior == "Isolated" && !e.Invert {
			known := patterns[*e.Pattern.Regex]
			s.next, s.role = known.next, known.role
		}
		if s.next == nil {
			var err error
			if s.regex, err = newRegexSplit(*e.Pattern.Regex, e.Behavior, e.Invert); err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
			t.notef("%s: the regular expression %q is not one of the common ones: it is slow, and characters newer than Unicode %s "+
				"may get other ids than an engine gives them", at, *e.Pattern.Regex, unicode.Version)
		}
	case e.Pattern.String != nil && *e.Pattern.String != "" && !e.Invert:
		s.next = splitString(*e.Pattern.String, e.Behavior)
	}
	if s.next == nil && s.regex == nil {
		return fmt.Errorf("%s: a Split at a plain text of behavior %q and invert %v is not supported, expected MergedWithPrevious, "+
			"MergedWithNext or Isolated and invert false", at, e.Behavior, e.Invert)
	}
	t.stages = append(t.stages, s)
	return nil
}

// splitString splits at a plain text, which stays with what is before or behind it or alone. It is nil for another behaviour.
func splitString(at, behavior string) splitter {
	sep := []byte(at)
	upTo := func(text []byte) int {
		if i := bytes.Index(text, sep); i >= 0 {
			return i
		}
		return len(text)
	}
	switch behavior {
	case "Isolated":
		return func(_ *unicodeTables, text []byte) int {
			if bytes.HasPrefix(text, sep) {
				return len(sep)
			}
			return upTo(text)
		}
	case "MergedWithPrevious":
		return func(_ *unicodeTables, text []byte) int { return min(upTo(text)+len(sep), len(text)) }
	case "MergedWithNext":
		return func(_ *unicodeTables, text []byte) int {
			if bytes.HasPrefix(text, sep) {
				return len(sep) + upTo(text[len(sep):])
			}
			return upTo(text)
		}
	}
	return nil
}

func (t *Tokenizer) parseMetaspace(at string, part json.RawMessage) error {
	var e struct {
		Replacement string `json:"replacement"`
		Scheme      string `json:"prepend_scheme"`
		AddPrefix   *bool  `json:"add_prefix_space"` // of older files
		Split       *bool  `json:"split"`
	}
	if err := read(at, part, &e); err != nil {
		return err
	}
	if e.Replacement == "" {
		return fmt.Errorf("%s.replacement: empty, expected a character", at)
	}
	if e.Scheme == "" {
		e.Scheme = "always"
	}
	if e.AddPrefix != nil && !*e.AddPrefix {
		e.Scheme = "never"
	}
	scheme := strings.ToLower(e.Scheme)
	if !slices.Contains([]string{"always", "first", "never"}, scheme) {
		return fmt.Errorf("%s.prepend_scheme: %q, expected always, first or never", at, e.Scheme)
	}
	mark := []byte(e.Replacement)
	s := stage{rewrite: func(dst, text []byte, atStart bool) []byte {
		begins := text[0] == ' ' || bytes.HasPrefix(text, mark)
		if !begins && (scheme == "always" || scheme == "first" && atStart) {
			dst = append(dst, mark...)
		}
		return replace{[]byte(" "), mark}.append(nil, nil, dst, text)
	}}
	if e.Split == nil || *e.Split {
		s.next = splitString(e.Replacement, "MergedWithNext")
	}
	t.startMatters = t.startMatters || scheme == "first"
	t.stages = append(t.stages, s)
	return nil
}

// closeStages checks the stages as a whole and tells whether the last one is ByteLevel.
func (t *Tokenizer) closeStages() (byteLevel bool, err error) {
	rewrites := 0
	for i, s := range t.stages {
		if s.rewrite != nil {
			rewrites++
		}
		if s.byteLevel && i < len(t.stages)-1 {
			return false, errors.New("pre_tokenizer: a stage behind ByteLevel is not supported, expected ByteLevel at the end")
		}
		byteLevel = s.byteLevel
	}
	if rewrites > 1 {
		return false, fmt.Errorf("pre_tokenizer: %d stages that add characters, expected at most one", rewrites)
	}
	t.stages = slices.DeleteFunc(t.stages, func(s stage) bool { return s.rewrite == nil && s.next == nil && s.regex == nil })
	t.chunked = chunks(t.stages)
	return byteLevel, nil
}
