package chaos

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"attache/indexer/events"
	"attache/internal/sim"
)

// fault is something that goes wrong. do is given a generator of its own, and returns when the fault is over.
type fault struct {
	name string
	fits func(*node) bool // nil: every node
	do   func(*world, context.Context, *node, *rand.Rand)
	turn bool // needs the node's turn
}

func published(n *node) bool { return !n.pulled() }
func replays(n *node) bool   { return n.replay }
func twoRanks(n *node) bool  { return n.ranks == 2 && !n.pulled() }

// faults are dealt like cards, so that none waits for long.
var faults = []fault{
	{name: "drop", fits: published, do: func(_ *world, _ context.Context, n *node, rng *rand.Rand) {
		n.spoil(sim.EventFault{Mode: sim.EventDrop, Count: 1 + rng.IntN(3)})
	}},
	{name: "drop for a while", do: func(_ *world, _ context.Context, n *node, rng *rand.Rand) {
		if n.pulled() {
			n.stain()
		}
		n.spoil(sim.EventFault{Mode: sim.EventDrop, For: between(rng, 50, 400)})
	}},
	{name: "lose", do: func(_ *world, _ context.Context, n *node, rng *rand.Rand) {
		n.stain()
		n.spoil(sim.EventFault{Mode: sim.EventLose, Count: 1 + rng.IntN(2)})
	}},
	{name: "duplicate", fits: published, do: func(_ *world, _ context.Context, n *node, rng *rand.Rand) {
		n.spoil(sim.EventFault{Mode: sim.EventDuplicate, Count: 1 + rng.IntN(3)})
	}},
	{name: "reorder", fits: published, do: func(_ *world, _ context.Context, n *node, rng *rand.Rand) {
		n.spoil(sim.EventFault{Mode: sim.EventReorder, Count: 1 + rng.IntN(3)})
	}},
	{name: "block size", fits: published, do: func(_ *world, _ context.Context, n *node, rng *rand.Rand) {
		n.stain()
		n.spoil(sim.EventFault{Mode: sim.EventBlockSize, For: between(rng, 20, 300), BlockTokens: []int{0, 0, 24, 1}[rng.IntN(4)]})
	}},
	{name: "slow replay", fits: replays, do: func(_ *world, _ context.Context, n *node, rng *rand.Rand) {
		n.spoil(sim.EventFault{Mode: sim.EventSlowReplay, For: between(rng, 200, 600), Delay: between(rng, 5, 100)})
		n.cut()
	}},
	{name: "slow replay of a gap", fits: replays, do: func(_ *world, _ context.Context, n *node, rng *rand.Rand) {
		n.spoil(sim.EventFault{Mode: sim.EventSlowReplay, For: between(rng, 200, 600), Delay: between(rng, 5, 100)})
		n.spoil(sim.EventFault{Mode: sim.EventDrop, Count: 1})
	}},
	{name: "no replay", fits: replays, do: func(_ *world, _ context.Context, n *node, rng *rand.Rand) {
		n.spoil(sim.EventFault{Mode: sim.EventNoReplay, For: between(rng, 300, 1500)})
		if rng.IntN(2) == 0 {
			n.cut()
		} else {
			n.spoil(sim.EventFault{Mode: sim.EventDrop, Count: 2})
		}
	}},
	{name: "last batches dropped", fits: replays, do: func(_ *world, ctx context.Context, n *node, rng *rand.Rand) {
		n.spoil(sim.EventFault{Mode: sim.EventDrop, For: 300 * time.Millisecond})
		pause(ctx, 250*time.Millisecond)
		n.quiet.Add(1)
		defer n.quiet.Add(-1)
		pause(ctx, between(rng, 300, 1500)) // longer than silent engines are left alone, or not
	}},
	{name: "no replay, then a slow one", fits: replays, do: func(_ *world, ctx context.Context, n *node, rng *rand.Rand) {
		n.spoil(sim.EventFault{Mode: sim.EventNoReplay, Count: 1 + rng.IntN(2)})
		n.spoil(sim.EventFault{Mode: sim.EventDrop, Count: 1})
		pause(ctx, 300*time.Millisecond)
		n.quiet.Add(1)
		defer n.quiet.Add(-1)
		n.spoil(sim.EventFault{Mode: sim.EventSlowReplay, For: 1500 * time.Millisecond, Delay: between(rng, 5, 30)})
		pause(ctx, between(rng, 500, 1500))
	}},
	{name: "silence", turn: true, do: (*world).silence},
	{name: "restart", turn: true, do: func(w *world, _ context.Context, n *node, rng *rand.Rand) {
		pauseUnless(rng, func() { n.restart() })
		n.flap()
		w.tell()
	}},
	{name: "restart unseen by health", turn: true, do: func(_ *world, _ context.Context, n *node, _ *rand.Rand) { n.restart() }},
	{name: "two restarts", turn: true, do: func(_ *world, ctx context.Context, n *node, rng *rand.Rand) {
		n.restart()
		pause(ctx, between(rng, 0, 300))
		n.restart()
	}},
	{name: "restart in a replay", fits: replays, turn: true, do: func(_ *world, ctx context.Context, n *node, rng *rand.Rand) {
		n.spoil(sim.EventFault{Mode: sim.EventSlowReplay, For: 500 * time.Millisecond, Delay: between(rng, 5, 50)})
		n.cut()
		pause(ctx, between(rng, 50, 400))
		n.restart()
	}},
	{name: "restart behind a stall", turn: true, do: func(_ *world, ctx context.Context, n *node, rng *rand.Rand) {
		over := n.stall(rng)
		n.restart()
		pause(ctx, between(rng, 50, 1200))
		over()
	}},
	{name: "flap", do: func(w *world, _ context.Context, n *node, _ *rand.Rand) {
		n.flap()
		w.tell()
	}},
	{name: "reset", do: func(_ *world, _ context.Context, n *node, _ *rand.Rand) {
		e, _ := n.running()
		e.Reset()
	}},
	{name: "cut", do: func(_ *world, _ context.Context, n *node, rng *rand.Rand) {
		if n.pulled() {
			n.stain() // what was on its way is lost
		}
		for _, p := range n.proxies() {
			if rng.IntN(3) > 0 {
				p.cut()
			}
		}
	}},
	{name: "stall", do: func(_ *world, ctx context.Context, n *node, rng *rand.Rand) {
		if n.pulled() {
			n.stain()
		}
		over := n.stall(rng)
		pause(ctx, between(rng, 100, 1500))
		if rng.IntN(2) == 0 {
			n.cut()
		}
		over()
	}},
	{name: "slow connection", do: func(_ *world, ctx context.Context, n *node, rng *rand.Rand) {
		if n.pulled() {
			n.stain()
		}
		for _, p := range n.proxies() {
			p.slow.Add(1)
			defer p.slow.Add(-1)
		}
		pause(ctx, between(rng, 200, 1500))
	}},
	{name: "ranks swapped", fits: twoRanks, turn: true, do: (*world).swap},
	{name: "other rank count", fits: twoRanks, turn: true, do: (*world).replace},
	{name: "removed and added", turn: true, do: func(w *world, ctx context.Context, n *node, rng *rand.Rand) {
		if n.pulled() {
			n.stain() // what the one before pulled is lost for the next
		}
		w.retire(n, func() { pause(ctx, between(rng, 0, 300)) })
	}},
	{name: "gateway restarted", do: func(_ *world, ctx context.Context, n *node, rng *rand.Rand) { n.gateway.restart(ctx, rng) }},
	{name: "replaced under its slot", fits: func(n *node) bool { return published(n) && n.ring == 0 }, turn: true,
		do: func(w *world, _ context.Context, n *node, _ *rand.Rand) {
			// The worker keeps its slot and gets other ports: another source.
			w.collect(n)
			n.mu.Lock()
			n.pub[0], n.router[0], n.pub[1], n.router[1] = n.router[0], n.pub[0], n.router[1], n.pub[1]
			n.mu.Unlock()
			n.lead(0, 1)
			n.cut()
			w.tell()
		}},
}

func between(rng *rand.Rand, least, most int) time.Duration {
	return time.Duration(least+rng.IntN(most-least+1)) * time.Millisecond
}

// pauseUnless runs f with a pause before or not.
func pauseUnless(rng *rand.Rand, f func()) {
	if rng.IntN(2) == 0 {
		time.Sleep(between(rng, 1, 30))
	}
	f()
}

// spoil sets a fault of the engine's events.
func (n *node) spoil(f sim.EventFault) {
	e, _ := n.running()
	e.SetEventFault(f)
}

// flap has the registry believe that the engine's process changed.
func (n *node) flap() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.epoch++
}

// stall holds some of the node's connections up.
func (n *node) stall(rng *rand.Rand) (over func()) {
	var held []*proxy
	for _, p := range n.proxies() {
		if rng.IntN(3) > 0 {
			p.stalled.Add(1)
			held = append(held, p)
		}
	}
	return func() {
		for _, p := range held {
			p.stalled.Add(-1)
		}
	}
}

// silence lets an engine store blocks of which it does not tell, until the feed has seen through it; then the engine is restarted,
// as its operator would do.
func (w *world) silence(ctx context.Context, n *node, rng *rand.Rand) {
	over := n.hide()
	n.spoil(sim.EventFault{Mode: sim.EventSilence, For: 2500 * time.Millisecond})
	for range 25 {
		pause(ctx, 100*time.Millisecond)
		for _, s := range n.feeds() {
			if s.State == events.Stale && strings.Contains(s.Reason, "no events come") {
				w.tally.add("seen: silent", 1)
				n.spoil(sim.EventFault{Mode: sim.EventSilence, For: time.Nanosecond})
			}
		}
		if ctx.Err() != nil {
			n.spoil(sim.EventFault{Mode: sim.EventSilence, For: time.Nanosecond})
		}
	}
	over()
	n.restart()
}

// swap lets an engine come back with its ranks' ports exchanged, and after a while as they were.
func (w *world) swap(ctx context.Context, n *node, rng *rand.Rand) {
	e, _ := n.running()
	if at, _ := e.Endpoints(1); at == "" {
		return // it has one rank at the moment
	}
	n.restart()
	n.lead(1, 0)
	n.cut()
	for range 3 + rng.IntN(10) {
		pause(ctx, 100*time.Millisecond)
		for _, s := range n.feeds() {
			if s.State == events.Stale && strings.Contains(s.Reason, "data-parallel rank") {
				w.tally.add("seen: refused", 1)
			}
		}
	}
	n.lead(0, 1)
	n.cut()
}

// replace puts an engine with another number of ranks in the place of one; the registry learns of it sooner or later.
func (w *world) replace(ctx context.Context, n *node, rng *rand.Rand) {
	e, _ := n.running()
	ranks := 2
	if at, _ := e.Endpoints(1); at != "" {
		ranks = 1
	}
	n.stop()
	n.cut()
	n.start(w.t, ranks)
	if rng.IntN(2) == 0 {
		pause(ctx, between(rng, 10, 600))
	}
	w.collect(n)
	n.mu.Lock()
	n.shown = ranks
	n.epoch++
	n.mu.Unlock()
	w.tell()
}

// retire takes a worker from the registry and brings it back.
func (w *world) retire(n *node, meanwhile func()) {
	set := func(present bool) {
		n.mu.Lock()
		n.present = present
		n.mu.Unlock()
		w.tell()
	}
	w.collect(n)
	set(false)
	meanwhile()
	set(true)
}

// collect counts what the feeds of a node did, before they end.
func (w *world) collect(n *node) {
	for _, s := range n.feeds() {
		w.tally.feed(s)
	}
}

// wreak deals faults until ctx ends, and waits for those under way. Every other fault is given time to show what it does; the rest
// meet others.
func (w *world) wreak(ctx context.Context, rng *rand.Rand, pace time.Duration) {
	var going sync.WaitGroup
	defer going.Wait()
	left := make([]time.Time, len(w.nodes)) // when each may be struck again
	for ctx.Err() == nil {
		for _, i := range rng.Perm(len(faults)) {
			f, mine := faults[i], rand.New(rand.NewPCG(rng.Uint64(), 0))
			pause(ctx, time.Duration(rng.Int64N(int64(2*pace))))
			if ctx.Err() != nil {
				return
			}
			var fitting, free []*node
			for _, n := range w.nodes {
				if f.fits == nil || f.fits(n) {
					if fitting = append(fitting, n); time.Now().After(left[n.number]) {
						free = append(free, n)
					}
				}
			}
			if len(free) > 0 {
				fitting = free
			}
			n := fitting[rng.IntN(len(fitting))]
			if peace := between(rng, 0, 2500); rng.IntN(2) == 0 {
				left[n.number] = time.Now().Add(peace)
			}
			going.Go(func() { w.strike(ctx, f, n, mine) })
		}
	}
}

// strike lets one fault happen.
func (w *world) strike(ctx context.Context, f fault, n *node, rng *rand.Rand) {
	if f.turn {
		if !n.turn.TryLock() {
			w.tally.add("passed over: "+f.name, 1)
			return
		}
		defer n.turn.Unlock()
	}
	n.log.Info("FAULT", "name", f.name)
	w.tally.add("fault: "+f.name, 1)
	f.do(w, ctx, n, rng)
	n.log.Info("FAULT over", "name", f.name)
}
