package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatSpec tells how a value is formatted, by the % operator or by str.format.
type formatSpec struct {
	fill      string
	align     byte // '<', '>', '^', '=', or 0
	sign      byte // '+', ' ', or 0
	alternate bool
	grouping  byte // ',', '_', or 0
	width     int
	precision int // -1 if there is none
	verb      byte
}

// percentArgs hands out the operands of %.
type percentArgs struct {
	values []Value
	used   int
	single bool // the operand is no tuple
	dict   *Dict
}

func (p *percentArgs) next() (Value, error) {
	if p.used >= len(p.values) {
		return Value{}, faultf("not enough arguments for format string")
	}
	p.used++
	return p.values[p.used-1], nil
}

// percent is the format % operand of Python's texts.
func (r *renderer) percent(format, operand Value) (Value, error) {
	p := &percentArgs{values: []Value{operand}, single: true}
	switch operand.kind {
	case KindTuple:
		p.values, p.single = operand.items(), false
	case KindDict:
		p.dict = operand.dict()
	}
	mark := len(r.out)
	s := format.str()
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			break
		}
		if err := r.write(s[:i]); err != nil {
			return Value{}, err
		}
		rest, err := r.percentField(s[i+1:], p, format.flag == flagMarkup)
		if err != nil {
			return Value{}, err
		}
		s = rest
	}
	if err := r.write(s); err != nil {
		return Value{}, err
	}
	// Mappings, and objects that could be some, may stay unused.
	mappable := p.single && (p.dict != nil || operand.kind == KindList || operand.kind == KindRange)
	if p.used < len(p.values) && !mappable {
		return Value{}, faultf("not all arguments converted during string formatting")
	}
	text, err := r.cut(mark)
	return format.like(text), err
}

// percentField formats one field, which begins behind its percent sign, and returns what follows it.
func (r *renderer) percentField(s string, p *percentArgs, isMarkup bool) (string, error) {
	var v Value
	keyed := false
	if strings.HasPrefix(s, "(") {
		key, rest, ok := parenthesized(s)
		if !ok {
			return "", faultf("incomplete format key")
		}
		if p.dict == nil {
			return "", faultf("format requires a mapping")
		}
		i := p.dict.find(key)
		if i < 0 {
			return "", faultf("there is no key %q", key)
		}
		v, keyed, s = p.dict.entries[i].value, true, rest
	}
	spec := formatSpec{fill: " ", align: '>', precision: -1}
	s = percentFlags(s, &spec)
	s, err := percentNumber(s, p, &spec.width)
	if err != nil {
		return "", err
	}
	if spec.width < 0 {
		spec.align, spec.width = '<', -spec.width
	}
	if after, ok := strings.CutPrefix(s, "."); ok {
		spec.precision = 0
		if s, err = percentNumber(after, p, &spec.precision); err != nil {
			return "", err
		}
		spec.precision = max(spec.precision, 0)
	}
	s = strings.TrimLeft(s, "hlL")
	if s == "" {
		return "", faultf("incomplete format")
	}
	spec.verb = s[0]
	if spec.verb == '%' {
		return s[1:], r.write("%")
	}
	if !keyed {
		if v, err = p.next(); err != nil {
			return "", err
		}
	} else {
		p.used = len(p.values)
	}
	text, err := r.percentValue(v, spec, isMarkup)
	if err != nil {
		return "", err
	}
	return s[1:], r.write(text)
}

// parenthesized cuts the text in parentheses off s.
func parenthesized(s string) (inside, rest string, ok bool) {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return s[1:i], s[i+1:], true
			}
		}
	}
	return "", "", false
}

func percentFlags(s string, spec *formatSpec) string {
	left := false
	for s != "" {
		switch s[0] {
		case '-':
			left = true
		case '+':
			spec.sign = '+'
		case ' ':
			if spec.sign == 0 {
				spec.sign = ' '
			}
		case '#':
			spec.alternate = true
		case '0':
			spec.fill, spec.align = "0", '='
		default:
			if left {
				spec.fill, spec.align = " ", '<'
			}
			return s
		}
		s = s[1:]
	}
	return s
}

// percentNumber reads a width or a precision, which a star takes from the operands.
func percentNumber(s string, p *percentArgs, to *int) (string, error) {
	if after, ok := strings.CutPrefix(s, "*"); ok {
		v, err := p.next()
		if err != nil {
			return "", err
		}
		if !v.isInteger() || v.p != nil {
			return "", faultf("* wants int")
		}
		*to = int(v.n)
		return after, nil
	}
	n := digits(s, isDecimal)
	if n == 0 {
		return s, nil
	}
	var err error
	if *to, err = strconv.Atoi(s[:n]); err != nil {
		return "", faultf("width or precision too big")
	}
	return s[n:], nil
}

func (r *renderer) percentValue(v Value, spec formatSpec, isMarkup bool) (string, error) {
	switch spec.verb {
	case 's', 'r', 'a':
		s, err := r.converted(v, spec.verb)
		if err != nil {
			return "", err
		}
		if isMarkup && v.flag != flagMarkup {
			s = htmlEscaper.Replace(s)
		}
		if spec.precision >= 0 {
			s = s[:byteOffset(s, spec.precision)]
		}
		if spec.align == '=' {
			spec.fill, spec.align = " ", '>'
		}
		return r.aligned("", s, spec)
	case 'c':
		s := v.Text()
		if v.isInteger() && v.p == nil && v.n >= 0 && v.n <= utf8.MaxRune {
			s = string(rune(v.n))
		} else if runeCount(s) != 1 {
			return "", faultf("%%c requires int or char")
		}
		return r.aligned("", s, spec)
	case 'd', 'i', 'u', 'o', 'x', 'X':
		return r.percentInteger(v, spec)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if v.kind == KindUndefined {
			return "", undefinedError(v)
		}
		if !v.isNumber() {
			return "", faultf("must be real number, not %s", v.typeName())
		}
		f, err := asFloat(v)
		if err != nil {
			return "", err
		}
		sign, body, err := formatFloat(f, spec)
		if err != nil {
			return "", err
		}
		return r.aligned(sign, body, spec)
	}
	return "", faultf("unsupported format character %q", spec.verb)
}

func (r *renderer) percentInteger(v Value, spec formatSpec) (string, error) {
	switch {
	case v.kind == KindFloat && (spec.verb == 'd' || spec.verb == 'i' || spec.verb == 'u'):
		n, err := truncated(v.float())
		if err != nil {
			return "", err
		}
		v = n
	case v.kind == KindUndefined:
		return "", undefinedError(v)
	case !v.isInteger():
		return "", faultf("%%%c format: a number is required, not %s", spec.verb, v.typeName())
	}
	n := asBig(v)
	sign := signOf(n.Sign() < 0, spec.sign)
	body, err := integerDigits(n, spec.verb)
	if err != nil {
		return "", err
	}
	if spec.precision > len(body) {
		if spec.precision > DefaultMaxOutput {
			return "", faultf("precision too big")
		}
		body = strings.Repeat("0", spec.precision-len(body)) + body
	}
	if spec.alternate {
		sign += numberPrefix(spec.verb)
	}
	return r.aligned(sign, body, spec)
}

func integerDigits(n *big.Int, verb byte) (string, error) {
	a := new(big.Int).Abs(n)
	switch verb {
	case 'o':
		return a.Text(8), nil
	case 'x':
		return a.Text(16), nil
	case 'X':
		return strings.ToUpper(a.Text(16)), nil
	case 'b':
		return a.Text(2), nil
	}
	return bigText(a)
}

func numberPrefix(verb byte) string {
	switch verb {
	case 'o', 'x', 'X', 'b':
		return "0" + string(rune(verb))
	}
	return ""
}

func signOf(negative bool, sign byte) string {
	switch {
	case negative:
		return "-"
	case sign == '+' || sign == ' ':
		return string(rune(sign))
	}
	return ""
}

// truncated is a float without its fraction.
func truncated(f float64) (Value, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return Value{}, faultf("cannot convert float %s to integer", floatText(f))
	}
	n, _ := big.NewFloat(f).Int(nil)
	return bigInt(n), nil
}

// formatFloat formats a float as C does, with its sign apart.
func formatFloat(f float64, spec formatSpec) (sign, body string, err error) {
	precision := spec.precision
	if precision < 0 {
		precision = 6
	}
	if precision > 2000 {
		return "", "", faultf("precision too big")
	}
	sign = signOf(math.Signbit(f) && !math.IsNaN(f), spec.sign)
	f = math.Abs(f)
	switch {
	case math.IsNaN(f):
		body = "nan"
	case math.IsInf(f, 0):
		body = "inf"
	default:
		switch spec.verb | 0x20 {
		case 'e', 'f':
			body = strconv.FormatFloat(f, spec.verb|0x20, precision, 64)
			if precision == 0 && spec.alternate {
				if i := strings.IndexByte(body, 'e'); i >= 0 {
					body = body[:i] + "." + body[i:]
				} else {
					body += "."
				}
			}
		default:
			body = general(f, max(precision, 1), max(precision, 1), spec.alternate)
		}
	}
	if spec.verb < 'a' {
		body = strings.ToUpper(body)
	}
	return sign, body, nil
}

// general is C's %g: so many digits, without zeros at the end unless they are asked for, and with an exponent from limit on.
func general(f float64, precision, limit int, zeros bool) string {
	e := strconv.FormatFloat(f, 'e', precision-1, 64)
	i := strings.IndexByte(e, 'e')
	exponent, _ := strconv.Atoi(e[i+1:])
	mantissa, tail := e[:i], e[i:]
	if exponent >= -4 && exponent < limit {
		mantissa, tail = strconv.FormatFloat(f, 'f', max(precision-1-exponent, 0), 64), ""
	}
	if !zeros && strings.IndexByte(mantissa, '.') >= 0 {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	return mantissa + tail
}

// converted is v as the letters s, r, and a ask for.
func (r *renderer) converted(v Value, conversion byte) (string, error) {
	if conversion == 's' {
		return r.str(v)
	}
	s, err := r.reprOf(v)
	if err == nil && conversion == 'a' {
		s = string(appendASCII(nil, s))
	}
	return s, err
}

// aligned fills a formatted value up to its width. The sign stays in front of zeros.
func (r *renderer) aligned(sign, body string, spec formatSpec) (string, error) {
	how := "rjust"
	switch spec.align {
	case '<':
		how = "ljust"
	case '^':
		n := spec.width - runeCount(sign) - runeCount(body)
		if n <= 0 {
			return sign + body, nil
		}
		left, err := r.pad("", how, spec.fill, n/2)
		if err != nil {
			return "", err
		}
		return r.pad(left+sign+body, "ljust", spec.fill, spec.width)
	case '=':
		body, err := r.pad(body, how, spec.fill, spec.width-runeCount(sign))
		return sign + body, err
	}
	return r.pad(sign+body, how, spec.fill, spec.width)
}
