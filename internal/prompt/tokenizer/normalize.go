package tokenizer

import (
	"bytes"
	"unicode/utf8"
)

// normalizer is one step that rewrites a text before it is split.
type normalizer interface {
	// keeps tells cheaply that append would copy text as it is. It may say no too often, never yes.
	keeps(t *unicodeTables, text []byte) bool
	// append appends the rewritten text to dst, which does not overlap text.
	append(w *workspace, t *unicodeTables, dst, text []byte) []byte
}

// prepend puts a fixed text before one that is not empty.
type prepend struct{ prefix []byte }

func (p prepend) keeps(_ *unicodeTables, text []byte) bool { return len(text) == 0 }

func (p prepend) append(_ *workspace, _ *unicodeTables, dst, text []byte) []byte {
	if len(text) == 0 {
		return dst
	}
	return append(append(dst, p.prefix...), text...)
}

// replace puts one text in the place of every occurrence of another, which is not empty.
type replace struct{ from, to []byte }

func (r replace) keeps(_ *unicodeTables, text []byte) bool { return !bytes.Contains(text, r.from) }

func (r replace) append(_ *workspace, _ *unicodeTables, dst, text []byte) []byte {
	for {
		i := bytes.Index(text, r.from)
		if i < 0 {
			return append(dst, text...)
		}
		dst = append(append(dst, text[:i]...), r.to...)
		text = text[i+len(r.from):]
	}
}

// lowercase maps every character by itself: a final sigma is not told from another.
type lowercase struct{}

func (lowercase) keeps(*unicodeTables, []byte) bool { return false }

func (lowercase) append(_ *workspace, t *unicodeTables, dst, text []byte) []byte {
	for i := 0; i < len(text); {
		r, n := decode(text[i:])
		switch {
		case r < utf8.RuneSelf:
			if 'A' <= r && r <= 'Z' {
				r += 'a' - 'A'
			}
			dst = append(dst, byte(r))
		case t.norm.lower[r] == nil:
			dst = append(dst, text[i:i+n]...)
		default:
			dst = appendRunes(dst, t.norm.lower[r])
		}
		i += n
	}
	return dst
}

// strip removes white space at the ends.
type strip struct{ left, right bool }

func (s strip) keeps(*unicodeTables, []byte) bool { return !s.left && !s.right }

func (s strip) append(_ *workspace, t *unicodeTables, dst, text []byte) []byte {
	if s.left {
		text = text[t.run(text, 0, space):]
	}
	if s.right {
		text = text[:t.spacesBefore(text)]
	}
	return append(dst, text...)
}
