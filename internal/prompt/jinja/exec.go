package jinja

// exec carries out statements until one of them says not to go on.
func (r *renderer) exec(body []statement) (signal, error) {
	for _, s := range body {
		if err := r.spend(1); err != nil {
			return proceed, err
		}
		if sig, err := s.exec(r); err != nil || sig != proceed {
			return sig, err
		}
	}
	return proceed, nil
}

func (s *text) exec(r *renderer) (signal, error) { return proceed, r.write(s.text) }

func (s *printing) exec(r *renderer) (signal, error) {
	if err := r.emit(s.value); err != nil {
		return proceed, r.template.locate(err, s.pos)
	}
	return proceed, nil
}

func (s *ifStatement) exec(r *renderer) (signal, error) {
	for i := range s.branches {
		v, err := s.branches[i].test.eval(r)
		if err != nil {
			return proceed, err
		}
		if v.truth() {
			return r.exec(s.branches[i].body)
		}
	}
	return r.exec(s.otherwise)
}

func (s *set) exec(r *renderer) (signal, error) {
	v, err := s.value.eval(r)
	if err != nil {
		return proceed, r.template.locate(err, s.pos)
	}
	return proceed, r.assign(s.target, v, s.pos)
}

// capture carries out statements and cuts off what they write. Nothing is cut off when they end a loop.
func (r *renderer) capture(scope []preset, body []statement) (string, signal, error) {
	mark := len(r.out)
	r.enter(scope)
	sig, err := r.exec(body)
	if err != nil || sig != proceed {
		r.out = r.out[:mark]
		return "", sig, err
	}
	s, err := r.cut(mark)
	return s, proceed, err
}

func (s *setBlock) exec(r *renderer) (signal, error) {
	text, sig, err := r.capture(s.scope, s.body)
	if err != nil || sig != proceed {
		return sig, err
	}
	v := String(text)
	if s.filter != nil {
		if v, err = s.filter.apply(r, v); err != nil {
			return proceed, err
		}
	}
	return proceed, r.assign(s.target, v, s.pos)
}

func (s *filterBlock) exec(r *renderer) (signal, error) {
	text, sig, err := r.capture(s.scope, s.body)
	if err != nil || sig != proceed {
		return sig, err
	}
	v, err := s.filter.apply(r, String(text))
	if err != nil {
		return proceed, err
	}
	return proceed, r.writeValue(v)
}

func (s *with) exec(r *renderer) (signal, error) {
	var few [4]Value
	values := few[:0]
	for _, e := range s.values {
		v, err := e.eval(r)
		if err != nil {
			return proceed, err
		}
		values = append(values, v)
	}
	r.enter(s.scope)
	for i, t := range s.targets {
		if err := r.assign(t, values[i], s.pos); err != nil {
			return proceed, err
		}
	}
	return r.exec(s.body)
}

func (s *block) exec(r *renderer) (signal, error) {
	r.enter(s.scope)
	return r.exec(s.body)
}

func (s *macroStatement) exec(r *renderer) (signal, error) {
	return proceed, r.assign(s.name, macroOf(s.routine, r.frame), s.routine.pos)
}

func (s *callBlock) exec(r *renderer) (signal, error) {
	caller := keywordArg{"caller", macroOf(s.routine, r.frame)}
	v, err := s.call.run(r, &caller)
	if err != nil {
		return proceed, r.template.locate(err, s.pos)
	}
	return proceed, r.writeValue(v)
}

func (s *generation) exec(r *renderer) (signal, error) {
	err := r.invoke(&macro{s.routine, r.frame}, args{})
	return proceed, r.template.locate(err, s.pos)
}

func (s *jump) exec(*renderer) (signal, error) { return s.signal, nil }

func (s *unsupported) exec(r *renderer) (signal, error) {
	return proceed, r.template.locate(faultf("found %q, but there are no other templates", s.tag), s.pos)
}

// invoke calls a routine, whose text it writes to the output.
func (r *renderer) invoke(m *macro, a args) error {
	f := m.body
	if r.depth >= maxDepth {
		return &BudgetError{Budget: Depth, Limit: maxDepth}
	}
	slots := make([]Value, f.slots)
	if err := r.spend(1 + len(slots)/8); err != nil {
		return err
	}
	if err := f.bind(slots, a); err != nil {
		return err
	}
	caller := r.frame
	r.frame = &frame{slots: slots, outer: m.frame}
	r.depth++
	err := f.run(r)
	r.depth--
	r.frame = caller
	return err
}

// bind puts the arguments of a call into the frame.
func (f *routine) bind(slots []Value, a args) error {
	n := len(f.params)
	copy(slots[:n], a.pos[:min(n, len(a.pos))])
	used := 0
	for i := len(a.pos); i < n; i++ {
		if v, ok := a.keyword(f.params[i].text); ok {
			slots[i] = v
			used++
		}
	}
	if f.usesCaller {
		v, ok := a.keyword("caller")
		if ok {
			used++
		}
		if !ok || v.kind == KindNone {
			v = undefinedOf("No caller defined", flagHint)
		}
		slots[f.caller.index] = v
	}
	if f.usesKwargs {
		rest := NewDict(len(a.kw))
		for _, k := range a.kw {
			if !f.takes(k.name, len(a.pos)) {
				rest.Set(k.name, k.value)
			}
		}
		slots[f.kwargs.index] = DictOf(rest)
	} else if used < len(a.kw) {
		for _, k := range a.kw {
			if !f.takes(k.name, len(a.pos)) {
				return faultf("macro %q takes no keyword argument %q", f.name, k.name)
			}
		}
	}
	if f.usesArgs {
		slots[f.varargs.index] = tuple(append([]Value{}, a.pos[min(n, len(a.pos)):]...)...)
	} else if len(a.pos) > n {
		return faultf("macro %q takes not more than %d argument(s)", f.name, n)
	}
	return nil
}

// takes tells whether a keyword argument is for a parameter, behind those that were given by position.
func (f *routine) takes(keyword string, given int) bool {
	for i := given; i < len(f.params); i++ {
		if f.params[i].text == keyword {
			return true
		}
	}
	return keyword == "caller" && f.usesCaller
}

// run carries out the body in its frame.
func (f *routine) run(r *renderer) error {
	r.enter(f.scope)
	slots := r.frame.slots
	first := len(f.params) - len(f.defaults)
	for i, p := range f.params {
		if !slots[i].unset() {
			continue
		}
		if i < first {
			slots[i] = undefinedOf("parameter '"+p.text+"' was not provided", flagHint)
			continue
		}
		v, err := f.defaults[i-first].eval(r)
		if err != nil {
			return err
		}
		slots[i] = v
	}
	_, err := r.exec(f.body)
	return err
}
