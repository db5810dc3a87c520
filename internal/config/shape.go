package config

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"attache/internal/field"
)

// shape compares a file with the types that it is to be read into, before it is: so that a mistake is told by the name of
// its setting, with what was expected, for all mistakes at once. It also notes where every setting stands, and takes out
// keys without a value, whose defaults stay.
type shape struct {
	check field.Checker
	lines map[string]int // by path
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[field.Bytes]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// value compares one value with its type. path is empty for the whole file.
func (s *shape) value(n ast.Node, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if a, ok := n.(*ast.AnchorNode); ok {
		n = a.Value
	}
	switch n.(type) {
	case *ast.AliasNode: // its anchor was looked at where it stands, for another setting perhaps: the YAML library judges it here
		return
	case *ast.TagNode:
		s.check.Check(false, path, nil, "must have no YAML tag (a word that begins with \"!\")")
		return
	}
	switch text := scalar(n); {
	case t == durationType:
		_, err := time.ParseDuration(text)
		s.check.Check(err == nil, path, text, "must be a duration such as 250ms, 2s or 1m30s")
	case t == bytesType:
		_, err := field.ParseBytes(text)
		s.check.Check(err == nil, path, text, field.BytesRule)
	case t.Implements(textType) || reflect.PointerTo(t).Implements(textType): // judged by whoever wrote it
	default:
		s.kind(n, t, path, text)
	}
}

// kind compares a value with a type that YAML has.
func (s *shape) kind(n ast.Node, t reflect.Type, path, text string) {
	switch t.Kind() {
	case reflect.Struct:
		s.section(n, t, path)
	case reflect.Map:
		m, ok := mapping(n)
		s.check.Check(ok, path, nil, `must be lines "name: value", indented`)
		for _, pair := range m {
			at := path + "." + scalar(pair.Key)
			s.lines[at] = line(pair.Key)
			s.value(pair.Value, t.Elem(), at)
		}
	case reflect.Slice:
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			s.check.Check(false, path, nil, `must be a list: lines that begin with "- ", or [a, b]`)
			return
		}
		for i, element := range list.Values {
			at := fmt.Sprintf("%s[%d]", path, i)
			s.lines[at] = line(element)
			s.value(element, t.Elem(), at)
		}
	case reflect.String:
		switch n.Type() {
		case ast.StringType, ast.LiteralType, ast.IntegerType:
		case ast.FloatType, ast.BoolType:
			s.check.Check(false, path, nil, fmt.Sprintf("must be a text; put it in quotes: %q", text))
		default:
			s.check.Check(false, path, nil, "must be a text")
		}
	case reflect.Bool:
		s.check.Check(n.Type() == ast.BoolType, path, shown(n, text), "must be true or false")
	case reflect.Float64, reflect.Float32:
		number := slices.Contains([]ast.NodeType{ast.IntegerType, ast.FloatType, ast.InfinityType, ast.NanType}, n.Type())
		if _, err := strconv.ParseFloat(text, 64); err == nil && n.Type() == ast.StringType {
			number = true // the YAML library takes 1e-9 for a text here, and for a number later
		}
		s.check.Check(number, path, shown(n, text), "must be a number")
	default:
		s.whole(n, t, path, text)
	}
}

// whole compares a value with a type of whole numbers.
func (s *shape) whole(n ast.Node, t reflect.Type, path, text string) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		s.check.Check(false, path, shown(n, text), "must be a whole number")
		return
	}
	zero := reflect.Zero(t)
	fits, least, most := false, int64(0), uint64(math.MaxUint32)
	switch v := i.Value.(type) {
	case int64:
		fits = zero.CanInt() && !zero.OverflowInt(v) || zero.CanUint() && v >= 0 && !zero.OverflowUint(uint64(v))
	case uint64:
		fits = zero.CanInt() && v <= math.MaxInt64 && !zero.OverflowInt(int64(v)) || zero.CanUint() && !zero.OverflowUint(v)
	}
	if zero.CanInt() {
		least, most = math.MinInt64, math.MaxInt64
	}
	s.check.Check(fits, path, shown(n, text), fmt.Sprintf("must be a whole number from %d to %d", least, most))
}

// section compares a mapping with a struct.
func (s *shape) section(n ast.Node, t reflect.Type, path string) {
	pairs, ok := mapping(n)
	if !ok {
		where := path
		if where == "" {
			where = "the file"
		}
		s.check.Check(false, where, nil, "must be a section: lines \"setting: value\", indented, with a space behind the colon")
		return
	}
	fields := settings(t)
	for _, pair := range pairs {
		if pair.Key.IsMergeKey() {
			continue
		}
		key := scalar(pair.Key)
		at := strings.TrimPrefix(path+"."+key, ".")
		s.lines[at] = line(pair.Key)
		if of, known := fields[key]; known {
			s.value(pair.Value, of, at)
			continue
		}
		s.check.Check(false, at, nil, "is not a setting; "+suggest(key, fields))
	}
}

// settings are the keys of a struct and their types.
func settings(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		switch tag := f.Tag.Get("yaml"); {
		case tag == ",inline":
			for key, of := range settings(f.Type) {
				all[key] = of
			}
		case tag != "" && tag != "-":
			all[tag] = f.Type
		}
	}
	return all
}

// suggest names the setting that was probably meant, or those that there are.
func suggest(key string, fields map[string]reflect.Type) string {
	names := make([]string, 0, len(fields))
	best, least := "", 3
	for name := range fields {
		names = append(names, name)
		if d := distance(key, name); d < least || d == least && best != "" && name < best {
			best, least = name, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	slices.Sort(names)
	return "here are " + strings.Join(names, ", ")
}

// distance is Levenshtein's: how many letters must be changed, added or left out.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// mapping returns the pairs of a mapping that have a value; those that have none are taken out of it.
func mapping(n ast.Node) ([]*ast.MappingValueNode, bool) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		return nil, false
	}
	m.Values = slices.DeleteFunc(m.Values, func(pair *ast.MappingValueNode) bool { return pair.Value == nil || pair.Value.Type() == ast.NullType })
	return m.Values, true
}

// scalar is the text of a scalar as it is meant; "" of anything else.
func scalar(n ast.Node) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return n.Value.Value
	case *ast.MappingKeyNode:
		return scalar(n.Value)
	case ast.ScalarNode:
		if token := n.GetToken(); token != nil {
			return token.Value
		}
	}
	return ""
}

// shown is a scalar as an error shows it: texts in quotes, and nothing of lists and sections.
func shown(n ast.Node, text string) any {
	switch n.Type() {
	case ast.StringType, ast.LiteralType:
		return text
	case ast.MappingType, ast.SequenceType:
		return nil
	default:
		return bare(text)
	}
}

// bare is a text that is shown without quotes.
type bare string

// String implements fmt.Stringer.
func (b bare) String() string { return string(b) }

func line(n ast.Node) int {
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 0
	}
	return n.GetToken().Position.Line
}
