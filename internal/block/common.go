package block

import "sort"

// Common is how many leading blocks two chains share. A hash names its block and all before it, so that bisection finds it.
func Common(a, b []Hash) int {
	n := min(len(a), len(b))
	if n == 0 || a[n-1] == b[n-1] {
		return n
	}
	return sort.Search(n, func(i int) bool { return a[i] != b[i] })
}
