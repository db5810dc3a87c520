package jinja

import (
	"slices"
	"strings"
	"unicode"
)

// filterWordWrap wraps lines as Python's textwrap does, with its rules for where words may break.
func filterWordWrap(r *renderer, v Value, a args) (Value, error) {
	to := [4]Value{Int(79), Bool(true), None(), Bool(true)}
	if err := a.bind("wordwrap", 0, to[:], "width", "break_long_words", "wrapstring", "break_on_hyphens"); err != nil {
		return Value{}, err
	}
	if v.kind != KindString {
		return Value{}, noAttribute(v, "splitlines")
	}
	width, err := intArg("wordwrap", to[0])
	if err != nil {
		return Value{}, err
	}
	with := "\n"
	if to[2].kind != KindNone {
		if with, err = textArg("wordwrap", to[2]); err != nil {
			return Value{}, err
		}
	}
	if err := r.spend(len(v.str())); err != nil {
		return Value{}, err
	}
	var lines []string
	size := 0
	for _, line := range splitLines(v.str(), false) {
		if width <= 0 {
			return Value{}, faultf("invalid width %d (must be > 0)", width)
		}
		wrapped := strings.Join(wrap(chunks(line, to[3].truth()), width, to[1].truth()), with)
		if size += len(wrapped) + len(with); size > r.options.MaxOutput {
			return Value{}, &BudgetError{Budget: Output, Limit: int64(r.options.MaxOutput)}
		}
		lines = append(lines, wrapped)
	}
	return String(strings.Join(lines, with)), r.text(size)
}

// chunks cuts a line into blanks and words, and words behind hyphens between letters.
func chunks(s string, hyphens bool) [][]rune {
	var out [][]rune
	runes := []rune(s)
	start := 0
	cut := func(i int) {
		if i > start {
			out = append(out, runes[start:i])
			start = i
		}
	}
	for i := 1; i < len(runes); i++ {
		switch {
		case isWrapSpace(runes[i]) != isWrapSpace(runes[i-1]):
			cut(i)
		case hyphens && breaksAfter(runes, start, i-1):
			cut(i)
		}
	}
	cut(len(runes))
	return out
}

// isWrapSpace is the white space of ASCII, which is all that counts here.
func isWrapSpace(c rune) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// breaksAfter tells whether a word may break behind the hyphen at i: between two letters on the left and a letter on the
// right that is followed by another one.
func breaksAfter(s []rune, start, i int) bool {
	if s[i] != '-' || i-2 < start || i+2 >= len(s) {
		return false
	}
	letter := func(c rune) bool { return c == '_' || unicode.IsLetter(c) }
	left := letter(s[i-1]) && letter(s[i-2]) || letter(s[i-1]) && s[i-2] == '-' && i-3 >= start && letter(s[i-3])
	right := letter(s[i+1]) && (letter(s[i+2]) || s[i+2] == '-')
	return left && right
}

// wrap fills lines with chunks. Blanks at the ends of lines are dropped.
func wrap(words [][]rune, width int, breakLong bool) []string {
	var lines []string
	blank := func(w []rune) bool { return strings.TrimFunc(string(w), isSpace) == "" }
	for len(words) > 0 {
		if len(lines) > 0 && blank(words[0]) {
			words = words[1:]
		}
		var line [][]rune
		n := 0
		for len(words) > 0 && n+len(words[0]) <= width {
			n += len(words[0])
			line = append(line, words[0])
			words = words[1:]
		}
		if len(words) > 0 && len(words[0]) > width {
			switch {
			case breakLong:
				room := max(width-n, 1)
				line = append(line, words[0][:room])
				words[0] = words[0][room:]
			case len(line) == 0:
				line = append(line, words[0])
				words = words[1:]
			}
		}
		if len(line) > 0 && blank(line[len(line)-1]) {
			line = line[:len(line)-1]
		}
		if len(line) == 0 {
			continue
		}
		lines = append(lines, string(slices.Concat(line...)))
	}
	return lines
}
