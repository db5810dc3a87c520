package block

import (
	"testing"

	"pgregory.net/rapid"
)

// TestCommon compares with looking at every block.
func TestCommon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chain := func(name string, from []Hash) []Hash {
			made := append([]Hash(nil), from...)
			for _, local := range rapid.SliceOfN(rapid.Uint64Range(1, 2), 0, 9).Draw(t, name) {
				parent := Hash(0)
				if len(made) > 0 {
					parent = made[len(made)-1]
				}
				made = append(made, Next(parent, local, len(made) == 0))
			}
			return made
		}
		shared := chain("shared", nil)
		a, b := chain("a", shared), chain("b", shared)
		want := 0
		for want < min(len(a), len(b)) && a[want] == b[want] {
			want++
		}
		if got := Common(a, b); got != want {
			t.Fatalf("%d blocks in common, want %d", got, want)
		}
	})
}
