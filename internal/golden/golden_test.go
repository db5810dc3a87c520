package golden

import (
	"strings"
	"testing"
)

func TestPlay(t *testing.T) {
	run := func(words []string) string {
		if words[0] == "quiet" {
			return ""
		}
		return strings.Join(words[1:], "+")
	}
	for _, c := range []struct{ name, script, want string }{
		{"what was printed before does not count", "say a b\n----\nstale\n", "say a b\n----\na+b\n"},
		{"several commands print below the last", "# why\nsay a\nquiet\nsay b\n----\n", "# why\nsay a\nquiet\nsay b\n----\na\nb\n"},
		{"nothing printed, no dashes", "quiet\n----\nstale\n\nsay c", "quiet\n\nsay c\n----\nc\n"},
		{"a comment alone stays", "# only\n\nquiet\n", "# only\n\nquiet\n"},
	} {
		if got := play(c.script, run); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
