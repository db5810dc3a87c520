package jinja

// loop is a running for statement, and what its body sees as the variable loop.
type loop struct {
	statement *forStatement
	walker    walker
	outer     *frame // of the for statement
	depth     int    // of recursion, from 0 on
	index     int    // of the current element, from 0 on
	length    int    // -1 as long as it is not known
	current   Value
	before    Value
	after     Value
	peeked    bool // after is the next element
	changed   []Value
}

func (s *forStatement) exec(r *renderer) (signal, error) {
	v, err := s.iter.eval(r)
	if err != nil {
		return proceed, err
	}
	return r.loop(s, v, r.frame, 0)
}

// loop runs a for statement over the elements of v.
func (r *renderer) loop(s *forStatement, v Value, outer *frame, depth int) (signal, error) {
	w, err := walk(v)
	if err != nil {
		return proceed, r.template.locate(err, s.pos)
	}
	l := loop{statement: s, walker: w, outer: outer, depth: depth, index: -1, length: -1}
	if n, ok := length(v); ok && s.test == nil {
		l.length = n
	}
	caller := r.frame
	defer func() { r.frame = caller }()
	r.frame = outer
	if s.routine != nil {
		r.frame = &frame{slots: make([]Value, s.routine.slots), outer: outer}
	}
	inside := r.frame
	var shared *loop // on the heap, for those who see it
	current := &l
	if s.usesLoop {
		shared = new(loop)
		*shared = l
		current = shared
	}
	done := false // some turn came to its end: one that was broken off does not keep the else from running
	for {
		item, ok, err := current.next(r)
		if err != nil {
			return proceed, r.template.locate(err, s.pos)
		}
		if !ok {
			break
		}
		r.frame = inside
		if n, ok := s.target.(*name); ok {
			inside.slots[n.place.index] = item
		} else if err := r.assign(s.target, item, s.pos); err != nil {
			return proceed, err
		}
		if s.usesLoop {
			inside.slots[s.loop.index] = objectOf(KindLoop, shared)
		}
		r.enter(s.bodyScope)
		sig, err := r.exec(s.body)
		if err != nil {
			return proceed, err
		}
		if sig == breakLoop {
			break
		}
		done = done || sig == proceed
	}
	if !done && s.otherwise != nil {
		r.frame = outer
		r.enter(s.elseScope)
		return r.exec(s.otherwise)
	}
	return proceed, nil
}

// next moves on to the next element.
func (l *loop) next(r *renderer) (Value, bool, error) {
	item, ok, err := l.peek(r)
	if !ok || err != nil {
		return item, false, err
	}
	l.peeked = false
	l.index++
	l.before, l.current = l.current, item
	return item, true, r.spend(1)
}

// peek looks at the next element.
func (l *loop) peek(r *renderer) (Value, bool, error) {
	if l.peeked {
		return l.after, true, nil
	}
	for {
		item, ok, err := l.walker.next()
		if !ok || err != nil {
			return Value{}, false, err
		}
		if l.statement.test != nil {
			pass, err := l.passes(r, item)
			if err != nil {
				return Value{}, false, err
			}
			if !pass {
				continue
			}
		}
		l.after, l.peeked = item, true
		return item, true, nil
	}
}

// passes evaluates the condition of a loop.
func (l *loop) passes(r *renderer, item Value) (bool, error) {
	if err := r.spend(1); err != nil {
		return false, err
	}
	caller := r.frame
	defer func() { r.frame = caller }()
	r.frame = l.outer
	if err := r.assign(l.statement.testTarget, item, l.statement.pos); err != nil {
		return false, err
	}
	r.enter(l.statement.testScope)
	v, err := l.statement.test.eval(r)
	return v.truth(), err
}

// count is how many elements there are. If that is not known, it collects those that are left.
func (l *loop) count(r *renderer) (int, error) {
	if l.length >= 0 {
		return l.length, nil
	}
	var rest []Value
	next, had := l.after, l.peeked
	l.peeked = false
	for {
		item, ok, err := l.peek(r)
		if err != nil {
			return 0, err
		}
		l.peeked = false
		if !ok {
			break
		}
		rest = append(rest, item)
	}
	l.walker = walker{value: List(rest)}
	l.length = len(rest) + l.index + 1
	if had {
		l.after, l.peeked = next, true
		l.length++
	}
	// What is left has passed the condition already.
	passed := *l.statement
	passed.test = nil
	l.statement = &passed
	return l.length, nil
}

// attribute is what the body sees of the loop.
func (l *loop) attribute(r *renderer, name string) (Value, bool, error) {
	switch name {
	case "index":
		return Int(int64(l.index + 1)), true, nil
	case "index0":
		return Int(int64(l.index)), true, nil
	case "first":
		return Bool(l.index == 0), true, nil
	case "last":
		_, more, err := l.peek(r)
		return Bool(!more), true, err
	case "length":
		n, err := l.count(r)
		return Int(int64(n)), true, err
	case "revindex":
		n, err := l.count(r)
		return Int(int64(n - l.index)), true, err
	case "revindex0":
		n, err := l.count(r)
		return Int(int64(n - l.index - 1)), true, err
	case "depth":
		return Int(int64(l.depth + 1)), true, nil
	case "depth0":
		return Int(int64(l.depth)), true, nil
	case "previtem":
		if l.index == 0 {
			return undefinedOf("there is no previous item", flagHint), true, nil
		}
		return l.before, true, nil
	case "nextitem":
		item, more, err := l.peek(r)
		if err == nil && !more {
			item = undefinedOf("there is no next item", flagHint)
		}
		return item, true, err
	case "cycle", "changed":
		return callable(&function{name: name, call: func(r *renderer, a args) (Value, error) {
			return l.call(name, a)
		}}), true, nil
	}
	return Value{}, false, nil
}

// call calls a method of the loop.
func (l *loop) call(name string, a args) (Value, error) {
	if name == "cycle" {
		if len(a.pos) == 0 {
			return Value{}, faultf("no items for cycling given")
		}
		return a.pos[l.index%len(a.pos)], nil
	}
	same := l.changed != nil && len(l.changed) == len(a.pos)
	for i := 0; same && i < len(a.pos); i++ {
		same = equal(l.changed[i], a.pos[i])
	}
	if !same {
		l.changed = append([]Value{}, a.pos...)
	}
	return Bool(!same), nil
}

// recurse renders the body of a recursive loop for other elements.
func (l *loop) recurse(r *renderer, v Value) error {
	if !l.statement.recursive {
		return faultf("the loop must have the 'recursive' marker to be called recursively")
	}
	if r.depth >= maxDepth {
		return &BudgetError{Budget: Depth, Limit: maxDepth}
	}
	r.depth++
	_, err := r.loop(l.statement, v, l.outer, l.depth+1)
	r.depth--
	return err
}
