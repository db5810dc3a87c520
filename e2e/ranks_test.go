package e2e

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
)

// TestRanks: the ranks of one engine have caches of their own. A conversation stays on the rank that holds it, and what is
// believed of one rank is not touched by what happens on the other.
func TestRanks(t *testing.T) {
	const ranks, blocks = 2, 400
	s := withEvents(t, 1, "--ranks", strconv.Itoa(ranks), "--kv-blocks", strconv.Itoa(blocks))
	s.furnish = func(r *rig, e *engine) { e.tells(t, ranks) }
	r := startWithEvents(t, s)
	e, j := r.engines[0], &judge{r: r}
	var talks [ranks]*talk
	for rank := range talks {
		talks[rank] = &talk{name: fmt.Sprintf("on rank %d", rank), header: map[string]string{"x-data-parallel-rank": strconv.Itoa(rank)}}
		talks[rank].turn(r, e.url(), talks[rank].name, false) // past the gateway, which passes on nobody's choice but its own
		talks[rank].header["x-data-parallel-rank"] = strconv.Itoa(1 - rank)
	}
	next := func(turn int) map[string]decided {
		for rank, c := range talks {
			a := j.ask(c, fmt.Sprintf("%s, turn %d", c.name, turn), turn%2 == 0)
			if got := a.header.Get("x-sim-rank"); got != strconv.Itoa(rank) {
				t.Errorf("turn %d %s was answered by rank %s", turn, c.name, got)
			}
		}
		return j.verdict()
	}
	for turn := range 5 {
		for id, d := range next(turn) {
			if d.predicted() < d.Prompt/3 {
				t.Errorf("%s: only %d of %d tokens captured", id, d.predicted(), d.Prompt)
			}
		}
	}
	// Rank 1 is flooded past the gateway, and loses all: where its conversation goes on is free now.
	for n := 0; n < 2*blocks; {
		c := &talk{name: fmt.Sprintf("flood-%d", n), long: true, header: map[string]string{"x-data-parallel-rank": "1"}}
		n += c.turn(r, e.url(), c.name, false).promptTokens(r) / eventBlock
	}
	lost, kept := talks[1].name+", turn 5", talks[0].name+", turn 5"
	for i, id := range []string{kept, lost} {
		j.ask(talks[i], id, false)
	}
	found := j.verdict()
	if d := found[kept]; d.predicted() < d.Prompt/2 {
		t.Errorf("rank 0 is believed to hold %d of %d tokens, but nothing happened there", d.predicted(), d.Prompt)
	}
	if d := found[lost]; d.predicted() > eventBlock { // all chats begin alike, so that rank 0 may have one block of it
		t.Errorf("%d of %d tokens captured, which rank 1 has evicted", d.predicted(), d.Prompt)
	}
}

// TestABurst: prompts that begin alike and come at the same time. No engine has told of the beginning when the last of them is
// decided on, yet each engine computes it once at most: what is on its way counts as held.
func TestABurst(t *testing.T) {
	const siblings = 16
	s := withEvents(t, 2)
	s.engineArgs = append(s.engineArgs, "--speed", "0.25") // a second for the beginning
	r := startWithEvents(t, s)
	r.heard(r.engines...)
	told := r.sum("attache_events_received_total")
	shared := words("a long story", 12_000)
	var burst sync.WaitGroup
	var ids []string
	for i := range siblings {
		id := fmt.Sprintf("sibling-%d", i)
		ids = append(ids, id)
		burst.Go(func() {
			a, err := r.chat(t.Context(), chatRequest{prompt: shared + " And " + id + "?", header: map[string]string{"x-request-id": id}})
			if err != nil || a.status != 200 {
				t.Errorf("%s: status %d, %v", id, a.status, err)
			}
		})
	}
	r.eventually("all are decided on", func() bool { return r.inFlight("engine-0")+r.inFlight("engine-1") == siblings })
	if now := r.sum("attache_events_received_total"); now != told {
		t.Errorf("%v events have come before the last was decided on: nothing is shown", now-told)
	}
	burst.Wait()
	// Which of them computes the beginning is not ours to say: they need not arrive in the order in which they were decided on.
	computed, captured, delivered := 0, 0, 0
	for _, d := range r.decisions(ids) {
		if d.predicted() < d.Prompt/2 {
			computed++
		}
		captured += d.predicted()
		if d.Delivered != nil {
			delivered += *d.Delivered
		}
	}
	if off := captured - delivered; off < -siblings*eventBlock || off > siblings*eventBlock || captured == 0 {
		t.Errorf("%d tokens captured, %d delivered", captured, delivered)
	}
	if computed > len(r.engines) {
		t.Errorf("the beginning was computed %d times on %d engines", computed, len(r.engines))
	}
}
