package router

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"attache/indexer/events"
	"attache/indexer/events/wire"
	"attache/indexer/events/zmtp"
	"attache/internal/block"
	"attache/internal/prompt"
	"attache/internal/slot"
	"attache/internal/worker"
)

// speaker is an engine as far as its events go.
type speaker struct {
	*zmtp.Pub

	sent uint64
}

// publish sends a batch.
func (s *speaker) publish(of ...wire.DraftEvent) {
	s.Send(nil, binary.BigEndian.AppendUint64(nil, s.sent), wire.Encoder{Dialect: wire.VLLMMap}.Append(nil, wire.Draft{Events: of}))
	s.sent++
}

// followed is a world of two workers, w1 and w2, whose events are followed; both are said by the speaker. Those who ask for what
// was published before are answered that there is nothing, once ready is closed. With exact, prompts are cut into tokens.
func followed(t *testing.T, exact bool, ready <-chan struct{}) (*world, *speaker) {
	t.Helper()
	pub, err := zmtp.NewPub(zmtp.PubParams{Endpoint: "tcp://127.0.0.1:0", Config: zmtp.DefaultConfig()})
	if err != nil {
		t.Fatal(err)
	}
	router, err := zmtp.NewRouter(zmtp.RouterParams{Endpoint: "tcp://127.0.0.1:0", Config: zmtp.DefaultConfig(),
		Receive: func(c *zmtp.Caller, _ zmtp.Message) {
			<-ready
			_ = c.Send(nil, nil, []byte("\xff\xff\xff\xff\xff\xff\xff\xff"), nil)
		}})
	if err != nil {
		t.Fatal(err)
	}
	ws := workers("default", 1, worker.Ready, worker.Ready)
	for _, w := range ws {
		w.Events = worker.EventSource{Endpoint: pub.Endpoint(), Replay: router.Endpoint()}
	}
	pools := []PoolConfig{{Name: "default"}}
	if exact {
		dir, err := filepath.Abs("../demo/model")
		if err != nil {
			t.Fatal(err)
		}
		pools[0].Prompt = prompt.ModelConfig{ModelDir: dir, BlockTokens: 16}
	}
	w := newWorld(t, nil, pools, ws...)
	if err := w.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	for _, run := range []func(context.Context) error{pub.Run, router.Run, w.pools[0].ledger.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	return w, &speaker{Pub: pub}
}

// until waits for something that another goroutine does.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func (w *world) untilExact(t *testing.T) {
	t.Helper()
	p := w.pools[0]
	until(t, "the events are exact", func() bool { return p.modeOf(1) == events.Exact && p.modeOf(2) == events.Exact })
}

// closed is a channel that is.
func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// TestPromptsCutByLengthAreRemembered: an engine's blocks are matched by their tokens. Where those of a prompt are not known, its
// events say nothing about it, exact as they may be, and our own decisions are all there is.
func TestPromptsCutByLengthAreRemembered(t *testing.T) {
	w, _ := followed(t, false, closed())
	w.untilExact(t)
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

// TestPromptsThatComeTogether: all look at who holds what before the first of them is sent anywhere. Their beginning is computed
// once by each worker at most.
func TestPromptsThatComeTogether(t *testing.T) {
	w, _ := followed(t, true, closed())
	w.untilExact(t)
	shared := long("a story that all have read", 20_000)
	attempts := make([]*attempt, 8)
	for i := range attempts {
		a := &attempt{scratch: new(scratch)}
		if err := w.prepare(t.Context(), chatOf(t, "m", shared+string(rune('a'+i))), a); err != nil {
			t.Fatal(err)
		}
		a.rec = &record{router: w.Router, pool: a.pool, number: w.ids.Add(1), at: a.started}
		attempts[i] = a
	}
	computed := 0
	for _, a := range attempts {
		if err := a.pool.gate.pass(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		d := w.decide(a)
		if a.chain.Rung != prompt.Exact || len(a.chain.Hashes) < 100 {
			t.Fatalf("a prompt of %d blocks, rung %v: nothing is shown", len(a.chain.Hashes), a.chain.Rung)
		}
		if d.PredictedCached < a.chain.Tokens/2 {
			computed++
		}
	}
	if computed > 2 {
		t.Errorf("the beginning is computed %d times on 2 workers", computed)
	}
}

// TestWhatIsOnItsWayWhenEventsBecomeExact: prompts that were sent before count as held, though no event has told of them yet.
func TestWhatIsOnItsWayWhenEventsBecomeExact(t *testing.T) {
	ready := make(chan struct{})
	w, _ := followed(t, true, ready)
	p := w.pools[0]
	until(t, "both are followed", func() bool { return p.ledger.Follows(1) && p.ledger.Follows(2) })
	text := long("a story that all have read", 20_000)
	for range 2 {
		w.route(t, "m", text)
	}
	if p.modeOf(1) == events.Exact || p.modeOf(2) == events.Exact {
		t.Fatal("exact before anything was asked: nothing is shown")
	}
	close(ready)
	w.untilExact(t)
	if d := w.route(t, "m", text); d.PredictedCached < 2000 {
		t.Errorf("%d tokens predicted to be cached, of a prompt that is on its way", d.PredictedCached)
	}
}

// told counts how often it was told that all is there.
type told struct{ all int }

func (f *told) stored(_ int, all bool) {
	if all {
		f.all++
	}
}

// TestWhatWasToldIsNotOnItsWay: from the events that bring the last block of a prompt on, only events count. What the engine loses
// then is lost, before any sweep.
func TestWhatWasToldIsNotOnItsWay(t *testing.T) {
	w, engine := followed(t, true, closed())
	w.untilExact(t)
	p := w.pools[0]
	ids := make([]uint32, 4*16)
	chain := block.AppendBlocks(nil, ids, 16, block.Plain)
	early, late := new(told), new(told)
	x, y := p.flights.add(1, chain), p.flights.add(1, chain)
	p.flights.follow(x, early)
	engine.publish(wire.DraftEvent{Kind: wire.Stored, Hashes: []uint64{1, 2, 3, 4}, Tokens: ids, BlockTokens: 16, Medium: "GPU"})
	until(t, "the events have caught up", func() bool { return p.flights.count() == 0 })
	p.flights.follow(y, late)
	if early.all != 1 || late.all != 1 {
		t.Errorf("told %d and %d times that all is there, want once each", early.all, late.all)
	}
	engine.publish(wire.DraftEvent{Kind: wire.Cleared})
	until(t, "the engine has lost all", func() bool { return p.ledger.Emptied(1) == 1 })
	now := w.clock
	p.flights.end(x, now, p.ledger.Emptied(1)) // its end is heard of late
	if flying, _ := p.flights.overlap(chain, p.ledger.Emptied, 0, nil); at(flying, slot.Slot(1)) != 0 {
		t.Errorf("%d blocks are on their way that were there and are lost", at(flying, 1))
	}
}
