package jinja

import (
	"math"
	"math/big"
	"strings"
)

// equal is Python's a == b where it cannot fail: between keys. Values that share parts many times over might take for ever, so
// beyond a bound they count as different.
func equal(a, b Value) bool {
	fuel := maxKey
	same, _ := equalValues(a, b, 0, func() error {
		if fuel--; fuel < 0 {
			return &BudgetError{Budget: Steps}
		}
		return nil
	})
	return same
}

// equal is Python's a == b.
func (r *renderer) equal(a, b Value) (bool, error) {
	if a.kind == KindString && b.kind == KindString {
		return a.str() == b.str(), nil
	}
	return equalValues(a, b, 0, func() error { return r.spend(1) })
}

func equalValues(a, b Value, depth int, step func() error) (bool, error) {
	if depth > maxValue {
		return false, &BudgetError{Budget: Depth, Limit: maxValue}
	}
	if a.isNumber() && b.isNumber() {
		c, ordered := compareNumbers(a, b)
		return ordered && c == 0, nil
	}
	if a.kind != b.kind {
		return false, nil
	}
	if err := step(); err != nil {
		return false, err
	}
	switch a.kind {
	case KindUndefined, KindNone:
		return true, nil
	case KindString:
		return a.str() == b.str(), nil
	case KindList, KindTuple:
		return equalItems(a.items(), b.items(), depth, step)
	case KindDict:
		return equalDicts(a.dict(), b.dict(), depth, step)
	case KindRange:
		s, t := a.span(), b.span()
		return s.n == t.n && (s.n == 0 || s.start == t.start && (s.n == 1 || s.step == t.step)), nil
	case KindView:
		v, w := a.view(), b.view()
		if v.part != w.part || v.part == viewValues {
			return a.p == b.p, nil
		}
		if v.part == viewItems {
			return equalDicts(v.dict, w.dict, depth, step)
		}
		for _, e := range v.dict.entries {
			if w.dict.lookup(e.key) < 0 {
				return false, nil
			}
		}
		return v.dict.Len() == w.dict.Len(), nil
	case KindCallable:
		if a.flag == flagMethod && b.flag == flagMethod {
			m, n := (*method)(a.p), (*method)(b.p)
			return m.name == n.name && m.self.p == n.self.p && m.self.kind == n.self.kind, nil
		}
	}
	return a.p == b.p, nil
}

func equalItems(a, b []Value, depth int, step func() error) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if identical(a[i], b[i]) {
			continue
		}
		if same, err := equalValues(a[i], b[i], depth+1, step); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

func equalDicts(a, b *Dict, depth int, step func() error) (bool, error) {
	if a.Len() != b.Len() {
		return false, nil
	}
	for _, e := range a.entries {
		i := b.lookup(e.key)
		if i < 0 {
			return false, nil
		}
		if identical(e.value, b.entries[i].value) {
			continue
		}
		if same, err := equalValues(e.value, b.entries[i].value, depth+1, step); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// identical is Python's a is b, as far as that is a matter of the value: small numbers and constants are the same object there.
func identical(a, b Value) bool {
	if a.kind != b.kind {
		return false
	}
	if a.kind == KindString {
		return a.str() == b.str() && a.flag == b.flag
	}
	if a.kind == KindFloat {
		return a.n == b.n
	}
	return a.n == b.n && a.p == b.p
}

// compareNumbers orders two numbers. NaN has no order.
func compareNumbers(a, b Value) (order int, ordered bool) {
	switch {
	case a.kind == KindFloat && b.kind == KindFloat:
		return compareFloats(a.float(), b.float())
	case a.kind == KindFloat:
		c, ok := compareIntFloat(b, a.float())
		return -c, ok
	case b.kind == KindFloat:
		return compareIntFloat(a, b.float())
	case a.p == nil && b.p == nil:
		switch {
		case a.n < b.n:
			return -1, true
		case a.n > b.n:
			return 1, true
		}
		return 0, true
	}
	return asBig(a).Cmp(asBig(b)), true
}

func compareFloats(a, b float64) (int, bool) {
	switch {
	case a < b:
		return -1, true
	case a > b:
		return 1, true
	case a == b:
		return 0, true
	}
	return 0, false
}

// compareIntFloat compares without rounding.
func compareIntFloat(a Value, f float64) (int, bool) {
	const exact = 1 << 53
	switch {
	case math.IsNaN(f):
		return 0, false
	case a.p == nil && a.n >= -exact && a.n <= exact:
		return compareFloats(float64(a.n), f)
	case math.IsInf(f, 1):
		return -1, true
	case math.IsInf(f, -1):
		return 1, true
	}
	return new(big.Float).SetInt(asBig(a)).Cmp(big.NewFloat(f)), true
}

// asBig is an integer of any size.
func asBig(v Value) *big.Int {
	if v.p != nil {
		return v.big()
	}
	return big.NewInt(v.n)
}

// order compares a and b for sorting and for the operators < > <= >=. ordered is false if one is NaN.
func (r *renderer) order(a, b Value, operator string, depth int) (order int, ordered bool, err error) {
	if depth > maxValue {
		return 0, false, &BudgetError{Budget: Depth, Limit: maxValue}
	}
	switch {
	case a.isNumber() && b.isNumber():
		order, ordered = compareNumbers(a, b)
		return order, ordered, nil
	case a.kind == KindString && b.kind == KindString:
		return strings.Compare(a.str(), b.str()), true, nil
	case a.kind == KindUndefined:
		return 0, false, undefinedError(a)
	case b.kind == KindUndefined:
		return 0, false, undefinedError(b)
	case a.kind == b.kind && (a.kind == KindList || a.kind == KindTuple):
		x, y := a.items(), b.items()
		for i := range min(len(x), len(y)) {
			if err := r.spend(1); err != nil {
				return 0, false, err
			}
			same, err := r.equal(x[i], y[i])
			if err != nil {
				return 0, false, err
			}
			if !same {
				return r.order(x[i], y[i], operator, depth+1)
			}
		}
		return len(x) - len(y), true, nil
	}
	return 0, false, faultf("%q not supported between instances of %q and %q", operator, a.typeName(), b.typeName())
}

// contains is Python's item in v.
func (r *renderer) contains(v, item Value) (bool, error) {
	switch v.kind {
	case KindString:
		if item.kind != KindString {
			return false, faultf("'in <string>' requires string as left operand, not %s", item.typeName())
		}
		if err := r.spend(len(v.str()) / stepBytes); err != nil {
			return false, err
		}
		return strings.Contains(v.str(), item.str()), nil
	case KindDict:
		return r.hasKey(v.dict(), item)
	case KindView:
		if v.view().part == viewKeys {
			return r.hasKey(v.view().dict, item)
		}
	case KindRange:
		s := v.span()
		if item.isInteger() && item.p == nil && s.step != 0 {
			n := item.n - s.start
			return n%s.step == 0 && n/s.step >= 0 && n/s.step < s.n, nil
		}
	case KindList, KindTuple, KindIterator, KindUndefined:
	default:
		return false, faultf("argument of type %q is not iterable", v.typeName())
	}
	w, err := walk(v)
	if err != nil {
		return false, err
	}
	for {
		x, ok, err := w.next()
		if err != nil || !ok {
			return false, err
		}
		if err := r.spend(1); err != nil {
			return false, err
		}
		if identical(x, item) {
			return true, nil
		}
		if same, err := r.equal(x, item); same || err != nil {
			return same, err
		}
	}
}

func (r *renderer) hasKey(d *Dict, key Value) (bool, error) {
	if !hashable(key) {
		return false, faultf("unhashable type: %q", key.typeName())
	}
	return d.lookup(key) >= 0, r.probe(d, key)
}

// probe takes the budget of a look-up. Only texts are found without looking at all keys.
func (r *renderer) probe(d *Dict, key Value) error {
	if key.kind == KindString {
		return nil
	}
	return r.spend(d.Len() / 8)
}
