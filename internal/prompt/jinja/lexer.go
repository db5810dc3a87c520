package jinja

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind is a kind of token. Operators are told apart by their text.
type tokenKind uint8

const (
	tokenEOF tokenKind = iota
	tokenData
	tokenBlockBegin
	tokenBlockEnd
	tokenPrintBegin
	tokenPrintEnd
	tokenName
	tokenString
	tokenNumber
	tokenOperator
)

type token struct {
	kind  tokenKind
	text  string // of data, names, operators; the value of strings
	value Value  // of numbers
	pos   int32
}

// describe names a token for error messages.
func (t token) describe() string {
	switch t.kind {
	case tokenEOF:
		return "end of template"
	case tokenData:
		return "text"
	case tokenBlockBegin:
		return "begin of a block"
	case tokenBlockEnd:
		return "end of the block"
	case tokenPrintBegin:
		return "begin of an expression"
	case tokenPrintEnd:
		return "end of the expression"
	case tokenString:
		return "string"
	case tokenNumber:
		return "number"
	default:
		return strconv.Quote(t.text)
	}
}

// lexer cuts a template into tokens. White space is dealt with here: a minus sign beside a tag takes away all of it on that
// side; a block takes away the line break behind it (trim_blocks), and blanks between it and the beginning of its line
// (lstrip_blocks), unless a plus sign forbids that.
type lexer struct {
	name   string
	source string
	pos    int
	tokens []token
}

// normalize makes all line breaks \n and drops one at the end, as Jinja does before anything else.
func normalize(source string) string {
	if strings.Contains(source, "\r") {
		source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	}
	return strings.TrimSuffix(source, "\n")
}

func lex(name, source string) ([]token, error) {
	l := &lexer{name: name, source: source}
	for l.pos < len(source) {
		if err := l.text(); err != nil {
			return nil, err
		}
	}
	l.add(tokenEOF, "", len(source))
	return l.tokens, nil
}

func (l *lexer) add(kind tokenKind, text string, pos int) {
	l.tokens = append(l.tokens, token{kind: kind, text: text, pos: int32(pos)})
}

func (l *lexer) fail(pos int, format string, a ...any) error {
	return &SyntaxError{Position: positionIn(l.name, l.source, int32(pos)), Message: fmt.Sprintf(format, a...)}
}

// text reads text up to and including the next tag.
func (l *lexer) text() error {
	start, tag := l.pos, l.nextTag()
	if tag < 0 {
		l.add(tokenData, l.source[start:], start)
		l.pos = len(l.source)
		return nil
	}
	kind := l.source[tag+1]
	after := tag + 2
	sign := l.sign(after)
	if sign != 0 {
		after++
	}
	if data := l.leading(start, tag, sign, kind != '{'); data != "" {
		l.add(tokenData, data, start)
	}
	l.pos = after
	switch kind {
	case '#':
		return l.comment(tag)
	case '{':
		l.add(tokenPrintBegin, "", tag)
		return l.inside(tag, "}}", tokenPrintEnd)
	}
	if end := rawTag(l.source[tag:]); end > 0 {
		return l.raw(tag, tag+end)
	}
	l.add(tokenBlockBegin, "", tag)
	return l.inside(tag, "%}", tokenBlockEnd)
}

// nextTag is where the next tag begins, or -1.
func (l *lexer) nextTag() int {
	for i := l.pos; ; i++ {
		j := strings.IndexByte(l.source[i:], '{')
		if j < 0 || i+j+1 >= len(l.source) {
			return -1
		}
		i += j
		if c := l.source[i+1]; c == '{' || c == '%' || c == '#' {
			return i
		}
	}
}

// sign is the plus or minus sign at i, or 0.
func (l *lexer) sign(i int) byte {
	if i < len(l.source) && (l.source[i] == '-' || l.source[i] == '+') {
		return l.source[i]
	}
	return 0
}

// leading is the text from start to the tag without the white space that the tag takes away.
func (l *lexer) leading(start, tag int, sign byte, block bool) string {
	data := l.source[start:tag]
	if sign == '-' {
		return strings.TrimRightFunc(data, isSpace)
	}
	if sign == '+' || !block {
		return data
	}
	line := strings.LastIndexByte(data, '\n') + 1
	if line == 0 && start > 0 && l.source[start-1] != '\n' {
		return data
	}
	if strings.TrimLeftFunc(data[line:], isSpace) == "" {
		return data[:line]
	}
	return data
}

// trailing moves behind the white space that the end of a tag takes away. sign is what stands in front of it.
func (l *lexer) trailing(sign byte, block bool) {
	switch {
	case sign == '-':
		rest := strings.TrimLeftFunc(l.source[l.pos:], isSpace)
		l.pos = len(l.source) - len(rest)
	case block && sign != '+' && strings.HasPrefix(l.source[l.pos:], "\n"):
		l.pos++
	}
}

// comment skips a comment. One that begins at the very end needs no end, nor does a raw block: Jinja stops looking there.
func (l *lexer) comment(tag int) error {
	if l.pos == len(l.source) {
		return nil
	}
	end := strings.Index(l.source[l.pos:], "#}")
	if end < 0 {
		return l.fail(tag, "found a comment without end, expected #}")
	}
	end += l.pos
	var sign byte
	if end > l.pos {
		sign = l.source[end-1]
	}
	l.pos = end + 2
	l.trailing(sign, true)
	return nil
}

// rawTag is the length of the {% raw %} tag that s begins with, or 0.
func rawTag(s string) int {
	rest, ok := keywordTag(s, "raw")
	if !ok {
		return 0
	}
	if after, ok := strings.CutPrefix(rest, "-%}"); ok {
		return len(s) - len(strings.TrimLeftFunc(after, isSpace))
	}
	if after, ok := strings.CutPrefix(rest, "%}"); ok {
		return len(s) - len(after)
	}
	return 0
}

// keywordTag cuts "{%", a sign, blanks, the word, and blanks off s.
func keywordTag(s, word string) (string, bool) {
	s = s[len("{%"):]
	if s != "" && (s[0] == '-' || s[0] == '+') {
		s = s[1:]
	}
	s, ok := strings.CutPrefix(strings.TrimLeftFunc(s, isSpace), word)
	return strings.TrimLeftFunc(s, isSpace), ok
}

// raw reads the text of a raw block, which begins at start, and its end.
func (l *lexer) raw(tag, start int) error {
	if start == len(l.source) {
		l.pos = start
		return nil
	}
	for i := start; ; i++ {
		j := strings.Index(l.source[i:], "{%")
		if j < 0 {
			return l.fail(tag, "found a raw block without end, expected {%% endraw %%}")
		}
		i += j
		rest, ok := keywordTag(l.source[i:], "endraw")
		if !ok {
			continue
		}
		sign := byte(0)
		if rest != "" && (rest[0] == '-' || rest[0] == '+') {
			sign, rest = rest[0], rest[1:]
		}
		if rest, ok = strings.CutPrefix(rest, "%}"); !ok {
			continue
		}
		if data := l.leading(start, i, l.sign(i+2), true); data != "" {
			l.add(tokenData, data, start)
		}
		l.pos = len(l.source) - len(rest)
		l.trailing(sign, true)
		return nil
	}
}

// inside reads the tokens of a tag and its end.
func (l *lexer) inside(tag int, end string, kind tokenKind) error {
	var open []byte // brackets, whose ends have to come before that of the tag
	for {
		rest := strings.TrimLeftFunc(l.source[l.pos:], isSpace)
		l.pos = len(l.source) - len(rest)
		if rest == "" {
			return l.fail(tag, "found a tag without end, expected %s", end)
		}
		if len(open) == 0 {
			var sign byte
			if rest[0] == '-' || rest[0] == '+' && kind == tokenBlockEnd {
				sign = rest[0]
				rest = rest[1:]
			}
			if strings.HasPrefix(rest, end) {
				l.add(kind, "", l.pos)
				l.pos = len(l.source) - len(rest) + len(end)
				l.trailing(sign, kind == tokenBlockEnd)
				return nil
			}
		}
		var err error
		if open, err = l.token(open); err != nil {
			return err
		}
	}
}

// token reads one token of an expression.
func (l *lexer) token(open []byte) ([]byte, error) {
	start, rest := l.pos, l.source[l.pos:]
	c := rest[0]
	switch {
	case c >= '0' && c <= '9':
		l.number()
		return open, nil
	case c == '\'' || c == '"':
		return open, l.quoted()
	}
	if n := nameLen(rest); n > 0 {
		l.add(tokenName, rest[:n], start)
		l.pos += n
		return open, nil
	}
	n := operatorLen(rest)
	if n == 0 {
		r, _ := utf8.DecodeRuneInString(rest)
		return open, l.fail(start, "found %q, expected an expression", r)
	}
	switch c {
	case '(':
		open = append(open, ')')
	case '[':
		open = append(open, ']')
	case '{':
		open = append(open, '}')
	case ')', ']', '}':
		if len(open) == 0 {
			return open, l.fail(start, "found %q without its counterpart", c)
		}
		if want := open[len(open)-1]; want != c {
			return open, l.fail(start, "found %q, expected %q", c, want)
		}
		open = open[:len(open)-1]
	}
	l.add(tokenOperator, rest[:n], start)
	l.pos += n
	return open, nil
}

func operatorLen(s string) int {
	if len(s) >= 2 {
		switch s[:2] {
		case "//", "**", "==", "!=", ">=", "<=":
			return 2
		}
	}
	if strings.IndexByte("+-/*%~[](){}><=.:|,;", s[0]) >= 0 {
		return 1
	}
	return 0
}

func nameLen(s string) int {
	for i, r := range s {
		if r == '_' || unicode.IsLetter(r) || i > 0 && (unicode.IsDigit(r) || unicode.IsMark(r)) {
			continue
		}
		return i
	}
	return len(s)
}

// number reads an integer or a float as Python writes them, with underscores between digits.
func (l *lexer) number() {
	s, start := l.source[l.pos:], l.pos
	n, float := digits(s, isDecimal), false
	if start == 0 || l.source[start-1] != '.' {
		if m := n; m < len(s) && s[m] == '.' {
			if d := digits(s[m+1:], isDecimal); d > 0 {
				n, float = m+1+d, true
			}
		}
		if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
			m := n + 1
			if m < len(s) && (s[m] == '+' || s[m] == '-') {
				m++
			}
			if d := digits(s[m:], isDecimal); d > 0 {
				n, float = m+d, true
			}
		}
	}
	if float {
		f, _ := strconv.ParseFloat(strings.ReplaceAll(s[:n], "_", ""), 64) // out of range is infinite
		l.tokens = append(l.tokens, token{kind: tokenNumber, value: Float(f), text: s[:n], pos: int32(start)})
		l.pos += n
		return
	}
	n = integerLen(s)
	i, ok := new(big.Int).SetString(strings.ReplaceAll(s[:n], "_", ""), 0)
	if !ok {
		i = new(big.Int) // several zeros
	}
	l.tokens = append(l.tokens, token{kind: tokenNumber, value: bigInt(i), text: s[:n], pos: int32(start)})
	l.pos += n
}

func integerLen(s string) int {
	if s[0] != '0' {
		return digits(s, isDecimal)
	}
	if len(s) > 2 {
		var d func(byte) bool
		switch s[1] {
		case 'b', 'B':
			d = func(c byte) bool { return c == '0' || c == '1' }
		case 'o', 'O':
			d = func(c byte) bool { return c >= '0' && c <= '7' }
		case 'x', 'X':
			d = func(c byte) bool { return isDecimal(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
		}
		if d != nil {
			m := 2
			if s[m] == '_' {
				m++
			}
			if n := digits(s[m:], d); n > 0 {
				return m + n
			}
		}
	}
	return digits(s, func(c byte) bool { return c == '0' })
}

// digits counts digits and the single underscores between them.
func digits(s string, is func(byte) bool) int {
	n := 0
	for n < len(s) {
		switch {
		case is(s[n]):
			n++
		case s[n] == '_' && n > 0 && n+1 < len(s) && is(s[n+1]):
			n += 2
		default:
			return n
		}
	}
	return n
}

func isDecimal(c byte) bool { return c >= '0' && c <= '9' }

// quoted reads a string literal.
func (l *lexer) quoted() error {
	start := l.pos
	quote := l.source[start]
	escaped := false
	for i := start + 1; i < len(l.source); i++ {
		switch l.source[i] {
		case '\\':
			escaped = true
			i++
		case quote:
			text := l.source[start+1 : i]
			if escaped {
				var err error
				if text, err = l.unescape(text, start+1); err != nil {
					return err
				}
			}
			l.add(tokenString, text, start)
			l.pos = i + 1
			return nil
		}
	}
	return l.fail(start, "found a string without end, expected %c", quote)
}

// unescape resolves the escapes of a Python string literal. Unknown ones stay as they are.
func (l *lexer) unescape(s string, pos int) (string, error) {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out = append(out, s[i])
			continue
		}
		i++
		if j := strings.IndexByte("abfnrtv\\'\"", s[i]); j >= 0 {
			out = append(out, "\a\b\f\n\r\t\v\\'\""[j])
			continue
		}
		var width int
		switch s[i] {
		case '\n':
			continue
		case 'x':
			width = 2
		case 'u':
			width = 4
		case 'U':
			width = 8
		case 'N':
			return "", l.fail(pos+i-1, `found \N, expected an escape without a name`)
		case '0', '1', '2', '3', '4', '5', '6', '7':
			n := 1
			for n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7' {
				n++
			}
			c, _ := strconv.ParseUint(s[i:i+n], 8, 32)
			out = utf8.AppendRune(out, rune(c))
			i += n - 1
			continue
		default:
			out = append(out, '\\', s[i])
			continue
		}
		c, err := strconv.ParseUint(s[i+1:min(len(s), i+1+width)], 16, 32)
		if err != nil || i+width >= len(s) || c > unicode.MaxRune {
			return "", l.fail(pos+i-1, `found a broken \%c escape, expected %d hexadecimal digits`, s[i], width)
		}
		out = utf8.AppendRune(out, rune(c))
		i += width
	}
	return string(out), nil
}
