package jinja

import "time"

// renderer is the state of one rendering. Texts that are made on the way, such as those of macros, are written behind the
// output and then cut off: there is one buffer.
type renderer struct {
	template *Template
	options  Options
	out      []byte
	start    int // where the output begins
	frame    *frame
	globals  []Value
	stack    []Value // of arguments
	depth    int     // of routines
	left     int     // steps until the next look at the budgets
	reserve  int     // steps after that
}

// frame holds the variables of the template or of one call of a routine.
type frame struct {
	slots []Value
	outer *frame // of the place where the routine was defined
}

// Render appends the text of the template to dst. The variables must not change meanwhile. After an error, which is a *Fault,
// a *RaisedError, or a *BudgetError, the result is dst as it was.
func (t *Template) Render(dst []byte, vars *Dict, opts Options) ([]byte, error) {
	if vars == nil {
		vars = &Dict{}
	}
	if opts.MaxSteps <= 0 {
		opts.MaxSteps = DefaultMaxSteps
	}
	if opts.MaxOutput <= 0 {
		opts.MaxOutput = DefaultMaxOutput
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	r, ok := t.idle.Get().(*renderer)
	if !ok {
		r = &renderer{template: t, globals: make([]Value, len(t.globals))}
	}
	r.options, r.out, r.start, r.depth = opts, dst, len(dst), 0
	r.left, r.reserve = 0, opts.MaxSteps
	for i, name := range t.globals {
		v, ok := vars.Get(name)
		if !ok {
			if f, ok := globals[name]; ok {
				v = callable(f)
			}
		}
		r.globals[i] = v
	}
	r.frame = &frame{slots: make([]Value, t.slots)}
	err := r.spend(1)
	if err == nil {
		r.enter(t.scope)
		_, err = r.exec(t.body)
	}
	out := r.out
	clear(r.globals)
	clear(r.stack[:cap(r.stack)])
	r.out, r.frame, r.stack = nil, nil, r.stack[:0]
	t.idle.Put(r)
	if err != nil {
		return dst, t.locate(err, 0)
	}
	return out, nil
}

// enter sets the slots of a scope to what they hold at its beginning.
func (r *renderer) enter(scope []preset) {
	for _, p := range scope {
		var v Value
		if p.kind == presetCopy {
			v = r.get(p.from)
		}
		r.frame.slots[p.slot] = v
	}
}

// get is the value of a place, the zero Value if nothing was assigned.
func (r *renderer) get(p place) Value {
	if p.kind == inGlobals {
		return r.globals[p.index]
	}
	f := r.frame
	for range p.up {
		f = f.outer
	}
	return f.slots[p.index]
}

// assign assigns to a target.
func (r *renderer) assign(target expression, v Value, pos int32) error {
	switch t := target.(type) {
	case *name:
		r.frame.slots[t.place.index] = v
	case *tupleLiteral:
		items, err := r.listOf(v)
		if err != nil {
			return r.template.locate(err, pos)
		}
		if len(items) != len(t.items) {
			return r.template.locate(faultf("found %d values, expected %d to assign", len(items), len(t.items)), pos)
		}
		for i, item := range t.items {
			if err := r.assign(item, items[i], pos); err != nil {
				return err
			}
		}
	case *attribute:
		object, err := t.object.eval(r)
		if err != nil {
			return err
		}
		if object.kind != KindNamespace {
			return r.template.locate(faultf("cannot assign attribute on non-namespace object"), t.pos)
		}
		object.namespace().attrs.set(String(t.name), v)
	}
	return nil
}
