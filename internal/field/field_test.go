package field

import (
	"strings"
	"testing"
)

func TestCheckerKeepsOrderAndPaths(t *testing.T) {
	var inner Checker
	inner.Check(true, "fine", 1, "never seen")
	inner.Check(false, "block_size", 0, "must be above 0 tokens")
	inner.Check(false, "[1].name", "", "must not be empty")
	var outer Checker
	outer.Under("pools[0]", inner.Err())
	outer.Check(false, "listen", ":x", "must be host:port")

	var got []string
	for _, e := range All(outer.Err()) {
		got = append(got, e.Error())
	}
	want := `pools[0].block_size: 0: must be above 0 tokens
pools[0][1].name: "": must not be empty
listen: ":x": must be host:port`
	if strings.Join(got, "\n") != want {
		t.Errorf("errors:\n%s\nwant:\n%s", strings.Join(got, "\n"), want)
	}
	if err := new(Checker).Err(); err != nil {
		t.Errorf("an empty checker reports %v", err)
	}
}

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Bytes
		out  string
	}{
		{"0", 0, "0B"}, {"65536", 64 * KiB, "64KiB"}, {"16MiB", 16 * MiB, "16MiB"}, {"1 GiB", GiB, "1GiB"},
		{"1500B", 1500, "1500B"}, {"1048576", MiB, "1MiB"},
	} {
		got, err := ParseBytes(c.in)
		if err != nil || got != c.want || got.String() != c.out {
			t.Errorf("ParseBytes(%q) = %d (%s), %v; want %d (%s)", c.in, got, got, err, c.want, c.out)
		}
	}
	for _, bad := range []string{"", "x", "-1", "16MB", "1.5GiB", "99999999999GiB"} {
		if _, err := ParseBytes(bad); err == nil || !strings.Contains(err.Error(), "512KiB") {
			t.Errorf("ParseBytes(%q): error %v does not show what is understood", bad, err)
		}
	}
}
