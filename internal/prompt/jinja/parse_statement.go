package jinja

// body reads statements up to a tag that begins with one of the names, which it leaves to be read. Without names it reads to
// the end of the template.
func (p *parser) body(ends ...string) ([]statement, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var out []statement
	for {
		t := p.next()
		switch t.kind {
		case tokenEOF:
			if len(ends) > 0 {
				return nil, p.fail(t.pos, "found the end of the template, expected {%% %s %%}", ends[0])
			}
			return out, nil
		case tokenData:
			out = append(out, &text{t.text})
		case tokenPrintBegin:
			e, err := p.tuple(tupleRules{})
			if err != nil {
				return nil, err
			}
			out = append(out, &printing{e, t.pos})
			if err := p.expectKind(tokenPrintEnd); err != nil {
				return nil, err
			}
		case tokenBlockBegin:
			for _, end := range ends {
				if p.isName(end) {
					return out, nil
				}
			}
			s, err := p.statement()
			if err != nil {
				return nil, err
			}
			out = append(out, s)
			if err := p.expectKind(tokenBlockEnd); err != nil {
				return nil, err
			}
		default:
			return nil, p.fail(t.pos, "found %s, expected text or a tag", t.describe())
		}
	}
}

// enclosed reads the rest of a tag, the body behind it, and the name of the tag that ends the body.
func (p *parser) enclosed(end string) ([]statement, error) {
	if err := p.expectKind(tokenBlockEnd); err != nil {
		return nil, err
	}
	body, err := p.body(end)
	if err == nil {
		err = p.expectName(end)
	}
	return body, err
}

// separate reads a body that is a routine of its own: the loops around it are out of its reach.
func (p *parser) separate(end string) ([]statement, error) {
	loops := p.loops
	p.loops = 0
	body, err := p.enclosed(end)
	p.loops = loops
	return body, err
}

func (p *parser) statement() (statement, error) {
	t, err := p.identifier()
	if err != nil {
		return nil, err
	}
	switch t.text {
	case "if":
		return p.ifStatement()
	case "for":
		return p.forStatement(t.pos)
	case "set":
		return p.set(t.pos)
	case "with":
		return p.with(t.pos)
	case "macro":
		return p.macro(t.pos)
	case "call":
		return p.callBlock(t.pos)
	case "filter":
		return p.filterBlock()
	case "generation":
		body, err := p.separate("endgeneration")
		return &generation{routine: &routine{name: "generation", body: body, pos: t.pos}, pos: t.pos}, err
	case "print":
		return p.print(t.pos)
	case "block":
		return p.block()
	case "break", "continue":
		if p.loops == 0 {
			return nil, p.fail(t.pos, "found %q, expected it inside of a loop", t.text)
		}
		if t.text == "break" {
			return &jump{breakLoop}, nil
		}
		return &jump{continueLoop}, nil
	case "include", "import", "from", "extends", "autoescape":
		return p.unsupported(t)
	}
	return nil, p.fail(t.pos, "found the tag %q, expected a tag that Jinja knows", t.text)
}

func (p *parser) ifStatement() (statement, error) {
	s := &ifStatement{}
	for {
		test, err := p.tuple(tupleRules{noConditional: true})
		if err != nil {
			return nil, err
		}
		if err := p.expectKind(tokenBlockEnd); err != nil {
			return nil, err
		}
		body, err := p.body("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.branches = append(s.branches, branch{test, body})
		switch p.next().text {
		case "elif":
		case "else":
			s.otherwise, err = p.enclosed("endif")
			return s, err
		default:
			return s, nil
		}
	}
}

func (p *parser) forStatement(pos int32) (statement, error) {
	s := &forStatement{pos: pos}
	p.within++
	defer func() { p.within-- }()
	var err error
	if s.target, err = p.target(tupleRules{target: true, end: "in"}); err != nil {
		return nil, err
	}
	if err := p.expectName("in"); err != nil {
		return nil, err
	}
	if s.iter, err = p.tuple(tupleRules{noConditional: true, end: "recursive"}); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if s.test, err = p.expression(); err != nil {
			return nil, err
		}
	}
	s.recursive = p.skipName("recursive")
	if err := p.expectKind(tokenBlockEnd); err != nil {
		return nil, err
	}
	p.loops++
	s.body, err = p.body("endfor", "else")
	p.loops--
	if err != nil {
		return nil, err
	}
	if p.next().text == "else" {
		s.otherwise, err = p.enclosed("endfor")
	}
	return s, err
}

// target reads what is assigned to: a name, a tuple of targets, or an attribute of a namespace.
func (p *parser) target(rules tupleRules) (expression, error) {
	pos := p.peek().pos
	e, err := p.tuple(rules)
	if err != nil {
		return nil, err
	}
	if !assignable(e) {
		return nil, p.fail(pos, "found an expression, expected a name to assign to")
	}
	if p.within > 0 && assigns(e, "loop") {
		return nil, p.fail(pos, `found an assignment to "loop", which is the loop itself inside of one`)
	}
	return e, nil
}

func assigns(target expression, text string) bool {
	switch t := target.(type) {
	case *name:
		return t.text == text
	case *tupleLiteral:
		for _, item := range t.items {
			if assigns(item, text) {
				return true
			}
		}
	}
	return false
}

func assignable(e expression) bool {
	switch e := e.(type) {
	case *name, *attribute:
		return true
	case *tupleLiteral:
		for _, item := range e.items {
			if !assignable(item) {
				return false
			}
		}
		return true
	}
	return false
}

func (p *parser) set(pos int32) (statement, error) {
	target, err := p.target(tupleRules{target: true})
	if err != nil {
		return nil, err
	}
	if p.skip("=") {
		s := &set{target: target, pos: pos}
		s.value, err = p.tuple(tupleRules{})
		return s, err
	}
	s := &setBlock{target: target, pos: pos}
	if s.filter, err = p.filterChain(nil); err != nil {
		return nil, err
	}
	s.body, err = p.enclosed("endset")
	return s, err
}

// filterChain reads filters up to the end of the tag. The innermost has no operand.
func (p *parser) filterChain(f *filter) (*filter, error) {
	for p.skip("|") {
		var operand expression
		if f != nil {
			operand = f
		}
		var err error
		if f, err = p.filter(operand); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (p *parser) filterBlock() (statement, error) {
	f, err := p.filter(nil)
	if err != nil {
		return nil, err
	}
	s := &filterBlock{}
	if s.filter, err = p.filterChain(f); err != nil {
		return nil, err
	}
	s.body, err = p.enclosed("endfilter")
	return s, err
}

func (p *parser) with(pos int32) (statement, error) {
	s := &with{pos: pos}
	for p.peek().kind != tokenBlockEnd {
		if len(s.targets) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		// One target each: a comma begins the next pair.
		target, err := p.primary(false)
		if err != nil {
			return nil, err
		}
		if !assignable(target) {
			return nil, p.fail(pos, "found an expression, expected a name to assign to")
		}
		if err := p.expect("="); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.targets, s.values = append(s.targets, target), append(s.values, value)
	}
	var err error
	s.body, err = p.enclosed("endwith")
	return s, err
}

func (p *parser) macro(pos int32) (statement, error) {
	t, err := p.identifier()
	if err != nil {
		return nil, err
	}
	r := &routine{name: t.text, pos: pos}
	if err := p.expect("("); err != nil {
		return nil, err
	}
	if err := p.signature(r); err != nil {
		return nil, err
	}
	r.body, err = p.separate("endmacro")
	return &macroStatement{&name{text: t.text, pos: t.pos}, r}, err
}

// signature reads the parameters of a routine whose parenthesis is open already.
func (p *parser) signature(r *routine) error {
	for !p.isOperator(")") {
		if len(r.params) > 0 {
			if err := p.expect(","); err != nil {
				return err
			}
		}
		t, err := p.identifier()
		if err != nil {
			return err
		}
		for _, other := range r.params {
			if other.text == t.text {
				return p.fail(t.pos, "found the parameter %q again", t.text)
			}
		}
		r.params = append(r.params, &name{text: t.text, pos: t.pos})
		switch {
		case p.skip("="):
			e, err := p.expression()
			if err != nil {
				return err
			}
			r.defaults = append(r.defaults, e)
		case len(r.defaults) > 0:
			return p.fail(t.pos, "found the parameter %q without a default, expected one as before it", t.text)
		}
	}
	p.next()
	return nil
}

func (p *parser) callBlock(pos int32) (statement, error) {
	s := &callBlock{routine: &routine{name: "caller", pos: pos}, pos: pos}
	if p.skip("(") {
		if err := p.signature(s.routine); err != nil {
			return nil, err
		}
	}
	at := p.peek().pos
	e, err := p.expression()
	if err != nil {
		return nil, err
	}
	c, ok := e.(*call)
	if !ok {
		return nil, p.fail(at, "found an expression, expected a call")
	}
	s.call = c
	s.routine.body, err = p.separate("endcall")
	return s, err
}

func (p *parser) print(pos int32) (statement, error) {
	s := &ifStatement{} // of one branch that is always taken: a list of statements
	var prints []statement
	for p.peek().kind != tokenBlockEnd {
		if len(prints) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		prints = append(prints, &printing{e, pos})
	}
	s.branches = []branch{{&constant{Bool(true)}, prints}}
	return s, nil
}

func (p *parser) block() (statement, error) {
	t, err := p.identifier()
	if err != nil {
		return nil, err
	}
	if p.blocks[t.text] {
		return nil, p.fail(t.pos, "found the block %q again", t.text)
	}
	if p.blocks == nil {
		p.blocks = map[string]bool{}
	}
	p.blocks[t.text] = true
	for p.skipName("scoped") || p.skipName("required") {
	}
	s := &block{}
	loops := p.loops
	p.loops = 0
	s.body, err = p.enclosed("endblock")
	p.loops = loops
	p.skipName(t.text)
	return s, err
}

// unsupported reads over a tag that needs other templates. As there is no loader, it fails when it is reached.
func (p *parser) unsupported(t token) (statement, error) {
	if t.text == "autoescape" {
		return nil, p.fail(t.pos, `found "autoescape", expected a tag that chat templates may use`)
	}
	for p.peek().kind != tokenBlockEnd && p.peek().kind != tokenEOF {
		p.next()
	}
	return &unsupported{t.text, t.pos}, nil
}
