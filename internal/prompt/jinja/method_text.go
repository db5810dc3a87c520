package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

func isTextMethod(name string) bool {
	switch name {
	case "capitalize", "casefold", "center", "count", "endswith", "expandtabs", "find", "format", "format_map", "index",
		"isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable",
		"isspace", "istitle", "isupper", "join", "ljust", "lower", "lstrip", "partition", "removeprefix", "removesuffix",
		"replace", "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith",
		"strip", "swapcase", "title", "upper", "zfill":
		return true
	}
	return false
}

// textMethod calls a method of a text.
func (r *renderer) textMethod(v Value, name string, a args) (Value, error) {
	if err := r.spend(1); err != nil {
		return Value{}, err
	}
	switch name {
	case "format":
		return r.format(v, a.pos, a.kw)
	case "format_map":
		return r.formatMap(v, a)
	case "split", "rsplit":
		return r.split(v, name, a)
	case "splitlines":
		return r.splitLines(v, a)
	case "expandtabs":
		return r.expandTabs(v, a)
	case "strip", "lstrip", "rstrip":
		return stripText(v, name, a)
	case "join":
		if err := a.only(name, 1, 1); err != nil {
			return Value{}, err
		}
		return r.joinText(v, a.pos[0])
	case "replace":
		return r.replaceText(v, a)
	case "find", "rfind", "index", "rindex", "count":
		return r.findText(v, name, a)
	case "startswith", "endswith":
		return affixed(v, name, a)
	case "removeprefix", "removesuffix", "partition", "rpartition":
		return cutText(v, name, a)
	case "center", "ljust", "rjust":
		return r.justify(v, name, a)
	case "zfill":
		return r.zeroFill(v, a)
	}
	if err := a.only(name, 0, 0); err != nil {
		return Value{}, err
	}
	return r.plainTextMethod(v, name)
}

// plainTextMethod calls a method without arguments.
func (r *renderer) plainTextMethod(v Value, name string) (Value, error) {
	s := v.str()
	if err := r.text(len(s)); err != nil {
		return Value{}, err
	}
	switch name {
	case "capitalize":
		return v.like(capitalize(s)), nil
	case "casefold":
		return v.like(foldCase(s)), nil
	case "lower":
		return v.like(lower(s)), nil
	case "upper":
		return v.like(upper(s)), nil
	case "title":
		return v.like(titled(s)), nil
	case "swapcase":
		return v.like(swapCase(s)), nil
	case "isalnum":
		return Bool(all(s, isAlnum)), nil
	case "isalpha":
		return Bool(all(s, unicode.IsLetter)), nil
	case "isascii":
		return Bool(isASCII(s)), nil
	case "isdecimal":
		return Bool(all(s, unicode.IsDigit)), nil
	case "isdigit":
		return Bool(all(s, isDigit)), nil
	case "isnumeric":
		return Bool(all(s, isNumeric)), nil
	case "isidentifier":
		return Bool(s != "" && nameLen(s) == len(s)), nil
	case "islower":
		return Bool(inCase(s, unicode.IsLower, unicode.IsUpper)), nil
	case "isupper":
		return Bool(inCase(s, unicode.IsUpper, unicode.IsLower)), nil
	case "isprintable":
		return Bool(s == "" || all(s, unicode.IsPrint)), nil
	case "isspace":
		return Bool(all(s, isSpace)), nil
	default: // istitle
		return Bool(isTitled(s)), nil
	}
}

// textArg is an argument that must be a text.
func textArg(who string, v Value) (string, error) {
	if v.kind != KindString {
		return "", faultf("%s() expects a str, not %s", who, v.typeName())
	}
	return v.str(), nil
}

// intArg is an argument that must be an integer.
func intArg(who string, v Value) (int, error) {
	if !v.isInteger() {
		return 0, faultf("%s() expects an int, not %s", who, v.typeName())
	}
	if v.p != nil {
		return 0, faultf("%s() expects an int of at most 64 bits", who)
	}
	return int(v.n), nil
}

func stripText(v Value, name string, a args) (Value, error) {
	if err := a.only(name, 0, 1); err != nil {
		return Value{}, err
	}
	chars := None()
	if len(a.pos) > 0 {
		chars = a.pos[0]
	}
	s, err := strip(v.str(), chars, name != "rstrip", name != "lstrip")
	return v.like(s), err
}

// strip takes characters, or white space, off the ends of s.
func strip(s string, chars Value, left, right bool) (string, error) {
	is := isSpace
	if chars.kind != KindNone {
		set, err := textArg("strip", chars)
		if err != nil {
			return "", err
		}
		is = func(c rune) bool { return strings.ContainsRune(set, c) }
	}
	if left {
		s = strings.TrimLeftFunc(s, is)
	}
	if right {
		s = strings.TrimRightFunc(s, is)
	}
	return s, nil
}

func (r *renderer) split(v Value, name string, a args) (Value, error) {
	to := [2]Value{None(), Int(-1)}
	if err := a.bind(name, 0, to[:], "sep", "maxsplit"); err != nil {
		return Value{}, err
	}
	most, err := intArg(name, to[1])
	if err != nil {
		return Value{}, err
	}
	if err := r.spend(len(v.str()) / stepBytes); err != nil {
		return Value{}, err
	}
	if err := r.elements(separators(v.str(), to[0])); err != nil {
		return Value{}, err
	}
	var parts []string
	if to[0].kind == KindNone {
		parts = splitSpace(v.str(), most, name == "rsplit")
	} else {
		sep, err := textArg(name, to[0])
		if err != nil {
			return Value{}, err
		}
		if sep == "" {
			return Value{}, faultf("empty separator")
		}
		parts = splitText(v.str(), sep, most, name == "rsplit")
	}
	return r.listOfTexts(v, parts)
}

// separators is how many parts a text has at most, less one.
func separators(s string, sep Value) int {
	if sep.Text() != "" {
		return strings.Count(s, sep.str())
	}
	n := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c <= ' ', c == 0xc2, c >= 0xe1 && c <= 0xe3: // white space beyond ASCII begins with one of these
			n++
		}
	}
	return n
}

func (r *renderer) listOfTexts(v Value, parts []string) (Value, error) {
	if err := r.elements(len(parts)); err != nil {
		return Value{}, err
	}
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = v.like(p)
	}
	return List(items), nil
}

func splitText(s, sep string, most int, fromRight bool) []string {
	if most < 0 {
		return strings.Split(s, sep)
	}
	if !fromRight {
		return strings.SplitN(s, sep, most+1)
	}
	var parts []string
	for ; most > 0; most-- {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(sep):])
		s = s[:i]
	}
	parts = append(parts, s)
	reverse(parts)
	return parts
}

func reverse[T any](items []T) {
	for i, j := 0, len(items)-1; i < j; i, j = i+1, j-1 {
		items[i], items[j] = items[j], items[i]
	}
}

// splitSpace splits at white space. Empty parts do not count.
func splitSpace(s string, most int, fromRight bool) []string {
	if most < 0 {
		return strings.FieldsFunc(s, isSpace)
	}
	var parts []string
	for {
		if fromRight {
			s = strings.TrimRightFunc(s, isSpace)
		} else {
			s = strings.TrimLeftFunc(s, isSpace)
		}
		if s == "" {
			break
		}
		i := strings.IndexFunc(s, isSpace)
		if fromRight {
			i = strings.LastIndexFunc(s, isSpace)
		}
		if i < 0 || most == 0 {
			parts = append(parts, s)
			break
		}
		most--
		if fromRight {
			_, n := utf8.DecodeRuneInString(s[i:])
			parts = append(parts, s[i+n:])
			s = s[:i]
		} else {
			parts = append(parts, s[:i])
			s = s[i:]
		}
	}
	if fromRight {
		reverse(parts)
	}
	return parts
}

func (r *renderer) splitLines(v Value, a args) (Value, error) {
	var to [1]Value
	if err := a.bind("splitlines", 0, to[:], "keepends"); err != nil {
		return Value{}, err
	}
	if err := r.spend(len(v.str()) / stepBytes); err != nil {
		return Value{}, err
	}
	if err := r.elements(separators(v.str(), None())); err != nil {
		return Value{}, err
	}
	return r.listOfTexts(v, splitLines(v.str(), to[0].truth()))
}

func (r *renderer) expandTabs(v Value, a args) (Value, error) {
	to := [1]Value{Int(8)}
	if err := a.bind("expandtabs", 0, to[:], "tabsize"); err != nil {
		return Value{}, err
	}
	size, err := intArg("expandtabs", to[0])
	if err != nil {
		return Value{}, err
	}
	s := v.str()
	if err := r.text(len(s) + max(0, strings.Count(s, "\t")*min(size, DefaultMaxOutput))); err != nil {
		return Value{}, err
	}
	var b strings.Builder
	column := 0
	for _, c := range s {
		switch {
		case c == '\t' && size > 0:
			n := size - column%size
			column += n
			b.WriteString(strings.Repeat(" ", n))
			continue
		case c == '\t':
			continue
		case c == '\n' || c == '\r':
			column = -1
		}
		column++
		b.WriteRune(c)
	}
	return v.like(b.String()), nil
}

// joinText is v.join(items), which must be texts.
func (r *renderer) joinText(v, items Value) (Value, error) {
	w, err := walk(items)
	if err != nil {
		return Value{}, err
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
		if i > 0 {
			if err := r.write(v.str()); err != nil {
				return Value{}, err
			}
		}
		switch {
		case v.flag == flagMarkup:
			if item, err = r.escape(item); err != nil {
				return Value{}, err
			}
		case item.kind != KindString:
			return Value{}, faultf("sequence item %d: expected str instance, %s found", i, item.typeName())
		}
		if err := r.spend(1); err != nil {
			return Value{}, err
		}
		if err := r.write(item.str()); err != nil {
			return Value{}, err
		}
	}
	s, err := r.cut(mark)
	return v.like(s), err
}

func (r *renderer) replaceText(v Value, a args) (Value, error) {
	if err := a.only("replace", 2, 3); err != nil {
		return Value{}, err
	}
	most := -1
	if len(a.pos) > 2 {
		var err error
		if most, err = intArg("replace", a.pos[2]); err != nil {
			return Value{}, err
		}
	}
	old, err := textArg("replace", a.pos[0])
	if err != nil {
		return Value{}, err
	}
	with, err := textArg("replace", a.pos[1])
	if err != nil {
		return Value{}, err
	}
	if v.flag == flagMarkup {
		with = escaped(a.pos[1])
	}
	s, err := r.replace(v.str(), old, with, most)
	return v.like(s), err
}

func (r *renderer) replace(s, old, with string, most int) (string, error) {
	if err := r.spend(len(s) / stepBytes); err != nil {
		return "", err
	}
	size := len(s)
	if len(with) > len(old) {
		n := strings.Count(s, old)
		if most >= 0 {
			n = min(n, most)
		}
		size += n * (len(with) - len(old))
	}
	if err := r.text(size); err != nil {
		return "", err
	}
	return strings.Replace(s, old, with, most), nil
}

// findText is find, rfind, index, rindex, and count, which count characters.
func (r *renderer) findText(v Value, name string, a args) (Value, error) {
	if err := a.only(name, 1, 3); err != nil {
		return Value{}, err
	}
	sub, err := textArg(name, a.pos[0])
	if err != nil {
		return Value{}, err
	}
	if err := r.spend(len(v.str()) / stepBytes); err != nil {
		return Value{}, err
	}
	s, before, ok, err := part(v.str(), a.pos[1:])
	if err != nil {
		return Value{}, err
	}
	if name == "count" {
		if !ok {
			return Int(0), nil
		}
		return Int(int64(strings.Count(s, sub))), nil
	}
	i := -1
	switch {
	case !ok:
	case name == "find" || name == "index":
		i = strings.Index(s, sub)
	default:
		i = strings.LastIndex(s, sub)
	}
	if i >= 0 {
		return Int(int64(before + runeCount(s[:i]))), nil
	}
	if name == "index" || name == "rindex" {
		return Value{}, faultf("substring not found")
	}
	return Int(-1), nil
}

// part is s from character start to stop, and how many characters are before it. It is not ok if it begins behind the end:
// even empty texts are not found there.
func part(s string, bounds []Value) (sub string, before int, ok bool, err error) {
	if len(bounds) == 0 {
		return s, 0, true, nil
	}
	n := runeCount(s)
	start, err := sliceBound(bounds[0], 0)
	if err != nil {
		return "", 0, false, err
	}
	if start < 0 {
		start = max(start+n, 0)
	}
	stop := n
	if len(bounds) > 1 {
		if stop, err = sliceBound(bounds[1], n); err != nil {
			return "", 0, false, err
		}
		if stop < 0 {
			stop = max(stop+n, 0)
		}
		stop = min(stop, n)
	}
	if start > stop {
		return "", 0, false, nil
	}
	from := byteOffset(s, start)
	return s[from : from+byteOffset(s[from:], stop-start)], start, true, nil
}

// affixed is startswith and endswith, with one text or a tuple of them.
func affixed(v Value, name string, a args) (Value, error) {
	if err := a.only(name, 1, 3); err != nil {
		return Value{}, err
	}
	s, _, ok, err := part(v.str(), a.pos[1:])
	if err != nil {
		return Value{}, err
	}
	has := strings.HasPrefix
	if name == "endswith" {
		has = strings.HasSuffix
	}
	affixes := a.pos[:1]
	if a.pos[0].kind == KindTuple {
		affixes = a.pos[0].items()
	}
	for _, affix := range affixes {
		x, err := textArg(name, affix)
		if err != nil {
			return Value{}, err
		}
		if ok && has(s, x) {
			return Bool(true), nil
		}
	}
	return Bool(false), nil
}

// cutText is removeprefix, removesuffix, partition, and rpartition.
func cutText(v Value, name string, a args) (Value, error) {
	if err := a.only(name, 1, 1); err != nil {
		return Value{}, err
	}
	s := v.str()
	x, err := textArg(name, a.pos[0])
	if err != nil {
		return Value{}, err
	}
	switch name {
	case "removeprefix":
		return v.like(strings.TrimPrefix(s, x)), nil
	case "removesuffix":
		return v.like(strings.TrimSuffix(s, x)), nil
	}
	if x == "" {
		return Value{}, faultf("empty separator")
	}
	if name == "partition" {
		before, after, ok := strings.Cut(s, x)
		if !ok {
			return tuple(v, v.like(""), v.like("")), nil
		}
		return tuple(v.like(before), v.like(x), v.like(after)), nil
	}
	i := strings.LastIndex(s, x)
	if i < 0 {
		return tuple(v.like(""), v.like(""), v), nil
	}
	return tuple(v.like(s[:i]), v.like(x), v.like(s[i+len(x):])), nil
}

func (r *renderer) justify(v Value, name string, a args) (Value, error) {
	if err := a.only(name, 1, 2); err != nil {
		return Value{}, err
	}
	width, err := intArg(name, a.pos[0])
	if err != nil {
		return Value{}, err
	}
	fill := " "
	if len(a.pos) > 1 {
		if fill, err = textArg(name, a.pos[1]); err != nil {
			return Value{}, err
		}
		if runeCount(fill) != 1 {
			return Value{}, faultf("the fill character must be exactly one character long")
		}
	}
	s, err := r.pad(v.str(), name, fill, width)
	return v.like(s), err
}

// pad fills s up to a width. Where that is uneven, center puts one more to the side that Python chooses.
func (r *renderer) pad(s, name, fill string, width int) (string, error) {
	n := width - runeCount(s)
	if n <= 0 {
		return s, nil
	}
	if n > r.options.MaxOutput {
		return "", &BudgetError{Budget: Output, Limit: int64(r.options.MaxOutput)}
	}
	if err := r.text(len(s) + n*len(fill)); err != nil {
		return "", err
	}
	left := 0
	switch name {
	case "rjust":
		left = n
	case "center":
		left = n/2 + n&width&1
	}
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, n-left), nil
}

func (r *renderer) zeroFill(v Value, a args) (Value, error) {
	if err := a.only("zfill", 1, 1); err != nil {
		return Value{}, err
	}
	width, err := intArg("zfill", a.pos[0])
	if err != nil {
		return Value{}, err
	}
	s := v.str()
	sign := ""
	if s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
	}
	s, err = r.pad(s, "rjust", "0", width-len(sign))
	return v.like(sign + s), err
}
