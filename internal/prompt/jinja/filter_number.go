package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

func filterAbs(_ *renderer, v Value, a args) (Value, error) {
	if err := a.only("abs", 0, 0); err != nil {
		return Value{}, err
	}
	switch {
	case v.kind == KindFloat:
		return Float(math.Abs(v.float())), nil
	case v.isInteger():
		return bigInt(new(big.Int).Abs(asBig(v))), nil
	case v.kind == KindUndefined:
		return Value{}, undefinedError(v)
	}
	return Value{}, faultf("bad operand type for abs(): %q", v.typeName())
}

func filterInt(_ *renderer, v Value, a args) (Value, error) {
	to := [2]Value{Int(0), Int(10)}
	if err := a.bind("int", 0, to[:], "default", "base"); err != nil {
		return Value{}, err
	}
	base, err := intArg("int", to[1])
	if err != nil {
		return Value{}, err
	}
	switch {
	case v.isInteger():
		return Value{kind: KindInt, n: v.n, p: v.p}, nil
	case v.kind == KindFloat:
		if n, err := truncated(v.float()); err == nil {
			return n, nil
		}
		if math.IsInf(v.float(), 0) { // Python fails: int() overflows, which the filter does not expect
			return Value{}, faultf("cannot convert float infinity to integer")
		}
	case v.kind == KindString:
		if n, ok := parseInt(v.str(), base); ok {
			return n, nil
		}
		if f, ok := parseFloat(v.str()); ok {
			if n, err := truncated(f); err == nil {
				return n, nil
			}
		}
	case v.kind == KindUndefined:
		return Value{}, undefinedError(v)
	}
	return to[0], nil
}

// parseInt is Python's int(s, base).
func parseInt(s string, base int) (Value, bool) {
	if s = strings.TrimFunc(s, isSpace); len(s) > maxDigits {
		return Value{}, false
	}
	negative := strings.HasPrefix(s, "-")
	s = asciiDigits(s)
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	prefixed := false
	if len(s) > 2 && s[0] == '0' {
		switch want := map[byte]int{'b': 2, 'o': 8, 'x': 16}[s[1]|0x20]; {
		case want != 0 && (base == want || base == 0):
			s, base, prefixed = s[2:], want, true
		case base == 0 && strings.Trim(s, "0_") != "":
			return Value{}, false
		}
	}
	if base == 0 {
		base = 10
	}
	if base < 2 || base > 36 || s == "" || strings.HasSuffix(s, "_") || strings.Contains(s, "__") ||
		strings.HasPrefix(s, "_") && !prefixed || s[0] == '-' || s[0] == '+' {
		return Value{}, false
	}
	n, ok := new(big.Int).SetString(strings.ReplaceAll(s, "_", ""), base)
	if !ok {
		return Value{}, false
	}
	if negative {
		n.Neg(n)
	}
	return bigInt(n), true
}

// asciiDigits replaces the decimal digits of other scripts.
func asciiDigits(s string) string {
	if isASCII(s) {
		return s
	}
	return strings.Map(func(c rune) rune {
		if d, ok := digitValue(c); ok {
			return '0' + d
		}
		return c
	}, s)
}

func filterFloat(_ *renderer, v Value, a args) (Value, error) {
	to := [1]Value{Float(0)}
	if err := a.bind("float", 0, to[:], "default"); err != nil {
		return Value{}, err
	}
	switch {
	case v.isNumber():
		f, err := asFloat(v)
		return Float(f), err
	case v.kind == KindString:
		if f, ok := parseFloat(v.str()); ok {
			return Float(f), nil
		}
	case v.kind == KindUndefined:
		return Value{}, undefinedError(v)
	}
	return to[0], nil
}

// parseFloat is Python's float(s).
func parseFloat(s string) (float64, bool) {
	s = asciiDigits(strings.TrimFunc(s, isSpace))
	word := strings.ToLower(strings.TrimLeft(s, "+-"))
	if len(s)-len(word) > 1 || strings.HasPrefix(word, "0x") {
		return 0, false
	}
	switch word {
	case "nan", "inf", "infinity":
	default:
		if strings.ContainsAny(word, "inpx") || strings.HasPrefix(word, "_") || strings.HasSuffix(word, "_") {
			return 0, false
		}
		for i := range len(word) {
			if word[i] == '_' && (!isDecimal(word[i-1]) || !isDecimal(word[i+1])) {
				return 0, false
			}
		}
		s = strings.ReplaceAll(s, "_", "")
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0)
}

func filterRound(r *renderer, v Value, a args) (Value, error) {
	to := [2]Value{Int(0), String("common")}
	if err := a.bind("round", 0, to[:], "precision", "method"); err != nil {
		return Value{}, err
	}
	method := to[1].Text()
	if method != "common" && method != "ceil" && method != "floor" {
		return Value{}, faultf("method must be common, ceil or floor")
	}
	if v.kind == KindUndefined && method == "common" {
		return Value{}, faultf("type Undefined doesn't define __round__ method")
	}
	if !v.isNumber() {
		return Value{}, unsupportedOperands("round", v, to[0])
	}
	if method == "common" {
		digits, err := intArg("round", to[0])
		if err != nil {
			return Value{}, err
		}
		if v.kind == KindFloat {
			return roundFloat(v.float(), digits)
		}
		return r.roundInteger(v, digits)
	}
	scale, err := r.arithmetic(opPow, Int(10), to[0])
	if err != nil {
		return Value{}, err
	}
	scaled, err := r.arithmetic(opMul, v, scale)
	if err != nil {
		return Value{}, err
	}
	if scaled.kind == KindFloat {
		f := math.Floor(scaled.float())
		if method == "ceil" {
			f = math.Ceil(scaled.float())
		}
		if scaled, err = truncated(f); err != nil {
			return Value{}, err
		}
	}
	return r.arithmetic(opDiv, scaled, scale)
}

// roundFloat rounds as Python does: the exact value, halves to even.
func roundFloat(f float64, digits int) (Value, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) || digits > 323 {
		return Float(f), nil
	}
	if digits < -308 {
		return Float(math.Copysign(0, f)), nil
	}
	if digits >= 0 {
		g, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
		if err != nil {
			return Value{}, faultf("rounded value too large to represent")
		}
		return Float(g), nil
	}
	scale := math.Pow(10, float64(-digits))
	g := math.RoundToEven(f/scale) * scale
	if math.IsInf(g, 0) {
		return Value{}, faultf("rounded value too large to represent")
	}
	return Float(g), nil
}

func (r *renderer) roundInteger(v Value, digits int) (Value, error) {
	if digits >= 0 {
		return Value{kind: KindInt, n: v.n, p: v.p}, nil
	}
	n := asBig(v)
	if -digits > n.BitLen() { // 10 to that power is more than twice n
		return Int(0), nil
	}
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-digits)), nil)
	quotient, rest := new(big.Int).DivMod(n, scale, new(big.Int))
	if c := rest.Lsh(rest, 1).Cmp(scale); c > 0 || c == 0 && quotient.Bit(0) == 1 {
		quotient.Add(quotient, big.NewInt(1))
	}
	return r.bounded(quotient.Mul(quotient, scale))
}

func filterFileSize(_ *renderer, v Value, a args) (Value, error) {
	var to [1]Value
	if err := a.bind("filesizeformat", 0, to[:], "binary"); err != nil {
		return Value{}, err
	}
	size, err := asFloatOrText(v)
	if err != nil {
		return Value{}, err
	}
	base, suffix := 1000.0, "B"
	units := []string{"k", "M", "G", "T", "P", "E", "Z", "Y"}
	if to[0].truth() {
		base, suffix, units[0] = 1024, "iB", "K"
	}
	switch {
	case size == 1:
		return String("1 Byte"), nil
	case size < base:
		n, err := truncated(size)
		if err != nil {
			return Value{}, err
		}
		return String(strconv.FormatInt(n.n, 10) + " Bytes"), nil
	}
	unit, name := base, ""
	for _, name = range units {
		if unit *= base; size < unit {
			break
		}
	}
	return String(strconv.FormatFloat(base*size/unit, 'f', 1, 64) + " " + name + suffix), nil
}

func asFloatOrText(v Value) (float64, error) {
	switch {
	case v.isNumber():
		return asFloat(v)
	case v.kind == KindString:
		if f, ok := parseFloat(v.str()); ok {
			return f, nil
		}
		return 0, faultf("could not convert string to float")
	case v.kind == KindUndefined:
		return 0, undefinedError(v)
	}
	return 0, faultf("float() argument must be a string or a real number, not %q", v.typeName())
}
