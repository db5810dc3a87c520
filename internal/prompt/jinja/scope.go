package jinja

// The resolver. Jinja decides before rendering where each name lives, and some of its behaviour is visible: what a loop
// assigns is gone after the loop, and within the loop the name has the value from outside at the start of every turn, even
// in front of the assignment. The rules, which are those of Jinja's compiler:
//
//   - A loop, a with block, a set block, a filter block, a macro, and a call block are scopes. An if is none.
//   - A scope that assigns a name has a slot of its own for it. When the scope is entered, the slot gets the value of the
//     nearest scope outside that knows the name, or else that of the caller's variable of this name, unless the assignment
//     comes first and is not inside of an if: then nothing can see it but a macro, for which it is not assigned yet.
//   - A name that is only read is that of the nearest scope outside, or the caller's variable.
//
// Slots belong to frames, one for the template and one for each call of a macro. Macros see the frames around their
// definition, as closures do.

// scope is the names of one scope.
type scope struct {
	outer  *scope
	frame  *frameScope
	refs   map[string]place
	stores map[string]bool
	preset []preset
}

// frameScope counts the slots of a frame.
type frameScope struct {
	depth int
	slots int
}

type resolver struct {
	parser  *parser // for errors
	globals []string
	byName  map[string]int32
	soft    int // inside of this many conditions: unknown filters and tests fail only when reached
}

func (r *resolver) global(name string) place {
	i, ok := r.byName[name]
	if !ok {
		i = int32(len(r.globals))
		r.globals = append(r.globals, name)
		r.byName[name] = i
	}
	return place{kind: inGlobals, index: i}
}

func newScope(outer *scope, frame *frameScope) *scope {
	return &scope{outer: outer, frame: frame, refs: map[string]place{}, stores: map[string]bool{}}
}

// inner is a scope in the same frame.
func (s *scope) inner() *scope { return newScope(s, s.frame) }

// separate is a scope with a frame of its own.
func (s *scope) separate() *scope { return newScope(s, &frameScope{depth: s.frame.depth + 1}) }

// find looks name up in s and outwards. The place is relative to the frame of s.
func (s *scope) find(name string) (place, bool) {
	for o := s; o != nil; o = o.outer {
		if p, ok := o.refs[name]; ok {
			if p.kind == inSlot {
				p.up = int16(s.frame.depth - o.frame.depth)
			}
			return p, true
		}
	}
	return place{}, false
}

// declare makes a slot for a name that is assigned when the scope is entered: a parameter or a loop variable.
func (s *scope) declare(name string) place {
	p := place{kind: inSlot, index: int32(s.frame.slots)}
	s.frame.slots++
	s.refs[name] = p
	s.stores[name] = true
	return p
}

// load notes that a name is read.
func (r *resolver) load(s *scope, name string) {
	if _, ok := s.find(name); !ok {
		s.refs[name] = r.global(name)
	}
}

// store notes that a name is assigned. inBranch tells that this may not happen.
func (r *resolver) store(s *scope, name string, inBranch bool) {
	if s.stores[name] {
		return
	}
	s.stores[name] = true
	own, seen := s.refs[name]
	if !seen && s.outer != nil {
		if from, ok := s.outer.find(name); ok {
			s.slot(name, preset{kind: presetCopy, from: s.relative(from)})
			return
		}
	}
	switch {
	case seen:
		s.slot(name, preset{kind: presetCopy, from: own}) // read before: the caller's variable
	case inBranch:
		s.slot(name, preset{kind: presetCopy, from: r.global(name)})
	default:
		s.slot(name, preset{kind: presetNothing})
	}
}

// relative makes a place that was found from the scope outside of s relative to the frame of s.
func (s *scope) relative(p place) place {
	if p.kind == inSlot {
		p.up += int16(s.frame.depth - s.outer.frame.depth)
	}
	return p
}

func (s *scope) slot(name string, p preset) {
	p.slot = int32(s.frame.slots)
	s.frame.slots++
	s.refs[name] = place{kind: inSlot, index: p.slot}
	s.preset = append(s.preset, p)
}

// scan notes the names that the statements of a scope read and assign, without those of scopes inside.
func (r *resolver) scan(s *scope, body []statement, inBranch bool) {
	for _, st := range body {
		switch st := st.(type) {
		case *printing:
			r.reads(s, st.value)
		case *ifStatement:
			for i, b := range st.branches {
				r.reads(s, b.test)
				_ = i
			}
			for _, b := range st.branches {
				r.scan(s, b.body, true)
			}
			r.scan(s, st.otherwise, true)
		case *forStatement:
			r.reads(s, st.iter)
		case *set:
			r.reads(s, st.value)
			r.writes(s, st.target, inBranch)
		case *setBlock:
			r.writes(s, st.target, inBranch)
		case *with:
			for _, v := range st.values {
				r.reads(s, v)
			}
		case *filterBlock:
			r.reads(s, st.filter)
		case *macroStatement:
			r.store(s, st.name.text, inBranch)
		case *callBlock:
			r.reads(s, st.call)
		}
	}
}

// writes notes the names of an assignment target.
func (r *resolver) writes(s *scope, target expression, inBranch bool) {
	switch t := target.(type) {
	case *name:
		r.store(s, t.text, inBranch)
	case *tupleLiteral:
		for _, item := range t.items {
			r.writes(s, item, inBranch)
		}
	case *attribute:
		r.reads(s, t.object)
	}
}

// reads notes the names of an expression.
func (r *resolver) reads(s *scope, e expression) {
	visit(e, func(e expression) bool {
		if n, ok := e.(*name); ok {
			r.load(s, n.text)
		}
		return true
	})
}

// resolve completes the statements of a scope that scan has seen.
func (r *resolver) resolve(s *scope, body []statement) error {
	for _, st := range body {
		if err := r.statement(s, st); err != nil {
			return err
		}
	}
	return nil
}

func (r *resolver) statement(s *scope, st statement) error {
	switch st := st.(type) {
	case *printing:
		return r.names(s, st.value)
	case *ifStatement:
		r.soft++
		defer func() { r.soft-- }()
		for _, b := range st.branches {
			if err := r.names(s, b.test); err != nil {
				return err
			}
			if err := r.resolve(s, b.body); err != nil {
				return err
			}
		}
		return r.resolve(s, st.otherwise)
	case *forStatement:
		return r.forStatement(s, st)
	case *set:
		return r.names(s, st.value, st.target)
	case *setBlock:
		if err := r.names(s, st.target); err != nil {
			return err
		}
		in := s.inner()
		r.scan(in, st.body, false)
		if st.filter != nil {
			r.reads(in, st.filter)
			if err := r.names(in, st.filter); err != nil {
				return err
			}
		}
		err := r.resolve(in, st.body)
		st.scope = in.preset
		return err
	case *with:
		if err := r.names(s, st.values...); err != nil {
			return err
		}
		in := s.inner()
		r.declares(in, st.targets...)
		err := r.scoped(in, st.body, st.targets...)
		st.scope = in.preset
		return err
	case *filterBlock:
		if err := r.names(s, st.filter); err != nil {
			return err
		}
		in := s.inner()
		err := r.scoped(in, st.body)
		st.scope = in.preset
		return err
	case *macroStatement:
		if err := r.names(s, st.name); err != nil {
			return err
		}
		return r.routine(s, st.routine)
	case *callBlock:
		if err := r.names(s, st.call); err != nil {
			return err
		}
		return r.routine(s, st.routine)
	case *generation:
		return r.routine(s, st.routine)
	case *block:
		// A block sees the template's own names, not those of the scopes around it.
		root := s
		for root.outer != nil {
			root = root.outer
		}
		in := newScope(root, s.frame)
		if root.frame != s.frame {
			return r.parser.fail(0, "found a block inside of a macro")
		}
		err := r.scoped(in, st.body)
		st.scope = in.preset
		return err
	}
	return nil
}

// scoped scans and resolves the body of a scope, and the expressions that live in it.
func (r *resolver) scoped(s *scope, body []statement, more ...expression) error {
	r.scan(s, body, false)
	if err := r.names(s, more...); err != nil {
		return err
	}
	return r.resolve(s, body)
}

func (r *resolver) forStatement(s *scope, st *forStatement) error {
	if err := r.names(s, st.iter); err != nil {
		return err
	}
	if st.test != nil {
		in := s.inner()
		st.testTarget = copyTarget(st.target)
		r.declares(in, st.testTarget)
		r.reads(in, st.test)
		if err := r.names(in, st.testTarget, st.test); err != nil {
			return err
		}
		st.testScope = in.preset
	}
	if st.otherwise != nil {
		in := s.inner()
		if err := r.scoped(in, st.otherwise); err != nil {
			return err
		}
		st.elseScope = in.preset
	}
	in := s.inner()
	if st.recursive {
		in = s.separate()
		st.routine = &routine{name: "loop"}
	}
	st.usesLoop = st.recursive || bodyReads(st.body, "loop")
	r.declares(in, st.target)
	if st.usesLoop {
		st.loop = in.declare("loop")
	}
	err := r.scoped(in, st.body, st.target)
	st.bodyScope = in.preset
	if st.recursive {
		st.routine.slots = in.frame.slots
	}
	return err
}

// declares makes slots for the names of targets.
func (r *resolver) declares(s *scope, targets ...expression) {
	for _, target := range targets {
		switch t := target.(type) {
		case *name:
			if _, ok := s.refs[t.text]; !ok {
				s.declare(t.text)
			}
		case *tupleLiteral:
			r.declares(s, t.items...)
		case *attribute:
			r.reads(s, t.object)
		}
	}
}

// copyTarget copies an assignment target, to be resolved in another scope.
func copyTarget(e expression) expression {
	switch e := e.(type) {
	case *name:
		n := *e
		return &n
	case *tupleLiteral:
		t := &tupleLiteral{make([]expression, len(e.items))}
		for i, item := range e.items {
			t.items[i] = copyTarget(item)
		}
		return t
	case *attribute:
		a := *e
		a.object = copyTarget(e.object)
		return &a
	}
	return e
}

func (r *resolver) routine(s *scope, f *routine) error {
	in := s.separate()
	for _, p := range f.params {
		in.declare(p.text)
		f.hasCaller = f.hasCaller || p.text == "caller"
	}
	// A macro gets its special variables if it mentions them.
	special := func(name string, uses *bool, at *place) {
		if _, ok := in.refs[name]; !ok && bodyReads(f.body, name) {
			*uses, *at = true, in.declare(name)
		}
	}
	special("caller", &f.usesCaller, &f.caller)
	special("kwargs", &f.usesKwargs, &f.kwargs)
	special("varargs", &f.usesArgs, &f.varargs)
	if f.hasCaller && bodyReads(f.body, "caller") {
		for i, p := range f.params {
			if p.text == "caller" && i < len(f.params)-len(f.defaults) {
				return r.parser.fail(p.pos, `found the parameter "caller" without a default, expected one`)
			}
		}
	}
	for _, e := range f.defaults {
		r.reads(in, e)
	}
	soft := r.soft
	r.soft = 0
	defer func() { r.soft = soft }()
	more := append([]expression{}, f.defaults...)
	for _, p := range f.params {
		more = append(more, p)
	}
	err := r.scoped(in, f.body, more...)
	f.slots, f.scope = in.frame.slots, in.preset
	return err
}

// names gives every name of the expressions its place, and checks that their filters and tests exist.
func (r *resolver) names(s *scope, exprs ...expression) error {
	var err error
	for _, e := range exprs {
		soft := 0
		visit(e, func(e expression) bool {
			switch e := e.(type) {
			case *name:
				p, ok := s.find(e.text)
				if !ok {
					p = r.global(e.text)
				}
				e.place = p
			case *conditional:
				soft++ // and all that comes later: a little more lenient than Jinja, at no harm
			case *filter:
				if e.run == nil && r.soft+soft == 0 && err == nil {
					err = r.parser.fail(e.pos, "found the filter %q, expected one that exists", e.name)
				}
			case *test:
				if e.run == nil && r.soft+soft == 0 && err == nil {
					err = r.parser.fail(e.pos, "found the test %q, expected one that exists", e.name)
				}
			}
			return true
		})
	}
	return err
}
