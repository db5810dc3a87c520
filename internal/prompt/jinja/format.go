package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatter is a call of str.format.
type formatter struct {
	r        *renderer
	pos      []Value
	kw       []keywordArg
	dict     *Dict // instead of kw, of format_map
	isMarkup bool
	auto     int  // the next number that {} gets
	numbered bool // there was a number
}

func (r *renderer) format(v Value, pos []Value, kw []keywordArg) (Value, error) {
	f := &formatter{r: r, pos: pos, kw: kw, isMarkup: v.flag == flagMarkup}
	return f.run(v)
}

func (r *renderer) formatMap(v Value, a args) (Value, error) {
	if err := a.only("format_map", 1, 1); err != nil {
		return Value{}, err
	}
	f := &formatter{r: r, isMarkup: v.flag == flagMarkup, dict: a.pos[0].Dict()}
	if f.dict == nil {
		return Value{}, faultf("format_map() expects a mapping, not %s", a.pos[0].typeName())
	}
	return f.run(v)
}

func (f *formatter) run(v Value) (Value, error) {
	s, err := f.expand(v.str(), 2)
	return v.like(s), err
}

// expand replaces the fields of s. Fields may have fields in their specification, but not any deeper.
func (f *formatter) expand(s string, depth int) (string, error) {
	if depth == 0 {
		return "", faultf("max string recursion exceeded")
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		c := s[i]
		s = s[i+1:]
		if s != "" && s[0] == c {
			b.WriteByte(c)
			s = s[1:]
			continue
		}
		if c == '}' {
			return "", faultf("single '}' encountered in format string")
		}
		end := fieldEnd(s)
		if end < 0 {
			return "", faultf("expected '}' before end of string")
		}
		text, err := f.field(s[:end], depth)
		if err != nil {
			return "", err
		}
		if err := f.r.text(b.Len() + len(text)); err != nil {
			return "", err
		}
		b.WriteString(text)
		s = s[end+1:]
	}
	return b.String(), nil
}

// fieldEnd is where a field ends, whose brace is open already.
func fieldEnd(s string) int {
	depth := 1
	bracket := false
	for i := range len(s) {
		switch s[i] {
		case '[':
			bracket = depth == 1
		case ']':
			bracket = false
		case '{':
			depth++
		case '}':
			if bracket {
				continue
			}
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// field formats name!conversion:specification.
func (f *formatter) field(s string, depth int) (string, error) {
	name, spec := s, ""
	conversion := byte(0)
	bracket := false
scan:
	for i := range len(s) {
		switch c := s[i]; {
		case c == '[':
			bracket = true
		case c == ']':
			bracket = false
		case bracket:
		case c == ':':
			name, spec = s[:i], s[i+1:]
			break scan
		case c == '!':
			if i+1 >= len(s) || i+2 < len(s) && s[i+2] != ':' {
				return "", faultf("expected ':' after conversion specifier")
			}
			name, conversion = s[:i], s[i+1]
			if i+3 <= len(s) {
				spec = s[i+3:]
			}
			break scan
		}
	}
	v, err := f.lookup(name)
	if err != nil {
		return "", err
	}
	if spec != "" {
		if spec, err = f.expand(spec, depth-1); err != nil {
			return "", err
		}
	}
	switch conversion {
	case 0:
	case 's', 'r', 'a':
		text, err := f.r.converted(v, conversion)
		if err != nil {
			return "", err
		}
		v = String(text)
	default:
		return "", faultf("unknown conversion specifier %q", conversion)
	}
	text, err := f.r.formatValue(v, spec)
	if err == nil && f.isMarkup && v.flag != flagMarkup {
		text = htmlEscaper.Replace(text)
	}
	return text, err
}

// lookup is the value of a field name such as 0.a[b].
func (f *formatter) lookup(name string) (Value, error) {
	n := strings.IndexAny(name, ".[")
	if n < 0 {
		n = len(name)
	}
	v, err := f.first(name[:n])
	if err != nil {
		return Value{}, err
	}
	for rest := name[n:]; rest != ""; {
		if rest[0] == '.' {
			n := strings.IndexAny(rest[1:], ".[") + 1
			if n == 0 {
				n = len(rest)
			}
			if v, err = f.r.attribute(v, rest[1:n]); err != nil {
				return Value{}, err
			}
			rest = rest[n:]
			continue
		}
		n := strings.IndexByte(rest, ']')
		if n < 2 || rest[0] != '[' {
			return Value{}, faultf("missing ']' or empty attribute in format string")
		}
		index := String(rest[1:n])
		if i, err := strconv.ParseInt(rest[1:n], 10, 64); err == nil && isDecimal(rest[1]) {
			index = Int(i)
		}
		if v, err = f.r.item(v, index); err != nil {
			return Value{}, err
		}
		rest = rest[n+1:]
	}
	return v, nil
}

// first is the argument that a field begins with.
func (f *formatter) first(name string) (Value, error) {
	var i int
	switch {
	case name == "":
		if f.numbered {
			return Value{}, faultf("cannot switch from manual field specification to automatic field numbering")
		}
		i = f.auto
		f.auto++
	case digits(name, isDecimal) == len(name):
		if f.auto > 0 {
			return Value{}, faultf("cannot switch from automatic field numbering to manual field specification")
		}
		f.numbered = true
		var err error
		if i, err = strconv.Atoi(name); err != nil {
			return Value{}, faultf("too many decimal digits in format string")
		}
	default:
		if f.dict != nil {
			if v, ok := f.dict.Get(name); ok {
				return v, nil
			}
		} else if v, ok := (args{kw: f.kw}).keyword(name); ok {
			return v, nil
		}
		return Value{}, faultf("there is no argument %q", name)
	}
	if i >= len(f.pos) {
		return Value{}, faultf("replacement index %d out of range for positional args tuple", i)
	}
	return f.pos[i], nil
}

// formatValue is Python's format(v, spec).
func (r *renderer) formatValue(v Value, spec string) (string, error) {
	if spec == "" {
		return r.str(v)
	}
	s, err := parseSpec(spec)
	if err != nil {
		return "", err
	}
	if s.width > r.options.MaxOutput {
		return "", &BudgetError{Budget: Output, Limit: int64(r.options.MaxOutput)}
	}
	switch v.kind {
	case KindString:
		return r.formatText(v, s)
	case KindInt, KindBool:
		return r.formatInteger(v, s)
	case KindFloat:
		return r.formatReal(v.float(), s)
	}
	return "", faultf("unsupported format string passed to %s.__format__", v.typeName())
}

// parseSpec reads [[fill]align][sign][z][#][0][width][grouping][.precision][type].
func parseSpec(s string) (formatSpec, error) {
	spec := formatSpec{fill: " ", precision: -1}
	_, n := utf8.DecodeRuneInString(s)
	switch {
	case len(s) > n && strings.IndexByte("<>=^", s[n]) >= 0:
		spec.fill, spec.align, s = s[:n], s[n], s[n+1:]
	case strings.IndexByte("<>=^", s[0]) >= 0:
		spec.align, s = s[0], s[1:]
	}
	if s != "" && strings.IndexByte("+- ", s[0]) >= 0 {
		spec.sign, s = s[0], s[1:]
	}
	if strings.HasPrefix(s, "#") {
		spec.alternate, s = true, s[1:]
	}
	if strings.HasPrefix(s, "0") {
		s = s[1:]
		if spec.align == 0 {
			spec.align, spec.fill = '=', "0"
		}
	}
	number := func(to *int) bool {
		n := 0
		for n < len(s) && isDecimal(s[n]) {
			n++
		}
		if n > 0 {
			*to, _ = strconv.Atoi(s[:min(n, 9)])
			s = s[n:]
		}
		return n > 0
	}
	number(&spec.width)
	for s != "" && (s[0] == ',' || s[0] == '_') {
		if spec.grouping != 0 {
			return spec, faultf("cannot specify grouping twice")
		}
		spec.grouping, s = s[0], s[1:]
	}
	if strings.HasPrefix(s, ".") {
		if s = s[1:]; !number(&spec.precision) {
			return spec, faultf("format specifier missing precision")
		}
	}
	if len(s) > 1 {
		return spec, faultf("invalid format specifier")
	}
	if s != "" {
		spec.verb = s[0]
	}
	return spec, nil
}

func (r *renderer) formatText(v Value, spec formatSpec) (string, error) {
	switch {
	case spec.verb != 0 && spec.verb != 's':
		return "", faultf("unknown format code %q for object of type 'str'", spec.verb)
	case spec.sign != 0, spec.alternate, spec.grouping != 0:
		return "", faultf("sign, alternate form, and grouping are not allowed in string format specifier")
	case spec.align == '=' && spec.fill != "0":
		return "", faultf("'=' alignment not allowed in string format specifier")
	}
	s := v.str()
	if spec.precision >= 0 {
		s = s[:byteOffset(s, spec.precision)]
	}
	if spec.align == 0 || spec.align == '=' {
		spec.align = '<'
	}
	return r.aligned("", s, spec)
}

func (r *renderer) formatInteger(v Value, spec formatSpec) (string, error) {
	switch spec.verb {
	case 0, 'd', 'n', 'b', 'o', 'x', 'X', 'c':
	case 'e', 'E', 'f', 'F', 'g', 'G', '%':
		f, err := asFloat(v)
		if err != nil {
			return "", err
		}
		return r.formatReal(f, spec)
	default:
		return "", faultf("unknown format code %q for object of type %q", spec.verb, v.typeName())
	}
	if spec.precision >= 0 {
		return "", faultf("precision not allowed in integer format specifier")
	}
	if spec.align == 0 {
		spec.align = '>'
	}
	if spec.verb == 'c' {
		if v.p != nil || v.n < 0 || v.n > utf8.MaxRune || spec.sign != 0 {
			return "", faultf("%%c arg not in range(0x110000)")
		}
		return r.aligned("", string(rune(v.n)), spec)
	}
	n := asBig(v)
	body, err := integerDigits(n, spec.verb)
	if err != nil {
		return "", err
	}
	sign := signOf(n.Sign() < 0, spec.sign)
	if spec.alternate {
		sign += numberPrefix(spec.verb)
	}
	if spec.grouping != 0 {
		size := 3
		if numberPrefix(spec.verb) != "" {
			size = 4
		}
		if size == 4 && spec.grouping == ',' {
			return "", faultf("cannot specify ',' with %q", spec.verb)
		}
		body = grouped(body, "", size, spec, len(sign))
	}
	return r.aligned(sign, body, spec)
}

// grouped puts separators between the digits. If zeros fill the number up, they are grouped, too.
func grouped(body, tail string, size int, spec formatSpec, before int) string {
	if spec.align == '=' && spec.fill == "0" {
		room := spec.width - before - len(tail)
		for n := len(body); n+(n-1)/size < room; n++ {
			body = "0" + body
		}
	}
	var b strings.Builder
	for i := range len(body) {
		if i > 0 && (len(body)-i)%size == 0 {
			b.WriteByte(spec.grouping)
		}
		b.WriteByte(body[i])
	}
	return b.String() + tail
}

func (r *renderer) formatReal(f float64, spec formatSpec) (string, error) {
	if spec.align == 0 {
		spec.align = '>'
	}
	tail := ""
	var sign, body string
	var err error
	switch spec.verb {
	case 'e', 'E', 'f', 'F', 'g', 'G', 'n':
		if spec.verb == 'n' {
			spec.verb = 'g'
		}
		sign, body, err = formatFloat(f, spec)
	case '%':
		spec.verb, tail = 'f', "%"
		sign, body, err = formatFloat(f*100, spec)
	case 0:
		if spec.precision >= 0 {
			sign, body, err = formatDefault(f, spec)
			break
		}
		body = floatText(f)
		sign = signOf(strings.HasPrefix(body, "-"), spec.sign)
		body = strings.TrimPrefix(body, "-")
	default:
		return "", faultf("unknown format code %q for object of type 'float'", spec.verb)
	}
	if err != nil {
		return "", err
	}
	if spec.grouping != 0 {
		n := digits(body, isDecimal)
		body = grouped(body[:n], body[n:]+tail, 3, spec, len(sign))
	} else {
		body += tail
	}
	return r.aligned(sign, body, spec)
}

// formatDefault formats with a precision but without a type: as g does, but a float stays recognizable, and one digit is kept
// for that.
func formatDefault(f float64, spec formatSpec) (sign, body string, err error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		spec.verb = 'g'
		return formatFloat(f, spec)
	}
	if spec.precision > 2000 {
		return "", "", faultf("precision too big")
	}
	precision := max(spec.precision, 1)
	body = general(math.Abs(f), precision, precision-1, spec.alternate)
	if !strings.ContainsAny(body, ".e") {
		body += ".0"
	}
	return signOf(math.Signbit(f), spec.sign), body, nil
}
