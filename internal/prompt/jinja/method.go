package jinja

import "slices"

// hasMethod tells whether the Python object has a method of this name that templates may call.
func hasMethod(v Value, name string) bool {
	switch v.kind {
	case KindString:
		return isTextMethod(name)
	case KindDict:
		switch name {
		case "get", "items", "keys", "values", "copy":
			return true
		}
	case KindList:
		return name == "count" || name == "index" || name == "copy"
	case KindTuple, KindRange:
		return name == "count" || name == "index"
	case KindInt, KindBool:
		switch name {
		case "bit_length", "bit_count", "conjugate":
			return true
		}
	case KindFloat:
		return name == "is_integer" || name == "conjugate"
	}
	return false
}

// callMethod calls a method that hasMethod knows.
func (r *renderer) callMethod(v Value, name string, a args) (Value, error) {
	switch v.kind {
	case KindString:
		return r.textMethod(v, name, a)
	case KindDict:
		if len(a.pos) > 0 {
			if err := r.probe(v.dict(), a.pos[0]); err != nil {
				return Value{}, err
			}
		}
		if name == "copy" {
			if err := r.elements(v.dict().Len()); err != nil {
				return Value{}, err
			}
		}
		return dictMethod(v.dict(), name, a)
	case KindList, KindTuple, KindRange:
		return r.sequenceMethod(v, name, a)
	}
	if err := a.only(name, 0, 0); err != nil {
		return Value{}, err
	}
	switch name {
	case "bit_length":
		return Int(int64(asBig(v).BitLen())), nil
	case "bit_count":
		n := 0
		for _, word := range asBig(v).Bits() {
			for ; word != 0; word &= word - 1 {
				n++
			}
		}
		return Int(int64(n)), nil
	case "is_integer":
		return Bool(v.float() == float64(int64(v.float())) || v.float() >= 1<<53 || v.float() <= -1<<53), nil
	}
	return Value{kind: v.kind, n: v.n, p: v.p}, nil
}

// only checks that there are so many arguments, all of them without names.
func (a args) only(who string, least, most int) error {
	switch {
	case len(a.kw) > 0:
		return faultf("%s() takes no keyword arguments", who)
	case len(a.pos) < least || len(a.pos) > most:
		return faultf("%s() takes %d to %d arguments, %d were given", who, least, most, len(a.pos))
	}
	return nil
}

func dictMethod(d *Dict, name string, a args) (Value, error) {
	if name == "get" {
		if err := a.only(name, 1, 2); err != nil {
			return Value{}, err
		}
		key := a.pos[0]
		if !hashable(key) {
			return Value{}, faultf("unhashable type: %q", key.typeName())
		}
		if i := d.lookup(key); i >= 0 {
			return d.entries[i].value, nil
		}
		if len(a.pos) > 1 {
			return a.pos[1], nil
		}
		return None(), nil
	}
	if err := a.only(name, 0, 0); err != nil {
		return Value{}, err
	}
	switch name {
	case "keys":
		return viewOf(d, viewKeys), nil
	case "values":
		return viewOf(d, viewValues), nil
	case "items":
		return viewOf(d, viewItems), nil
	}
	return DictOf(d.copy()), nil
}

func (r *renderer) sequenceMethod(v Value, name string, a args) (Value, error) {
	items, err := r.listOf(v)
	if err != nil {
		return Value{}, err
	}
	if name == "copy" {
		return List(slices.Clone(items)), a.only(name, 0, 0)
	}
	if name == "count" {
		if err := a.only(name, 1, 1); err != nil {
			return Value{}, err
		}
		n := 0
		for _, item := range items {
			same, err := r.equal(item, a.pos[0])
			if err != nil {
				return Value{}, err
			}
			if same {
				n++
			}
		}
		return Int(int64(n)), r.spend(len(items))
	}
	if err := a.only(name, 1, 3); err != nil {
		return Value{}, err
	}
	start, stop, err := within(a.pos[1:], len(items))
	if err != nil {
		return Value{}, err
	}
	for i := start; i < stop; i++ {
		same, err := r.equal(items[i], a.pos[0])
		if err != nil {
			return Value{}, err
		}
		if same {
			return Int(int64(i)), r.spend(i)
		}
	}
	return Value{}, faultf("the value is not in the %s", v.typeName())
}

// within is the part of n elements that optional arguments start and stop choose.
func within(bounds []Value, n int) (start, stop int, err error) {
	s := sliceRange{start: None(), stop: None(), step: None()}
	if len(bounds) > 0 {
		s.start = bounds[0]
	}
	if len(bounds) > 1 {
		s.stop = bounds[1]
	}
	start, count, _, err := s.bounds(n)
	return start, start + count, err
}
