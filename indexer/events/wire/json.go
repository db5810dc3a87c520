package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
)

// cursor walks over JSON that is known to be well-formed, so that nothing needs to be checked on the way. Every method that
// reads a value expects the position before it, white space allowed.
type cursor struct {
	b []byte
	i int
}

// checkJSON reports where a payload stops being JSON, as a *SyntaxError.
func checkJSON(payload []byte) *SyntaxError {
	if json.Valid(payload) {
		return nil
	}
	at := len(payload)
	var raw json.RawMessage
	var syntax *json.SyntaxError
	if err := json.Unmarshal(payload, &raw); errors.As(err, &syntax) {
		at = max(0, int(syntax.Offset)-1)
		// At the end encoding/json tries a space, and complains about that in the middle of a word or an escape.
		text := syntax.Error()
		space := strings.HasPrefix(text, "invalid character ' '") && !bytes.HasSuffix(payload, []byte(" "))
		if at == len(payload)-1 && (space || text == "unexpected end of JSON input") {
			at++
		}
	}
	return &SyntaxError{Offset: at, Want: "well-formed JSON", Got: found(payload, at)}
}

// peek passes white space and returns the first byte of the next value.
func (c *cursor) peek() byte {
	for c.i < len(c.b) && (c.b[c.i] <= ' ' || c.b[c.i] == ',' || c.b[c.i] == ':') {
		c.i++
	}
	if c.i == len(c.b) {
		return 0
	}
	return c.b[c.i]
}

// open passes the bracket, '[' or '{', if it stands there.
func (c *cursor) open(bracket byte) bool {
	if c.peek() != bracket {
		return false
	}
	c.i++
	return true
}

// more reports whether another element or member follows; else it passes the closing bracket.
func (c *cursor) more() bool {
	if p := c.peek(); p != ']' && p != '}' && p != 0 {
		return true
	}
	c.i = min(c.i+1, len(c.b))
	return false
}

// text reads a string, escapes and all. A key is read so, too.
func (c *cursor) text() (Span, bool) {
	if c.peek() != '"' {
		return Span{}, false
	}
	from := c.i + 1
	for c.i = from; c.i < len(c.b) && c.b[c.i] != '"'; c.i++ {
		if c.b[c.i] == '\\' {
			c.i++
		}
	}
	to := min(c.i, len(c.b))
	c.i = min(to+1, len(c.b))
	return Span{uint32(from), uint32(to)}, true
}

// key reads the key of a member.
func (c *cursor) key() []byte {
	s, _ := c.text()
	return s.In(c.b)
}

// skip passes one value.
func (c *cursor) skip() {
	for depth := 0; ; {
		switch c.peek() {
		case '"':
			c.text()
		case '[', '{':
			c.i++
			depth++
		case ']', '}':
			c.i++
			depth--
		default:
			c.literal()
		}
		if depth <= 0 || c.i >= len(c.b) {
			return
		}
	}
}

// literal reads a number, true, false or null.
func (c *cursor) literal() []byte {
	from := c.i
	for c.i < len(c.b) && !strings.ContainsRune(" \t\r\n,:]}", rune(c.b[c.i])) {
		c.i++
	}
	return c.b[from:c.i]
}

// null passes null.
func (c *cursor) null() bool {
	if c.peek() != 'n' {
		return false
	}
	c.literal()
	return true
}

// integer reads an integer from -2^63 to 2^64-1, negative ones in two's complement. It passes any value.
func (c *cursor) integer() (v uint64, negative, ok bool) {
	if p := c.peek(); p != '-' && (p < '0' || p > '9') {
		c.skip()
		return 0, false, false
	}
	text := c.literal()
	if negative = text[0] == '-'; negative {
		text = text[1:]
	}
	for _, digit := range text {
		if digit < '0' || digit > '9' || v > (math.MaxUint64-uint64(digit-'0'))/10 {
			return 0, false, false
		}
		v = v*10 + uint64(digit-'0')
	}
	if negative {
		if v > 1<<63 {
			return 0, false, false
		}
		return -v, v > 0, true
	}
	return v, false, true
}

// within reads an integer from 0 to limit.
func (c *cursor) within(limit uint64) (uint64, bool) {
	v, negative, ok := c.integer()
	return v, ok && !negative && v <= limit
}
