package openai

import "strconv"

// maxDepth bounds how deep arrays and objects may nest: far deeper than any real body (a schema in a tool reaches about
// 20), and shallow enough that a hostile one cannot make readers of it run out of stack.
const maxDepth = 128

// Span is a half-open range of bytes of a body.
type Span struct{ From, To int }

// In is the part of body that the span covers. It shares memory with body.
func (s Span) In(body []byte) []byte { return body[s.From:s.To] }

// Empty reports whether the span covers nothing; so does the zero value.
func (s Span) Empty() bool { return s.From == s.To }

// Len is the number of bytes covered.
func (s Span) Len() int { return s.To - s.From }

// scanner walks over a JSON text, checking it on the way. Errors stick: after the first one every method does nothing
// and every loop over members or elements ends, so callers look at err once, at the end.
//
// Methods that read a value expect the position before it, white space allowed, and leave it behind the value.
type scanner struct {
	b     []byte
	i     int
	depth int // open arrays and objects
	err   error
	marks marks
	key   [64]byte // the last key that was written with escapes
}

func (s *scanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.i = len(s.b)
}

// unexpected fails at the current position.
func (s *scanner) unexpected(want string) { s.unexpectedAt(s.i, want) }

func (s *scanner) unexpectedAt(i int, want string) {
	if s.err == nil {
		s.fail(&SyntaxError{Offset: i, Want: want, Got: found(s.b, i)})
	}
}

// peek passes white space and returns the byte after it; 0 at the end of the body.
func (s *scanner) peek() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\n', '\r', '\t':
		default:
			return c
		}
	}
	return 0
}

// take passes the byte c, white space before it allowed, and reports whether it was there.
func (s *scanner) take(c byte) bool {
	if s.peek() != c || s.i == len(s.b) {
		return false
	}
	s.i++
	return true
}

// end checks that nothing but white space follows.
func (s *scanner) end() {
	if s.peek(); s.i < len(s.b) {
		s.unexpected("the end of the body")
	}
}

// str reads a string that begins at the current position and returns its contents: without quotes, still escaped.
func (s *scanner) str() (contents Span, form Form) {
	from := s.i + 1
	end, form, ok := s.stringEnd(from)
	if !ok {
		s.unexpectedAt(end, wantInString(s.b, end))
		return Span{}, Plain
	}
	s.i = end + 1
	return Span{from, end}, form
}

func wantInString(b []byte, i int) string {
	switch {
	case i >= len(b):
		return "'\"' at the end of the string"
	case b[i] < 0x20:
		return "an escape sequence for a control character"
	default:
		return "a valid escape sequence"
	}
}

// open passes the bracket c, '{' or '['. The caller has seen it.
func (s *scanner) open(c byte) {
	switch {
	case !s.take(c):
		s.unexpected("'" + string(rune(c)) + "'")
	case s.depth == maxDepth:
		s.unexpectedAt(s.i-1, "at most "+strconv.Itoa(maxDepth)+" nested arrays and objects")
	default:
		s.depth++
	}
}

// member goes to the value of the next member of an object and returns its key, escapes resolved; first says that the
// object was just opened. more is false after the last member, when the closing bracket was passed, and after errors.
// The key is valid until the value is read.
func (s *scanner) member(first bool) (key []byte, more bool) {
	if s.take('}') {
		s.depth--
		return nil, false
	}
	if !first && !s.take(',') {
		s.unexpected("',' or '}' after the object member")
		return nil, false
	}
	return s.name()
}

// name reads a key and its colon.
func (s *scanner) name() (key []byte, ok bool) {
	if s.peek() != '"' {
		s.unexpected("an object key")
		return nil, false
	}
	span, form := s.str()
	if s.err != nil {
		return nil, false
	}
	if !s.take(':') {
		s.unexpected("':' after the object key")
		return nil, false
	}
	key = span.In(s.b)
	if form != Plain {
		// Keys that matter are short: one that does not fit cannot be among them, whatever its first bytes are.
		n, read := unescape(s.key[:], key)
		if read < len(key) {
			n = 0
		}
		key = s.key[:n]
	}
	return key, true
}

// element goes to the next element of an array, as member does for objects.
func (s *scanner) element(first bool) (more bool) {
	if s.take(']') {
		s.depth--
		return false
	}
	if !first && !s.take(',') {
		s.unexpected("',' or ']' after the array element")
		return false
	}
	return s.err == nil
}
