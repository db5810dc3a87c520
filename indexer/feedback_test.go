package indexer

import (
	"slices"
	"testing"
	"time"

	"attache/internal/slot"
)

// talk is a slot of 1000 blocks, full of ten prompts of 100 that came 10 s after one another: the first is the oldest.
func talk(t *testing.T, capacity int) (x *Index, c *clock, prompts [][]uint64) {
	t.Helper()
	x, c = newIndex(t, Config{DefaultCapacity: capacity, MaxBlocks: 1 << 20})
	for i := range 10 {
		prompts = append(prompts, chainOf(uint64(i), 100))
		x.Remember(0, prompts[i])
		c.Time = c.Add(10 * time.Second)
	}
	return x, c, prompts
}

// TestOddReport has a request that went around the cache, with a prompt sent lately: it claims that next to nothing is held.
func TestOddReport(t *testing.T) {
	x, _, prompts := talk(t, 1000)
	x.Correct(x.Remember(0, prompts[9]), 0)
	if blocks, learnt := x.Capacity(0); blocks < 900 || !learnt {
		t.Errorf("after one odd report capacity %d (learnt: %v), want 900 or more", blocks, learnt)
	}
	if got := x.Held(0); got < 900 {
		t.Errorf("after one odd report %d blocks held, want 900 or more", got)
	}
}

// TestThreeReports says thrice in a row that blocks are gone, or are there, just beyond what the engine has room for.
func TestThreeReports(t *testing.T) {
	for name, test := range map[string]struct{ assumed, room int }{"too high": {1000, 250}, "too low": {250, 1000}} {
		t.Run(name, func(t *testing.T) {
			tab := newTable(Config{DefaultCapacity: test.assumed, MaxBlocks: 1 << 20})
			id := tab.ownerOf(0)
			for i := range 3 {
				if test.room > test.assumed {
					tab.grow(id, test.room)
					continue
				}
				l := loss{owner: id, birth: tab.taught[id].birth, before: uint32(i + 1)}
				tab.shrink(&Mark{held: int32(test.room), at: uint32(i + 10)}, &l)
			}
			got := float64(tab.owners[id].capacity) / float64(test.room)
			if got > 1.3 || got < 1/1.3 {
				t.Errorf("after three reports the capacity is %.2f of the engine's, want it within 1.3", got)
			}
		})
	}
}

// TestLateReport has a prompt lost, and others touched between the decision and its report: they stay.
func TestLateReport(t *testing.T) {
	x, c, prompts := talk(t, 1000)
	m := x.Remember(0, prompts[5])
	c.Time = c.Add(10 * time.Second)
	x.Remember(0, prompts[0])
	x.Touch(0, prompts[1])
	x.Correct(m, 0)
	for i, want := range []int32{100, 100, 70, 100, 100, 100, 100} { // a tenth of the 300 that stayed older goes
		if got := x.Overlap(prompts[i], nil)[0]; got != want {
			t.Errorf("prompt %d: %d blocks held, want %d", i, got, want)
		}
	}
	if got := x.Stats(); got.EvictedByFeedback == 0 || got.CorrectedOver != 1 {
		t.Errorf("stats %+v, want blocks given up in one correction", got)
	}
	held := x.Held(0)
	x.Correct(m, 0) // explained by what was just learnt
	if got := x.Held(0); got != held {
		t.Errorf("a second report of the same loss takes %d blocks more", held-got)
	}
}

// TestReportsThatSayNothing gives reports that must not change anything.
func TestReportsThatSayNothing(t *testing.T) {
	x, c, prompts := talk(t, 1000)
	old := x.Remember(0, prompts[3])
	x.Clear(0)
	x.Remember(0, prompts[3])
	fresh := x.Remember(0, prompts[3])
	c.Time = c.Add(time.Minute)
	near := x.Remember(0, prompts[3])
	for name, report := range map[string]struct {
		mark      Mark
		delivered int
	}{
		"no mark":                    {Mark{}, 0},
		"a slot never seen":          {Mark{slot: 99, birth: 1, blocks: 50}, 0},
		"a slot cleared since":       {old, 0},
		"sent a moment ago":          {fresh, 0},
		"what was predicted":         {near, 100},
		"one block less":             {near, 99},
		"more, but never given up":   {near, 5000},
		"nonsense of a broken parse": {near, -1 << 62},
	} {
		want := x.Held(0)
		if name == "nonsense of a broken parse" {
			want = min(want, 100) // a loss of what nothing stands behind
		}
		x.Correct(report.mark, report.delivered)
		if got := x.Held(0); got != want {
			t.Errorf("%s: %d blocks held, want %d", name, got, want)
		}
	}
}

// TestMarkOfManyAges has more stretches than a mark keeps apart: the later ones count as old as the last.
func TestMarkOfManyAges(t *testing.T) {
	x, c := newIndex(t, Config{DefaultCapacity: 1000, MaxBlocks: 1000, TTL: time.Hour})
	chain, begun := chainOf(1, 60), x.second()
	for n := 60; n > 0; n -= 10 {
		x.Remember(0, chain[:n])
		c.Time = c.Add(10 * time.Second)
	}
	m := x.Remember(0, chain)
	got := make([]uint32, 0, 6)
	for i := range 6 {
		got = append(got, m.touched(10*i+5)-begun)
	}
	if want := []uint32{50, 40, 30, 0, 0, 0}; !slices.Equal(got, want) || m.Blocks() != 60 {
		t.Errorf("%d blocks, touched at %v, want 60 at %v", m.Blocks(), got, want)
	}
}

// TestCapacityTold sets figures: a new one counts at once, the same one again leaves what was learnt.
func TestCapacityTold(t *testing.T) {
	x, c, prompts := talk(t, 1000)
	x.SetCapacity(0, 800)
	x.Correct(x.Remember(0, prompts[5]), 0)
	learnt, ok := x.Capacity(0)
	if learnt >= 800 || !ok {
		t.Fatalf("capacity %d (learnt: %v), want less than 800", learnt, ok)
	}
	x.SetCapacity(0, 800)
	if got, ok := x.Capacity(0); got != learnt || !ok {
		t.Errorf("the same figure again: capacity %d (learnt: %v), want %d", got, ok, learnt)
	}
	for range 40 { // blocks that went for want of room are there after all: up to the figure
		for _, p := range prompts {
			c.Time = c.Add(10 * time.Second)
			x.Correct(x.Remember(0, p), 100)
		}
	}
	if got, _ := x.Capacity(0); got <= learnt || got > 800 {
		t.Errorf("capacity %d, want it to grow, and to 800 at most", got)
	}
	x.SetCapacity(0, 700)
	if got, ok := x.Capacity(0); got != 700 || ok {
		t.Errorf("another figure: capacity %d (learnt: %v), want 700", got, ok)
	}
	if got, ok := x.Capacity(slot.None); got != 1000 || ok {
		t.Errorf("no slot: capacity %d (learnt: %v), want the default", got, ok)
	}
}
