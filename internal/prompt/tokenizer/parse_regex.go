package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlclark/regexp2"
)

// newRegexSplit compiles a pattern that has no splitter.
func newRegexSplit(pattern, behavior string, invert bool) (*regexSplit, error) {
	if !slices.Contains(behaviors, behavior) {
		return nil, fmt.Errorf("behavior %q is not known, expected one of %s", behavior, strings.Join(behaviors, ", "))
	}
	translated, err := translateRegex(pattern)
	if err != nil {
		return nil, fmt.Errorf("the regular expression %q is not supported: %w", pattern, err)
	}
	re, err := regexp2.Compile(translated, regexp2.Multiline)
	if err != nil {
		return nil, fmt.Errorf("the regular expression %q is not supported: %w", pattern, err)
	}
	re.MatchTimeout = matchTime
	return &regexSplit{re, behavior, invert}, nil
}

// wordClass is \w as upstream's engine was seen to understand it, with some fractions, powers and letters in circles. Both rules
// for the border of a word follow from it.
const (
	wordClass = `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}` + "\u00B2\u00B3\u00B9\u00BC-\u00BE\u24B6-\u24E9\U0001F130-\U0001F149\U0001F150-\U0001F169" +
		"\U0001F170-\U0001F189"
	afterWord, beforeWord = `(?<=[` + wordClass + `])`, `(?=[` + wordClass + `])`
	afterNone, beforeNone = `(?<![` + wordClass + `])`, `(?![` + wordClass + `])`
)

// rewritten are the escapes outside of sets that our engine understands otherwise.
var rewritten = map[string]string{
	`\w`: "[" + wordClass + "]",
	`\W`: "[^" + wordClass + "]",
	`\b`: "(?:" + afterWord + beforeNone + "|" + afterNone + beforeWord + ")",
	`\B`: "(?:" + afterWord + beforeWord + "|" + afterNone + beforeNone + ")",
}

// foreign are escapes that the two engines understand differently or that ours does not have.
const foreign = "hHRXKGONyYgk"

// translateRegex rewrites a regular expression of upstream's engine (Oniguruma, Ruby syntax) for ours (.NET syntax) where they
// differ: sets within sets, words and their borders. What cannot be rewritten is an error, so that nothing is understood wrongly.
func translateRegex(pattern string) (string, error) {
	var out strings.Builder
	rest := pattern
	for rest != "" {
		switch {
		case rewritten[rest[:min(2, len(rest))]] != "":
			out.WriteString(rewritten[rest[:2]])
			rest = rest[2:]
		case rest[0] == '\\':
			n, err := escapeLength(rest)
			if err != nil {
				return "", err
			}
			out.WriteString(rest[:n])
			rest = rest[n:]
		case rest[0] == '[':
			set, n, err := translateSet(rest)
			if err != nil {
				return "", err
			}
			out.WriteString(set)
			rest = rest[n:]
		case strings.HasPrefix(rest, "(?~"), strings.HasPrefix(rest, "(?("), hasDotAll(rest):
			return "", fmt.Errorf("%q, expected a group, a look-around or the option i", rest[:min(len(rest), 8)])
		default:
			out.WriteByte(rest[0])
			rest = rest[1:]
		}
	}
	return out.String(), nil
}

// hasDotAll tells whether rest begins with options among which is m, which means another thing in each engine.
func hasDotAll(rest string) bool {
	if !strings.HasPrefix(rest, "(?") {
		return false
	}
	options := rest[2:]
	return strings.ContainsRune(options[:len(options)-len(strings.TrimLeft(options, "imx-"))], 'm')
}

// escapeLength returns the length of the backslash and the character behind it.
func escapeLength(rest string) (int, error) {
	if len(rest) < 2 {
		return 0, errors.New("a backslash at the end")
	}
	if strings.IndexByte(foreign, rest[1]) >= 0 {
		return 0, fmt.Errorf("%q is not known", rest[:2])
	}
	return 2, nil
}

// translateSet rewrites the set that rest begins with and returns how long it is in the original. A set in a set is a union.
func translateSet(rest string) (set string, length int, err error) {
	var out strings.Builder
	depth, i := 0, 0
	for i < len(rest) {
		switch c := rest[i]; {
		case strings.HasPrefix(rest[i:], "&&"), strings.HasPrefix(rest[i:], "[:"):
			return "", 0, fmt.Errorf("%q in a set, expected characters, ranges and classes", rest[i:i+2])
		case c == '[' && depth > 0 && (strings.HasPrefix(rest[i:], "[^") || rest[i-1] == '-'):
			return "", 0, fmt.Errorf("%q in a set, expected a union", rest[i:min(len(rest), i+2)])
		case c == '[':
			if depth++; depth == 1 {
				out.WriteByte('[')
				if strings.HasPrefix(rest, "[^") {
					out.WriteByte('^')
					i++
				}
			}
			if strings.HasPrefix(rest[i+1:], "]") {
				out.WriteString(`\]`) // not the end when it comes first
				i++
			}
			i++
		case c == ']':
			i++
			if depth--; depth == 0 {
				out.WriteByte(']')
				return out.String(), i, nil
			}
		case strings.HasPrefix(rest[i:], `\w`):
			out.WriteString(wordClass)
			i += 2
		case c == '\\':
			n, err := escapeLength(rest[i:])
			if err == nil && rest[i+1] == 'W' {
				err = errors.New(`"\\W" in a set, expected characters, ranges and other classes`)
			}
			if err != nil {
				return "", 0, err
			}
			out.WriteString(rest[i : i+n])
			i += n
		default:
			out.WriteByte(c)
			i++
		}
	}
	return "", 0, errors.New("a set without an end")
}
