//go:build !amd64

package openai

// marks are what is known of strings in advance: nothing.
type marks struct{}

// stringEnd finds the quote that ends the string whose contents begin at i, and tells their form. When ok is false, end is
// where the string is wrong.
func (s *scanner) stringEnd(i int) (end int, form Form, ok bool) { return stringEnd(s.b, i) }
