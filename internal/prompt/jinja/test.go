package jinja

import "unicode"

// testFunc is a test: it tells whether something holds of v.
type testFunc func(r *renderer, v Value, a args) (bool, error)

// testNamed is the test of this name, or nil.
func testNamed(name string) testFunc {
	switch name {
	case "defined":
		return kindTest(func(v Value) bool { return v.kind != KindUndefined })
	case "undefined":
		return kindTest(func(v Value) bool { return v.kind == KindUndefined })
	case "none":
		return kindTest(func(v Value) bool { return v.kind == KindNone })
	case "boolean":
		return kindTest(func(v Value) bool { return v.kind == KindBool })
	case "true":
		return kindTest(func(v Value) bool { return v.kind == KindBool && v.n != 0 })
	case "false":
		return kindTest(func(v Value) bool { return v.kind == KindBool && v.n == 0 })
	case "integer":
		return kindTest(func(v Value) bool { return v.kind == KindInt })
	case "float":
		return kindTest(func(v Value) bool { return v.kind == KindFloat })
	case "number":
		return kindTest(Value.isNumber)
	case "string":
		return kindTest(func(v Value) bool { return v.kind == KindString })
	case "mapping":
		return kindTest(func(v Value) bool { return v.kind == KindDict })
	case "sequence":
		return kindTest(isSequence)
	case "iterable":
		return kindTest(func(v Value) bool { _, err := walk(v); return err == nil })
	case "callable":
		// Undefined values have a method for being called, which fails.
		return kindTest(func(v Value) bool {
			return v.kind == KindCallable || v.kind == KindLoop || v.kind == KindUndefined
		})
	case "escaped":
		return kindTest(func(v Value) bool { return v.kind == KindString && v.flag == flagMarkup })
	case "filter":
		return kindTest(func(v Value) bool { return filterNamed(v.Text()) != nil })
	case "test":
		return kindTest(func(v Value) bool { return testNamed(v.Text()) != nil })
	case "lower":
		return textTest(func(s string) bool { return inCase(s, unicode.IsLower, unicode.IsUpper) })
	case "upper":
		return textTest(func(s string) bool { return inCase(s, unicode.IsUpper, unicode.IsLower) })
	}
	return operandTest(name)
}

// operandTest is a test that compares with another value.
func operandTest(name string) testFunc {
	switch name {
	case "odd":
		return remainderTest(Int(2), Int(1))
	case "even":
		return remainderTest(Int(2), Int(0))
	case "divisibleby":
		return func(r *renderer, v Value, a args) (bool, error) {
			var by [1]Value
			if err := a.bind(name, 1, by[:], "num"); err != nil {
				return false, err
			}
			return remainderTest(by[0], Int(0))(r, v, args{})
		}
	case "sameas":
		return func(_ *renderer, v Value, a args) (bool, error) {
			var other [1]Value
			if err := a.bind(name, 1, other[:], "other"); err != nil {
				return false, err
			}
			return identical(v, other[0]), nil
		}
	case "in":
		return func(r *renderer, v Value, a args) (bool, error) {
			var in [1]Value
			if err := a.bind(name, 1, in[:], "seq"); err != nil {
				return false, err
			}
			return r.contains(in[0], v)
		}
	case "==", "eq", "equalto":
		return compareTest("==")
	case "!=", "ne":
		return compareTest("!=")
	case ">", "gt", "greaterthan":
		return compareTest(">")
	case ">=", "ge":
		return compareTest(">=")
	case "<", "lt", "lessthan":
		return compareTest("<")
	case "<=", "le":
		return compareTest("<=")
	}
	return nil
}

func kindTest(f func(Value) bool) testFunc {
	return func(_ *renderer, v Value, a args) (bool, error) {
		return f(v), a.bind("test", 0, nil)
	}
}

func textTest(f func(string) bool) testFunc {
	return func(r *renderer, v Value, a args) (bool, error) {
		if err := a.bind("test", 0, nil); err != nil {
			return false, err
		}
		s, err := r.str(v)
		return f(s), err
	}
}

// remainderTest tells whether v % by is a number.
func remainderTest(by, rest Value) testFunc {
	return func(r *renderer, v Value, a args) (bool, error) {
		if err := a.bind("test", 0, nil); err != nil {
			return false, err
		}
		got, err := r.arithmetic(opMod, v, by)
		if err != nil {
			return false, err
		}
		return r.equal(got, rest)
	}
}

func compareTest(operator string) testFunc {
	return func(r *renderer, v Value, a args) (bool, error) {
		if err := a.only("test", 1, 1); err != nil {
			return false, err
		}
		return r.compare(operator, v, a.pos[0])
	}
}

func isSequence(v Value) bool {
	switch v.kind {
	case KindString, KindList, KindTuple, KindDict, KindRange, KindUndefined:
		return true
	}
	return false
}
