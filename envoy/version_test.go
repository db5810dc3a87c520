package envoy

import (
	"strings"
	"testing"
)

func TestParseVersion(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     Version
	}{
		{"the oldest that works", "1.38", 38},
		{"one in between", "1.39", 39},
		{"the newest known", "1.40", 40},
		{"the patch does not matter", "1.39.3", 39},
		{"as tags are written", "v1.40.0", 40},
		{"as builds between releases call themselves", "1.40.1-dev", 40},
		{"a newer one gets what the newest known gets", "1.41.0", 40},
		{"a much newer one, too", "1.100", 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseVersion(c.in)
			if err != nil || got != c.want {
				t.Errorf("ParseVersion(%q) = %d, %v; want %d", c.in, got, err, c.want)
			}
		})
	}
}

func TestParseVersionRefuses(t *testing.T) {
	const (
		tooOld    = "Envoy 1.38 is the oldest that works: older ones do not report who served"
		noVersion = "must be an Envoy version such as 1.40"
	)
	for _, c := range []struct{ name, in, why string }{
		{"the last that is too old", "1.37.9", tooOld},
		{"1.4 is not 1.40", "1.4", tooOld},
		{"nothing", "", noVersion},
		{"a minor version alone", "40", noVersion},
		{"a major version alone", "1", noVersion},
		{"a major version and a dot", "1.", noVersion},
		{"another major version", "2.40", noVersion},
		{"a name", "latest", noVersion},
		{"a minor version that is a name", "1.latest", noVersion},
		{"two prefixes", "vv1.40", noVersion},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseVersion(c.in)
			if err == nil {
				t.Fatalf("ParseVersion(%q) = %d; want an error", c.in, got)
			}
			// The value stands in front: whoever reads the message sees what was taken for a version.
			if want := `"` + c.in + `": ` + c.why; err.Error() != want || got != 0 {
				t.Errorf("ParseVersion(%q) = %d, %q; want 0, %q", c.in, got, err, want)
			}
		})
	}
}

// What is printed is what is read, for every version that is supported, and for no older one.
func TestVersionsReadBack(t *testing.T) {
	if Oldest.String() != "1.38" || Newest.String() != "1.40" {
		t.Errorf("oldest %s, newest %s; want 1.38 and 1.40", Oldest, Newest)
	}
	for v := Oldest; v <= Newest; v++ {
		if got, err := ParseVersion(v.String()); err != nil || got != v {
			t.Errorf("ParseVersion(%q) = %d, %v; want %d", v, got, err, v)
		}
	}
	if _, err := ParseVersion((Oldest - 1).String()); err == nil || !strings.Contains(err.Error(), Oldest.String()) {
		t.Errorf("the version before the oldest: %v; want an error that names %s", err, Oldest)
	}
	if got, err := ParseVersion((Newest + 1).String()); err != nil || got != Newest {
		t.Errorf("the version after the newest: %d, %v; want %d", got, err, Newest)
	}
}
