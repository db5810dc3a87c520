package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// eventBlock is the number of tokens in a block of the pools here, and by how much delivered may differ from captured.
const eventBlock = 16

// dialects are the engines whose events are followed, and the ways in which attache learns where they are.
var dialects = []struct {
	name, dialect string
	page          int
	pool          string // how the pool says it; "": the workers file does
	apart         bool   // every engine has an address of its own, so that ports can be the same
	noSalts       bool
	host          int    // blocks of main memory below each engine's KV cache
	flush         string // path that empties the cache of an idle engine, which tells of it at once
}{
	{name: "vllm-map", dialect: "vllm-map", page: 16, host: 100},
	{name: "vllm-array", dialect: "vllm-array", page: 16},
	{name: "sglang", dialect: "sglang", page: 1, host: 100, flush: "/flush_cache"},
	{name: "sglang found by discovery", dialect: "sglang", page: 16, pool: "  events: {replay_port: REPLAY}\n", apart: true, host: 100},
	{name: "trtllm", dialect: "trtllm", page: 16, pool: "  engine: trtllm\n  events: {pull: true}\n", noSalts: true, host: 100},
}

// TestEventsOnEveryDialect: whatever is done to the engines' caches, through the gateway or past it, what attache believes
// of them is what they deliver.
func TestEventsOnEveryDialect(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			const blocks = 400
			s := withEvents(t, 2, "--dialect", d.dialect, "--block-tokens", strconv.Itoa(d.page), "--kv-blocks", strconv.Itoa(blocks*eventBlock/d.page),
				"--host-blocks", strconv.Itoa(d.host*eventBlock/d.page))
			switch {
			case d.apart:
				events, replay := freePort(t), freePort(t)
				s.pool += strings.ReplaceAll(d.pool, "REPLAY", strconv.Itoa(replay))
				s.furnish = func(r *rig, e *engine) {
					e.host = fmt.Sprintf("127.0.0.%d", 1+len(r.engines))
					e.publishes(events, replay)
				}
			case d.pool != "":
				s.pool += d.pool
				s.furnish = nil
			}
			r := startWithEvents(t, s)
			j := &judge{r: r}
			system := words("rules", 1_500)
			j.conversations(system, !d.noSalts)
			j.strangers()
			j.eviction(blocks)
			j.verdict()
			if n := r.sum("attache_index_removed_blocks_total"); n == 0 {
				t.Error("no block was evicted, and nothing shown")
			}
			if d.flush != "" {
				j.flush(r.engines[0], d.flush)
			}
			j.restart(r.engines[1])
			if n := r.metric(`attache_prompt_counts_total{pool="default",result="differ"}`); n != 0 {
				t.Errorf("%v token counts differ", n)
			}
		})
	}
}

// judge holds every request to the criterion: of none did attache believe more than a block more, or less, than the engine
// delivered.
type judge struct {
	r         *rig
	asked     []string // ids of requests that were not judged yet
	captured  int      // tokens, of those that were
	delivered int
}

// ask sends the next turn of a conversation when all that the engines have told so far was heard.
func (j *judge) ask(c *talk, id string, stream bool) answer {
	j.r.t.Helper()
	j.r.heard(j.r.engines...)
	j.asked = append(j.asked, id)
	return c.turn(j.r, j.r.url, id, stream)
}

// verdict judges what was asked since the last one.
func (j *judge) verdict() map[string]decided {
	j.r.t.Helper()
	found := j.r.decisions(j.asked)
	for _, id := range j.asked {
		d := found[id]
		if d.Rung != "exact" || d.Outcome != "ok" || d.Delivered == nil {
			j.r.t.Errorf("%s: outcome %s, rung %s (%s), delivered is known: %v", id, d.Outcome, d.Rung, d.RungReason, d.Delivered != nil)
			continue
		}
		if off := d.predicted() - *d.Delivered; off < -eventBlock || off > eventBlock {
			j.r.t.Errorf("%s: %d of %d tokens captured on %s, %d delivered", id, d.predicted(), d.Prompt, d.Chosen, *d.Delivered)
		}
		j.captured += d.predicted()
		j.delivered += *d.Delivered
	}
	j.asked = nil
	return found
}

// conversations that share a system prompt, under two salts and without one, turn by turn with the engines' own answers.
func (j *judge) conversations(system string, salted bool) {
	j.r.t.Helper()
	salts := []string{"", "", "", "alpha", "beta"}
	if !salted {
		salts = salts[:3]
	}
	for i, salt := range salts {
		c := &talk{name: fmt.Sprintf("talk-%d", i), system: system, salt: salt}
		for turn := range 4 {
			j.ask(c, fmt.Sprintf("%s-turn-%d", c.name, turn), turn%2 == 1)
		}
	}
	found := j.verdict()
	if d := found["talk-2-turn-0"]; d.predicted() < d.Prompt/2 {
		j.r.t.Errorf("the third conversation's first turn: %d of %d tokens captured, but the system prompt is shared", d.predicted(), d.Prompt)
	}
	if d := found["talk-3-turn-0"]; salted && d.predicted() != 0 {
		j.r.t.Errorf("the first turn under a salt: %d tokens captured, but a salt shares with itself alone", d.predicted())
	}
}

// strangers reach an engine past the gateway, so that only its events can tell. The gateway sends their next turns there.
func (j *judge) strangers() {
	j.r.t.Helper()
	for i := range 4 {
		home := j.r.engines[i%len(j.r.engines)]
		c := &talk{name: fmt.Sprintf("stranger-%d", i)}
		c.turn(j.r, home.url(), c.name, i%2 == 0)
		a := j.ask(c, c.name+"-again", i%2 == 1)
		if a.engine != home.name {
			j.r.t.Errorf("%s went on on %s, but %s holds it", c.name, a.engine, home.name)
		}
	}
	for id, d := range j.verdict() {
		if d.predicted() < d.Prompt/3 {
			j.r.t.Errorf("%s: only %d of %d tokens captured", id, d.predicted(), d.Prompt)
		}
	}
}

// eviction: some conversations, then more than both caches have room for, most of it past the gateway, then the old ones again.
func (j *judge) eviction(blocks int) {
	j.r.t.Helper()
	var old []*talk
	for i := range 6 {
		c := &talk{name: fmt.Sprintf("old-%d", i)}
		j.ask(c, c.name, true)
		old = append(old, c)
	}
	for round, percent := range []int{40, 70, 120} {
		for _, e := range j.r.engines {
			for n := 0; n < blocks*percent/100; {
				c := &talk{name: fmt.Sprintf("flood-%s-%d-%d", e.name, round, n), long: true}
				n += c.turn(j.r, e.url(), c.name, false).promptTokens(j.r) / eventBlock
			}
		}
		c := &talk{name: fmt.Sprintf("other-%d", round), long: true}
		j.ask(c, c.name, false)
		for i, c := range old {
			j.ask(c, fmt.Sprintf("old-%d-round-%d", i, round), i%2 == 1)
		}
	}
	found := j.verdict()
	lost := 0
	for _, d := range found {
		if strings.HasPrefix(d.RequestID, "old-") && d.predicted() < d.Prompt/3 {
			lost++
		}
	}
	if lost <= len(old) { // the first turn of each is new
		j.r.t.Error("no old conversation lost its blocks, and nothing was shown")
	}
	if j.captured == 0 || j.delivered == 0 {
		j.r.t.Errorf("%d tokens captured, %d delivered: nothing was shown", j.captured, j.delivered)
	}
}

// flush empties an engine's cache.
func (j *judge) flush(e *engine, path string) {
	j.r.t.Helper()
	j.loses(e, "the flush", func() { j.r.post(e.url()+path, "") })
}

// restart restarts an engine in place. Events tell before any health check does.
func (j *judge) restart(e *engine) {
	j.r.t.Helper()
	j.loses(e, "the restart", func() {
		j.r.post(e.url()+"/sim/restart", "")
		j.r.eventually("the restart of "+e.name+" is known", func() bool { return j.r.feed(e, 0, "restarts_total") == 1 })
		j.r.eventually(e.name+" is followed again", func() bool { return j.r.mode(e, 0) == "exact" })
	})
}

// loses does something that empties an engine's cache: what it held before is not counted on any more.
func (j *judge) loses(e *engine, what string, do func()) {
	j.r.t.Helper()
	c := &talk{name: "around " + what}
	c.turn(j.r, e.url(), c.name, false)
	if a := j.ask(c, "before "+what, false); a.engine != e.name {
		j.r.t.Errorf("%s went on on %s, but %s holds it", c.name, a.engine, e.name)
	}
	do()
	j.ask(c, "after "+what, false)
	found := j.verdict()
	if d := found["before "+what]; d.predicted() < d.Prompt/3 {
		j.r.t.Errorf("before %s only %d of %d tokens are captured", what, d.predicted(), d.Prompt)
	}
	for _, candidate := range found["after "+what].Candidates {
		if candidate.Worker == e.name && candidate.CachedTokens != 0 {
			j.r.t.Errorf("after %s %s is believed to hold %d tokens, which it lost", what, e.name, candidate.CachedTokens)
		}
	}
}
