package jinja

// visit calls f for e and all expressions inside of it, in the order of the source. f tells whether to go on inside.
func visit(e expression, f func(expression) bool) {
	if isNil(e) || !f(e) {
		return
	}
	all := func(list ...expression) {
		for _, item := range list {
			visit(item, f)
		}
	}
	arguments := func(a arguments) {
		all(a.positional...)
		for _, k := range a.keywords {
			visit(k.value, f)
		}
		all(a.spread, a.spreadKeys)
	}
	switch e := e.(type) {
	case *listLiteral:
		all(e.items...)
	case *tupleLiteral:
		all(e.items...)
	case *dictLiteral:
		for i := range e.keys {
			all(e.keys[i], e.values[i])
		}
	case *attribute:
		visit(e.object, f)
	case *subscript:
		all(e.object, e.index)
	case *slicing:
		all(e.start, e.stop, e.step)
	case *call:
		visit(e.callee, f)
		arguments(e.arguments)
	case *filter:
		visit(e.operand, f)
		arguments(e.arguments)
	case *test:
		visit(e.operand, f)
		arguments(e.arguments)
	case *unary:
		visit(e.operand, f)
	case *not:
		visit(e.operand, f)
	case *binary:
		all(e.left, e.right)
	case *sum:
		all(e.terms...)
	case *concat:
		all(e.terms...)
	case *and:
		all(e.left, e.right)
	case *or:
		all(e.left, e.right)
	case *compare:
		visit(e.first, f)
		for _, c := range e.rest {
			visit(c.operand, f)
		}
	case *conditional:
		all(e.test, e.yes, e.no)
	}
}

// isNil tells whether there is no expression, also where a filter is missing.
func isNil(e expression) bool {
	if e == nil {
		return true
	}
	f, ok := e.(*filter)
	return ok && f == nil
}

// bodyReads tells whether the statements, or those inside of them, read a name. It does not look for assignments in between,
// so a body that assigns the name first counts, too.
func bodyReads(body []statement, text string) bool {
	found := false
	look := func(list ...expression) {
		for _, e := range list {
			visit(e, func(e expression) bool {
				if n, ok := e.(*name); ok && n.text == text {
					found = true
				}
				return !found
			})
		}
	}
	for _, st := range body {
		if found {
			break
		}
		inside := func(b []statement) { found = found || bodyReads(b, text) }
		switch st := st.(type) {
		case *printing:
			look(st.value)
		case *ifStatement:
			for _, b := range st.branches {
				look(b.test)
				inside(b.body)
			}
			inside(st.otherwise)
		case *forStatement:
			look(st.iter, st.test)
			inside(st.body)
			inside(st.otherwise)
		case *set:
			look(st.value)
			if a, ok := st.target.(*attribute); ok {
				look(a.object)
			}
		case *setBlock:
			look(st.filter)
			inside(st.body)
		case *with:
			look(st.values...)
			inside(st.body)
		case *filterBlock:
			look(st.filter)
			inside(st.body)
		case *macroStatement:
			look(st.routine.defaults...)
			inside(st.routine.body)
		case *callBlock:
			look(st.call)
			look(st.routine.defaults...)
			inside(st.routine.body)
		case *generation:
			inside(st.routine.body)
		case *block:
			inside(st.body)
		}
	}
	return found
}
