package jinja

func (e *constant) eval(*renderer) (Value, error) { return e.value, nil }

func (e *name) eval(r *renderer) (Value, error) {
	v := r.get(e.place)
	if v.unset() {
		v = undefinedOf(e.text, 0)
	}
	return v, nil
}

func (r *renderer) evalAll(exprs []expression) ([]Value, error) {
	items := make([]Value, len(exprs))
	if err := r.spend(len(exprs)); err != nil {
		return nil, err
	}
	for i, e := range exprs {
		v, err := e.eval(r)
		if err != nil {
			return nil, err
		}
		items[i] = v
	}
	return items, nil
}

func (e *listLiteral) eval(r *renderer) (Value, error) {
	items, err := r.evalAll(e.items)
	return List(items), err
}

func (e *tupleLiteral) eval(r *renderer) (Value, error) {
	items, err := r.evalAll(e.items)
	return tuple(items...), err
}

func (e *dictLiteral) eval(r *renderer) (Value, error) {
	d := NewDict(len(e.keys))
	if err := r.spend(len(e.keys)); err != nil {
		return Value{}, err
	}
	for i := range e.keys {
		k, err := e.keys[i].eval(r)
		if err != nil {
			return Value{}, err
		}
		v, err := e.values[i].eval(r)
		if err != nil {
			return Value{}, err
		}
		if !hashable(k) {
			return Value{}, r.template.locate(faultf("unhashable type: %q", k.typeName()), e.pos)
		}
		if err := r.probe(d, k); err != nil {
			return Value{}, err
		}
		d.set(k, v)
	}
	return DictOf(d), nil
}

func (e *filter) eval(r *renderer) (Value, error) {
	v, err := e.operand.eval(r)
	if err != nil {
		return Value{}, err
	}
	return e.on(r, v)
}

// apply runs a chain of filters whose innermost has no operand, on v.
func (e *filter) apply(r *renderer, v Value) (Value, error) {
	if inner, ok := e.operand.(*filter); ok {
		var err error
		if v, err = inner.apply(r, v); err != nil {
			return Value{}, err
		}
	}
	return e.on(r, v)
}

func (e *filter) on(r *renderer, v Value) (Value, error) {
	if err := r.spend(1); err != nil {
		return Value{}, err
	}
	if e.run == nil {
		return Value{}, r.template.locate(faultf("no filter named %q found", e.name), e.pos)
	}
	a, base, err := r.push(&e.arguments)
	if err == nil {
		v, err = e.run(r, v, a)
	}
	r.pop(base)
	if err != nil {
		return Value{}, r.template.locate(err, e.pos)
	}
	return v, nil
}

func (e *test) eval(r *renderer) (Value, error) {
	v, err := e.operand.eval(r)
	if err != nil {
		return Value{}, err
	}
	if e.run == nil {
		return Value{}, r.template.locate(faultf("no test named %q found", e.name), e.pos)
	}
	a, base, err := r.push(&e.arguments)
	var passed bool
	if err == nil {
		passed, err = e.run(r, v, a)
	}
	r.pop(base)
	if err != nil {
		return Value{}, r.template.locate(err, e.pos)
	}
	return Bool(passed), nil
}

func (e *not) eval(r *renderer) (Value, error) {
	v, err := e.operand.eval(r)
	return Bool(!v.truth()), err
}

func (e *and) eval(r *renderer) (Value, error) {
	v, err := e.left.eval(r)
	if err != nil || !v.truth() {
		return v, err
	}
	return e.right.eval(r)
}

func (e *or) eval(r *renderer) (Value, error) {
	v, err := e.left.eval(r)
	if err != nil || v.truth() {
		return v, err
	}
	return e.right.eval(r)
}

func (e *conditional) eval(r *renderer) (Value, error) {
	branch, err := e.choose(r)
	if err != nil || branch == nil {
		return missingElse, err
	}
	return branch.eval(r)
}

// missingElse is the value of an inline if whose condition fails and which has no else.
var missingElse = undefinedOf("the inline if evaluated to false and no else section was defined", flagHint)

// choose is the branch that counts, which may be nil.
func (e *conditional) choose(r *renderer) (expression, error) {
	v, err := e.test.eval(r)
	if err != nil {
		return nil, err
	}
	if v.truth() {
		return e.yes, nil
	}
	return e.no, nil
}

func (e *compare) eval(r *renderer) (Value, error) {
	left, err := e.first.eval(r)
	if err != nil {
		return Value{}, err
	}
	for i := range e.rest {
		right, err := e.rest[i].operand.eval(r)
		if err != nil {
			return Value{}, err
		}
		holds, err := r.compare(e.rest[i].operator, left, right)
		if err != nil {
			return Value{}, r.template.locate(err, e.pos)
		}
		if !holds {
			return Bool(false), nil
		}
		left = right
	}
	return Bool(true), nil
}

func (r *renderer) compare(operator string, a, b Value) (bool, error) {
	switch operator {
	case "==":
		return r.equal(a, b)
	case "!=":
		same, err := r.equal(a, b)
		return !same, err
	case "in":
		return r.contains(b, a)
	case "not in":
		in, err := r.contains(b, a)
		return !in, err
	}
	order, ordered, err := r.order(a, b, operator, 0)
	if err != nil || !ordered {
		return false, err
	}
	switch operator {
	case "<":
		return order < 0, nil
	case ">":
		return order > 0, nil
	case "<=":
		return order <= 0, nil
	default:
		return order >= 0, nil
	}
}

// eval adds up. Texts are put together behind the output, so that a long chain makes one text instead of many.
func (e *sum) eval(r *renderer) (Value, error) {
	mark := len(r.out)
	rest, v, err := e.writeTexts(r)
	if err != nil {
		r.out = r.out[:mark]
		return Value{}, err
	}
	if rest == 0 {
		return e.addFrom(r, v, 1)
	}
	s, err := r.cut(mark)
	if err != nil || rest == len(e.terms) {
		return String(s), err
	}
	return e.addNext(r, String(s), v, rest)
}

// emit writes the sum.
func (e *sum) emit(r *renderer) error {
	mark := len(r.out)
	rest, v, err := e.writeTexts(r)
	if err != nil || rest == len(e.terms) {
		return err
	}
	if rest == 0 {
		v, err = e.addFrom(r, v, 1)
	} else {
		var s string
		if s, err = r.cut(mark); err == nil {
			v, err = e.addNext(r, String(s), v, rest)
		}
	}
	if err != nil {
		return err
	}
	return r.writeValue(v)
}

// writeTexts writes the first terms, as long as they are texts. It returns the number of the first that is none, and its
// value.
func (e *sum) writeTexts(r *renderer) (int, Value, error) {
	for i, term := range e.terms {
		v, err := term.eval(r)
		if err != nil {
			return i, Value{}, err
		}
		if v.kind != KindString || v.flag == flagMarkup {
			return i, v, nil
		}
		if err := r.write(v.str()); err != nil {
			return i, Value{}, err
		}
	}
	return len(e.terms), Value{}, nil
}

// addNext adds the value v of term i and then the rest.
func (e *sum) addNext(r *renderer, total, v Value, i int) (Value, error) {
	total, err := r.add(total, v)
	if err != nil {
		return Value{}, r.template.locate(err, e.positions[i-1])
	}
	return e.addFrom(r, total, i+1)
}

func (e *sum) addFrom(r *renderer, total Value, i int) (Value, error) {
	for ; i < len(e.terms); i++ {
		v, err := e.terms[i].eval(r)
		if err != nil {
			return Value{}, err
		}
		if total, err = r.add(total, v); err != nil {
			return Value{}, r.template.locate(err, e.positions[i-1])
		}
	}
	return total, nil
}

func (e *concat) eval(r *renderer) (Value, error) {
	mark := len(r.out)
	if err := e.emit(r); err != nil {
		r.out = r.out[:mark]
		return Value{}, err
	}
	s, err := r.cut(mark)
	return String(s), err
}

func (e *concat) emit(r *renderer) error {
	for _, term := range e.terms {
		if err := r.emit(term); err != nil {
			return r.template.locate(err, e.pos)
		}
	}
	return nil
}

// emit writes the text of an expression, without making it a value first where that can be spared.
func (r *renderer) emit(e expression) error {
	switch e := e.(type) {
	case *sum:
		return e.emit(r)
	case *concat:
		return e.emit(r)
	case *conditional:
		branch, err := e.choose(r)
		if err != nil || branch == nil {
			return err
		}
		return r.emit(branch)
	case *call:
		v, written, err := e.dispatch(r, nil, true)
		if err != nil || written {
			return err
		}
		return r.writeValue(v)
	}
	v, err := e.eval(r)
	if err != nil {
		return err
	}
	return r.writeValue(v)
}
