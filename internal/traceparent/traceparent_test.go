package traceparent

import (
	"regexp"
	"strings"
	"testing"
)

const example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        string // as String writes it; "" ignored
		sampled     bool
	}{
		{"the specification's example", example, example, true},
		{"not sampled", example[:53] + "00", example[:53] + "00", false},
		{"other flags", example[:53] + "fe", example[:53] + "fe", false},
		{"a later version", "01" + example[2:], example, true},
		{"a later version with more", "cc" + example[2:] + "-what-ever", example, true},
		{"a later version with something else behind", "cc" + example[2:] + ".what", "", false},
		{"nothing", "", "", false},
		{"cut short", example[:54], "", false},
		{"version 00 with more", example + "-01", "", false},
		{"version ff", "ff" + example[2:], "", false},
		{"capitals", strings.ToUpper(example), "", false},
		{"no trace", "00-" + strings.Repeat("0", 32) + example[35:], "", false},
		{"no span", example[:36] + strings.Repeat("0", 16) + "-01", "", false},
		{"another separator", strings.ReplaceAll(example, "-", "_"), "", false},
		{"no digits", "00-" + strings.Repeat("g", 32) + example[35:], "", false},
	} {
		p, ok := Parse([]byte(c.value))
		if ok != (c.want != "") || p.String() != c.want || p.Sampled() != c.sampled || p.Valid() != ok {
			t.Errorf("%s: %q, sampled %v, %v; want %q, %v", c.name, p, p.Sampled(), ok, c.want, c.sampled)
		}
	}
}

// form is what the specification says of a value, as a regular expression.
var form = regexp.MustCompile(`^(?:00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})|([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-(?s:.*))?)$`)

func allowed(value string) bool {
	m := form.FindStringSubmatch(value)
	if m == nil || m[4] == "ff" || m[4] == "00" {
		return false
	}
	return strings.Trim(m[1]+m[5], "0") != "" && strings.Trim(m[2]+m[6], "0") != ""
}

// FuzzParse checks the reader against the regular expression, and that what is read can be written and read again.
func FuzzParse(f *testing.F) {
	for _, value := range []string{example, "cc" + example[2:] + "-x", "ff" + example[2:], example + "-", "", "00-0", strings.ToUpper(example)} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		p, ok := Parse(value)
		if ok != allowed(string(value)) {
			t.Fatalf("%q: read %v, want %v", value, ok, !ok)
		}
		if !ok {
			if p != (Parent{}) {
				t.Fatalf("%q: ignored, but left %+v", value, p)
			}
			return
		}
		if again, ok := Parse([]byte(p.String())); !ok || again != p {
			t.Fatalf("%q: written as %q, which reads as %+v", value, p, again)
		}
	})
}

func TestParseAllocatesNothing(t *testing.T) {
	value := []byte(example)
	if n := testing.AllocsPerRun(100, func() { Parse(value) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
