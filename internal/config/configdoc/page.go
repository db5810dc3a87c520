package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"attache/internal/config"
	"attache/internal/field"
)

const head = `<!-- Written by make generate from the doc comments of the code. Do not edit. -->
# Configuration

One YAML file, ` + "`attache serve --config attache.yaml`" + `. Every key is optional; an unknown key is an error, reported with its line.
` + "`attache check --config attache.yaml`" + ` checks a file without starting anything. Durations are written as ` + "`250ms`, `2s`, `1m`" + `, sizes as
` + "`512KiB`, `16MiB`" + `.

A change of the file takes effect while attache runs where a table says live; the rest waits for a restart, and attache says so
([changing the configuration](operations.md#changing-the-configuration)).

`

// Page renders the documentation. root is the folder of the module.
func Page(root string) (string, error) {
	w := &writer{docs: docs{root: root, files: map[string]map[string]map[string]string{}}}
	w.WriteString(head)
	if err := w.section("", reflect.ValueOf(config.Default())); err != nil {
		return "", err
	}
	return w.String(), nil
}

// writer gathers the page. Sections that are met on the way are written after the table they are mentioned in.
type writer struct {
	strings.Builder

	docs docs
}

// section writes one struct as a table, then its parts.
func (w *writer) section(path string, v reflect.Value) error {
	fmt.Fprintf(w, "## %s\n\n", title(path))
	if doc, err := w.docs.of(v.Type(), ""); err != nil {
		return err
	} else if doc != "" {
		fmt.Fprintf(w, "%s\n\n", doc)
	}
	w.WriteString("| key | default | change | meaning |\n| --- | --- | --- | --- |\n")
	parts, err := w.rows(path, v)
	if err != nil {
		return err
	}
	w.WriteString("\n")
	for _, p := range parts {
		if err := w.section(p.path, p.value); err != nil {
			return err
		}
	}
	return nil
}

// part is a struct inside another, which gets a section of its own.
type part struct {
	path  string
	value reflect.Value
}

func (w *writer) rows(path string, v reflect.Value) ([]part, error) {
	var parts []part
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "-" || !f.IsExported() {
			continue
		}
		if strings.Contains(options, "inline") {
			inner, err := w.rows(path, v.Field(i))
			if err != nil {
				return nil, err
			}
			parts = append(parts, inner...)
			continue
		}
		doc, err := w.docs.of(v.Type(), f.Name)
		if err != nil {
			return nil, err
		}
		if doc == "" {
			return nil, fmt.Errorf("%s.%s (%s) has no doc comment: the user could not know what it does", v.Type(), f.Name, key)
		}
		full := key
		if path != "" {
			full = path + "." + key
		}
		fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", full, value(v.Field(i)), effect(full), strings.ReplaceAll(doc, "|", "\\|"))
		if p, ok := partOf(full, v.Field(i)); ok {
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// partOf tells whether a field is a struct with fields of its own, also behind a pointer or in a list.
func partOf(path string, v reflect.Value) (part, bool) {
	t, suffix := v.Type(), ""
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		inside := v.IsValid() && (t.Kind() == reflect.Pointer && !v.IsNil() || t.Kind() == reflect.Slice && v.Len() > 0)
		switch {
		case !inside:
			v = reflect.Value{}
		case t.Kind() == reflect.Slice:
			v = v.Index(0)
		default:
			v = v.Elem()
		}
		if t.Kind() == reflect.Slice {
			suffix = "[]"
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return part{}, false
	}
	if !v.IsValid() {
		v = reflect.Zero(t)
	}
	return part{path + suffix, v}, true
}

func value(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return "`" + short(x) + "`"
	case field.Bytes:
		return "`" + x.String() + "`"
	}
	switch v.Kind() {
	case reflect.String:
		if v.String() == "" {
			return "empty"
		}
		return "`" + v.String() + "`"
	case reflect.Struct:
		return "see below"
	case reflect.Pointer:
		if v.IsNil() {
			return "unset"
		}
		return value(v.Elem())
	case reflect.Slice, reflect.Map:
		if v.Len() == 0 {
			return "empty"
		}
		if v.Type().Elem().Kind() == reflect.Struct {
			return "see below"
		}
		if list, is := v.Interface().([]string); is {
			return "`[" + strings.Join(list, ", ") + "]`"
		}
		return fmt.Sprintf("`%v`", v.Interface())
	default:
		return fmt.Sprintf("`%v`", v.Interface())
	}
}

// effect is when a change of a setting takes effect; empty where that differs below it.
func effect(path string) string {
	switch live, known := config.Live(strings.ReplaceAll(path, "[]", "")); {
	case !known:
		return ""
	case live:
		return "live"
	default:
		return "restart"
	}
}

// short writes 1m0s as 1m.
func short(d time.Duration) string {
	s := d.String()
	s = strings.TrimSuffix(s, "0s")
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	if s == "" || strings.HasSuffix(d.String(), "0s") && !strings.ContainsAny(s, "hm") {
		return d.String()
	}
	return s
}

func title(path string) string {
	if path == "" {
		return "The file"
	}
	return "`" + path + "`"
}

// docs reads doc comments out of the source.
type docs struct {
	root  string
	files map[string]map[string]map[string]string // package path -> type -> field ("" the type itself) -> text
}

// of returns the doc comment of a field, or of the type when field is "".
func (d *docs) of(t reflect.Type, field string) (string, error) {
	pkg := t.PkgPath()
	if d.files[pkg] == nil {
		if err := d.parse(pkg); err != nil {
			return "", err
		}
	}
	return d.files[pkg][t.Name()][field], nil
}

func (d *docs) parse(pkg string) error {
	dir := filepath.Join(d.root, filepath.FromSlash(strings.TrimPrefix(pkg, "attache/")))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	types := map[string]map[string]string{}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, entry.Name()), nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok || general.Tok != token.TYPE {
				continue
			}
			for _, spec := range general.Specs {
				typed, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if structure, ok := typed.Type.(*ast.StructType); ok {
					types[typed.Name.Name] = fieldDocs(general, typed, structure)
				}
			}
		}
	}
	d.files[pkg] = types
	return nil
}

func fieldDocs(general *ast.GenDecl, typed *ast.TypeSpec, structure *ast.StructType) map[string]string {
	texts := map[string]string{}
	doc := typed.Doc
	if doc == nil {
		doc = general.Doc
	}
	texts[""] = strip(text(doc), typed.Name.Name)
	for _, f := range structure.Fields.List {
		t := text(f.Doc)
		if t == "" {
			t = text(f.Comment)
		}
		for _, name := range f.Names {
			texts[name.Name] = strip(t, name.Name)
		}
	}
	return texts
}

// strip turns "Listen is where …" into "Where …": the page names the key already.
func strip(doc, name string) string {
	for _, verb := range []string{" is ", " are ", " says "} {
		if rest, ok := strings.CutPrefix(doc, name+verb); ok && rest != "" {
			doc = rest
			break
		}
	}
	if doc == "" {
		return ""
	}
	return strings.ToUpper(doc[:1]) + doc[1:]
}

func text(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
