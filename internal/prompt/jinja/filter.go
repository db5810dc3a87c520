package jinja

// filterFunc is a filter: it makes another value of v.
type filterFunc func(r *renderer, v Value, a args) (Value, error)

// filterNamed is the filter of this name, or nil.
func filterNamed(name string) filterFunc {
	switch name {
	case "abs":
		return filterAbs
	case "attr":
		return filterAttr
	case "batch":
		return filterBatch
	case "capitalize":
		return textFilter(capitalize)
	case "center":
		return filterCenter
	case "count", "length":
		return filterLength
	case "d", "default":
		return filterDefault
	case "dictsort":
		return filterDictSort
	case "e", "escape":
		return filterEscape
	case "filesizeformat":
		return filterFileSize
	case "first":
		return filterFirst
	case "float":
		return filterFloat
	case "forceescape":
		return filterForceEscape
	case "format":
		return filterFormat
	case "groupby":
		return filterGroupBy
	case "indent":
		return filterIndent
	case "int":
		return filterInt
	case "items":
		return filterItems
	case "join":
		return filterJoin
	case "last":
		return filterLast
	case "list":
		return filterList
	case "lower":
		return textFilter(lower)
	case "map":
		return filterMap
	case "max":
		return filterMax
	case "min":
		return filterMin
	}
	return moreFilters(name)
}

func moreFilters(name string) filterFunc {
	switch name {
	case "reject":
		return chooser(false, false)
	case "rejectattr":
		return chooser(false, true)
	case "replace":
		return filterReplace
	case "reverse":
		return filterReverse
	case "round":
		return filterRound
	case "safe":
		return filterSafe
	case "select":
		return chooser(true, false)
	case "selectattr":
		return chooser(true, true)
	case "slice":
		return filterSlice
	case "sort":
		return filterSort
	case "string":
		return filterString
	case "striptags":
		return filterStripTags
	case "sum":
		return filterSum
	case "title":
		return textFilter(titleFilter)
	case "tojson":
		return filterJSON
	case "trim":
		return filterTrim
	case "truncate":
		return filterTruncate
	case "unique":
		return filterUnique
	case "upper":
		return textFilter(upper)
	case "urlencode":
		return filterURLEncode
	case "wordcount":
		return filterWordCount
	case "wordwrap":
		return filterWordWrap
	case "xmlattr":
		return filterXMLAttr
	case "pprint", "random", "urlize":
		// They make output for people, and nobody can expect them in a prompt.
		return func(*renderer, Value, args) (Value, error) {
			return Value{}, faultf("the filter %q is not supported", name)
		}
	}
	return nil
}

// softText is v as a text, which stays markup if it is.
func (r *renderer) softText(v Value) (Value, error) {
	if v.kind == KindString {
		return v, nil
	}
	s, err := r.str(v)
	return String(s), err
}

// textFilter makes a filter of a function on texts.
func textFilter(f func(string) string) filterFunc {
	return func(r *renderer, v Value, a args) (Value, error) {
		if err := a.bind("filter", 0, nil); err != nil {
			return Value{}, err
		}
		v, err := r.softText(v)
		if err != nil {
			return Value{}, err
		}
		if err := r.text(len(v.str())); err != nil {
			return Value{}, err
		}
		return v.like(f(v.str())), nil
	}
}

// callFilter calls the filter of this name with arguments that are values already.
func (r *renderer) callFilter(name, v Value, a args) (Value, error) {
	f := filterNamed(name.Text())
	if f == nil {
		return Value{}, faultf("no filter named %q found", name.Text())
	}
	return f(r, v, a)
}

// getter looks an attribute up that is given as in "a.b.0".
type getter struct {
	parts    []Value
	fallback Value // where there is none; None for the undefined value
	fold     bool  // texts are compared without case
}

func getterOf(attribute, fallback Value, fold bool) getter {
	g := getter{fallback: fallback, fold: fold}
	switch attribute.kind {
	case KindUndefined, KindNone:
	case KindString:
		g.parts = attributeParts(attribute.str())
	default:
		g.parts = []Value{attribute}
	}
	return g
}

func attributeParts(s string) []Value {
	var parts []Value
	for _, p := range splitText(s, ".", -1, false) {
		if n, ok := parseDigits(p); ok {
			parts = append(parts, Int(n))
		} else {
			parts = append(parts, String(p))
		}
	}
	return parts
}

func parseDigits(s string) (int64, bool) {
	var n int64
	for i := range len(s) {
		if !isDecimal(s[i]) || n > 1<<31 {
			return 0, false
		}
		n = 10*n + int64(s[i]-'0')
	}
	return n, s != ""
}

func (g *getter) get(r *renderer, v Value) (Value, error) {
	for _, p := range g.parts {
		var err error
		if v, err = r.item(v, p); err != nil {
			return Value{}, err
		}
		if v.kind == KindUndefined && g.fallback.kind != KindNone && !g.fallback.unset() {
			v = g.fallback
		}
	}
	if g.fold {
		return r.folded(v)
	}
	return v, nil
}

// folded is a text in lower case, and other values as they are.
func (r *renderer) folded(v Value) (Value, error) {
	if v.kind != KindString {
		return v, nil
	}
	if err := r.text(len(v.str())); err != nil {
		return Value{}, err
	}
	return v.like(lower(v.str())), nil
}
