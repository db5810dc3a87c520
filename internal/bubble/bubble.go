// Package bubble runs tests on a clock of their own.
package bubble

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// Test is synctest.Test. Under the race detector the bubble has one processor: timers that are due at once run on several of them
// otherwise, in one context of the detector, which crashes it (golang/go#78156). What happens before what it finds out all the same.
// Tests that use it must not be parallel.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if Raced {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(t, f)
}
