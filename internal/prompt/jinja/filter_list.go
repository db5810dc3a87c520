package jinja

import (
	"slices"
	"sort"
)

func filterLength(_ *renderer, v Value, a args) (Value, error) {
	if err := a.bind("length", 0, nil); err != nil {
		return Value{}, err
	}
	n, ok := length(v)
	if !ok {
		return Value{}, faultf("object of type %q has no len()", v.typeName())
	}
	return Int(int64(n)), nil
}

func filterFirst(_ *renderer, v Value, a args) (Value, error) {
	if err := a.bind("first", 0, nil); err != nil {
		return Value{}, err
	}
	w, err := walk(v)
	if err != nil {
		return Value{}, err
	}
	item, ok, err := w.next()
	if err == nil && !ok {
		item = undefinedOf("No first item, sequence was empty.", flagHint)
	}
	return item, err
}

func filterLast(r *renderer, v Value, a args) (Value, error) {
	if err := a.bind("last", 0, nil); err != nil {
		return Value{}, err
	}
	items, err := r.reversible(v)
	if err != nil {
		return Value{}, err
	}
	if len(items) == 0 {
		return undefinedOf("No last item, sequence was empty.", flagHint), nil
	}
	return items[len(items)-1], nil
}

// reversible is the elements of v if Python can walk it backwards.
func (r *renderer) reversible(v Value) ([]Value, error) {
	if v.kind == KindIterator {
		return nil, faultf("%q object is not reversible", v.typeName())
	}
	return r.listOf(v)
}

func filterList(r *renderer, v Value, a args) (Value, error) {
	if err := a.bind("list", 0, nil); err != nil {
		return Value{}, err
	}
	items, err := r.listOf(v)
	return List(items), err
}

func filterReverse(r *renderer, v Value, a args) (Value, error) {
	if err := a.bind("reverse", 0, nil); err != nil {
		return Value{}, err
	}
	if v.kind == KindString {
		return r.sliced(v, &sliceRange{start: None(), stop: None(), step: Int(-1)})
	}
	items, err := r.listOf(v)
	if err != nil {
		return Value{}, err
	}
	if err := r.elements(len(items)); err != nil {
		return Value{}, err
	}
	items = slices.Clone(items)
	reverse(items)
	if v.kind == KindIterator {
		return List(items), nil
	}
	w := walker{value: List(items)}
	return iteratorOf(w.next), nil
}

// deferred is an iterator over a list that is made when somebody walks it, as those of Python's generators are.
func deferred(list func() ([]Value, error)) Value {
	var w walker
	started := false
	return iteratorOf(func() (Value, bool, error) {
		if !started {
			started = true
			items, err := list()
			if err != nil {
				return Value{}, false, err
			}
			w = walker{value: List(items)}
		}
		return w.next()
	})
}

func filterBatch(r *renderer, v Value, a args) (Value, error) {
	to := [2]Value{{}, None()}
	if err := a.bind("batch", 1, to[:], "linecount", "fill_with"); err != nil {
		return Value{}, err
	}
	size := -1 // a number that is never reached
	if to[0].isInteger() && to[0].p == nil {
		size = int(to[0].n)
	}
	return deferred(func() ([]Value, error) { return r.batches(v, size, to[1]) }), nil
}

// batches cuts the elements of v into lists of a size. The last one is filled up, unless the filling is None.
func (r *renderer) batches(v Value, size int, filling Value) ([]Value, error) {
	items, err := r.listOf(v)
	if err != nil {
		return nil, err
	}
	var batches []Value
	var batch []Value
	for _, item := range items {
		if len(batch) == size {
			batches = append(batches, List(batch))
			batch = nil
		}
		batch = append(batch, item)
	}
	if len(batch) > 0 {
		if filling.kind != KindNone && len(batch) < size {
			if err := r.elements(size); err != nil {
				return nil, err
			}
			for len(batch) < size {
				batch = append(batch, filling)
			}
		}
		batches = append(batches, List(batch))
	}
	return batches, r.spend(len(items))
}

func filterSlice(r *renderer, v Value, a args) (Value, error) {
	to := [2]Value{{}, None()}
	if err := a.bind("slice", 1, to[:], "slices", "fill_with"); err != nil {
		return Value{}, err
	}
	return deferred(func() ([]Value, error) { return r.slices(v, to[0], to[1]) }), nil
}

// slices cuts the elements of v into so many lists. Those that are shorter than others get the filling, unless it is None.
func (r *renderer) slices(v, number, filling Value) ([]Value, error) {
	n, err := intArg("slice", number)
	if err != nil {
		return nil, err
	}
	items, err := r.listOf(v)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, faultf("integer division or modulo by zero")
	}
	if err := r.elements(max(n, 0)); err != nil {
		return nil, err
	}
	var parts []Value
	rest := items
	for i := range max(n, 0) {
		size := len(items) / n
		if i < len(items)%n {
			size++
		}
		part := slices.Clone(rest[:size])
		rest = rest[size:]
		if filling.kind != KindNone && i >= len(items)%n {
			part = append(part, filling)
		}
		parts = append(parts, List(part))
	}
	return parts, nil
}

// sortBy sorts a copy of the items by keys, which it fills in.
func (r *renderer) sortBy(items []Value, key func(Value) (Value, error), backwards bool) ([]Value, error) {
	type pair struct{ key, item Value }
	if err := r.elements(len(items)); err != nil {
		return nil, err
	}
	pairs := make([]pair, len(items))
	for i, item := range items {
		k, err := key(item)
		if err != nil {
			return nil, err
		}
		pairs[i] = pair{k, item}
	}
	var failed error
	sort.SliceStable(pairs, func(i, j int) bool {
		if failed != nil {
			return false
		}
		if failed = r.spend(1); failed != nil {
			return false
		}
		if backwards { // stable in both directions
			i, j = j, i
		}
		var order int
		if order, _, failed = r.order(pairs[i].key, pairs[j].key, "<", 0); failed != nil {
			return false
		}
		return order < 0
	})
	if failed != nil {
		return nil, failed
	}
	out := make([]Value, len(items))
	for i, p := range pairs {
		out[i] = p.item
	}
	return out, nil
}

func filterSort(r *renderer, v Value, a args) (Value, error) {
	var to [3]Value
	if err := a.bind("sort", 0, to[:], "reverse", "case_sensitive", "attribute"); err != nil {
		return Value{}, err
	}
	items, err := r.listOf(v)
	if err != nil {
		return Value{}, err
	}
	var getters []getter
	if to[2].kind == KindString {
		for _, part := range splitText(to[2].str(), ",", -1, false) {
			getters = append(getters, getterOf(String(part), None(), !to[1].truth()))
		}
	} else {
		getters = []getter{getterOf(to[2], None(), !to[1].truth())}
	}
	items, err = r.sortBy(items, func(item Value) (Value, error) {
		keys := make([]Value, len(getters))
		for i := range getters {
			var err error
			if keys[i], err = getters[i].get(r, item); err != nil {
				return Value{}, err
			}
		}
		return List(keys), nil
	}, to[0].truth())
	return List(items), err
}

func filterDictSort(r *renderer, v Value, a args) (Value, error) {
	to := [3]Value{{}, String("key"), {}}
	if err := a.bind("dictsort", 0, to[:], "case_sensitive", "by", "reverse"); err != nil {
		return Value{}, err
	}
	at := 0
	switch to[1].Text() {
	case "key":
	case "value":
		at = 1
	default:
		return Value{}, faultf(`can only sort by either "key" or "value"`)
	}
	if v.kind != KindDict {
		return Value{}, noAttribute(v, "items")
	}
	items, err := r.listOf(viewOf(v.dict(), viewItems))
	if err != nil {
		return Value{}, err
	}
	items, err = r.sortBy(items, func(item Value) (Value, error) {
		key := item.items()[at]
		if to[0].truth() {
			return key, nil
		}
		return r.folded(key)
	}, to[2].truth())
	return List(items), err
}

func noAttribute(v Value, name string) error {
	if v.kind == KindUndefined {
		return undefinedError(v)
	}
	return faultf("%q object has no attribute %q", v.typeName(), name)
}

func filterGroupBy(r *renderer, v Value, a args) (Value, error) {
	to := [3]Value{{}, None(), {}}
	if err := a.bind("groupby", 1, to[:], "attribute", "default", "case_sensitive"); err != nil {
		return Value{}, err
	}
	items, err := r.listOf(v)
	if err != nil {
		return Value{}, err
	}
	key, shown := getterOf(to[0], to[1], !to[2].truth()), getterOf(to[0], to[1], false)
	get := func(item Value) (Value, error) { return key.get(r, item) }
	if items, err = r.sortBy(items, get, false); err != nil {
		return Value{}, err
	}
	var groups []Value
	for start := 0; start < len(items); {
		first, err := get(items[start])
		if err != nil {
			return Value{}, err
		}
		end := start + 1
		for ; end < len(items); end++ {
			k, err := get(items[end])
			if err != nil {
				return Value{}, err
			}
			same, err := r.equal(first, k)
			if err != nil {
				return Value{}, err
			}
			if !same {
				break
			}
		}
		if first, err = shown.get(r, items[start]); err != nil {
			return Value{}, err
		}
		group := tuple(first, List(items[start:end:end]))
		group.flag = flagGroup
		groups = append(groups, group)
		start = end
	}
	return List(groups), nil
}

func filterUnique(r *renderer, v Value, a args) (Value, error) {
	var to [2]Value
	if err := a.bind("unique", 0, to[:], "case_sensitive", "attribute"); err != nil {
		return Value{}, err
	}
	key := getterOf(to[1], None(), !to[0].truth())
	var w walker
	started := false
	seen := NewDict(0)
	return iteratorOf(func() (Value, bool, error) {
		if !started {
			started = true
			var err error
			if w, err = walk(v); err != nil {
				return Value{}, false, err
			}
		}
		for {
			item, ok, err := w.next()
			if err != nil || !ok {
				return Value{}, false, err
			}
			k, err := key.get(r, item)
			if err != nil {
				return Value{}, false, err
			}
			has, err := r.hasKey(seen, k)
			if err != nil {
				return Value{}, false, err
			}
			if k.kind != KindString {
				err = r.spend(seen.Len()) // see Dict.lookup
			}
			if err != nil || !has {
				seen.set(k, None())
				return item, err == nil, err
			}
		}
	}), nil
}

func filterMin(r *renderer, v Value, a args) (Value, error) { return r.extreme("min", v, a, -1) }
func filterMax(r *renderer, v Value, a args) (Value, error) { return r.extreme("max", v, a, 1) }

// extreme is the first of the smallest or of the largest elements.
func (r *renderer) extreme(who string, v Value, a args, sign int) (Value, error) {
	var to [2]Value
	if err := a.bind(who, 0, to[:], "case_sensitive", "attribute"); err != nil {
		return Value{}, err
	}
	items, err := r.listOf(v)
	if err != nil {
		return Value{}, err
	}
	if len(items) == 0 {
		return undefinedOf("No aggregated item, sequence was empty.", flagHint), nil
	}
	key := getterOf(to[1], None(), !to[0].truth())
	best := items[0]
	bestKey, err := key.get(r, best)
	if err != nil {
		return Value{}, err
	}
	for _, item := range items[1:] {
		k, err := key.get(r, item)
		if err != nil {
			return Value{}, err
		}
		order, _, err := r.order(k, bestKey, map[int]string{-1: "<", 1: ">"}[sign], 0)
		if err != nil {
			return Value{}, err
		}
		if order*sign > 0 {
			best, bestKey = item, k
		}
	}
	return best, nil
}

func filterSum(r *renderer, v Value, a args) (Value, error) {
	to := [2]Value{None(), Int(0)}
	if err := a.bind("sum", 0, to[:], "attribute", "start"); err != nil {
		return Value{}, err
	}
	items, err := r.listOf(v)
	if err != nil {
		return Value{}, err
	}
	total := to[1]
	if total.kind == KindString {
		return Value{}, faultf("sum() can't sum strings [use ''.join(seq) instead]")
	}
	key := getterOf(to[0], None(), false)
	for _, item := range items {
		if item, err = key.get(r, item); err != nil {
			return Value{}, err
		}
		if total, err = r.add(total, item); err != nil {
			return Value{}, err
		}
	}
	return total, nil
}

func filterItems(_ *renderer, v Value, a args) (Value, error) {
	if err := a.bind("items", 0, nil); err != nil {
		return Value{}, err
	}
	i := 0
	return iteratorOf(func() (Value, bool, error) {
		switch {
		case v.kind == KindUndefined:
			return Value{}, false, nil
		case v.kind != KindDict:
			return Value{}, false, faultf("can only get item pairs from a mapping")
		case i >= v.dict().Len():
			return Value{}, false, nil
		}
		e := v.dict().entries[i]
		i++
		return tuple(e.key, e.value), true, nil
	}), nil
}

// lazy is an iterator over the elements of v, as a Python generator: nothing happens before somebody walks it.
func lazy(r *renderer, v Value, prepare func() (func(Value) (Value, bool, error), error)) Value {
	var w walker
	var step func(Value) (Value, bool, error)
	done := false
	return iteratorOf(func() (Value, bool, error) {
		if done {
			return Value{}, false, nil
		}
		if step == nil {
			if done = !v.truth(); done {
				return Value{}, false, nil
			}
			var err error
			if step, err = prepare(); err != nil {
				return Value{}, false, err
			}
			if w, err = walk(v); err != nil {
				return Value{}, false, err
			}
		}
		for {
			item, ok, err := w.next()
			if err != nil || !ok {
				done = true
				return Value{}, false, err
			}
			if err := r.spend(1); err != nil {
				return Value{}, false, err
			}
			if item, ok, err = step(item); ok || err != nil {
				return item, ok, err
			}
		}
	})
}

// keep copies arguments, which live on the stack.
func (a args) keep() args { return args{pos: slices.Clone(a.pos), kw: slices.Clone(a.kw)} }

func filterMap(r *renderer, v Value, a args) (Value, error) {
	a = a.keep()
	return lazy(r, v, func() (func(Value) (Value, bool, error), error) {
		if attribute, ok := a.keyword("attribute"); ok && len(a.pos) == 0 {
			var to [2]Value
			if err := a.bind("map", 0, to[:], "attribute", "default"); err != nil {
				return nil, err
			}
			key := getterOf(attribute, to[1], false)
			return func(item Value) (Value, bool, error) {
				item, err := key.get(r, item)
				return item, true, err
			}, nil
		}
		if len(a.pos) == 0 {
			return nil, faultf("map requires a filter argument")
		}
		return func(item Value) (Value, bool, error) {
			item, err := r.callFilter(a.pos[0], item, args{pos: a.pos[1:], kw: a.kw})
			return item, true, err
		}, nil
	}), nil
}

// chooser makes the filters select, reject, selectattr, and rejectattr.
func chooser(want, byAttribute bool) filterFunc {
	return func(r *renderer, v Value, a args) (Value, error) {
		a = a.keep()
		return lazy(r, v, func() (func(Value) (Value, bool, error), error) {
			rest := a.pos
			var key getter
			if byAttribute {
				if len(rest) == 0 {
					return nil, faultf("missing parameter for attribute name")
				}
				key, rest = getterOf(rest[0], None(), false), rest[1:]
			}
			return func(item Value) (Value, bool, error) {
				probe, err := key.get(r, item)
				if err != nil {
					return Value{}, false, err
				}
				passed := probe.truth()
				if len(rest) > 0 {
					t := testNamed(rest[0].Text())
					if t == nil {
						return Value{}, false, faultf("no test named %q found", rest[0].Text())
					}
					if passed, err = t(r, probe, args{pos: rest[1:], kw: a.kw}); err != nil {
						return Value{}, false, err
					}
				}
				return item, passed == want, nil
			}, nil
		}), nil
	}
}
