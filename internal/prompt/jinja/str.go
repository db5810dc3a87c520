package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What Python's str() and repr() make of values. It is written behind the output: see renderer.cut.

// writeValue writes str(v).
func (r *renderer) writeValue(v Value) error {
	switch v.kind {
	case KindString:
		return r.write(v.str())
	case KindUndefined:
		return nil
	case KindInt:
		if v.p == nil {
			r.out = strconv.AppendInt(r.out, v.n, 10)
			return r.checkOutput()
		}
	}
	return r.repr(v, 0)
}

// str is str(v).
func (r *renderer) str(v Value) (string, error) {
	if v.kind == KindString {
		return v.str(), nil
	}
	mark := len(r.out)
	if err := r.writeValue(v); err != nil {
		return "", err
	}
	return r.cut(mark)
}

// reprOf is repr(v).
func (r *renderer) reprOf(v Value) (string, error) {
	mark := len(r.out)
	if err := r.repr(v, 0); err != nil {
		return "", err
	}
	return r.cut(mark)
}

func (r *renderer) checkOutput() error { return r.write("") }

// repr writes repr(v). The depth is that of values within each other.
func (r *renderer) repr(v Value, depth int) error {
	if depth > maxValue {
		return &BudgetError{Budget: Depth, Limit: maxValue}
	}
	if err := r.spend(1); err != nil {
		return err
	}
	switch v.kind {
	case KindUndefined:
		return r.write("Undefined")
	case KindNone:
		return r.write("None")
	case KindBool:
		if v.n != 0 {
			return r.write("True")
		}
		return r.write("False")
	case KindInt:
		if !v.isBig() {
			return r.write(strconv.FormatInt(v.n, 10))
		}
		s, err := bigText(v.big())
		if err != nil {
			return err
		}
		return r.write(s)
	case KindFloat:
		return r.write(floatText(v.float()))
	case KindString:
		return r.reprString(v)
	case KindList:
		return r.reprItems("[", v.items(), "]", depth)
	case KindTuple:
		if len(v.items()) == 1 {
			return r.reprItems("(", v.items(), ",)", depth)
		}
		return r.reprItems("(", v.items(), ")", depth)
	case KindDict:
		return r.reprDict(v.dict(), depth)
	}
	return r.reprObject(v, depth)
}

func (r *renderer) reprString(v Value) error {
	s := v.str()
	if v.flag == flagMarkup {
		r.out = append(r.out, "Markup("...)
	}
	r.out = appendRepr(r.out, s)
	if v.flag == flagMarkup {
		r.out = append(r.out, ')')
	}
	return r.checkOutput()
}

func (r *renderer) reprItems(open string, items []Value, end string, depth int) error {
	if err := r.write(open); err != nil {
		return err
	}
	for i, item := range items {
		if i > 0 {
			r.out = append(r.out, ", "...)
		}
		if err := r.repr(item, depth+1); err != nil {
			return err
		}
	}
	return r.write(end)
}

func (r *renderer) reprDict(d *Dict, depth int) error {
	if err := r.write("{"); err != nil {
		return err
	}
	for i, e := range d.entries {
		if i > 0 {
			r.out = append(r.out, ", "...)
		}
		if err := r.repr(e.key, depth+1); err != nil {
			return err
		}
		r.out = append(r.out, ": "...)
		if err := r.repr(e.value, depth+1); err != nil {
			return err
		}
	}
	return r.write("}")
}

// reprObject writes what is no plain data. Where Python gives an address, nothing stands.
func (r *renderer) reprObject(v Value, depth int) error {
	switch v.kind {
	case KindRange:
		s := v.span()
		text := "range(" + strconv.FormatInt(s.start, 10) + ", " + strconv.FormatInt(s.stop, 10)
		if s.step != 1 {
			text += ", " + strconv.FormatInt(s.step, 10)
		}
		return r.write(text + ")")
	case KindView:
		items, err := r.listOf(v)
		if err != nil {
			return err
		}
		return r.reprItems(v.typeName()+"([", items, "])", depth)
	case KindNamespace:
		if err := r.write("<Namespace "); err != nil {
			return err
		}
		if err := r.reprDict(&v.namespace().attrs, depth+1); err != nil {
			return err
		}
		return r.write(">")
	case KindLoop:
		l := v.loop()
		n, err := l.count(r)
		if err != nil {
			return err
		}
		return r.write("<LoopContext " + strconv.Itoa(l.index+1) + "/" + strconv.Itoa(n) + ">")
	case KindCallable:
		if v.flag == flagMacro {
			return r.write("<Macro " + string(appendRepr(nil, (*macro)(v.p).body.name)) + ">")
		}
	}
	return r.write("<" + v.typeName() + " object>")
}

// appendRepr appends a string the way Python shows it: in single quotes unless only they occur inside.
func appendRepr(dst []byte, s string) []byte {
	quote := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		quote = '"'
	}
	dst = append(dst, quote)
	for i := 0; i < len(s); {
		c, n := rune(s[i]), 1
		if c >= utf8.RuneSelf {
			c, n = utf8.DecodeRuneInString(s[i:])
		}
		switch {
		case c == rune(quote) || c == '\\':
			dst = append(dst, '\\', byte(c))
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c >= ' ' && c < 0x7f || c >= utf8.RuneSelf && unicode.IsPrint(c):
			dst = append(dst, s[i:i+n]...)
		default:
			dst = appendEscape(dst, c)
		}
		i += n
	}
	return append(dst, quote)
}

func appendEscape(dst []byte, c rune) []byte {
	const hex = "0123456789abcdef"
	letter, width := byte('x'), 2
	switch {
	case c > 0xffff:
		letter, width = 'U', 8
	case c > 0xff:
		letter, width = 'u', 4
	}
	dst = append(dst, '\\', letter)
	for shift := 4 * (width - 1); shift >= 0; shift -= 4 {
		dst = append(dst, hex[c>>shift&0xf])
	}
	return dst
}

// appendASCII appends a representation with everything but ASCII escaped.
func appendASCII(dst []byte, s string) []byte {
	for _, c := range s {
		if c < utf8.RuneSelf {
			dst = append(dst, byte(c))
		} else {
			dst = appendEscape(dst, c)
		}
	}
	return dst
}

// floatText is Python's repr of a float: the shortest digits that read back as the same number.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if strings.IndexByte(s, '.') < 0 {
		s += ".0"
	}
	return s
}

// bigText is the text of an integer, which Python bounds because making it takes quadratic time.
func bigText(n *big.Int) (string, error) {
	if n.BitLen() > maxDigits*10/3 {
		return "", faultf("integers of more than %d digits have no text", maxDigits)
	}
	return n.String(), nil
}
