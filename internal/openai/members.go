package openai

import (
	"iter"
	"slices"
)

// member is one top-level member of a body: from its key's quote to the end of its value.
type member struct{ whole, value Span }

// AppendWithout appends body to dst without its top-level members of these names, however often they are there; every
// other byte stays as it is, but for a comma beside each. body must be a JSON object that Scan accepts: anything else is
// appended as it is. It is meant for members that some engines refuse, such as nvext.
func AppendWithout(dst, body []byte, keys ...string) []byte {
	s, start := scanner{b: body}, len(dst)
	end := 0      // of the member before; what stands in front of the first one counts as its end
	first := true // nothing is kept yet, so no comma is wanted
	for key, m := range s.members() {
		if end == 0 {
			dst = append(dst, body[:m.whole.From]...)
			end = m.whole.From
		}
		if !slices.Contains(keys, string(key)) {
			from := end
			if first {
				from = m.whole.From
			}
			dst, first = append(dst, body[from:m.whole.To]...), false
		}
		end = m.whole.To
	}
	if s.err != nil {
		dst, end = dst[:start], 0
	}
	return append(dst, body[end:]...)
}

// AppendWithMember appends body to dst with one top-level member set to value, which is JSON: the last member of that
// name is changed, since it is the one that counts; where there is none, one is added in front. body must be a JSON object
// that Scan accepts: anything else is appended as it is.
func AppendWithMember(dst, body []byte, key, value string) []byte {
	s := scanner{b: body}
	var found Span
	empty := true
	for k, m := range s.members() {
		empty = false
		if string(k) == key {
			found = m.value
		}
	}
	if s.err != nil {
		return append(dst, body...)
	}
	add := splice{at: found, value: value}
	if found.Empty() {
		inside := scanner{b: body}
		inside.open('{')
		add = object{inside: inside.i, empty: empty}.insert(key, value)
	}
	dst = append(dst, body[:add.at.From]...)
	dst = add.append(dst)
	return append(dst, body[add.at.To:]...)
}

// Members goes through the members of a JSON object: their keys, escapes resolved, and their values as raw JSON. A key is
// valid until the next one; values share memory with object. What is no JSON object ends early, at its mistake.
func Members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		s := scanner{b: object}
		for key, m := range s.members() {
			if !yield(key, m.value.In(object)) {
				return
			}
		}
	}
}

// Elements goes through the elements of a JSON array, as Members does for objects.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s := scanner{b: array}
		s.open('[')
		for more := s.element(true); more; more = s.element(false) {
			value := s.skip()
			if s.err != nil || !yield(value.In(array)) {
				return
			}
		}
	}
}

// members goes through the members of the object that is the whole body. Where the body is wrong it ends, and err says why.
// A key is valid until the next one.
func (s *scanner) members() iter.Seq2[[]byte, member] {
	return func(yield func([]byte, member) bool) {
		var key []byte
		s.open('{')
		for first := true; s.err == nil && !s.take('}'); first = false {
			if !first && !s.take(',') {
				s.unexpected("',' or '}' after the object member")
				return
			}
			s.peek()
			from := s.i
			name, ok := s.name()
			if !ok {
				return
			}
			key = append(key[:0], name...) // skip may read other keys
			value := s.skip()
			if s.err != nil || !yield(key, member{Span{from, value.To}, value}) {
				return
			}
		}
	}
}
