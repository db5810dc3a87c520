package jinja

import (
	"slices"
	"strings"
)

// globals are the functions that templates find among their variables.
var globals = map[string]*function{
	"range":           {name: "range", call: globalRange},
	"dict":            {name: "dict", call: globalDict},
	"namespace":       {name: "namespace", call: globalNamespace},
	"cycler":          {name: "cycler", call: globalCycler},
	"joiner":          {name: "joiner", call: globalJoiner},
	"lipsum":          {name: "lipsum", call: globalLipsum},
	"raise_exception": {name: "raise_exception", call: globalRaise},
	"self":            {name: "self", call: globalSelf},
	"strftime_now":    {name: "strftime_now", call: globalNow},
}

func globalRange(_ *renderer, a args) (Value, error) {
	if err := a.only("range", 1, 3); err != nil {
		return Value{}, err
	}
	bounds := [3]int64{0, 0, 1}
	for i, v := range a.pos {
		n, err := intArg("range", v)
		if err != nil {
			return Value{}, err
		}
		bounds[i] = int64(n)
	}
	if len(a.pos) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	if bounds[2] == 0 {
		return Value{}, faultf("range() arg 3 must not be zero")
	}
	v := spanOf(bounds[0], bounds[1], bounds[2])
	if n := v.span().n; n < 0 || n > maxRange {
		return Value{}, faultf("range too big: the sandbox blocks ranges larger than %d", maxRange)
	}
	return v, nil
}

func globalDict(r *renderer, a args) (Value, error) {
	d, err := r.dictOf("dict", a)
	return DictOf(d), err
}

func globalNamespace(r *renderer, a args) (Value, error) {
	d, err := r.dictOf("namespace", a)
	if err != nil {
		return Value{}, err
	}
	return namespaceOf(d), nil
}

// dictOf is Python's dict(): of a mapping or of pairs, and of keyword arguments.
func (r *renderer) dictOf(who string, a args) (*Dict, error) {
	if len(a.pos) > 1 {
		return nil, faultf("%s expected at most 1 argument, got %d", who, len(a.pos))
	}
	d := NewDict(len(a.kw))
	if len(a.pos) == 1 {
		if from := a.pos[0].Dict(); from != nil {
			if err := r.elements(from.Len()); err != nil {
				return nil, err
			}
			d = from.copy()
		} else if err := r.setPairs(d, a.pos[0]); err != nil {
			return nil, err
		}
	}
	for _, k := range a.kw {
		d.Set(k.name, k.value)
	}
	return d, nil
}

func (r *renderer) setPairs(d *Dict, v Value) error {
	items, err := r.listOf(v)
	if err != nil {
		return err
	}
	for i, item := range items {
		pair, err := r.listOf(item)
		if err != nil {
			return err
		}
		if len(pair) != 2 {
			return faultf("dictionary update sequence element #%d has length %d; 2 is required", i, len(pair))
		}
		if _, err := r.hasKey(d, pair[0]); err != nil {
			return err
		}
		d.set(pair[0], pair[1])
	}
	return nil
}

func globalCycler(_ *renderer, a args) (Value, error) {
	if len(a.kw) > 0 || len(a.pos) == 0 {
		return Value{}, faultf("at least one item has to be provided")
	}
	items, at := slices.Clone(a.pos), 0
	next := &function{name: "next", call: func(_ *renderer, a args) (Value, error) {
		v := items[at]
		at = (at + 1) % len(items)
		return v, a.only("next", 0, 0)
	}}
	reset := &function{name: "reset", call: func(_ *renderer, a args) (Value, error) {
		at = 0
		return None(), a.only("reset", 0, 0)
	}}
	return callable(&function{
		name: "cycler",
		call: func(*renderer, args) (Value, error) { return Value{}, faultf(`"Cycler" object is not callable`) },
		attr: func(name string) (Value, bool) {
			switch name {
			case "next":
				return callable(next), true
			case "reset":
				return callable(reset), true
			case "current":
				return items[at], true
			case "pos":
				return Int(int64(at)), true
			case "items":
				return tuple(items...), true
			}
			return Value{}, false
		},
	}), nil
}

func globalJoiner(_ *renderer, a args) (Value, error) {
	to := [1]Value{String(", ")}
	if err := a.bind("joiner", 0, to[:], "sep"); err != nil {
		return Value{}, err
	}
	used := false
	return callable(&function{
		name: "joiner",
		call: func(_ *renderer, a args) (Value, error) {
			if err := a.only("joiner", 0, 0); err != nil || used {
				return to[0], err
			}
			used = true
			return String(""), nil
		},
		attr: func(name string) (Value, bool) {
			switch name {
			case "sep":
				return to[0], true
			case "used":
				return Bool(used), true
			}
			return Value{}, false
		},
	}), nil
}

func globalLipsum(*renderer, args) (Value, error) {
	return Value{}, faultf("random text is not supported: prompts with it could not be told in advance")
}

func globalSelf(*renderer, args) (Value, error) {
	return Value{}, faultf(`"TemplateReference" object is not callable`)
}

func globalRaise(r *renderer, a args) (Value, error) {
	var to [1]Value
	if err := a.bind("raise_exception", 1, to[:], "message"); err != nil {
		return Value{}, err
	}
	s, err := r.str(to[0])
	if err != nil {
		return Value{}, err
	}
	return Value{}, &RaisedError{Message: strings.Clone(s)} // it outlives what it was made of
}

func globalNow(r *renderer, a args) (Value, error) {
	var to [1]Value
	if err := a.bind("strftime_now", 1, to[:], "format"); err != nil {
		return Value{}, err
	}
	layout, err := textArg("strftime_now", to[0])
	if err != nil {
		return Value{}, err
	}
	if err := r.text(20 * len(layout)); err != nil {
		return Value{}, err
	}
	return String(strftime(layout, r.options.Now())), nil
}
