package jinja

// LoopsOver tells whether the template walks the elements of an attribute of the elements of a variable. With "messages" and
// "content" this is how vLLM finds out that a template expects content in parts (its content format "openai"), and the
// answer is the one that vLLM gives, with the same blind spots:
//
//   - The variable is name, or one that was set from it, perhaps through filters, tests, and slices. Scopes do not matter.
//   - A loop over such a variable makes its target a message.
//   - A loop over message.attribute or message['attribute'], or over any variable that is called like the attribute, is the
//     one that is looked for.
//   - Where the walk meets a target that is no plain name, it gives up, and the answer is no.
func (t *Template) LoopsOver(name, attribute string) bool {
	var sets []*set
	var loops []*forStatement
	eachStatement(t.body, func(s statement) {
		switch s := s.(type) {
		case *set:
			sets = append(sets, s)
		case *forStatement:
			loops = append(loops, s)
		}
	})
	lists, ok := namesFrom(sets, name)
	if !ok {
		return false
	}
	var elements []string
	for _, l := range loops {
		if !accessesAny(l.iter, lists, "") {
			continue
		}
		target, ok := plainName(l.target)
		if !ok {
			return false
		}
		elements = append(elements, target)
	}
	for _, l := range loops {
		if iter, ok := plainName(l.iter); accessesAny(l.iter, elements, attribute) || ok && iter == attribute {
			_, ok := plainName(l.target)
			return ok
		}
	}
	return false
}

// namesFrom lists name and the variables that are set from it, directly or through others.
func namesFrom(sets []*set, name string) ([]string, bool) {
	found := []string{name}
	known := map[string]bool{name: true}
	for i := 0; i < len(found); i++ {
		for _, s := range sets {
			if !accesses(s.value, found[i], "") {
				continue
			}
			target, ok := plainName(s.target)
			if !ok {
				return nil, false
			}
			if !known[target] {
				known[target] = true
				found = append(found, target)
			}
		}
	}
	return found, true
}

func plainName(e expression) (string, bool) {
	n, ok := e.(*name)
	if !ok {
		return "", false
	}
	return n.text, true
}

func accessesAny(e expression, names []string, key string) bool {
	for _, n := range names {
		if accesses(e, n, key) {
			return true
		}
	}
	return false
}

// accesses tells whether e is the variable, or its attribute key unless that is empty, inside of filters, tests, and slices.
func accesses(e expression, variable, key string) bool {
	switch e := e.(type) {
	case *filter:
		return e.operand != nil && accesses(e.operand, variable, key)
	case *test:
		return accesses(e.operand, variable, key)
	case *subscript:
		if _, ok := e.index.(*slicing); ok {
			return accesses(e.object, variable, key)
		}
		c, ok := e.index.(*constant)
		return ok && key != "" && c.value.Text() == key && accessesName(e.object, variable)
	case *attribute:
		return key != "" && e.name == key && accessesName(e.object, variable)
	}
	return key == "" && accessesName(e, variable)
}

func accessesName(e expression, variable string) bool {
	n, ok := plainName(e)
	return ok && n == variable
}

// eachStatement calls f for all statements, also those inside of others, in the order of the source.
func eachStatement(body []statement, f func(statement)) {
	for _, s := range body {
		f(s)
		switch s := s.(type) {
		case *ifStatement:
			for _, b := range s.branches {
				eachStatement(b.body, f)
			}
			eachStatement(s.otherwise, f)
		case *forStatement:
			eachStatement(s.body, f)
			eachStatement(s.otherwise, f)
		case *setBlock:
			eachStatement(s.body, f)
		case *with:
			eachStatement(s.body, f)
		case *filterBlock:
			eachStatement(s.body, f)
		case *macroStatement:
			eachStatement(s.routine.body, f)
		case *callBlock:
			eachStatement(s.routine.body, f)
		case *generation:
			eachStatement(s.routine.body, f)
		case *block:
			eachStatement(s.body, f)
		}
	}
}
