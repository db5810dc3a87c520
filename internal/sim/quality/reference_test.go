package quality

import (
	"testing"
	"time"

	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
)

// The reference goes where the least work is left, sees the shared cache, and never to who is down.
func TestReference(t *testing.T) {
	w := &trace.Workload{BlockTokens: 64}
	for i, prompt := range []int{8000, 1000, 1000, 1000, 1000, 100} {
		r := &trace.Request{Index: i, Prompt: prompt, Output: 1}
		w.All, w.Heads = append(w.All, r), append(w.Heads, r)
	}
	c, err := virtual.New(virtual.Config{Workers: 3, SharedCache: true}, w)
	if err != nil {
		t.Fatal(err)
	}
	r := newReference(c, w)
	if _, ok := r.Route(0, w.All[0]); ok {
		t.Error("nobody is up")
	}
	r.Up(0, 0)
	r.Up(0, 2)
	for i, want := range []int{0, 2, 2, 2, 2} { // 8000 tokens are more work than four times 1000
		if worker, ok := r.Route(0, w.All[i]); !ok || worker != want {
			t.Errorf("request %d: worker %d, want %d", i, worker, want)
		}
	}
	for _, i := range []int{2, 1, 3, 4} {
		r.FirstToken(time.Millisecond, w.All[i])
	}
	if left := r.workers[2].left(time.Second); left != 0 {
		t.Errorf("%v left on worker 2", left)
	}
	if left, whole := r.workers[0].left(time.Hour), c.Alone(0, 8000, 0); left != whole-whole*9/10 {
		t.Errorf("%v of %v left on worker 0 without a first token", left, whole)
	}
	r.Down(0, 2)
	if worker, ok := r.Route(0, w.All[5]); !ok || worker != 0 {
		t.Errorf("worker %d, want the only one that is up", worker)
	}
}
