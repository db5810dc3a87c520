package jinja

import (
	"math"
	"strings"
)

func (e *attribute) eval(r *renderer) (Value, error) {
	object, err := e.object.eval(r)
	if err != nil {
		return Value{}, err
	}
	// Most objects are mappings, and most names are none of their methods.
	if object.kind == KindDict && !hasMethod(object, e.name) {
		if i := object.dict().find(e.name); i >= 0 && e.name[0] != '_' {
			return object.dict().entries[i].value, nil
		}
	}
	v, err := r.attribute(object, e.name)
	if err != nil {
		err = r.template.locate(err, e.pos)
	}
	return v, err
}

// attribute is object.name: the attribute of the Python object, or else the element with this key.
func (r *renderer) attribute(object Value, name string) (Value, error) {
	v, ok, err := r.ownAttribute(object, name)
	if ok || err != nil {
		return v, err
	}
	if object.kind == KindDict {
		if i := object.dict().find(name); i >= 0 {
			return object.dict().entries[i].value, nil
		}
	}
	return undefinedOf(name, flagAttribute), nil
}

// ownAttribute is the attribute of a Python object, and whether it has one.
func (r *renderer) ownAttribute(object Value, name string) (Value, bool, error) {
	special := strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__")
	switch object.kind {
	case KindUndefined:
		if special && isSpecial(object, name) {
			break
		}
		return Value{}, false, undefinedError(object)
	case KindNamespace:
		if v, ok := object.namespace().attrs.Get(name); ok && !strings.HasPrefix(name, "_") {
			return v, true, nil
		}
		return Value{}, false, nil
	case KindLoop:
		return object.loop().attribute(r, name)
	case KindCallable:
		if object.flag == flagMacro {
			v, ok := macroAttribute((*macro)(object.p), name)
			return v, ok, nil
		}
		if f := (*function)(object.p); object.flag == 0 && f.attr != nil {
			v, ok := f.attr(name)
			return v, ok, nil
		}
	}
	switch {
	case hasMethod(object, name):
		return methodOf(object, name), true, nil
	case isMutation(object, name), special && isSpecial(object, name):
		return undefinedOf("access to attribute '"+name+"' of '"+object.typeName()+"' object is unsafe", flagHint), true, nil
	}
	v, ok := dataAttribute(object, name)
	return v, ok, nil
}

// isMutation tells whether name is a method that changes the object, which templates must not.
func isMutation(object Value, name string) bool {
	switch object.kind {
	case KindList:
		switch name {
		case "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove":
			return true
		}
	case KindDict:
		switch name {
		case "clear", "pop", "popitem", "setdefault", "update":
			return true
		}
	}
	return false
}

// isSpecial tells whether name is one of the attributes that Python's objects have for the language.
func isSpecial(object Value, name string) bool {
	switch name {
	case "__class__", "__doc__", "__init__", "__new__", "__dir__", "__eq__", "__ne__", "__hash__", "__repr__", "__str__",
		"__format__", "__reduce__", "__reduce_ex__", "__sizeof__", "__getattribute__", "__setattr__", "__delattr__",
		"__init_subclass__", "__subclasshook__", "__lt__", "__le__", "__gt__", "__ge__", "__getstate__":
		return true
	case "__len__", "__iter__", "__contains__", "__getitem__":
		_, ok := length(object)
		return ok
	}
	return false
}

// dataAttribute is an attribute that is no method.
func dataAttribute(object Value, name string) (Value, bool) {
	switch object.kind {
	case KindInt, KindBool:
		switch name {
		case "real", "numerator":
			return Value{kind: KindInt, n: object.n, p: object.p}, true
		case "imag":
			return Int(0), true
		case "denominator":
			return Int(1), true
		}
	case KindFloat:
		switch name {
		case "real":
			return object, true
		case "imag":
			return Float(0), true
		}
	case KindRange:
		s := object.span()
		switch name {
		case "start":
			return Int(s.start), true
		case "stop":
			return Int(s.stop), true
		case "step":
			return Int(s.step), true
		}
	case KindTuple:
		if object.flag == flagGroup {
			switch name {
			case "grouper":
				return object.items()[0], true
			case "list":
				return object.items()[1], true
			}
		}
	}
	return Value{}, false
}

// flagGroup marks the tuples of the filter groupby, whose elements have names.
const flagGroup = 1

func macroAttribute(m *macro, name string) (Value, bool) {
	switch name {
	case "name":
		return String(m.body.name), true
	case "arguments":
		items := make([]Value, len(m.body.params))
		for i, p := range m.body.params {
			items[i] = String(p.text)
		}
		return tuple(items...), true
	case "catch_kwargs":
		return Bool(m.body.usesKwargs), true
	case "catch_varargs":
		return Bool(m.body.usesArgs), true
	case "caller":
		return Bool(m.body.usesCaller || m.body.hasCaller), true
	}
	return Value{}, false
}

func (e *subscript) eval(r *renderer) (Value, error) {
	object, err := e.object.eval(r)
	if err != nil {
		return Value{}, err
	}
	if s, ok := e.index.(*slicing); ok {
		index, err := s.eval(r)
		if err != nil {
			return Value{}, err
		}
		v, err := r.sliced(object, index.slice())
		if err != nil {
			err = r.template.locate(err, e.pos)
		}
		return v, err
	}
	index, err := e.index.eval(r)
	if err != nil {
		return Value{}, err
	}
	v, err := r.item(object, index)
	if err != nil {
		err = r.template.locate(err, e.pos)
	}
	return v, err
}

// item is object[index]: the element, or else the attribute of this name.
func (r *renderer) item(object, index Value) (Value, error) {
	if object.kind == KindDict {
		if err := r.probe(object.dict(), index); err != nil {
			return Value{}, err
		}
	}
	if v, ok := element(object, index); ok {
		return v, nil
	}
	switch {
	case object.kind == KindUndefined:
		return Value{}, undefinedError(object)
	case index.kind == kindSlice:
		return undefinedOf("slice", flagAttribute), nil
	case index.kind != KindString:
		if s, err := r.reprOf(index); err == nil {
			return undefinedOf(s, flagAttribute), nil
		}
		return undefinedOf("element", flagAttribute), nil
	}
	v, ok, err := r.ownAttribute(object, index.str())
	if err != nil || ok {
		return v, err
	}
	return undefinedOf(index.str(), flagAttribute), nil
}

// element is an element of a sequence or a mapping.
func element(object, index Value) (Value, bool) {
	switch object.kind {
	case KindDict:
		if hashable(index) {
			if i := object.dict().lookup(index); i >= 0 {
				return object.dict().entries[i].value, true
			}
		}
		return Value{}, false
	case KindString, KindList, KindTuple, KindRange:
	default:
		return Value{}, false
	}
	if !index.isInteger() || index.p != nil {
		return Value{}, false
	}
	i := index.n
	switch object.kind {
	case KindString:
		return character(object, i)
	case KindRange:
		s := object.span()
		if i < 0 {
			i += s.n
		}
		if i < 0 || i >= s.n {
			return Value{}, false
		}
		return s.at(i), true
	}
	items := object.items()
	if i < 0 {
		i += int64(len(items))
	}
	if i < 0 || i >= int64(len(items)) {
		return Value{}, false
	}
	return items[i], true
}

// character is a character of a text.
func character(v Value, i int64) (Value, bool) {
	s := v.str()
	n := int64(len(s))
	if i >= n || i < -n {
		return Value{}, false
	}
	if i == 0 {
		return v.like(s[:runeLen(s)]), true
	}
	if n = int64(runeCount(s)); i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return Value{}, false
	}
	at := int(i)
	if n != int64(len(s)) {
		at = byteOffset(s, at)
	}
	return v.like(s[at : at+runeLen(s[at:])]), true
}

func (e *slicing) eval(r *renderer) (Value, error) {
	bound := func(e expression) (Value, error) {
		if e == nil {
			return None(), nil
		}
		return e.eval(r)
	}
	var s sliceRange
	var err error
	if s.start, err = bound(e.start); err == nil {
		if s.stop, err = bound(e.stop); err == nil {
			s.step, err = bound(e.step)
		}
	}
	return sliceOf(&s), err
}

// bounds are where a slice of a sequence of n elements begins, how many elements it has, and how far they are apart.
func (s *sliceRange) bounds(n int) (start, count, step int, err error) {
	if step, err = sliceBound(s.step, 1); err != nil {
		return 0, 0, 0, err
	}
	if step == 0 {
		return 0, 0, 0, faultf("slice step cannot be zero")
	}
	low, high, first, last := 0, n, 0, n
	if step < 0 {
		low, high, first, last = -1, n-1, n-1, -1
	}
	clamp := func(v Value, missing int) (int, error) {
		i, err := sliceBound(v, missing)
		if v.kind != KindNone && i < 0 {
			i = max(i+n, low)
		}
		return min(max(i, low), high), err
	}
	if start, err = clamp(s.start, first); err != nil {
		return 0, 0, 0, err
	}
	stop, err := clamp(s.stop, last)
	if err != nil {
		return 0, 0, 0, err
	}
	if step > 0 && start < stop {
		count = (stop-start-1)/step + 1
	} else if step < 0 && start > stop {
		count = (start-stop-1)/-step + 1
	}
	return start, count, step, nil
}

// sliceBound is a bound, of which the sign and whether it is large count.
func sliceBound(v Value, missing int) (int, error) {
	const far = math.MaxInt32
	switch {
	case v.kind == KindNone:
		return missing, nil
	case v.isInteger() && v.p != nil:
		return far * v.big().Sign(), nil
	case v.isInteger():
		return int(min(max(v.n, -far), far)), nil
	}
	return 0, faultf("slice indices must be integers or None, not %s", v.typeName())
}

// sliced is object[start:stop:step].
func (r *renderer) sliced(object Value, s *sliceRange) (Value, error) {
	switch object.kind {
	case KindString:
		return r.slicedText(object, s)
	case KindUndefined:
		return Value{}, undefinedError(object)
	case KindDict:
		return Value{}, faultf("unhashable type: 'slice'")
	case KindRange:
		t := object.span()
		start, count, step, err := s.bounds(int(t.n))
		first := t.start + int64(start)*t.step
		return spanOf(first, first+int64(count)*int64(step)*t.step, int64(step)*t.step), err
	case KindList, KindTuple:
	default:
		return Value{}, faultf("%q object is not subscriptable", object.typeName())
	}
	items := object.items()
	start, count, step, err := s.bounds(len(items))
	if err != nil {
		return Value{}, err
	}
	var out []Value
	if step == 1 {
		out = items[start : start+count : start+count] // nobody changes elements: lists may share them
	} else {
		if err := r.elements(count); err != nil {
			return Value{}, err
		}
		out = make([]Value, count)
		for i := range out {
			out[i] = items[start+i*step]
		}
	}
	if object.kind == KindTuple {
		return tuple(out...), nil
	}
	return List(out), nil
}

func (r *renderer) slicedText(object Value, sl *sliceRange) (Value, error) {
	s := object.str()
	if err := r.spend(len(s) / (16 * stepBytes)); err != nil {
		return Value{}, err
	}
	n := runeCount(s)
	start, count, step, err := sl.bounds(n)
	if err != nil || count == 0 {
		return object.like(""), err
	}
	ascii := n == len(s)
	if step == 1 {
		if ascii {
			return object.like(s[start : start+count]), nil
		}
		from := byteOffset(s, start)
		return object.like(s[from : from+byteOffset(s[from:], count)]), nil
	}
	if err := r.text(len(s)); err != nil {
		return Value{}, err
	}
	out := make([]byte, 0, count)
	if ascii {
		for i := range count {
			out = append(out, s[start+i*step])
		}
		return object.like(string(out)), nil
	}
	runes := []rune(s)
	picked := make([]rune, count)
	for i := range count {
		picked[i] = runes[start+i*step]
	}
	return object.like(string(picked)), nil
}
