package jinja

// viewPart tells which part of a mapping a view shows.
type viewPart uint8

const (
	viewKeys viewPart = iota
	viewValues
	viewItems
)

func (p viewPart) typeName() string {
	return [...]string{"dict_keys", "dict_values", "dict_items"}[p]
}

// view is what keys(), values(), and items() of a mapping return.
type view struct {
	dict *Dict
	part viewPart
}

func viewOf(d *Dict, part viewPart) Value {
	return objectOf(KindView, &view{d, part})
}

func (v *view) at(i int) Value {
	e := v.dict.entries[i]
	switch v.part {
	case viewKeys:
		return e.key
	case viewValues:
		return e.value
	default:
		return tuple(e.key, e.value)
	}
}

// span is a range: n numbers from start on, step apart.
type span struct{ start, stop, step, n int64 }

func spanOf(start, stop, step int64) Value {
	s := &span{start: start, stop: stop, step: step}
	if step > 0 && start < stop {
		s.n = int64((uint64(stop-start) + uint64(step) - 1) / uint64(step))
	} else if step < 0 && start > stop {
		s.n = int64((uint64(start-stop) + uint64(-step) - 1) / uint64(-step))
	}
	return objectOf(KindRange, s)
}

func (s *span) at(i int64) Value { return Int(s.start + i*s.step) }

// iterator is a generator: it is consumed by whoever walks it, and always true.
type iterator struct {
	next func() (Value, bool, error)
}

func iteratorOf(next func() (Value, bool, error)) Value {
	return objectOf(KindIterator, &iterator{next})
}

// namespace is the one object whose attributes templates may set. It lives within one rendering.
type namespace struct{ attrs Dict }

func namespaceOf(d *Dict) Value {
	return objectOf(KindNamespace, &namespace{attrs: *d})
}

// function is a callable of this package.
type function struct {
	name string
	call func(r *renderer, a args) (Value, error)
	attr func(name string) (Value, bool) // nil for most
}

func callable(f *function) Value { return objectOf(KindCallable, f) }

// method is a method with its object, not called yet.
type method struct {
	self Value
	name string
}

func methodOf(self Value, name string) Value {
	return withFlag(objectOf(KindCallable, &method{self, name}), flagMethod)
}

// macro is a macro, or the body of a call block, with the frame that it was defined in.
type macro struct {
	body  *routine
	frame *frame
}

func macroOf(body *routine, f *frame) Value {
	return withFlag(objectOf(KindCallable, &macro{body, f}), flagMacro)
}

// sliceRange is the a:b:c of a subscript. Values are None where nothing was given.
type sliceRange struct{ start, stop, step Value }

// walker walks the elements of a value without allocating.
type walker struct {
	value Value
	chars string
	i     int
}

// walk starts walking v.
func walk(v Value) (walker, error) {
	w := walker{value: v}
	switch v.kind {
	case KindString:
		w.chars = v.str()
	case KindList, KindTuple, KindDict, KindRange, KindView, KindIterator, KindUndefined:
	case KindLoop:
	default:
		return w, faultf("%q object is not iterable", v.typeName())
	}
	return w, nil
}

// next is the next element, and whether there is one.
func (w *walker) next() (Value, bool, error) {
	i := w.i
	w.i++
	switch w.value.kind {
	case KindList, KindTuple:
		if items := w.value.items(); i < len(items) {
			return items[i], true, nil
		}
	case KindString:
		if w.chars != "" {
			n := runeLen(w.chars)
			c := w.chars[:n]
			w.chars = w.chars[n:]
			return String(c), true, nil
		}
	case KindDict:
		if d := w.value.dict(); i < len(d.entries) {
			return d.entries[i].key, true, nil
		}
	case KindView:
		if v := w.value.view(); i < v.dict.Len() {
			return v.at(i), true, nil
		}
	case KindRange:
		if s := w.value.span(); int64(i) < s.n {
			return s.at(int64(i)), true, nil
		}
	case KindIterator:
		return w.value.iterator().next()
	}
	return Value{}, false, nil
}

// length is Python's len(v), and whether v has one.
func length(v Value) (int, bool) {
	switch v.kind {
	case KindString:
		return runeCount(v.str()), true
	case KindList, KindTuple:
		return len(v.items()), true
	case KindDict:
		return v.dict().Len(), true
	case KindRange:
		return int(v.span().n), true
	case KindView:
		return v.view().dict.Len(), true
	case KindUndefined:
		return 0, true
	default:
		return 0, false
	}
}

// listOf collects the elements of v. The result must not be changed: it may be v's own.
func (r *renderer) listOf(v Value) ([]Value, error) {
	if v.kind == KindList || v.kind == KindTuple {
		return v.items(), nil
	}
	w, err := walk(v)
	if err != nil {
		return nil, err
	}
	n, _ := length(v)
	if err := r.spend(n); err != nil {
		return nil, err
	}
	items := make([]Value, 0, n)
	for {
		item, ok, err := w.next()
		if err != nil || !ok {
			return items, err
		}
		if err := r.spend(1); err != nil {
			return nil, err
		}
		items = append(items, item)
	}
}

func sliceOf(s *sliceRange) Value { return objectOf(kindSlice, s) }
