package jinja

import (
	"html"
	"strings"
)

// The environment does not escape HTML on its own, but the filters safe and escape make markup, which escapes what it is
// combined with.

var htmlEscaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// escaped is a text as markup.
func escaped(v Value) string {
	if v.flag == flagMarkup {
		return v.str()
	}
	return htmlEscaper.Replace(v.str())
}

// escape is the markup of str(v).
func (r *renderer) escape(v Value) (Value, error) {
	if v.kind == KindString && v.flag == flagMarkup {
		return v, nil
	}
	s, err := r.str(v)
	if err != nil {
		return Value{}, err
	}
	if err := r.text(6 * len(s)); err != nil {
		return Value{}, err
	}
	return markup(htmlEscaper.Replace(s)), nil
}

// stripTags takes tags and comments off and resolves entities.
func stripTags(s string) string {
	var b strings.Builder
	for {
		start := strings.IndexByte(s, '<')
		if start < 0 {
			break
		}
		mark, skip := ">", 0
		if strings.HasPrefix(s[start:], "<!--") {
			mark, skip = "-->", len("<!--")
		}
		end := strings.Index(s[start+skip:], mark)
		if end < 0 {
			break
		}
		b.WriteString(s[:start])
		s = s[start+skip+end+len(mark):]
	}
	b.WriteString(s)
	return html.UnescapeString(strings.Join(strings.FieldsFunc(b.String(), isSpace), " "))
}
