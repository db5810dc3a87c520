package router

import (
	"context"
	"sync"
	"testing"
	"time"

	"attache/indexer/events"
	"attache/indexer/events/zmtp"
	"attache/internal/worker"
)

// TestPromptsCutByLengthAreRemembered: an engine's blocks are matched by their tokens. Where those of a prompt are not known, its
// events say nothing about it, exact as they may be, and our own decisions are all there is.
func TestPromptsCutByLengthAreRemembered(t *testing.T) {
	pub, err := zmtp.NewPub(zmtp.PubParams{Endpoint: "tcp://127.0.0.1:0", Config: zmtp.DefaultConfig()})
	if err != nil {
		t.Fatal(err)
	}
	router, err := zmtp.NewRouter(zmtp.RouterParams{Endpoint: "tcp://127.0.0.1:0", Config: zmtp.DefaultConfig(),
		Receive: func(c *zmtp.Caller, _ zmtp.Message) {
			_ = c.Send(nil, nil, []byte("\xff\xff\xff\xff\xff\xff\xff\xff"), nil)
		}})
	if err != nil {
		t.Fatal(err)
	}
	ws := workers("default", 1, worker.Ready, worker.Ready)
	for _, w := range ws {
		w.Events = worker.EventSource{Endpoint: pub.Endpoint(), Replay: router.Endpoint()}
	}
	w := newWorld(t, nil, nil, ws...)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, run := range []func(context.Context) error{pub.Run, router.Run, w.pools[0].ledger.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	for end := time.Now().Add(20 * time.Second); w.pools[0].modeOf(1) != events.Exact || w.pools[0].modeOf(2) != events.Exact; {
		if time.Sleep(time.Millisecond); time.Now().After(end) {
			t.Fatal("the events are never exact")
		}
	}
	text := long("a system prompt", 20_000)
	d := w.route(t, "m", text)
	d.Done.End()
	w.pools[0].flights.sweep(w.pools[0].ledger, w.clock.Add(time.Minute), time.Second)
	if again := w.route(t, "m", text); first(again) != first(d) || again.PredictedCached < 4000 {
		t.Errorf("first to %s, then to %s with %d tokens predicted to be cached", first(d), first(again), again.PredictedCached)
	}
	if n := w.pools[0].flights.count(); n != 0 {
		t.Errorf("%d prompts are watched whose blocks no engine will name", n)
	}
}
