package jinja

import (
	"fmt"
	"sync"
	"unicode/utf8"
)

// Template is a parsed template. It never changes and is safe for concurrent use.
type Template struct {
	name    string
	source  string // with line breaks made \n
	body    []statement
	scope   []preset
	slots   int
	globals []string  // the names of variables that the template does not define itself
	idle    sync.Pool // of *renderer
}

// Parse parses a template. The name is for error messages. The error is a *SyntaxError.
func Parse(name, source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, &SyntaxError{
			Position: Position{Name: name, Line: 1, Column: 1},
			Message:  fmt.Sprintf("found %d bytes, expected at most %d", len(source), maxSource),
		}
	}
	if !utf8.ValidString(source) {
		return nil, &SyntaxError{Position: positionIn(name, source, int32(invalidOffset(source))), Message: "found bytes that are no UTF-8"}
	}
	source = normalize(source)
	tokens, err := lex(name, source)
	if err != nil {
		return nil, err
	}
	p := &parser{name: name, source: source, tokens: tokens}
	body, err := p.body()
	if err != nil {
		return nil, err
	}
	r := &resolver{parser: p, byName: map[string]int32{}}
	root := newScope(nil, &frameScope{})
	if err := r.scoped(root, body); err != nil {
		return nil, err
	}
	return &Template{
		name: name, source: source, body: body, scope: root.preset, slots: root.frame.slots, globals: r.globals,
	}, nil
}

// Variables lists the names that the template reads and does not define itself, in the order of their first use. They
// include functions such as raise_exception.
func (t *Template) Variables() []string { return append([]string{}, t.globals...) }
