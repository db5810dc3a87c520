package prompt

import "testing"

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name    string
		script  string // a count that agrees: ".", one that differs: "x"
		trusted bool
		changes int
	}{
		{"nothing seen", "", true, 0},
		{"all agree", "....................", true, 0},
		{"a few differ before much was seen", "xxxxxxxxx", true, 0},
		{"all differ", "xxxxxxxxxx", false, 1},
		{"one of ten, as allowed", ".........x.........x", true, 0},
		{"three of twenty", "...............xxx..", false, 1},
		{"agreement must last", "xxxxxxxxxx" + dots(63), false, 1},
		{"and then it is trusted again", "xxxxxxxxxx" + dots(64), true, 2},
		{"what is long past does not count", "x" + dots(64) + "......x", true, 0},
		{"and it may be lost again", "xxxxxxxxxx" + dots(64) + "xxxxxxx", false, 3},
	} {
		check := Check{Bound: 0.1}
		changes := 0
		for _, s := range c.script {
			if check.Observe(100, map[rune]int{'.': 100, 'x': 99}[s]) {
				changes++
			}
		}
		if check.Trusted() != c.trusted || changes != c.changes {
			t.Errorf("%s: trusted %v after %d changes, want %v after %d", c.name, check.Trusted(), changes, c.trusted, c.changes)
		}
	}
}

func dots(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = '.'
	}
	return string(b)
}
