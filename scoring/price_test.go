package scoring

import (
	"math"
	"testing"

	"attache/internal/block"
)

// TestPrice has what a request does to a cache of 1000 blocks worked out by hand. Its prompt is 100 blocks and its answer, as all
// answers, 300 tokens, that is 18 blocks more. Blocks that were asked for a minute ago were asked for twice, all of them: the uses
// of then count exp(-60/600) now, so that of a block that has waited for 20 s
//
//	h = 1 / (1 + exp(-0.1)) = 0.525
//
// and of one that has waited for longer than a minute nothing is expected.
func TestPrice(t *testing.T) {
	const now, young, old = 660.0, 640.0, 100.0
	h := 1 / (1 + math.Exp(-.1))
	for _, c := range []struct {
		name        string
		capacity    int     // blocks; 0 not known
		held        int     // blocks, as the engine says; 0 not known
		idle        []layer // oldest first
		active      int     // blocks that requests hold
		running     int     // requests
		shared      int     // leading blocks of the prompt that they hold
		cached      int     // leading blocks of the prompt that are there
		evicted     float64 // blocks
		roomSeconds float64
	}{
		{name: "size not known", idle: []layer{{young, 5000}}, active: 5000, running: 50},
		{name: "empty", capacity: 1000},
		{name: "room for the prompt", capacity: 1000, idle: []layer{{young, 900}}},
		{name: "full of old blocks that nobody asks for again", capacity: 1000, idle: []layer{{old, 1000}}},
		{name: "full of blocks that come again every minute", capacity: 1000, idle: []layer{{young, 1000}}, evicted: 100 * h},
		{name: "room for half of the prompt", capacity: 1000, idle: []layer{{young, 950}}, evicted: 50 * h},
		{name: "the old ones go first", capacity: 1000, idle: []layer{{old, 40}, {young, 960}}, evicted: 60 * h},
		{name: "more than there can be: the oldest are gone", capacity: 1000, idle: []layer{{old, 500}, {young, 1000}}, evicted: 100 * h},
		{name: "requests hold the rest", capacity: 1000, idle: []layer{{young, 1000}}, active: 300, running: 3, evicted: 100 * h},
		{name: "what is there needs no room", capacity: 1000, idle: []layer{{young, 1000}}, cached: 60, evicted: 40 * h},
		{name: "all is there", capacity: 1000, idle: []layer{{young, 1000}}, cached: 100},
		{name: "the engine knows better: it has room", capacity: 1000, held: 900, idle: []layer{{young, 1000}}},
		{name: "the engine knows better: half of it", capacity: 1000, held: 950, idle: []layer{{young, 1000}}, evicted: 50 * h},
		{name: "the engine counts more than there can be", capacity: 1000, held: 1100, idle: []layer{{young, 1000}}, evicted: 100 * h},
		// 1000*0.95 blocks are used without waiting, and of what is missing a request's residence of 4 s frees its share.
		// 900 + 100 + (9+1)*300/16 + 9 + 1 = 1197: 247 are missing.
		{name: "running requests fill it", capacity: 1000, active: 900, running: 9, roomSeconds: 4 * 247. / 1000},
		{name: "what is shared needs no room", capacity: 1000, active: 900, running: 9, shared: 50, cached: 50, roomSeconds: 4 * 197. / 1000},
		// 700 + 100 + 8*300/16 + 7 + 1 = 958: 8 are missing. 690: none.
		{name: "nearly full", capacity: 1000, active: 700, running: 7, roomSeconds: 4 * 8. / 1000},
		{name: "just not full", capacity: 1000, active: 690, running: 7},
	} {
		s, _ := newScorer(t, DefaultConfig())
		again := sampledChain(1000)
		s.reuse.ask(again, s.reuse.sample(again), 600)
		s.reuse.ask(again, s.reuse.sample(again), now)
		l := s.loadOf(0)
		for _, i := range c.idle {
			l.idle.add(i.at, i.blocks)
		}
		l.ActiveBlocks, l.InFlight, l.OutputTokens, l.SharedBlocks = c.active, c.running, c.running*assumedOutput, c.shared
		l.EvictionBlocks, l.RoomSeconds = 77, 77 // of an earlier request
		candidate := Candidate{KVCapacityTokens: 16 * c.capacity, KVHeldTokens: 16 * c.held, CachedTokens: 16 * c.cached}
		need := s.needOf(ask(1600))
		s.price(&need, &candidate, now)
		if !near(l.EvictionBlocks, c.evicted, 1e-9) || !near(l.RoomSeconds, c.roomSeconds, 1e-9) {
			t.Errorf("%s: %v blocks will be missed and room comes in %v s, want %v and %v",
				c.name, l.EvictionBlocks, l.RoomSeconds, c.evicted, c.roomSeconds)
		}
	}
}

// TestPriceDecides: of two slots that are full alike, the one whose blocks nobody asks for any more is chosen.
func TestPriceDecides(t *testing.T) {
	s, c := newScorer(t, DefaultConfig())
	const size = 200 // blocks
	given := candidates(2)
	for i := range given {
		given[i].KVCapacityTokens = 16 * 4 * size
	}
	request := func(chain []block.Hash, among []Candidate) {
		d := ask(16 * len(chain))
		d.Chain, d.OutputTokens = chain, 1
		_, b := pick(s, d, among)
		c.wait(.5)
		b.End()
	}
	all := sampledChain(10 * size)
	prompt := func(i int) []block.Hash { return all[i*size:][:size] }
	for i := range 4 { // once, on slot 0
		request(prompt(i), given[:1])
	}
	c.wait(600)
	for range 10 { // again and again, on slot 1
		c.wait(60)
		for i := 4; i < 8; i++ {
			request(prompt(i), given[1:])
		}
	}
	c.wait(10)
	ranked := s.Explain(&Demand{PromptTokens: 16 * size, BlockTokens: 16, Chain: prompt(8)}, given, nil)
	if ranked[0].Slot != 0 || ranked[0].Terms.Total >= ranked[1].Terms.Total {
		t.Errorf("blocks that come again every minute make room for a prompt: %v, %v", ranked[0].Terms, ranked[1].Terms)
	}
}
