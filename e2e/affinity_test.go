package e2e

import (
	"fmt"
	"testing"
)

const sessionHeader = "x-session-id"

// TestSoftAffinity: the requests of a session go to the worker that answered it last though they have nothing in common and it has
// more to do, and elsewhere when it is saturated.
func TestSoftAffinity(t *testing.T) {
	s := queueing("BUFFERED", 2, "")
	s.config = "router:\n  max_in_flight: 4\n  affinity: {mode: soft}\n"
	r := start(t, s)
	mine := map[string]string{sessionHeader: "mine"}
	home := r.must(chatRequest{prompt: words("first", 4_000), header: mine}).engine
	for i := range 3 {
		r.hold(mine)
		r.eventually("what the session holds is where it began", func() bool { return r.inFlight(home) == i+1 })
		if a := r.must(chatRequest{prompt: words(fmt.Sprint("turn ", i), 4_000), header: mine}); a.engine != home {
			t.Fatalf("turn %d was answered by %s, the session began on %s", i, a.engine, home)
		}
	}
	r.eventually("the last turn is over", func() bool { return r.inFlight(home) == 3 })
	r.hold(mine) // the fourth
	r.eventually("the worker is saturated", func() bool { return r.inFlight(home) == 4 })
	if a := r.must(chatRequest{prompt: words("last", 4_000), header: mine}); a.engine == home {
		t.Errorf("answered by %s, which is saturated", home)
	}
	if n := r.metric(`attache_router_sessions{pool="default"}`); n != 1 {
		t.Errorf("%v sessions are bound, want one", n)
	}
	r.must(chatRequest{prompt: "bye", header: map[string]string{sessionHeader: "mine", "x-dynamo-session-final": "true"}})
	if n := r.metric(`attache_router_sessions{pool="default"}`); n != 0 {
		t.Errorf("%v sessions are bound after the last request", n)
	}
}

// TestHardAffinity: the requests of a session wait for the worker that answered it last, and hold up nobody else.
func TestHardAffinity(t *testing.T) {
	r := start(t, queueing("BUFFERED", 2, "  affinity: {mode: hard}\n"+longQueue))
	mine := map[string]string{sessionHeader: "mine"}
	home := r.must(chatRequest{prompt: words("first", 4_000), header: mine}).engine
	release := r.hold(mine)
	r.eventually("the session goes on where it began", func() bool { return r.inFlight(home) == 1 })
	waits := r.queue(chatRequest{prompt: words("second", 4_000), header: mine})
	for i := range 3 {
		if a := r.must(chatRequest{prompt: words(fmt.Sprint("other ", i), 4_000)}); a.engine == home {
			t.Errorf("another request was answered by %s, which is saturated", home)
		}
	}
	release()
	if a := waits.served(r); a.engine != home {
		t.Errorf("answered by %s, the session began on %s", a.engine, home)
	}
	// A worker that is gone keeps nobody.
	r.engine(home).Kill()
	r.eventually("the session goes on elsewhere", func() bool {
		a, err := r.chat(t.Context(), chatRequest{prompt: "and on", header: mine})
		return err == nil && a.status == 200 && a.engine != home
	})
}
