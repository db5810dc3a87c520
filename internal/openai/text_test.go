package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"
)

func unescaped(s string) string { return string(AppendUnescaped(nil, []byte(s), Span{0, len(s)})) }

// shortened runs Shorten with a small destination.
func shortened(t interface{ Fatalf(string, ...any) }, s string, room int) string {
	var out []byte
	dst := make([]byte, room)
	for src := []byte(s); len(src) > 0; {
		written, read := Shorten(dst, src)
		if read == 0 || written > room {
			t.Fatalf("Shorten(%q) with room for %d bytes: read %d, wrote %d", src, room, read, written)
		}
		out, src = append(out, dst[:written]...), src[read:]
	}
	return string(out)
}

func TestUnescapeAndShorten(t *testing.T) {
	for _, c := range []struct{ in, text, short string }{
		{``, "", ``},
		{`plain größer`, "plain größer", `plain größer`},
		{`\n\t\r\b\f\"\\\/`, "\n\t\r\b\f\"\\/", `\n\t\r\b\f\"\\/`},
		{`\u0041\u00e9\u6f22`, "Aé漢", `Aé漢`},
		{`\u000a\u0022\u005c\u002F`, "\n\"\\/", `\n\"\\/`},
		{`\u0000\u001F\u007f`, "\x00\x1f\x7f", "\\u0000\\u001f\x7f"},
		{`\ud83d\ude00!`, "😀!", `😀!`},
		{`\uD83D\uDE00`, "😀", `😀`},
		{`\ud83d`, "\ufffd", "\ufffd"},
		{`\ud83dx`, "\ufffdx", "\ufffdx"},
		{`\ude00\ud83d`, "\ufffd\ufffd", "\ufffd\ufffd"},
		{`\ud83d\ud83d\ude00`, "\ufffd😀", "\ufffd😀"},
		{`\ud83d\u0041`, "\ufffdA", "\ufffdA"},
		{`\ud83d\n`, "\ufffd\n", "\ufffd\\n"},
		{"a\xffb\xe6\xbcc", "a\ufffdb\ufffd\ufffdc", "a\xffb\xe6\xbcc"},
		{"\xc3\\u00a9", "\ufffd©", "\xc3©"},
		// Scan lets none of these through.
		{`\`, "\ufffd", "\ufffd"},
		{`\x41`, "\ufffdx41", "\ufffdx41"},
		{`\u12`, "\ufffdu12", "\ufffdu12"},
	} {
		if got := unescaped(c.in); got != c.text {
			t.Errorf("%s: unescaped %q, want %q", c.in, got, c.text)
		}
		for room := 6; room < 20; room++ {
			if got := shortened(t, c.in, room); got != c.short {
				t.Errorf("%s: shortened %q, want %q", c.in, got, c.short)
			}
		}
	}
	if got := string(AppendUnescaped([]byte("\xff+"), []byte(`"a\n"`), Span{1, 4})); got != "\xff+a\n" {
		t.Errorf("appended: %q", got)
	}
}

// spelling draws a text and two ways to write it as JSON.
func spelling(t *rapid.T) (text, one, other string) {
	text = rapid.StringOfN(rapid.SampledFrom([]rune("abc \n\t\"\\/\x00\x1fé漢😀\ufffd")), 0, 80, -1).Draw(t, "text")
	spell := func(label string) string {
		var b strings.Builder
		for _, r := range text {
			short := string(appendEscaped(nil, r))
			switch way := rapid.IntRange(0, 3).Draw(t, label); {
			case way == 0 && r < 0x10000:
				short = fmt.Sprintf(`\u%04x`, r)
			case way == 0:
				high, low := utf16.EncodeRune(r)
				short = fmt.Sprintf(`\u%04X\u%04x`, high, low)
			case way == 1 && r == '/':
				short = `\/`
			}
			b.WriteString(short)
		}
		return b.String()
	}
	return text, spell("one"), spell("other")
}

func TestEqualTextsHaveOneShortestForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, one, other := spelling(t)
		if got := unescaped(one); got != text {
			t.Fatalf("%s: unescaped %q, want %q", one, got, text)
		}
		room := rapid.IntRange(6, 100).Draw(t, "room")
		a, b := shortened(t, one, room), shortened(t, other, 4096)
		if a != b || unescaped(a) != text {
			t.Fatalf("%s and %s: shortest %s and %s", one, other, a, b)
		}
		end, form, ok := (&scanner{b: []byte(one + `"`)}).stringEnd(0)
		if !ok || end != len(one) {
			t.Fatalf("%s: end %d, %v", one, end, ok)
		}
		if form == Plain && strings.Contains(one, `\`) || form != Escaped && one != a {
			t.Fatalf("%s: form %d, but the shortest is %s", one, form, a)
		}
		if got := AppendString(nil, text); string(got) != `"`+a+`"` {
			t.Fatalf("AppendString: %s, want %s in quotes", got, a)
		}
	})
}

// Every offset within the words that are tested at once, for every byte that may matter.
func TestStringEndAtEveryOffset(t *testing.T) {
	for n := range 100 {
		for c := range 256 {
			b := []byte(strings.Repeat("\x80\xffz", 40))[:n]
			b = append(b, byte(c))
			b = append(b, strings.Repeat("!", 40)...)
			b = append(b, `"tail"`...)
			end, form, ok := (&scanner{b: b}).stringEnd(0)
			want, wantForm, wantOK := len(b)-6, Plain, true
			switch {
			case c == '"':
				want = n
			case c == '\\':
				want, wantOK = n+1, false
			case c < 0x20:
				want, wantOK = n, false
			}
			if end != want || form != wantForm || ok != wantOK {
				t.Fatalf("byte %#x after %d others: end %d, form %d, %v; want %d, %v", c, n, end, form, ok, want, wantOK)
			}
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{``, `a\u00e9`, `\ud83d\ude00`, "\xff\\n", `\`, `\u12`} {
		f.Add([]byte(s), "x\x00\xff\"")
	}
	f.Fuzz(func(t *testing.T, b []byte, s string) {
		quoted := append(append([]byte{'"'}, b...), '"')
		var want string
		end, form, ok := (&scanner{b: quoted}).stringEnd(1)
		valid := json.Unmarshal(quoted, &want) == nil && bytes.HasPrefix(bytes.TrimSpace(quoted), []byte(`"`))
		if got := ok && end == len(b)+1; got != valid {
			t.Fatalf("%s: end %d, %v; encoding/json takes it: %v", quoted, end, ok, valid)
		}
		got := AppendUnescaped(nil, b, Span{0, len(b)})
		if valid && string(got) != want {
			t.Fatalf("%s: %q, want %q", quoted, got, want)
		}
		short := shortened(t, string(b), 6)
		if valid && (unescaped(short) != want || form != Escaped && short != string(b)) {
			t.Fatalf("%s: form %d, shortened %s", quoted, form, short)
		}

		var back string
		if err := json.Unmarshal(AppendString(nil, s), &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") && back != string([]rune(s)) {
			t.Fatalf("AppendString(%q) = %s: %q, %v", s, AppendString(nil, s), back, err)
		}
	})
}
