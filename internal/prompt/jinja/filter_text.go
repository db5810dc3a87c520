package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

func filterString(r *renderer, v Value, a args) (Value, error) {
	if err := a.bind("string", 0, nil); err != nil {
		return Value{}, err
	}
	return r.softText(v)
}

func filterSafe(r *renderer, v Value, a args) (Value, error) {
	if err := a.bind("safe", 0, nil); err != nil {
		return Value{}, err
	}
	s, err := r.str(v)
	return markup(s), err
}

func filterEscape(r *renderer, v Value, a args) (Value, error) {
	if err := a.bind("escape", 0, nil); err != nil {
		return Value{}, err
	}
	return r.escape(v)
}

func filterForceEscape(r *renderer, v Value, a args) (Value, error) {
	if err := a.bind("forceescape", 0, nil); err != nil {
		return Value{}, err
	}
	s, err := r.str(v)
	if err != nil {
		return Value{}, err
	}
	return r.escape(String(s))
}

func filterStripTags(r *renderer, v Value, a args) (Value, error) {
	if err := a.bind("striptags", 0, nil); err != nil {
		return Value{}, err
	}
	s, err := r.str(v)
	if err != nil {
		return Value{}, err
	}
	return String(stripTags(s)), r.text(len(s))
}

func filterTrim(r *renderer, v Value, a args) (Value, error) {
	to := [1]Value{None()}
	if err := a.bind("trim", 0, to[:], "chars"); err != nil {
		return Value{}, err
	}
	v, err := r.softText(v)
	if err != nil {
		return Value{}, err
	}
	s, err := strip(v.str(), to[0], true, true)
	return v.like(s), err
}

func filterCenter(r *renderer, v Value, a args) (Value, error) {
	to := [1]Value{Int(80)}
	if err := a.bind("center", 0, to[:], "width"); err != nil {
		return Value{}, err
	}
	v, err := r.softText(v)
	if err != nil {
		return Value{}, err
	}
	width, err := intArg("center", to[0])
	if err != nil {
		return Value{}, err
	}
	s, err := r.pad(v.str(), "center", " ", width)
	return v.like(s), err
}

// titleFilter begins a word behind white space, hyphens, and opening brackets only.
func titleFilter(s string) string {
	var b strings.Builder
	begin := true
	start := 0
	flush := func(end int) {
		b.WriteString(lower(s[start:end]))
		start = end
	}
	for i, c := range s {
		separates := isSpace(c) || strings.ContainsRune("-({[<", c)
		if begin && !separates || separates && !begin {
			flush(i)
			b.WriteString(upper(string(c)))
			start = i + utf8.RuneLen(c)
		}
		begin = separates
	}
	flush(len(s))
	return b.String()
}

func filterReplace(r *renderer, v Value, a args) (Value, error) {
	to := [3]Value{{}, {}, None()}
	if err := a.bind("replace", 2, to[:], "old", "new", "count"); err != nil {
		return Value{}, err
	}
	most := -1
	var err error
	if to[2].kind != KindNone {
		if most, err = intArg("replace", to[2]); err != nil {
			return Value{}, err
		}
	}
	var texts [3]string
	for i, part := range []Value{v, to[0], to[1]} {
		if texts[i], err = r.str(part); err != nil {
			return Value{}, err
		}
	}
	s, err := r.replace(texts[0], texts[1], texts[2], most)
	return String(s), err
}

func filterJoin(r *renderer, v Value, a args) (Value, error) {
	to := [2]Value{String(""), None()}
	if err := a.bind("join", 0, to[:], "d", "attribute"); err != nil {
		return Value{}, err
	}
	w, err := walk(v)
	if err != nil {
		return Value{}, err
	}
	separator, err := r.str(to[0])
	if err != nil {
		return Value{}, err
	}
	key := getterOf(to[1], None(), false)
	mark := len(r.out)
	for i := 0; ; i++ {
		item, ok, err := w.next()
		if err != nil {
			return Value{}, err
		}
		if !ok {
			break
		}
		if item, err = key.get(r, item); err != nil {
			return Value{}, err
		}
		if err = r.spend(1); err != nil {
			return Value{}, err
		}
		if i > 0 {
			if err := r.write(separator); err != nil {
				return Value{}, err
			}
		}
		if err := r.writeValue(item); err != nil {
			return Value{}, err
		}
	}
	s, err := r.cut(mark)
	return String(s), err
}

func filterIndent(r *renderer, v Value, a args) (Value, error) {
	to := [3]Value{Int(4), {}, {}}
	if err := a.bind("indent", 0, to[:], "width", "first", "blank"); err != nil {
		return Value{}, err
	}
	if v.kind != KindString {
		return Value{}, unsupportedOperands("+", v, String(""))
	}
	var indention string
	if to[0].kind == KindString {
		indention = to[0].str()
		if v.flag == flagMarkup {
			indention = escaped(to[0])
		}
	} else {
		n, err := intArg("indent", to[0])
		if err != nil {
			return Value{}, err
		}
		if indention, err = r.pad("", "ljust", " ", n); err != nil {
			return Value{}, err
		}
	}
	lines := splitLines(v.str()+"\n", false)
	mark := len(r.out)
	for i, line := range lines {
		if i > 0 {
			r.out = append(r.out, '\n')
		}
		if i == 0 && to[1].truth() || i > 0 && (line != "" || to[2].truth()) {
			if err := r.write(indention); err != nil {
				return Value{}, err
			}
		}
		if err := r.write(line); err != nil {
			return Value{}, err
		}
	}
	s, err := r.cut(mark)
	return v.like(s), err
}

func filterTruncate(r *renderer, v Value, a args) (Value, error) {
	to := [4]Value{Int(255), {}, String("..."), None()}
	if err := a.bind("truncate", 0, to[:], "length", "killwords", "end", "leeway"); err != nil {
		return Value{}, err
	}
	limit, err := intArg("truncate", to[0])
	if err != nil {
		return Value{}, err
	}
	end, err := textArg("truncate", to[2])
	if err != nil {
		return Value{}, err
	}
	leeway := 5
	if to[3].kind != KindNone {
		if leeway, err = intArg("truncate", to[3]); err != nil {
			return Value{}, err
		}
	}
	n, ok := length(v)
	switch {
	case limit < runeCount(end):
		return Value{}, faultf("expected length >= %d, got %d", runeCount(end), limit)
	case leeway < 0:
		return Value{}, faultf("expected leeway >= 0, got %d", leeway)
	case !ok:
		return Value{}, faultf("object of type %q has no len()", v.typeName())
	case n <= limit+leeway:
		return v, nil
	case v.kind != KindString:
		return Value{}, faultf("truncate() expects a str, not %s", v.typeName())
	}
	s := v.str()[:byteOffset(v.str(), limit-runeCount(end))]
	if !to[1].truth() {
		if i := strings.LastIndexByte(s, ' '); i >= 0 {
			s = s[:i]
		}
	}
	return r.add(v.like(s), to[2])
}

func filterFormat(r *renderer, v Value, a args) (Value, error) {
	if len(a.pos) > 0 && len(a.kw) > 0 {
		return Value{}, faultf("can't handle positional and keyword arguments at the same time")
	}
	v, err := r.softText(v)
	if err != nil {
		return Value{}, err
	}
	if len(a.kw) == 0 {
		return r.percent(v, tuple(a.keep().pos...))
	}
	d := NewDict(len(a.kw))
	for _, k := range a.kw {
		d.Set(k.name, k.value)
	}
	return r.percent(v, DictOf(d))
}

func filterWordCount(r *renderer, v Value, a args) (Value, error) {
	if err := a.bind("wordcount", 0, nil); err != nil {
		return Value{}, err
	}
	v, err := r.softText(v)
	if err != nil {
		return Value{}, err
	}
	n, inside := 0, false
	for _, c := range v.str() {
		word := c == '_' || unicode.IsLetter(c) || unicode.IsNumber(c)
		if word && !inside {
			n++
		}
		inside = word
	}
	return Int(int64(n)), r.text(len(v.str()))
}

func filterURLEncode(r *renderer, v Value, a args) (Value, error) {
	if err := a.bind("urlencode", 0, nil); err != nil {
		return Value{}, err
	}
	w, err := walk(v)
	if v.kind == KindDict {
		w, err = walk(viewOf(v.dict(), viewItems))
	}
	if v.kind == KindString || err != nil {
		s, err := r.str(v)
		if err != nil {
			return Value{}, err
		}
		return String(quoteURL(s, false)), r.text(3 * len(s))
	}
	mark := len(r.out)
	for i := 0; ; i++ {
		item, ok, err := w.next()
		if err != nil {
			return Value{}, err
		}
		if !ok {
			break
		}
		pair, err := r.listOf(item)
		if err != nil {
			return Value{}, err
		}
		if len(pair) != 2 {
			return Value{}, faultf("found %d values, expected a key and a value", len(pair))
		}
		for j, part := range pair {
			s, err := r.str(part)
			if err != nil {
				return Value{}, err
			}
			if i+j > 0 {
				r.out = append(r.out, "&="[j])
			}
			if err := r.write(quoteURL(s, true)); err != nil {
				return Value{}, err
			}
		}
	}
	s, err := r.cut(mark)
	return String(s), err
}

// quoteURL escapes for a path, or for a query, where blanks become plus signs.
func quoteURL(s string, query bool) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', isDecimal(c), strings.IndexByte("_.-~", c) >= 0, c == '/' && !query:
			b.WriteByte(c)
		case c == ' ' && query:
			b.WriteByte('+')
		default:
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

func filterXMLAttr(r *renderer, v Value, a args) (Value, error) {
	to := [1]Value{Bool(true)}
	if err := a.bind("xmlattr", 0, to[:], "autospace"); err != nil {
		return Value{}, err
	}
	if v.kind != KindDict {
		return Value{}, noAttribute(v, "items")
	}
	mark := len(r.out)
	first := true
	for _, e := range v.dict().entries {
		if e.value.kind == KindNone || e.value.kind == KindUndefined {
			continue
		}
		key, err := textArg("xmlattr", e.key)
		if err != nil {
			return Value{}, err
		}
		if strings.ContainsAny(key, " \t\n\r\f\v/>=") {
			return Value{}, faultf("invalid character in attribute name: %q", key)
		}
		value, err := r.escape(e.value)
		if err != nil {
			return Value{}, err
		}
		if !first || to[0].truth() {
			r.out = append(r.out, ' ')
		}
		first = false
		if err := r.write(escaped(e.key) + `="` + value.str() + `"`); err != nil {
			return Value{}, err
		}
	}
	s, err := r.cut(mark)
	return String(s), err
}

func filterAttr(r *renderer, v Value, a args) (Value, error) {
	var to [1]Value
	if err := a.bind("attr", 1, to[:], "name"); err != nil {
		return Value{}, err
	}
	name, err := textArg("attr", to[0])
	if err != nil {
		return Value{}, err
	}
	own, ok, err := r.ownAttribute(v, name)
	if ok || err != nil {
		return own, err
	}
	return undefinedOf(name, flagAttribute), nil
}

func filterDefault(_ *renderer, v Value, a args) (Value, error) {
	to := [2]Value{String(""), {}}
	if err := a.bind("default", 0, to[:], "default_value", "boolean"); err != nil {
		return Value{}, err
	}
	if v.kind == KindUndefined || to[1].truth() && !v.truth() {
		return to[0], nil
	}
	return v, nil
}
