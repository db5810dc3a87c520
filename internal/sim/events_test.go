package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"attache/indexer/events/wire"
	"attache/internal/block"
	"attache/internal/slot"
)

// publishing starts an engine with events, on a small cache.
func publishing(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	return start(t, func(c *Config) {
		c.Events, c.Replay, c.Speed, c.KVBlocks = "tcp://127.0.0.1:0", "tcp://127.0.0.1:0", 1000, 60
		if change != nil {
			change(c)
		}
	})
}

// talk sends some requests of which some begin alike.
func talk(r *rig, n int, more string) {
	r.t.Helper()
	for i := range n {
		prompt := strings.Repeat(fmt.Sprintf("conversation %d ", i%5), 10+i%30)
		r.must("POST", "/v1/chat/completions", chatBody(prompt, 5+i%20, more))
	}
}

func TestListenersKnowWhatIsThere(t *testing.T) {
	for _, dialect := range []string{DialectVLLMMap, DialectVLLMArray, DialectSGLang} {
		t.Run(dialect, func(t *testing.T) {
			r := publishing(t, func(c *Config) {
				c.Dialect, c.HostBlocks, c.DiskBlocks, c.LoRAs, c.Topic = dialect, 50, 20, []string{"adapter"}, "kv@pod@model"
			})
			l := listen(t, r.Engine, 0)
			talk(r, 40, "")
			talk(r, 10, `,"cache_salt":"tenant"`)
			for i := range 10 {
				r.must("POST", "/v1/completions", fmt.Sprintf(`{"model":"adapter","prompt":%q,"max_tokens":20,"cache_salt":"x"}`, strings.Repeat("conversation", 30+i)))
			}
			truth := l.heard(r, 0)
			if dialect != DialectSGLang && truth.Pending != 0 {
				t.Errorf("%d changes pending on an idle engine", truth.Pending)
			}
			if d := l.differs(truth); d != "" {
				t.Error(d)
			}
			if len(truth.Blocks[slot.Device]) < 20 || len(truth.Blocks[slot.Host]) != 50 || len(truth.Blocks[slot.Disk]) != 20 {
				t.Errorf("%d, %d and %d blocks: the tiers were not put to use", len(truth.Blocks[slot.Device]), len(truth.Blocks[slot.Host]), len(truth.Blocks[slot.Disk]))
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.topics[0] != "kv@pod@model" {
				t.Errorf("topic %q", l.topics[0])
			}
		})
	}
}

func TestReplay(t *testing.T) {
	for dialect, frames := range map[string]int{DialectVLLMArray: 3, DialectVLLMMap: 4, DialectSGLang: 4} {
		t.Run(dialect, func(t *testing.T) {
			r := publishing(t, func(c *Config) { c.Dialect, c.BufferSteps = dialect, 200 })
			talk(r, 20, "")
			truth := r.Contents(0)
			messages, n := replay(t, r.Engine, 0)
			if n != frames || uint64(len(messages)) != truth.Sequence {
				t.Fatalf("%d messages of %d frames, want %d of %d", len(messages), n, truth.Sequence, frames)
			}
			l := newListener(&r.cfg)
			for i, m := range messages {
				if m.Seq != uint64(i) {
					t.Fatalf("message %d has the number %d", i, m.Seq)
				}
				l.apply(m.Payload)
			}
			if d := l.differs(truth); d != "" || len(l.bad) > 0 {
				t.Error(d, l.bad)
			}
			if messages, _ := replay(t, r.Engine, truth.Sequence-3); len(messages) != 3 || messages[0].Seq != truth.Sequence-3 {
				t.Errorf("%d messages, want the last 3", len(messages))
			}
			if messages, _ := replay(t, r.Engine, truth.Sequence); len(messages) != 0 {
				t.Errorf("%d messages that are not there yet", len(messages))
			}
		})
	}
	r := publishing(t, func(c *Config) { c.BufferSteps = 4 })
	talk(r, 3, "")
	next := r.Contents(0).Sequence
	if messages, _ := replay(t, r.Engine, 0); len(messages) != 4 || messages[0].Seq != next-4 {
		t.Errorf("%d messages, want the 4 that are kept", len(messages))
	}
}

func TestRanks(t *testing.T) {
	for _, dialect := range []string{DialectVLLMMap, DialectSGLang} {
		r := publishing(t, func(c *Config) { c.Dialect, c.Ranks = dialect, 3 })
		for rank, header := range []string{"0", "1", "2", "3", "-1", "two", ""} {
			req := newRequest(r, "/v1/chat/completions", chatBody("hello "+strings.Repeat("x", 200), 3, ""))
			req.Header.Set("X-data-parallel-rank", header)
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := resp.Header.Get(HeaderRank); rank < 3 && got != header || got == "" {
				t.Errorf("%s: rank %q was asked for, %q answers", dialect, header, got)
			}
		}
		for rank := range 3 {
			l := listen(t, r.Engine, rank)
			for range 2 {
				req := newRequest(r, "/v1/chat/completions", chatBody(strings.Repeat("another ", 30), 3, `,"cache_salt":"`+dialect+itoa(rank)+`"`))
				req.Header.Set("X-Data-Parallel-Rank", itoa(rank))
				resp, err := r.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			l.heard(r, rank)
			l.mu.Lock()
			if slices.ContainsFunc(l.ranks, func(got int32) bool { return got != int32(rank) }) {
				t.Errorf("%s: batches of ranks %v, want %d", dialect, l.ranks, rank)
			}
			l.mu.Unlock()
		}
		_, text := r.must("GET", "/metrics", "")
		label := `engine="2"`
		if dialect == DialectSGLang {
			label = `dp_rank="2"`
		}
		if strings.Count(text, "_count{") < 3 || !strings.Contains(text, label) {
			t.Errorf("%s: metrics without %s", dialect, label)
		}
	}
}

func TestRanksTakeTurns(t *testing.T) {
	r := publishing(t, func(c *Config) { c.Ranks = 2 })
	for range 2 {
		r.must("POST", "/v1/chat/completions", chatBody(strings.Repeat("hello", 30), 1, ""))
	}
	if a, b := r.Contents(0).Sequence, r.Contents(1).Sequence; a == 0 || b == 0 {
		t.Errorf("the ranks published %d and %d batches of two requests", a, b)
	}
}

func TestRestart(t *testing.T) {
	r := publishing(t, func(c *Config) { c.MinStep = time.Millisecond })
	l := listen(t, r.Engine, 0)
	talk(r, 3, "")
	l.heard(r, 0)
	was, before := r.Contents(0), r.current.Load()
	l.mu.Lock()
	old := maps.Clone(l.blocks[slot.Device])
	l.mu.Unlock()
	at, _ := r.Endpoints(0)
	cut := make(chan error, 1)
	go func() {
		_, _, err := r.send(t.Context(), "POST", "/v1/chat/completions", chatBody("hello", 10_000, `,"stream":true`))
		cut <- err
	}()
	r.eventually("it runs", func() bool { return r.Stats().Running == 1 })
	r.must("POST", "/sim/restart", "")
	if err := <-cut; err == nil {
		t.Error("a stream outlived the restart")
	}
	now := r.Contents(0)
	if again, _ := r.Endpoints(0); now.Epoch != was.Epoch+1 || now.Sequence != 0 || len(now.Blocks[slot.Device]) != 0 || again != at {
		t.Errorf("after the restart: %+v at %s, was at %s", now, again, at)
	}
	if s := r.Stats(); s.Prompted != 0 || s.Running != 0 {
		t.Errorf("after the restart: %+v", s)
	}
	if after := r.current.Load(); !after.started.After(before.started) || after.cfg.HashSeed == before.cfg.HashSeed {
		t.Error("the process is no other one")
	}
	subscribed(t, r.Engine, 0) // whatever the old connection brought has come
	l.mu.Lock()
	l.seqs = nil
	l.clear()
	l.mu.Unlock()
	talk(r, 3, "")
	if d := l.differs(l.heard(r, 0)); d != "" {
		t.Error(d)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seqs[0] != 0 {
		t.Errorf("sequence numbers go on: %v", l.seqs)
	}
	for h := range l.blocks[slot.Device] {
		if old[h] > 0 {
			t.Errorf("%x is a hash of the old process", h)
		}
	}
}

func TestSeedIsKeptOverARestart(t *testing.T) {
	r := publishing(t, func(c *Config) { c.HashSeed = 7 })
	if err := r.Restart(t.Context()); err != nil || r.current.Load().cfg.HashSeed != 7 {
		t.Errorf("%v, seed %d", err, r.current.Load().cfg.HashSeed)
	}
}

func TestResetPrefixCache(t *testing.T) {
	r := publishing(t, nil)
	l := listen(t, r.Engine, 0)
	talk(r, 3, "")
	before := l.heard(r, 0)
	if _, text := r.must("POST", "/reset_prefix_cache", ""); text != `{"success":true}` {
		t.Fatal(text)
	}
	if after := r.Contents(0); after.Sequence != before.Sequence || after.Pending != 1 {
		t.Errorf("%+v: the reset must wait for the next batch", after)
	}
	r.must("POST", "/v1/chat/completions", chatBody(strings.Repeat("after ", 20), 1, ""))
	truth := l.heard(r, 0)
	if d := l.differs(truth); d != "" || truth.Pending != 0 {
		t.Errorf("%s, %d pending", d, truth.Pending)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.kinds); n < 2 || l.kinds[n-2] != wire.Cleared {
		t.Errorf("kinds %v: want the last batch to begin with the reset", l.kinds)
	}
}

func TestResetIsRefusedWhileBlocksAreHeld(t *testing.T) {
	r := publishing(t, func(c *Config) { c.MinStep = 20 * time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _, _ = r.send(ctx, "POST", "/v1/chat/completions", chatBody("hello", 500, ""))
	}()
	r.eventually("it runs", func() bool { return r.Stats().Running == 1 })
	if _, text := r.must("POST", "/reset_prefix_cache", ""); text != `{"success":false}` {
		t.Error(text)
	}
	cancel()
	<-gone
}

// The truth that Contents tells belongs to the number it tells, also while steps are under way.
func TestContentsBelongToTheirNumber(t *testing.T) {
	r := publishing(t, func(c *Config) { c.HostBlocks, c.MinStep = 40, time.Millisecond })
	l := listen(t, r.Engine, 0)
	l.mu.Lock()
	l.history = map[uint64][slot.Disk + 1]map[block.Hash]int{}
	l.mu.Unlock()
	var talking sync.WaitGroup
	for i := range 4 {
		talking.Go(func() {
			for j := range 15 {
				_, _, _ = r.send(t.Context(), "POST", "/v1/chat/completions", chatBody(strings.Repeat(fmt.Sprint("talk ", i, j%3), 20), 10, ""))
			}
		})
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		talking.Wait()
	}()
	var truths []Contents
	for busy := true; busy; {
		select {
		case <-over:
			busy = false
		case <-time.After(time.Millisecond):
		}
		truths = append(truths, r.Contents(0))
	}
	l.heard(r, 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	pending := 0
	for _, truth := range truths {
		if truth.Pending > 0 {
			pending++
		}
		if truth.Sequence == 0 {
			continue
		}
		for tier, got := range l.history[truth.Sequence-1] {
			if !maps.Equal(got, truth.Blocks[tier]) {
				t.Fatalf("before batch %d: %d blocks are known, there are %d", truth.Sequence, len(got), len(truth.Blocks[tier]))
			}
		}
	}
	if pending == 0 || pending == len(truths) {
		t.Errorf("%d of %d looks found changes pending", pending, len(truths))
	}
}

func TestRestartUnderLoad(t *testing.T) {
	r := publishing(t, func(c *Config) { c.Ranks, c.MinStep = 2, time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	var talking sync.WaitGroup
	for i := range 4 {
		talking.Go(func() {
			for ctx.Err() == nil {
				_, _, _ = r.send(ctx, "POST", "/v1/chat/completions", chatBody(strings.Repeat("hello", 20*i), 50, `,"stream":true`))
			}
		})
	}
	for want := range uint64(5) {
		if err := r.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		if got := r.Contents(0).Epoch; got != want+2 {
			t.Errorf("epoch %d, want %d", got, want+2)
		}
	}
	cancel()
	talking.Wait()
	one(r, "after it all ")
	r.eventually("nothing runs", func() bool { s := r.Stats(); return s.Running+s.Waiting+s.Held == 0 })
}

func TestReportsSessionsAndBypass(t *testing.T) {
	r := publishing(t, nil)
	l := listen(t, r.Engine, 0)
	ask := func(more string) {
		r.must("POST", "/v1/completions", `{"prompt":"`+strings.Repeat("word", 70)+`","max_tokens":1`+more+`}`)
	}
	ask(`,"session_id":"first","vllm_xargs":{"session_id":"last"}`)
	before := r.Contents(0)
	ask(`,"session_id":"` + reporter + `","vllm_xargs":{"kv_cache_report_mode":"full"}`)
	after := r.Contents(0)
	if !maps.Equal(before.Blocks[slot.Device], after.Blocks[slot.Device]) || after.Sequence != before.Sequence+1 {
		t.Error("a report must be a batch of its own and change nothing")
	}
	ask(`,"prompt_logprobs":1,"vllm_xargs":{"session_id":"last","kv_cache_report_mode":5},"session_id":7`)
	truth := l.heard(r, 0)
	if d := l.differs(truth); d != "" {
		t.Error(d)
	}
	for h, n := range truth.Blocks[slot.Device] {
		if n != 2 {
			t.Errorf("%d copies of %x after a request that uses no cache", n, h)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if want := []string{"first", reporter, "last"}; !slices.Equal(l.sessions, want) || l.reported != 4 {
		t.Errorf("sessions %v, want %v; %d blocks reported, want 4", l.sessions, want, l.reported)
	}
}
