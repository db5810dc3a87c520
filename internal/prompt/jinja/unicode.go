package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

func runeCount(s string) int { return utf8.RuneCountInString(s) }

// runeLen is the length in bytes of the first character.
func runeLen(s string) int {
	if s[0] < utf8.RuneSelf {
		return 1
	}
	_, n := utf8.DecodeRuneInString(s)
	return n
}

// byteOffset is where the character number n begins, at most the length of s.
func byteOffset(s string, n int) int {
	for i := 0; i < len(s); {
		if n == 0 {
			return i
		}
		n--
		i += runeLen(s[i:])
	}
	return len(s)
}

// isASCII tells whether characters are bytes.
func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// isSpace is what Python takes for white space. It has the separators of ASCII, which Unicode's property lacks.
func isSpace(c rune) bool {
	switch {
	case c < 0x80:
		return c == ' ' || c >= '\t' && c <= '\r' || c >= 0x1c && c <= 0x1f
	case c == 0x85, c == 0xa0, c == 0x1680, c == 0x2028, c == 0x2029, c == 0x202f, c == 0x205f, c == 0x3000:
		return true
	}
	return c >= 0x2000 && c <= 0x200a
}

// isLineBreak is what splitlines takes for the end of a line.
func isLineBreak(c rune) bool {
	switch c {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}

// splitLines cuts s into lines, with their ends or without.
func splitLines(s string, ends bool) []string {
	var lines []string
	start := 0
	for i := 0; i < len(s); {
		c, n := utf8.DecodeRuneInString(s[i:])
		if !isLineBreak(c) {
			i += n
			continue
		}
		end := i
		if i += n; c == '\r' && i < len(s) && s[i] == '\n' {
			i++
		}
		if ends {
			end = i
		}
		lines = append(lines, s[start:end])
		start = i
	}
	if start < len(s) {
		lines = append(lines, s[start:])
	}
	return lines
}

// wideUpper has the characters whose upper case is more than one character.
var wideUpper = map[rune]string{
	'ß': "SS", 'ŉ': "ʼN", 'ǰ': "J̌", 'ΐ': "Ϊ́", 'ΰ': "Ϋ́", 'և': "ԵՒ", 'ẖ': "H̱", 'ẗ': "T̈", 'ẘ': "W̊", 'ẙ': "Y̊", 'ẚ': "Aʾ",
	'ﬀ': "FF", 'ﬁ': "FI", 'ﬂ': "FL", 'ﬃ': "FFI", 'ﬄ': "FFL", 'ﬅ': "ST", 'ﬆ': "ST",
	'ﬓ': "ՄՆ", 'ﬔ': "ՄԵ", 'ﬕ': "ՄԻ", 'ﬖ': "ՎՆ", 'ﬗ': "ՄԽ",
}

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	var b strings.Builder
	for _, c := range s {
		if wide, ok := wideUpper[c]; ok {
			b.WriteString(wide)
		} else {
			b.WriteRune(unicode.ToUpper(c))
		}
	}
	return b.String()
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	var b strings.Builder
	for i, c := range s {
		writeLower(&b, s, i, c)
	}
	return b.String()
}

// writeLower writes the lower case of the character c, which is at i of s.
func writeLower(b *strings.Builder, s string, i int, c rune) {
	switch {
	case c == 'İ':
		b.WriteString("i̇")
	case c == 'Σ' && finalSigma(s, i):
		b.WriteRune('ς')
	default:
		b.WriteRune(unicode.ToLower(c))
	}
}

// finalSigma tells whether the sigma at i ends a word.
func finalSigma(s string, i int) bool {
	before, after := strings.TrimRightFunc(s[:i], isCaseIgnorable), strings.TrimLeftFunc(s[i+len("Σ"):], isCaseIgnorable)
	last, _ := utf8.DecodeLastRuneInString(before)
	first, _ := utf8.DecodeRuneInString(after)
	return before != "" && isCased(last) && (after == "" || !isCased(first))
}

func isCased(c rune) bool { return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) }

func isCaseIgnorable(c rune) bool {
	return unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) || strings.ContainsRune("'.:·’", c)
}

// titleRune is the title case of a character.
func titleRune(c rune) string {
	if wide, ok := wideUpper[c]; ok && unicode.ToTitle(c) == c {
		n := runeLen(wide)
		return wide[:n] + lower(wide[n:])
	}
	return string(unicode.ToTitle(c))
}

func capitalize(s string) string {
	if s == "" {
		return ""
	}
	first, n := utf8.DecodeRuneInString(s)
	var b strings.Builder
	b.WriteString(titleRune(first))
	for i, c := range s[n:] {
		writeLower(&b, s, n+i, c)
	}
	return b.String()
}

// titled is Python's str.title: letters behind other letters are in lower case.
func titled(s string) string {
	var b strings.Builder
	inside := false
	for i, c := range s {
		if inside {
			writeLower(&b, s, i, c)
		} else {
			b.WriteString(titleRune(c))
		}
		inside = isCased(c)
	}
	return b.String()
}

func swapCase(s string) string {
	var b strings.Builder
	for i, c := range s {
		switch {
		case unicode.IsUpper(c):
			writeLower(&b, s, i, c)
		case unicode.IsLower(c):
			b.WriteString(upper(string(c)))
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// foldCase is Python's str.casefold, as far as letters that fold to more than their lower case are common.
func foldCase(s string) string {
	s = strings.NewReplacer("ß", "ss", "ẞ", "ss", "ς", "σ", "ﬀ", "ff", "ﬁ", "fi", "ﬂ", "fl").Replace(s)
	return strings.ReplaceAll(lower(s), "ς", "σ")
}

// all tells whether s has characters, and all of them are such.
func all(s string, is func(rune) bool) bool {
	for _, c := range s {
		if !is(c) {
			return false
		}
	}
	return s != ""
}

// inCase tells whether s has letters of the case that is asked for, and none of the other.
func inCase(s string, want, other func(rune) bool) bool {
	found := false
	for _, c := range s {
		if other(c) || unicode.IsTitle(c) {
			return false
		}
		found = found || want(c)
	}
	return found
}

func isTitled(s string) bool {
	found, inside := false, false
	for _, c := range s {
		switch {
		case unicode.IsUpper(c) || unicode.IsTitle(c):
			if inside {
				return false
			}
			found, inside = true, true
		case unicode.IsLower(c):
			if !inside {
				return false
			}
		default:
			inside = false
		}
	}
	return found
}

// isDigit is Python's str.isdigit: decimal digits, and those that stand above or below the line or in circles.
func isDigit(c rune) bool {
	return unicode.IsDigit(c) || strings.ContainsRune("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉①②③④⑤⑥⑦⑧⑨", c)
}

func isNumeric(c rune) bool {
	return unicode.IsNumber(c) || strings.ContainsRune("一二三四五六七八九十百千万億", c)
}

func isAlnum(c rune) bool { return unicode.IsLetter(c) || isNumeric(c) }

// digitValue is the value of a decimal digit of any script. The digits of a script follow each other, from zero on.
func digitValue(c rune) (rune, bool) {
	if !unicode.IsDigit(c) {
		return 0, false
	}
	for _, r := range unicode.Nd.R16 {
		if rune(r.Lo) <= c && c <= rune(r.Hi) {
			return (c - rune(r.Lo)) % 10, true
		}
	}
	for _, r := range unicode.Nd.R32 {
		if rune(r.Lo) <= c && c <= rune(r.Hi) {
			return (c - rune(r.Lo)) % 10, true
		}
	}
	return 0, false
}
