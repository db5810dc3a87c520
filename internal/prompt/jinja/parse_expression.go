package jinja

import "strings"

// The grammar of expressions, in Jinja's order of precedence, weakest first:
//
//	conditional  a if b else c
//	or, and, not
//	comparison   == != < > <= >= in, not in
//	sum          + -
//	concat       ~
//	product      * / // %
//	power        **
//	unary        - +
//	postfix      a.b a[b] a(b), then a|filter, a is test

func (p *parser) expression() (expression, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	return p.conditional()
}

func (p *parser) conditional() (expression, error) {
	e, err := p.or()
	for n := 0; err == nil && p.skipName("if"); n++ {
		if err = p.chain(n); err != nil {
			break
		}
		c := &conditional{yes: e}
		if c.test, err = p.or(); err != nil {
			break
		}
		if p.skipName("else") {
			if err = p.enter(); err != nil {
				break
			}
			c.no, err = p.conditional()
			p.leave()
		}
		e = c
	}
	return e, err
}

func (p *parser) or() (expression, error) {
	e, err := p.and()
	for n := 0; err == nil && p.skipName("or"); n++ {
		if err = p.chain(n); err != nil {
			break
		}
		o := &or{left: e}
		o.right, err = p.and()
		e = o
	}
	return e, err
}

func (p *parser) and() (expression, error) {
	e, err := p.not()
	for n := 0; err == nil && p.skipName("and"); n++ {
		if err = p.chain(n); err != nil {
			break
		}
		a := &and{left: e}
		a.right, err = p.not()
		e = a
	}
	return e, err
}

func (p *parser) not() (expression, error) {
	if !p.skipName("not") {
		return p.comparison()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	e, err := p.not()
	return &not{e}, err
}

func (p *parser) comparison() (expression, error) {
	pos := p.peek().pos
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := &compare{first: first, pos: pos}
	for {
		op := ""
		switch t := p.peek(); {
		case t.kind == tokenOperator && isComparison(t.text):
			op = t.text
			p.next()
		case p.skipName("in"):
			op = "in"
		case p.isName("not") && p.tokens[p.at+1].kind == tokenName && p.tokens[p.at+1].text == "in":
			op = "not in"
			p.at += 2
		}
		if op == "" {
			break
		}
		operand, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.rest = append(c.rest, comparison{op, operand})
	}
	if len(c.rest) == 0 {
		return first, nil
	}
	return c, nil
}

func isComparison(s string) bool {
	switch s {
	case "==", "!=", "<", ">", "<=", ">=":
		return true
	}
	return false
}

func (p *parser) sum() (expression, error) {
	e, err := p.concat()
	for n := 0; err == nil; n++ {
		t := p.peek()
		if t.kind != tokenOperator || t.text != "+" && t.text != "-" {
			break
		}
		if err = p.chain(n); err != nil {
			break
		}
		p.next()
		var right expression
		if right, err = p.concat(); err != nil {
			break
		}
		if t.text == "-" {
			e = &binary{operator: opSub, left: e, right: right, pos: t.pos}
			continue
		}
		s, ok := e.(*sum)
		if !ok || n == 0 { // a sum in parentheses is a term
			s = &sum{terms: []expression{e}}
			e = s
		}
		s.terms = append(s.terms, right)
		s.positions = append(s.positions, t.pos)
	}
	return e, err
}

func (p *parser) concat() (expression, error) {
	e, err := p.product()
	if err != nil || !p.isOperator("~") {
		return e, err
	}
	c := &concat{terms: []expression{e}, pos: p.peek().pos}
	for p.skip("~") {
		if e, err = p.product(); err != nil {
			return nil, err
		}
		c.terms = append(c.terms, e)
	}
	return c, nil
}

func (p *parser) product() (expression, error) {
	e, err := p.power()
	for n := 0; err == nil; n++ {
		t := p.peek()
		if t.kind != tokenOperator {
			break
		}
		op := opMul
		switch t.text {
		case "*":
		case "/":
			op = opDiv
		case "//":
			op = opFloorDiv
		case "%":
			op = opMod
		default:
			return e, nil
		}
		if err = p.chain(n); err != nil {
			break
		}
		p.next()
		b := &binary{operator: op, left: e, pos: t.pos}
		b.right, err = p.power()
		e = b
	}
	return e, err
}

func (p *parser) power() (expression, error) {
	e, err := p.unary(true)
	for n := 0; err == nil && p.isOperator("**"); n++ {
		if err = p.chain(n); err != nil {
			break
		}
		b := &binary{operator: opPow, left: e, pos: p.next().pos}
		b.right, err = p.unary(true)
		e = b
	}
	return e, err
}

// unary reads an operand with its signs, and, unless it is inside of another one, its filters and tests.
func (p *parser) unary(filters bool) (expression, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var e expression
	var err error
	if t := p.peek(); t.kind == tokenOperator && (t.text == "-" || t.text == "+") {
		p.next()
		u := &unary{operator: t.text[0], pos: t.pos}
		u.operand, err = p.unary(false)
		e = u
	} else {
		e, err = p.primary(false)
	}
	if err == nil {
		e, err = p.postfix(e)
	}
	if err == nil && filters {
		e, err = p.filters(e)
	}
	return e, err
}

// primary reads a name, a literal, or something in parentheses. As an assignment target, a name may be that of a
// namespace's attribute.
func (p *parser) primary(target bool) (expression, error) {
	t := p.peek()
	switch {
	case t.kind == tokenName:
		p.next()
		switch t.text {
		case "true", "True":
			return &constant{Bool(true)}, nil
		case "false", "False":
			return &constant{Bool(false)}, nil
		case "none", "None":
			return &constant{None()}, nil
		}
		n := &name{text: t.text, pos: t.pos}
		if !target || !p.skip(".") {
			return n, nil
		}
		attr, err := p.identifier()
		return &attribute{object: n, name: attr.text, pos: t.pos}, err
	case t.kind == tokenString:
		p.next()
		parts := []string{t.text}
		for p.peek().kind == tokenString {
			parts = append(parts, p.next().text)
		}
		return &constant{String(strings.Join(parts, ""))}, nil
	case t.kind == tokenNumber:
		p.next()
		return &constant{t.value}, nil
	case p.skip("("):
		e, err := p.tuple(tupleRules{parentheses: true})
		if err == nil {
			err = p.expect(")")
		}
		return e, err
	case p.skip("["):
		items, err := p.items("]")
		return &listLiteral{items}, err
	case p.skip("{"):
		return p.dict(t.pos)
	}
	return nil, p.unexpected("an expression")
}

// items reads a list of expressions up to the closing bracket.
func (p *parser) items(end string) ([]expression, error) {
	var items []expression
	for !p.isOperator(end) {
		if len(items) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
			if p.isOperator(end) {
				break
			}
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		items = append(items, e)
	}
	return items, p.expect(end)
}

func (p *parser) dict(pos int32) (expression, error) {
	d := &dictLiteral{pos: pos}
	for !p.isOperator("}") {
		if len(d.keys) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
			if p.isOperator("}") {
				break
			}
		}
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expect(":"); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, key), append(d.values, value)
	}
	return d, p.expect("}")
}

// tupleRules tell where a tuple may stand.
type tupleRules struct {
	parentheses   bool   // it may be empty
	target        bool   // only names, attributes of namespaces, and literals
	noConditional bool   // no inline if
	end           string // a name that ends it
}

// tuple reads an expression, or several with commas between, which make a tuple.
func (p *parser) tuple(rules tupleRules) (expression, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var items []expression
	comma := false
	for !p.tupleEnd(rules.end) {
		var e expression
		var err error
		switch {
		case rules.target:
			e, err = p.primary(true)
		case rules.noConditional:
			e, err = p.or()
		default:
			e, err = p.conditional()
		}
		if err != nil {
			return nil, err
		}
		items = append(items, e)
		if !p.skip(",") {
			break
		}
		comma = true
	}
	switch {
	case !comma && len(items) == 1:
		return items[0], nil
	case len(items) == 0 && !rules.parentheses:
		return nil, p.unexpected("an expression")
	}
	return &tupleLiteral{items}, nil
}

func (p *parser) tupleEnd(end string) bool {
	t := p.peek()
	return t.kind == tokenBlockEnd || t.kind == tokenPrintEnd || p.isOperator(")") || end != "" && p.isName(end)
}

// postfix reads attributes, subscripts, and calls behind an operand.
func (p *parser) postfix(e expression) (expression, error) {
	for n := 0; ; n++ {
		t := p.peek()
		if t.kind != tokenOperator || t.text != "." && t.text != "[" && t.text != "(" {
			return e, nil
		}
		err := p.chain(n)
		if err != nil {
			return nil, err
		}
		p.next()
		switch t.text {
		case ".":
			e, err = p.dot(e, t.pos)
		case "[":
			s := &subscript{object: e, pos: t.pos}
			s.index, err = p.index()
			e = s
		default:
			c := &call{callee: e, pos: t.pos}
			c.arguments, err = p.arguments(t.pos)
			e = c
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) dot(e expression, pos int32) (expression, error) {
	switch t := p.next(); t.kind {
	case tokenName:
		return &attribute{object: e, name: t.text, pos: pos}, nil
	case tokenNumber:
		if t.value.kind == KindInt {
			return &subscript{object: e, index: &constant{t.value}, pos: pos}, nil
		}
		fallthrough
	default:
		p.at--
		return nil, p.unexpected("a name or a number")
	}
}

// index reads what stands in brackets: an expression, a slice, or several of them, which make a tuple.
func (p *parser) index() (expression, error) {
	var items []expression
	for !p.isOperator("]") {
		if len(items) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		e, err := p.subscripted()
		if err != nil {
			return nil, err
		}
		items = append(items, e)
	}
	p.next()
	if len(items) == 1 {
		return items[0], nil
	}
	return &tupleLiteral{items}, nil
}

func (p *parser) subscripted() (expression, error) {
	s := &slicing{}
	if !p.isOperator(":") {
		e, err := p.expression()
		if err != nil || !p.isOperator(":") {
			return e, err
		}
		s.start = e
	}
	p.next()
	for _, bound := range []*expression{&s.stop, &s.step} {
		if !p.isOperator(":") && !p.isOperator("]") && !p.isOperator(",") {
			e, err := p.expression()
			if err != nil {
				return nil, err
			}
			*bound = e
		}
		if bound == &s.stop && !p.skip(":") {
			break
		}
	}
	return s, nil
}

// arguments reads the arguments of a call whose parenthesis is open already.
func (p *parser) arguments(pos int32) (arguments, error) {
	var a arguments
	for first := true; !p.isOperator(")"); first = false {
		if !first {
			if err := p.expect(","); err != nil {
				return a, err
			}
			if p.isOperator(")") {
				break
			}
		}
		var ordered bool
		var err error
		t, after := p.peek(), p.tokens[min(p.at+1, len(p.tokens)-1)]
		switch {
		case p.skip("*"):
			ordered = a.spread == nil && a.spreadKeys == nil
			a.spread, err = p.expression()
		case p.skip("**"):
			ordered = a.spreadKeys == nil
			a.spreadKeys, err = p.expression()
		case t.kind == tokenName && after.kind == tokenOperator && after.text == "=":
			ordered = a.spreadKeys == nil
			p.at += 2
			k := keyword{name: t.text}
			k.value, err = p.expression()
			for _, other := range a.keywords {
				if other.name == k.name {
					return a, p.fail(t.pos, "found the argument %q again", t.text)
				}
			}
			a.keywords = append(a.keywords, k)
		default:
			ordered = a.spread == nil && a.spreadKeys == nil && len(a.keywords) == 0
			var e expression
			e, err = p.expression()
			a.positional = append(a.positional, e)
		}
		if err != nil {
			return a, err
		}
		if !ordered {
			return a, p.fail(pos, "found arguments in a wrong order, expected positional ones first")
		}
	}
	p.next()
	return a, nil
}

// filters reads the filters, tests, and calls behind an operand.
func (p *parser) filters(e expression) (expression, error) {
	for n := 0; ; n++ {
		t := p.peek()
		if !p.isOperator("|") && !p.isOperator("(") && !p.isName("is") {
			return e, nil
		}
		err := p.chain(n)
		if err != nil {
			return nil, err
		}
		p.next()
		switch t.text {
		case "|":
			e, err = p.filter(e)
		case "is":
			e, err = p.test(e, t.pos)
		default:
			c := &call{callee: e, pos: t.pos}
			c.arguments, err = p.arguments(t.pos)
			e = c
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) filter(operand expression) (*filter, error) {
	t, err := p.dottedName()
	if err != nil {
		return nil, err
	}
	f := &filter{operand: operand, name: t.text, run: filterNamed(t.text), pos: t.pos}
	if open := p.peek().pos; p.skip("(") {
		f.arguments, err = p.arguments(open)
	}
	return f, err
}

func (p *parser) test(operand expression, pos int32) (expression, error) {
	negated := p.skipName("not")
	t, err := p.dottedName()
	if err != nil {
		return nil, err
	}
	s := &test{operand: operand, name: t.text, run: testNamed(t.text), pos: pos}
	open := p.peek()
	switch {
	case p.skip("("):
		s.arguments, err = p.arguments(open.pos)
	case p.testOperand():
		if p.isName("is") {
			return nil, p.fail(open.pos, `found "is" behind a test, expected "and"`)
		}
		var e expression
		if e, err = p.primary(false); err == nil {
			e, err = p.postfix(e)
		}
		s.positional = []expression{e}
	}
	if err != nil {
		return nil, err
	}
	if negated {
		return &not{s}, nil
	}
	return s, nil
}

// testOperand tells whether an operand without parentheses follows the name of a test.
func (p *parser) testOperand() bool {
	switch t := p.peek(); t.kind {
	case tokenString, tokenNumber:
		return true
	case tokenName:
		return t.text != "else" && t.text != "or" && t.text != "and"
	case tokenOperator:
		return t.text == "[" || t.text == "{"
	default:
		return false
	}
}

func (p *parser) dottedName() (token, error) {
	t, err := p.identifier()
	for err == nil && p.skip(".") {
		var more token
		more, err = p.identifier()
		t.text += "." + more.text
	}
	return t, err
}
