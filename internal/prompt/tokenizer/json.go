package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The two large parts of a tokenizer.json, vocabulary and merges, are read by the functions below, as encoding/json takes most
// of a second for them. All small parts are left to it.

// jsonText is JSON that is being read; at is how far. Strings are parts of it where they can be, without a copy.
type jsonText struct {
	text string
	at   int
}

func (j *jsonText) errorf(want string) error {
	at := min(j.at, len(j.text)) // a backslash at the end is passed with what is not behind it
	return fmt.Errorf("byte %d: %.20q, expected %s", at, j.text[at:], want)
}

func (j *jsonText) blanks() {
	for j.at < len(j.text) {
		switch j.text[j.at] {
		case ' ', '\t', '\n', '\r':
			j.at++
		default:
			return
		}
	}
}

// next tells whether the next character is c, and passes it if so.
func (j *jsonText) next(c byte) bool {
	j.blanks()
	if j.at < len(j.text) && j.text[j.at] == c {
		j.at++
		return true
	}
	return false
}

// end checks that nothing is left.
func (j *jsonText) end() error {
	if j.blanks(); j.at < len(j.text) {
		return j.errorf("the end")
	}
	return nil
}

// object reads an object and calls member before each value, which member has to read.
func (j *jsonText) object(member func(key string) error) error {
	if !j.next('{') {
		return j.errorf("an object")
	}
	return j.list('}', func() error {
		key, err := j.string()
		if err != nil {
			return err
		}
		if !j.next(':') {
			return j.errorf("a colon")
		}
		return member(key)
	})
}

// array reads an array and calls element before each element, which element has to read.
func (j *jsonText) array(element func() error) error {
	if !j.next('[') {
		return j.errorf("an array")
	}
	return j.list(']', element)
}

func (j *jsonText) list(end byte, element func() error) error {
	if j.next(end) {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if j.next(end) {
			return nil
		}
		if !j.next(',') {
			return j.errorf("a comma or " + strconv.Quote(string(end)))
		}
	}
}

// string reads a string.
func (j *jsonText) string() (string, error) {
	if !j.next('"') {
		return "", j.errorf("a string")
	}
	start, plain := j.at, true
	for ; j.at < len(j.text); j.at++ {
		switch c := j.text[j.at]; {
		case c == '"':
			s := j.text[start:j.at]
			j.at++
			if plain || utf8.ValidString(s) && !strings.Contains(s, `\`) {
				return s, nil
			}
			var out string
			err := json.Unmarshal([]byte(j.text[start-1:j.at]), &out)
			return out, err
		case c == '\\':
			plain = false
			j.at++
		case c < ' ':
			return "", j.errorf("no control characters in a string")
		case c >= utf8.RuneSelf:
			plain = false
		}
	}
	return "", j.errorf("the end of a string")
}

// id reads a whole number from 0 on.
func (j *jsonText) id() (uint32, error) {
	j.blanks()
	start := j.at
	for j.at < len(j.text) && '0' <= j.text[j.at] && j.text[j.at] <= '9' {
		j.at++
	}
	n, err := strconv.ParseUint(j.text[start:j.at], 10, 32)
	if err != nil || j.at < len(j.text) && strings.IndexByte(".eE", j.text[j.at]) >= 0 {
		j.at = start
		return 0, j.errorf("an id, a whole number from 0 on")
	}
	return uint32(n), nil
}

// skip passes a value and returns it. Brackets are only counted: whoever reads the value checks it.
func (j *jsonText) skip() (string, error) {
	j.blanks()
	start, depth := j.at, 0
	for j.at < len(j.text) {
		switch c := j.text[j.at]; c {
		case '"':
			if err := j.skipString(); err != nil {
				return "", err
			}
			if depth == 0 {
				return j.text[start:j.at], nil
			}
			continue
		case '{', '[':
			depth++
		case '}', ']', ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				if start == j.at {
					return "", j.errorf("a value")
				}
				return j.text[start:j.at], nil
			}
			if c == '}' || c == ']' {
				if depth--; depth == 0 {
					j.at++
					return j.text[start:j.at], nil
				}
			}
		}
		j.at++
	}
	if depth > 0 || start == j.at {
		return "", j.errorf("the end of a value")
	}
	return j.text[start:], nil
}

func (j *jsonText) skipString() error {
	for j.at++; j.at < len(j.text); j.at++ {
		switch j.text[j.at] {
		case '"':
			j.at++
			return nil
		case '\\':
			j.at++
		}
	}
	return j.errorf("the end of a string")
}

// members returns the values of an object by their keys. Of equal keys the last counts.
func members(text string) (map[string]string, error) {
	j := jsonText{text: text}
	out := make(map[string]string)
	err := j.object(func(key string) (err error) {
		out[key], err = j.skip()
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, j.end()
}

// readVocabulary reads {"token": id, …}.
func readVocabulary(text string) (map[string]uint32, error) {
	out := make(map[string]uint32, len(text)/16)
	j := jsonText{text: text}
	err := j.object(func(token string) error {
		id, err := j.id()
		if err != nil {
			return fmt.Errorf("%q: %w", token, err)
		}
		if id >= maxTokens {
			return fmt.Errorf("%q has the id %d, expected less than %d", token, id, maxTokens)
		}
		out[token] = id
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, j.end()
}

// readMerges reads the merges in the order of their ranks. They are written as "a b" or as ["a", "b"]; merge is called with
// each.
func readMerges(text string, merge func(rank int, left, right string) error) error {
	j := jsonText{text: text}
	rank := -1
	err := j.array(func() error {
		rank++
		left, right, err := j.merge()
		if err != nil {
			return fmt.Errorf("[%d]: %w", rank, err)
		}
		return merge(rank, left, right)
	})
	if err != nil {
		return err
	}
	return j.end()
}

func (j *jsonText) merge() (left, right string, err error) {
	if j.blanks(); j.at < len(j.text) && j.text[j.at] == '"' {
		line, err := j.string()
		if err != nil {
			return "", "", err
		}
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return "", "", fmt.Errorf("%q, expected two tokens with a blank between them", line)
		}
		return left, right, nil
	}
	var pair [2]string
	n := 0
	err = j.array(func() error {
		token, err := j.string()
		if n < 2 {
			pair[n] = token
		}
		n++
		return err
	})
	if err == nil && n != 2 {
		err = fmt.Errorf("%d tokens, expected two", n)
	}
	return pair[0], pair[1], err
}
