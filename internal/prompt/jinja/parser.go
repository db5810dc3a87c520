package jinja

import "fmt"

// Bounds of the parser, which keep the depth of the tree, and with it the stack of a rendering, in check.
const (
	maxSource  = 4 << 20 // bytes
	maxNesting = 500     // levels of brackets, blocks, and signs
	maxChain   = 1000    // operators in a row
)

type parser struct {
	name   string
	source string
	tokens []token
	at     int
	depth  int
	loops  int // enclosing loops of the current routine, for break and continue
	within int // all enclosing loops
	blocks map[string]bool
}

func (p *parser) peek() token { return p.tokens[p.at] }

// next is the next token. Behind the last one, it is the last one again.
func (p *parser) next() token {
	t := p.tokens[p.at]
	if p.at < len(p.tokens)-1 {
		p.at++
	}
	return t
}

func (p *parser) isOperator(text string) bool {
	t := &p.tokens[p.at]
	return t.kind == tokenOperator && t.text == text
}

func (p *parser) isName(text string) bool {
	t := &p.tokens[p.at]
	return t.kind == tokenName && t.text == text
}

// skip moves behind the operator if it comes next.
func (p *parser) skip(operator string) bool {
	if !p.isOperator(operator) {
		return false
	}
	p.next()
	return true
}

// skipName moves behind the name if it comes next.
func (p *parser) skipName(text string) bool {
	if !p.isName(text) {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(operator string) error {
	if !p.skip(operator) {
		return p.unexpected(fmt.Sprintf("%q", operator))
	}
	return nil
}

func (p *parser) expectName(text string) error {
	if !p.skipName(text) {
		return p.unexpected(fmt.Sprintf("%q", text))
	}
	return nil
}

func (p *parser) expectKind(kind tokenKind) error {
	if p.peek().kind != kind {
		return p.unexpected(token{kind: kind}.describe())
	}
	p.next()
	return nil
}

func (p *parser) identifier() (token, error) {
	if p.peek().kind != tokenName {
		return token{}, p.unexpected("a name")
	}
	return p.next(), nil
}

func (p *parser) unexpected(expected string) error {
	t := p.peek()
	return p.fail(t.pos, "found %s, expected %s", t.describe(), expected)
}

func (p *parser) fail(pos int32, format string, a ...any) error {
	return &SyntaxError{Position: positionIn(p.name, p.source, pos), Message: fmt.Sprintf(format, a...)}
}

func (p *parser) enter() error {
	if p.depth++; p.depth > maxNesting {
		return p.fail(p.peek().pos, "found more than %d levels", maxNesting)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

func (p *parser) chain(n int) error {
	if n >= maxChain {
		return p.fail(p.peek().pos, "found more than %d operators in a row", maxChain)
	}
	return nil
}
