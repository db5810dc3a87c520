package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"attache/internal/block"
)

// small is a core with figures that are easy to follow: blocks of 4 tokens, steps of 10 tokens.
func small(change func(*Config)) *Core {
	cfg := DefaultConfig()
	cfg.BlockTokens, cfg.KVBlocks, cfg.MaxTokens, cfg.MaxSeqs = 4, 20, 10, 4
	if change != nil {
		change(&cfg)
	}
	return NewCore(cfg)
}

// chainOf names n blocks of a text.
func chainOf(text string, n int) []block.Hash {
	var c block.Chainer
	c.Reset(4, 1, nil)
	c.WriteString(strings.Repeat(text, 4*n))
	return c.Sum()[:n]
}

func submit(t *testing.T, c *Core, r Request) {
	t.Helper()
	if err := c.Submit(0, r); err != nil {
		t.Fatal(err)
	}
}

// line draws what a step brought: "1.2" is the second token of request 1, "!" its last.
func line(events []Event) string {
	var words []string
	for _, e := range events {
		mark := ""
		if e.Last {
			mark = "!"
		}
		words = append(words, fmt.Sprintf("%d.%d%s", e.ID, e.Token, mark))
	}
	return strings.Join(words, " ")
}

func steps(c *Core, n int) string {
	var lines []string
	for range n {
		_, events := c.Step(0)
		lines = append(lines, line(events))
	}
	return strings.Join(lines, " | ")
}

func TestBatches(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(*Config)
		requests []Request
		want     string
	}{
		{"alone", nil, []Request{{ID: 1, Prompt: 3, Output: 3}}, "1.1 | 1.2 | 1.3! | "},
		{"two prompts in one step", nil, []Request{{ID: 1, Prompt: 5, Output: 2}, {ID: 2, Prompt: 5, Output: 1}}, "1.1 2.1! | 1.2! | "},
		{"a long prompt comes in chunks, the next one takes what is left", nil,
			[]Request{{ID: 1, Prompt: 25, Output: 1}, {ID: 2, Prompt: 7, Output: 1}}, " |  | 1.1! | 2.1! | "},
		{"answers go before prompts", nil,
			[]Request{{ID: 1, Prompt: 1, Output: 4}, {ID: 2, Prompt: 18, Output: 1}}, "1.1 | 1.2 2.1! | 1.3 | 1.4!"},
		{"sequences are bounded", func(c *Config) { c.MaxSeqs = 1 },
			[]Request{{ID: 1, Prompt: 1, Output: 2}, {ID: 2, Prompt: 1, Output: 1}}, "1.1 | 1.2! | 2.1!"},
		// Request 1 holds 2 blocks of 4, request 2 needs 3, request 3 only 1.
		{"no memory: the head waits and those behind it, too", func(c *Config) { c.KVBlocks = 4 },
			[]Request{{ID: 1, Prompt: 5, Output: 3}, {ID: 2, Prompt: 9, Output: 4}, {ID: 3, Prompt: 1, Output: 1}}, "1.1 | 1.2 | 1.3! | 2.1 3.1!"},
		{"nothing to do", nil, nil, " | "},
	} {
		core := small(c.change)
		for _, r := range c.requests {
			submit(t, core, r)
		}
		if got := steps(core, strings.Count(c.want, "|")+1); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestReuse(t *testing.T) {
	chain := chainOf("x", 5)
	for _, c := range []struct {
		name   string
		first  Request
		steps  int // before the second comes
		second Request
		cached int
	}{
		{"full blocks of the prompt", Request{Prompt: 14, Output: 1, Chain: chain[:3]}, 9, Request{Prompt: 20, Output: 1, Chain: chain}, 12},
		{"never the whole prompt", Request{Prompt: 12, Output: 1, Chain: chain[:3]}, 9, Request{Prompt: 12, Output: 1, Chain: chain[:3]}, 8},
		{"the answer, too; its last token has no KV", Request{Prompt: 6, Output: 10, Chain: chain[:4]}, 20, Request{Prompt: 19, Output: 1, Chain: chain[:4]}, 12},
		{"one token more completes the block", Request{Prompt: 6, Output: 11, Chain: chain[:4]}, 20, Request{Prompt: 19, Output: 1, Chain: chain[:4]}, 16},
		{"blocks of a prompt whose rest is in the same step", Request{Prompt: 19, Output: 1, Chain: chain[:4]}, 1, Request{Prompt: 20, Output: 1, Chain: chain}, 16},
		{"of a prompt that is admitted in the same step", Request{Prompt: 9, Output: 1, Chain: chain[:2]}, 0, Request{Prompt: 20, Output: 1, Chain: chain}, 8},
		{"of a request that still runs", Request{Prompt: 9, Output: 9, Chain: chain[:4]}, 1, Request{Prompt: 20, Output: 1, Chain: chain}, 8},
		{"nothing of another text", Request{Prompt: 14, Output: 1, Chain: chainOf("y", 3)}, 9, Request{Prompt: 20, Output: 1, Chain: chain}, 0},
	} {
		core := small(nil)
		c.first.ID, c.second.ID = 1, 2
		submit(t, core, c.first)
		steps(core, c.steps)
		submit(t, core, c.second)
		cached := -1
		for range 20 {
			_, events := core.Step(0)
			for _, e := range events {
				if e.ID == 2 {
					cached = e.Cached
				}
			}
		}
		if cached != c.cached {
			t.Errorf("%s: %d tokens cached, want %d", c.name, cached, c.cached)
		}
	}
}

func TestResetForgets(t *testing.T) {
	core := small(nil)
	submit(t, core, Request{ID: 1, Prompt: 9, Output: 4, Chain: chainOf("x", 2)})
	steps(core, 2)
	core.Reset()
	submit(t, core, Request{ID: 2, Prompt: 9, Output: 1, Chain: chainOf("x", 2)})
	if got, want := steps(core, 3), "1.3 2.1! | 1.4! | "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if s := core.Stats(); s.Hit != 0 || s.Held != 0 {
		t.Errorf("%d tokens found, %d blocks held after all is done", s.Hit, s.Held)
	}
}

func TestAbortFreesAtOnce(t *testing.T) {
	core := small(func(c *Config) { c.KVBlocks = 5 })
	submit(t, core, Request{ID: 1, Prompt: 9, Output: 10, Chain: chainOf("x", 4)})
	submit(t, core, Request{ID: 2, Prompt: 9, Output: 1})
	steps(core, 1)
	if s := core.Stats(); s.Held != 5 || s.Running != 1 || s.Waiting != 1 {
		t.Fatalf("%+v", s)
	}
	if !core.Abort(1) || core.Abort(1) {
		t.Error("the first abort must find the request, the second must not")
	}
	if s := core.Stats(); s.Held != 0 || s.Running != 0 {
		t.Errorf("after the abort: %+v", s)
	}
	if got, want := steps(core, 2), "2.1! | "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	submit(t, core, Request{ID: 3, Prompt: 1, Output: 1})
	if !core.Abort(3) || core.Stats().Waiting != 0 {
		t.Error("a waiting request was not taken out")
	}
	submit(t, core, Request{ID: 4, Prompt: 9, Output: 1, Chain: chainOf("x", 2)})
	if _, events := core.Step(0); len(events) != 1 || events[0].Cached != 8 {
		t.Errorf("%+v, want the 2 blocks found that the aborted request had computed", events)
	}
}

func TestSubmitRefusesWhatCanNeverRun(t *testing.T) {
	core := small(nil)
	submit(t, core, Request{ID: 1, Prompt: 80, Output: 1})
	for _, r := range []Request{{ID: 2, Prompt: 80, Output: 2}, {ID: 2, Output: 1}, {ID: 2, Prompt: 1}, {ID: 1, Prompt: 1, Output: 1}} {
		if err := core.Submit(0, r); err == nil {
			t.Errorf("%+v was accepted", r)
		}
	}
	if got := steps(core, 8); !strings.HasSuffix(got, "1.1!") {
		t.Errorf("80 tokens fit into 20 blocks of 4: %s", got)
	}
}

func TestSpeedAndLeastStep(t *testing.T) {
	for _, c := range []struct {
		speed float64
		least time.Duration
		want  time.Duration
	}{{1, 0, 15_200_219}, {10, 0, 1_520_021}, {10, 5 * time.Millisecond, 5 * time.Millisecond}} {
		core := small(func(cfg *Config) { cfg.Speed, cfg.MinStep = c.speed, c.least })
		submit(t, core, Request{ID: 1, Prompt: 5, Output: 1})
		if took, _ := core.Step(0); (took - c.want).Abs() > time.Microsecond {
			t.Errorf("speed %v, at least %s: %s, want %s", c.speed, c.least, took, c.want)
		}
	}
}

func TestWaitedIsTheTimeInTheQueue(t *testing.T) {
	core := small(func(c *Config) { c.MaxSeqs = 1 })
	submit(t, core, Request{ID: 1, Prompt: 1, Output: 2})
	if err := core.Submit(3*time.Second, Request{ID: 2, Prompt: 1, Output: 1}); err != nil {
		t.Fatal(err)
	}
	core.Step(0)
	core.Step(4 * time.Second)
	if _, events := core.Step(5 * time.Second); len(events) != 1 || events[0].Waited != 2*time.Second {
		t.Errorf("%+v, want request 2 after 2s of waiting", events)
	}
}

// traffic is a random sequence of submits, aborts and steps on a core, and a record of all that happens.
func traffic(seed uint64, rounds int) string {
	rng := rand.New(rand.NewPCG(seed, 0))
	core := small(func(c *Config) { c.KVBlocks = 4 + rng.IntN(30) })
	var record strings.Builder
	now := time.Duration(0)
	for id := range uint64(rounds) {
		prompt, output := 1+rng.IntN(30), 1+rng.IntN(8)
		chain := chainOf(string(rune('a'+rng.IntN(3))), (prompt+output)/4)
		if rng.IntN(3) > 0 {
			_ = core.Submit(now, Request{ID: id, Prompt: prompt, Output: output, Chain: chain})
		}
		if rng.IntN(5) == 0 {
			fmt.Fprintln(&record, "abort", core.Abort(uint64(rng.IntN(int(id+1)))))
		}
		took, events := core.Step(now)
		now += took
		fmt.Fprintln(&record, now, line(events), core.Stats())
	}
	return record.String()
}

func TestSameInputSameOutput(t *testing.T) {
	for seed := range uint64(20) {
		if once, again := traffic(seed, 200), traffic(seed, 200); once != again {
			t.Errorf("seed %d: two runs differ", seed)
		}
	}
}

// Whatever comes, every request ends with all its tokens in order, first come first admitted, within the bounds; and at
// the end nothing is held.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		core := small(func(c *Config) { c.KVBlocks = rapid.IntRange(3, 30).Draw(t, "blocks") })
		got, want := map[uint64]int{}, map[uint64]int{}
		last := uint64(0) // the latest to be admitted
		check := func() bool {
			took, events := core.Step(0)
			if s := core.Stats(); s.Held > s.Pages || s.Running > core.maxSeqs {
				t.Fatalf("beyond the bounds: %+v", s)
			}
			for _, e := range events {
				if got[e.ID]++; e.Token != got[e.ID] || e.Last != (e.Token == want[e.ID]) {
					t.Fatalf("%+v is token %d of %d", e, got[e.ID], want[e.ID])
				}
				if e.Token == 1 {
					if e.ID < last {
						t.Fatalf("request %d got its first token after %d", e.ID, last)
					}
					last = e.ID
				}
				if e.Cached%core.blockTokens != 0 {
					t.Fatalf("%d tokens cached", e.Cached)
				}
			}
			return took > 0
		}
		for id := range uint64(rapid.IntRange(1, 60).Draw(t, "requests")) {
			r := Request{ID: id, Prompt: rapid.IntRange(1, 40).Draw(t, "prompt"), Output: rapid.IntRange(1, 9).Draw(t, "output")}
			r.Chain = chainOf(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "text"), (r.Prompt+r.Output)/4)
			if core.Submit(0, r) == nil {
				want[id] = r.Output
			}
			for range rapid.IntRange(0, 3).Draw(t, "steps") {
				check()
			}
		}
		for n := 0; check(); n++ {
			if n > 10_000 {
				t.Fatal("it never ends")
			}
		}
		for id, n := range want {
			if got[id] != n {
				t.Fatalf("request %d got %d tokens of %d", id, got[id], n)
			}
		}
		if s := core.Stats(); s.Held != 0 || s.Running+s.Waiting != 0 || len(core.cache.free)+core.cache.idle != s.Pages {
			t.Fatalf("something is left: %+v", s)
		}
	})
}

func BenchmarkStep(b *testing.B) {
	cfg := DefaultConfig()
	core := NewCore(cfg)
	for id := range uint64(cfg.MaxSeqs) {
		chain := slices.Clone(chainOf(fmt.Sprint(id), 70))
		if err := core.Submit(0, Request{ID: id, Prompt: 100, Output: 1000, Chain: chain}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for id := uint64(cfg.MaxSeqs); b.Loop(); {
		_, events := core.Step(0)
		for _, e := range events {
			if e.Last {
				id++
				_ = core.Submit(0, Request{ID: id, Prompt: 100, Output: 1000})
			}
		}
	}
}
