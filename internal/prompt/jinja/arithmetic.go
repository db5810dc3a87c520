package jinja

import (
	"math"
	"math/big"
	"math/bits"
	"strings"
)

// maxBits bounds integers on the way.
const maxBits = 1 << 17

var operatorText = [...]string{opSub: "-", opMul: "*", opDiv: "/", opFloorDiv: "//", opMod: "%", opPow: "** or pow()"}

func unsupportedOperands(operator string, a, b Value) error {
	switch {
	case a.kind == KindUndefined:
		return undefinedError(a)
	case b.kind == KindUndefined:
		return undefinedError(b)
	}
	return faultf("unsupported operand types for %s: %q and %q", operator, a.typeName(), b.typeName())
}

// add is Python's a + b.
func (r *renderer) add(a, b Value) (Value, error) {
	switch {
	case a.kind == KindString && b.kind == KindString:
		s, t := a.str(), b.str()
		flag := a.flag | b.flag
		if flag == flagMarkup { // text beside markup becomes markup
			s, t = escaped(a), escaped(b)
		}
		if err := r.text(len(s) + len(t)); err != nil {
			return Value{}, err
		}
		v := String(s + t)
		v.flag = flag
		return v, nil
	case a.isInteger() && b.isInteger():
		if a.p == nil && b.p == nil {
			if sum := a.n + b.n; (sum > a.n) == (b.n > 0) {
				return Int(sum), nil
			}
		}
		return r.bounded(new(big.Int).Add(asBig(a), asBig(b)))
	case a.isNumber() && b.isNumber():
		x, y, err := floats(a, b)
		return Float(x + y), err
	case a.kind == b.kind && (a.kind == KindList || a.kind == KindTuple):
		x, y := a.items(), b.items()
		if err := r.elements(len(x) + len(y)); err != nil {
			return Value{}, err
		}
		items := append(append(make([]Value, 0, len(x)+len(y)), x...), y...)
		if a.kind == KindTuple {
			return tuple(items...), nil
		}
		return List(items), nil
	}
	return Value{}, unsupportedOperands("+", a, b)
}

// elements takes the budget of making a list of n elements.
func (r *renderer) elements(n int) error {
	if n > r.options.MaxSteps {
		return &BudgetError{Budget: Steps, Limit: int64(r.options.MaxSteps)}
	}
	return r.spend(n)
}

// bounded is an integer, if it is not larger than any template needs.
func (r *renderer) bounded(n *big.Int) (Value, error) {
	if n.BitLen() > maxBits {
		return Value{}, faultf("found an integer of %d bits, expected at most %d", n.BitLen(), maxBits)
	}
	return bigInt(n), r.spend(n.BitLen() / 64)
}

// floats converts two numbers.
func floats(a, b Value) (float64, float64, error) {
	x, err := asFloat(a)
	if err != nil {
		return 0, 0, err
	}
	y, err := asFloat(b)
	return x, y, err
}

func asFloat(v Value) (float64, error) {
	switch {
	case v.kind == KindFloat:
		return v.float(), nil
	case v.p == nil:
		return float64(v.n), nil
	}
	f, _ := new(big.Float).SetInt(v.big()).Float64()
	if math.IsInf(f, 0) {
		return 0, faultf("int too large to convert to float")
	}
	return f, nil
}

func (e *binary) eval(r *renderer) (Value, error) {
	a, err := e.left.eval(r)
	if err != nil {
		return Value{}, err
	}
	b, err := e.right.eval(r)
	if err != nil {
		return Value{}, err
	}
	v, err := r.arithmetic(e.operator, a, b)
	if err != nil {
		err = r.template.locate(err, e.pos)
	}
	return v, err
}

// arithmetic is all but addition.
func (r *renderer) arithmetic(op operator, a, b Value) (Value, error) {
	switch {
	case op == opMod && a.kind == KindString:
		return r.percent(a, b)
	case a.isInteger() && b.isInteger():
		return r.integers(op, a, b)
	case a.isNumber() && b.isNumber():
		x, y, err := floats(a, b)
		if err != nil {
			return Value{}, err
		}
		return floatArithmetic(op, x, y)
	case op == opMul && a.isInteger() && b.kind != KindUndefined:
		return r.repeat(b, a)
	case op == opMul && b.isInteger():
		return r.repeat(a, b)
	case op == opSub && a.kind == KindView && b.kind == KindView:
		return Value{}, faultf("sets are not supported")
	}
	return Value{}, unsupportedOperands(operatorText[op], a, b)
}

// repeat is a sequence n times over.
func (r *renderer) repeat(v, times Value) (Value, error) {
	n := int(min(max(times.n, 0), math.MaxInt32))
	if times.p != nil {
		if n = math.MaxInt32; times.big().Sign() < 0 {
			n = 0
		}
	}
	switch v.kind {
	case KindString:
		s := v.str()
		if err := r.text(len(s) * n); err != nil {
			return Value{}, err
		}
		return v.like(strings.Repeat(s, n)), nil
	case KindList, KindTuple:
		items := v.items()
		if err := r.elements(len(items) * n); err != nil {
			return Value{}, err
		}
		out := make([]Value, 0, len(items)*n)
		for range n * min(len(items), 1) {
			out = append(out, items...)
		}
		if v.kind == KindTuple {
			return tuple(out...), nil
		}
		return List(out), nil
	}
	return Value{}, unsupportedOperands("*", v, times)
}

func (r *renderer) integers(op operator, a, b Value) (Value, error) {
	if a.p == nil && b.p == nil {
		if v, ok, err := smallIntegers(op, a.n, b.n); ok || err != nil {
			return v, err
		}
	}
	x, y := asBig(a), asBig(b)
	if y.Sign() == 0 && (op == opDiv || op == opFloorDiv || op == opMod) {
		return Value{}, faultf("division by zero")
	}
	switch op {
	case opSub:
		return r.bounded(new(big.Int).Sub(x, y))
	case opMul:
		return r.bounded(new(big.Int).Mul(x, y))
	case opDiv:
		f, _ := new(big.Rat).SetFrac(x, y).Float64()
		if math.IsInf(f, 0) {
			return Value{}, faultf("integer division result too large for a float")
		}
		return Float(f), nil
	case opPow:
		return r.power(x, y)
	}
	quotient, rest := new(big.Int).QuoRem(x, y, new(big.Int))
	if rest.Sign() != 0 && rest.Sign() != y.Sign() {
		quotient.Sub(quotient, big.NewInt(1))
		rest.Add(rest, y)
	}
	if op == opFloorDiv {
		return r.bounded(quotient)
	}
	return r.bounded(rest)
}

// smallIntegers computes what fits into 64 bits, and tells whether it does.
func smallIntegers(op operator, a, b int64) (Value, bool, error) {
	switch op {
	case opSub:
		d := a - b
		return Int(d), (d < a) == (b > 0), nil
	case opMul:
		high, low := bits.Mul64(magnitude(a), magnitude(b))
		return Int(a * b), high == 0 && low < 1<<63, nil
	case opDiv:
		const exact = 1 << 53
		if b != 0 && magnitude(a) <= exact && magnitude(b) <= exact {
			return Float(float64(a) / float64(b)), true, nil
		}
	case opFloorDiv, opMod:
		if b == 0 {
			return Value{}, false, faultf("integer division or modulo by zero")
		}
		if b == -1 {
			return Value{}, false, nil // the quotient of the smallest number does not fit
		}
		quotient, rest := a/b, a%b
		if rest != 0 && (rest < 0) != (b < 0) {
			quotient--
			rest += b
		}
		if op == opMod {
			return Int(rest), true, nil
		}
		return Int(quotient), true, nil
	}
	return Value{}, false, nil
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// power is a ** b of integers, which is a float if b is negative.
func (r *renderer) power(x, y *big.Int) (Value, error) {
	if y.Sign() < 0 {
		a, err := asFloat(bigInt(x))
		if err != nil {
			return Value{}, err
		}
		b, err := asFloat(bigInt(y))
		if err != nil {
			return Value{}, err
		}
		return floatArithmetic(opPow, a, b)
	}
	if x.BitLen() <= 1 { // 0, 1, -1
		if x.Sign() < 0 && y.Bit(0) == 0 {
			return Int(1), nil
		}
		if y.Sign() == 0 {
			return Int(1), nil
		}
		return bigInt(x), nil
	}
	if !y.IsInt64() || y.Int64() > maxBits/int64(x.BitLen()-1) {
		return Value{}, faultf("found a power of more than %d bits, expected a smaller one", maxBits)
	}
	return r.bounded(new(big.Int).Exp(x, y, nil))
}

func floatArithmetic(op operator, x, y float64) (Value, error) {
	switch op {
	case opSub:
		return Float(x - y), nil
	case opMul:
		return Float(x * y), nil
	case opPow:
		return floatPower(x, y)
	}
	if y == 0 {
		return Value{}, faultf("float division by zero")
	}
	if op == opDiv {
		return Float(x / y), nil
	}
	// As Python does it: the remainder first, which is exact, then the quotient from it.
	rest := math.Mod(x, y)
	quotient := (x - rest) / y
	if rest != 0 {
		if (y < 0) != (rest < 0) {
			rest += y
			quotient--
		}
	} else {
		rest = math.Copysign(0, y)
	}
	if op == opMod {
		return Float(rest), nil
	}
	if quotient == 0 {
		return Float(math.Copysign(0, x/y)), nil
	}
	floor := math.Floor(quotient)
	if quotient-floor > 0.5 {
		floor++
	}
	return Float(floor), nil
}

func floatPower(x, y float64) (Value, error) {
	if x == 0 && y < 0 {
		return Value{}, faultf("0.0 cannot be raised to a negative power")
	}
	if x < 0 && y != math.Floor(y) && !math.IsInf(x, 0) {
		return Value{}, faultf("complex numbers are not supported")
	}
	f := math.Pow(x, y)
	if math.IsInf(f, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		return Value{}, faultf("numerical result out of range")
	}
	return Float(f), nil
}

func (e *unary) eval(r *renderer) (Value, error) {
	v, err := e.operand.eval(r)
	if err != nil {
		return Value{}, err
	}
	switch {
	case v.kind == KindFloat && e.operator == '-':
		return Float(-v.float()), nil
	case v.kind == KindFloat:
		return v, nil
	case v.isInteger() && e.operator == '+':
		return Value{kind: KindInt, n: v.n, p: v.p}, nil
	case v.isInteger() && v.p == nil && v.n != math.MinInt64:
		return Int(-v.n), nil
	case v.isInteger():
		return bigInt(new(big.Int).Neg(asBig(v))), nil
	case v.kind == KindUndefined:
		err = undefinedError(v)
	default:
		err = faultf("bad operand type for unary %c: %q", e.operator, v.typeName())
	}
	return Value{}, r.template.locate(err, e.pos)
}
