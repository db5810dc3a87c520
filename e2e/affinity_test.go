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

// pinsCount skips the test where workers cannot be named: what is named must exist then.
func (r *rig) pinsCount() {
	r.t.Helper()
	a, err := r.chat(r.t.Context(), chatRequest{prompt: "hello", header: map[string]string{workerHeader: "nobody"}})
	if err != nil {
		r.t.Fatal(err)
	}
	if a.status == 200 {
		r.t.Skip("workers that requests name are not heeded")
	}
}

const workerHeader = "x-dynamo-worker-instance-id"

// TestWaitingForOneWorker: requests that name their worker wait for that one, and hold up nobody else.
func TestWaitingForOneWorker(t *testing.T) {
	r := start(t, queueing("BUFFERED", 2, longQueue))
	r.pinsCount()
	const home = "engine-0"
	there := map[string]string{workerHeader: home}
	release := r.hold(there)
	r.eventually("the worker is saturated", func() bool { return r.inFlight(home) == 1 })
	waits := r.queue(chatRequest{prompt: "waits", header: there})
	for range 3 {
		if a := r.must(chatRequest{prompt: "anywhere"}); a.engine == home {
			t.Errorf("another request was answered by %s, which is saturated", home)
		}
	}
	release()
	if a := waits.served(r); a.engine != home {
		t.Errorf("answered by %s, the request named %s", a.engine, home)
	}
}

// TestTheRankThatIsAskedFor: a request that names a data-parallel rank is computed there.
func TestTheRankThatIsAskedFor(t *testing.T) {
	r := start(t, setup{mode: "ads", engines: 1, engineArgs: []string{"--ranks", "2"}, extproc: "  hints: {trust: [all]}\n"})
	r.pinsCount()
	r.eventually("the engine's ranks are known", func() bool {
		a, err := r.chat(t.Context(), chatRequest{prompt: "hello", header: map[string]string{"x-dynamo-dp-rank": "1"}})
		return err == nil && a.status == 200
	})
	for i := range 6 {
		rank := fmt.Sprint(i % 2)
		a := r.must(chatRequest{prompt: words(fmt.Sprint("turn ", i), 2_000), header: map[string]string{"x-dynamo-dp-rank": rank}})
		if got := a.header.Get("x-sim-rank"); got != rank {
			t.Errorf("turn %d was computed by rank %s, want %s", i, got, rank)
		}
	}
}
