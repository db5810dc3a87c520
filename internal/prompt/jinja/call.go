package jinja

import "slices"

// args are the arguments of a call. They live on the renderer's stack: who keeps them copies them.
type args struct {
	pos []Value
	kw  []keywordArg
}

type keywordArg struct {
	name  string
	value Value
}

func (a args) keyword(name string) (Value, bool) {
	for _, k := range a.kw {
		if k.name == name {
			return k.value, true
		}
	}
	return Value{}, false
}

// bind distributes arguments to parameters. Those that are not given are the zero Value, see Value.unset; the first required
// ones must be given.
func (a args) bind(who string, required int, to []Value, params ...string) error {
	if len(a.pos) > len(params) {
		return faultf("%s() takes at most %d arguments, %d were given", who, len(params), len(a.pos))
	}
	copy(to, a.pos)
	for _, k := range a.kw {
		i := slices.Index(params, k.name)
		switch {
		case i < 0 || i >= len(to):
			return faultf("%s() got an unexpected keyword argument %q", who, k.name)
		case i < len(a.pos):
			return faultf("%s() got two values for the argument %q", who, k.name)
		}
		to[i] = k.value
	}
	for _, p := range params[min(len(a.pos), required):required] {
		if _, ok := a.keyword(p); !ok {
			return faultf("%s() misses the argument %q", who, p)
		}
	}
	return nil
}

// push evaluates arguments onto the stack. The caller takes them off with pop.
func (r *renderer) push(a *arguments) (args, int, error) {
	base := len(r.stack)
	for _, e := range a.positional {
		v, err := e.eval(r)
		if err != nil {
			return args{}, base, err
		}
		r.stack = append(r.stack, v)
	}
	if a.spread != nil {
		v, err := a.spread.eval(r)
		if err != nil {
			return args{}, base, err
		}
		items, err := r.listOf(v)
		if err != nil {
			return args{}, base, err
		}
		r.stack = append(r.stack, items...)
	}
	var kw []keywordArg
	for _, k := range a.keywords {
		v, err := k.value.eval(r)
		if err != nil {
			return args{}, base, err
		}
		kw = append(kw, keywordArg{k.name, v})
	}
	if a.spreadKeys != nil {
		v, err := a.spreadKeys.eval(r)
		if err != nil {
			return args{}, base, err
		}
		if v.kind != KindDict {
			return args{}, base, faultf("argument after ** must be a mapping, not %s", v.typeName())
		}
		for _, e := range v.dict().entries {
			if e.key.kind != KindString {
				return args{}, base, faultf("keywords must be strings")
			}
			kw = append(kw, keywordArg{e.key.str(), e.value})
		}
	}
	return args{pos: r.stack[base:len(r.stack):len(r.stack)], kw: kw}, base, nil
}

func (r *renderer) pop(base int) { r.stack = r.stack[:base] }

func (e *call) eval(r *renderer) (Value, error) { return e.run(r, nil) }

// run calls, with one more keyword argument if there is one.
func (e *call) run(r *renderer, more *keywordArg) (Value, error) {
	v, _, err := e.dispatch(r, more, false)
	return v, err
}

// dispatch calls. If emit is set and the callee is a macro, its text is written to the output, which the second result tells;
// otherwise the first result is the value.
func (e *call) dispatch(r *renderer, more *keywordArg, emit bool) (Value, bool, error) {
	v, written, err := e.tryDispatch(r, more, emit)
	if err != nil {
		err = r.template.locate(err, e.pos)
	}
	return v, written, err
}

func (e *call) tryDispatch(r *renderer, more *keywordArg, emit bool) (Value, bool, error) {
	if err := r.spend(1); err != nil {
		return Value{}, false, err
	}
	var callee, self Value
	var bound string // the method of self, if it is one that need not be made a value
	var err error
	if a, ok := e.callee.(*attribute); ok {
		if self, err = a.object.eval(r); err != nil {
			return Value{}, false, err
		}
		if hasMethod(self, a.name) {
			bound = a.name
		} else if callee, err = r.attribute(self, a.name); err != nil {
			return Value{}, false, r.template.locate(err, a.pos)
		}
	} else if callee, err = e.callee.eval(r); err != nil {
		return Value{}, false, err
	}
	a, base, err := r.push(&e.arguments)
	defer r.pop(base)
	if err != nil {
		return Value{}, false, err
	}
	if more != nil {
		if _, ok := a.keyword(more.name); ok {
			return Value{}, false, faultf("got two values for the argument %q", more.name)
		}
		a.kw = append(a.kw, *more)
	}
	if bound != "" {
		v, err := r.callMethod(self, bound, a)
		return v, false, err
	}
	if emit && callee.kind == KindCallable && callee.flag == flagMacro {
		return Value{}, true, r.invoke((*macro)(callee.p), a)
	}
	v, err := r.call(callee, a)
	return v, false, err
}

// call calls a value.
func (r *renderer) call(callee Value, a args) (Value, error) {
	switch {
	case callee.kind == KindCallable && callee.flag == flagMacro:
		mark := len(r.out)
		if err := r.invoke((*macro)(callee.p), a); err != nil {
			return Value{}, err
		}
		s, err := r.cut(mark)
		return String(s), err
	case callee.kind == KindCallable && callee.flag == flagMethod:
		m := (*method)(callee.p)
		return r.callMethod(m.self, m.name, a)
	case callee.kind == KindCallable:
		return (*function)(callee.p).call(r, a)
	case callee.kind == KindLoop:
		var v [1]Value
		if err := a.bind("loop", 1, v[:], "iterable"); err != nil {
			return Value{}, err
		}
		mark := len(r.out)
		if err := callee.loop().recurse(r, v[0]); err != nil {
			return Value{}, err
		}
		s, err := r.cut(mark)
		return String(s), err
	case callee.kind == KindUndefined:
		return Value{}, undefinedError(callee)
	default:
		return Value{}, faultf("%q object is not callable", callee.typeName())
	}
}
