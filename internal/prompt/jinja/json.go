package jinja

import (
	"math"
	"sort"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonStyle is how tojson writes, which is how Python's json.dumps does.
type jsonStyle struct {
	ascii    bool
	pretty   bool   // on lines of their own
	indent   string // of each level
	item     string // between elements
	key      string // between a key and its value
	sortKeys bool
}

// filterJSON is the filter tojson of the transformers library. Unlike Jinja's own, it escapes no HTML.
func filterJSON(r *renderer, v Value, a args) (Value, error) {
	mark := len(r.out)
	if err := r.writeJSON(v, a); err != nil {
		return Value{}, err
	}
	s, err := r.cut(mark)
	return String(s), err
}

func (r *renderer) writeJSON(v Value, a args) error {
	style := jsonStyle{item: ", ", key: ": "}
	if len(a.pos)+len(a.kw) > 0 {
		to := [4]Value{{}, None(), None(), {}}
		if err := a.bind("tojson", 0, to[:], "ensure_ascii", "indent", "separators", "sort_keys"); err != nil {
			return err
		}
		if err := style.set(to); err != nil {
			return err
		}
	}
	return r.json(v, &style, 0)
}

// set takes ensure_ascii, indent, separators, and sort_keys.
func (s *jsonStyle) set(to [4]Value) error {
	s.ascii, s.sortKeys = to[0].truth(), to[3].truth()
	switch to[1].kind {
	case KindNone:
	case KindString:
		s.pretty, s.indent = true, to[1].str()
	default:
		n, err := intArg("tojson", to[1])
		if err != nil {
			return err
		}
		s.pretty, s.indent = true, strings.Repeat(" ", min(max(n, 0), 1000))
	}
	if s.pretty {
		s.item = ","
	}
	if to[2].kind == KindNone {
		return nil
	}
	pair := to[2].Items()
	if len(pair) != 2 || pair[0].kind != KindString || pair[1].kind != KindString {
		return faultf("found other separators, expected two texts")
	}
	s.item, s.key = pair[0].str(), pair[1].str()
	return nil
}

func (r *renderer) json(v Value, style *jsonStyle, depth int) error {
	if depth > maxValue {
		return &BudgetError{Budget: Depth, Limit: maxValue}
	}
	if err := r.spend(1); err != nil {
		return err
	}
	switch v.kind {
	case KindNone:
		return r.write("null")
	case KindBool:
		return r.write(jsonBool(v))
	case KindInt:
		if !v.isBig() {
			r.out = strconv.AppendInt(r.out, v.n, 10)
			return r.checkOutput()
		}
		s, err := bigText(v.big())
		if err != nil {
			return err
		}
		return r.write(s)
	case KindFloat:
		return r.write(jsonFloat(v.float()))
	case KindString:
		r.out = appendJSONString(r.out, v.str(), style.ascii)
		return r.checkOutput()
	case KindList, KindTuple:
		return r.jsonList(v.items(), style, depth)
	case KindDict:
		return r.jsonDict(v.dict(), style, depth)
	}
	return faultf("object of type %s is not JSON serializable", v.typeName())
}

func jsonBool(v Value) string {
	if v.n != 0 {
		return "true"
	}
	return "false"
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatText(f)
}

// line begins a new line.
func (r *renderer) line(style *jsonStyle, depth int) error {
	if !style.pretty {
		return nil
	}
	if err := r.write("\n"); err != nil {
		return err
	}
	for range depth {
		if err := r.write(style.indent); err != nil {
			return err
		}
	}
	return nil
}

func (r *renderer) jsonList(items []Value, style *jsonStyle, depth int) error {
	if len(items) == 0 {
		return r.write("[]")
	}
	r.out = append(r.out, '[')
	for i, item := range items {
		if i > 0 {
			r.out = append(r.out, style.item...)
		}
		if err := r.line(style, depth+1); err != nil {
			return err
		}
		if err := r.json(item, style, depth+1); err != nil {
			return err
		}
	}
	if err := r.line(style, depth); err != nil {
		return err
	}
	return r.write("]")
}

func (r *renderer) jsonDict(d *Dict, style *jsonStyle, depth int) error {
	if d.Len() == 0 {
		return r.write("{}")
	}
	entries := d.entries
	if style.sortKeys {
		var err error
		if entries, err = r.sortedEntries(d); err != nil {
			return err
		}
	}
	r.out = append(r.out, '{')
	for i, e := range entries {
		if i > 0 {
			r.out = append(r.out, style.item...)
		}
		if err := r.line(style, depth+1); err != nil {
			return err
		}
		key, err := jsonKey(e.key)
		if err != nil {
			return err
		}
		r.out = append(appendJSONString(r.out, key, style.ascii), style.key...)
		if err := r.json(e.value, style, depth+1); err != nil {
			return err
		}
	}
	if err := r.line(style, depth); err != nil {
		return err
	}
	return r.write("}")
}

func jsonKey(v Value) (string, error) {
	switch v.kind {
	case KindString:
		return v.str(), nil
	case KindNone:
		return "null", nil
	case KindBool:
		return jsonBool(v), nil
	case KindInt:
		return bigText(asBig(v))
	case KindFloat:
		return jsonFloat(v.float()), nil
	}
	return "", faultf("keys must be str, int, float, bool or None, not %s", v.typeName())
}

func (r *renderer) sortedEntries(d *Dict) ([]entry, error) {
	if err := r.elements(d.Len()); err != nil {
		return nil, err
	}
	entries := append([]entry{}, d.entries...)
	var failed error
	sort.SliceStable(entries, func(i, j int) bool {
		if failed != nil {
			return false
		}
		var order int
		order, _, failed = r.order(entries[i].key, entries[j].key, "<", 0)
		return order < 0
	})
	return entries, failed
}

func appendJSONString(dst []byte, s string, ascii bool) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && (!ascii || c < 0x7f) {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		n := 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		default:
			var r rune
			r, n = utf8.DecodeRuneInString(s[i:])
			dst = appendJSONEscape(dst, r)
		}
		i += n
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

func appendJSONEscape(dst []byte, c rune) []byte {
	if c > 0xffff {
		high, low := utf16.EncodeRune(c)
		return appendJSONEscape(appendJSONEscape(dst, high), low)
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[c>>12&15], hex[c>>8&15], hex[c>>4&15], hex[c&15])
}
