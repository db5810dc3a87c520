package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"attache/indexer/events/wire"
	"attache/internal/bubble"
	"attache/internal/slot"
)

// numbers are those of the live batches, as they came.
func (l *listener) numbers() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seqs)
}

// one sends a request that makes exactly one batch: a prompt of its own, and an answer of one token.
func one(r *rig, name string) {
	r.t.Helper()
	r.must("POST", "/v1/chat/completions", chatBody(strings.Repeat(name, 30), 1, ""))
}

func TestEventFaults(t *testing.T) {
	for _, c := range []struct {
		fault    string
		live     []uint64 // of six requests, the fault being set before the second
		replayed []uint64
		stale    bool // the listener no longer knows what is there
	}{
		{`{"mode":"none"}`, []uint64{0, 1, 2, 3, 4, 5}, []uint64{0, 1, 2, 3, 4, 5}, false},
		{`{"mode":"drop","count":2}`, []uint64{0, 3, 4, 5}, []uint64{0, 1, 2, 3, 4, 5}, true},
		{`{"mode":"lose","count":2}`, []uint64{0, 3, 4, 5}, []uint64{0, 3, 4, 5}, true},
		{`{"mode":"duplicate","count":1}`, []uint64{0, 1, 1, 2, 3, 4, 5}, []uint64{0, 1, 2, 3, 4, 5}, true},
		{`{"mode":"reorder","count":2}`, []uint64{0, 2, 1, 4, 3, 5}, []uint64{0, 1, 2, 3, 4, 5}, false},
		{`{"mode":"silence","count":2}`, []uint64{0, 1, 2, 3}, []uint64{0, 1, 2, 3}, true},
		{`{"mode":"block-size","count":1,"block_tokens":32}`, []uint64{0, 1, 2, 3, 4, 5}, []uint64{0, 1, 2, 3, 4, 5}, true},
		{`{"mode":"slow-replay","delay":"5ms"}`, []uint64{0, 1, 2, 3, 4, 5}, []uint64{0, 1, 2, 3, 4, 5}, false},
	} {
		t.Run(c.fault, func(t *testing.T) {
			r := publishing(t, func(c *Config) { c.KVBlocks = 500 })
			l := listen(t, r.Engine, 0)
			one(r, "zero")
			r.must("POST", "/sim/event-fault", c.fault)
			for _, name := range []string{"one ", "two ", "three ", "four ", "five "} {
				one(r, name)
			}
			r.eventually("the last batch comes", func() bool { return len(l.numbers()) >= len(c.live) })
			if got := l.numbers(); !slices.Equal(got, c.live) {
				t.Errorf("batches %v, want %v", got, c.live)
			}
			began := time.Now()
			messages, _ := replay(t, r.Engine, 0)
			var replayed []uint64
			for _, m := range messages {
				replayed = append(replayed, m.Seq)
			}
			if !slices.Equal(replayed, c.replayed) {
				t.Errorf("replayed %v, want %v", replayed, c.replayed)
			}
			if strings.Contains(c.fault, "slow") && time.Since(began) < 30*time.Millisecond {
				t.Errorf("6 batches came within %s", time.Since(began))
			}
			if d := l.differs(r.Contents(0)); (d != "") != c.stale {
				t.Errorf("stale: %q", d)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if strings.Contains(c.fault, "block-size") != slices.Contains(l.sizes, 32) {
				t.Errorf("block sizes %v", l.sizes)
			}
		})
	}
}

func TestNoReplay(t *testing.T) {
	r := publishing(t, nil)
	one(r, "zero")
	r.must("POST", "/sim/event-fault", `{"mode":"no-replay","count":1}`)
	if _, _, err := tryReplay(t.Context(), r.Engine, 0, 100*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want no answer in time", err)
	}
	if messages, _ := replay(t, r.Engine, 0); len(messages) != 1 {
		t.Errorf("%d messages after the fault", len(messages))
	}
}

func TestEventFaultsEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var f eventFaults
		f.set(EventFault{Mode: EventDrop, For: time.Minute})
		f.set(EventFault{Mode: EventLose, Count: 1})
		for i := range 3 {
			if !f.take(EventDrop) || f.take(EventLose) != (i == 0) {
				t.Error("a fault without a count must go on, one with a count of 1 must hit once")
			}
		}
		time.Sleep(time.Minute)
		if f.take(EventDrop) || len(f.list()) != 0 {
			t.Error("it lasts longer than it should")
		}
		f.set(EventFault{Mode: EventDrop})
		f.set(EventFault{Mode: FaultNone})
		if f.take(EventDrop) {
			t.Error("none must end all")
		}
	})
}

func TestControlSurface(t *testing.T) {
	r := publishing(t, nil)
	for _, c := range []struct {
		method, path, body string
		status             int
		contains           string
	}{
		{"GET", "/sim/event-fault", "", 200, `[]`},
		{"POST", "/sim/event-fault", `{"mode":"lunch"}`, 400, "must be one of none, drop"},
		{"POST", "/sim/event-fault", `{"mode":"drop","count":-1}`, 400, "count: -1: must not be negative"},
		{"POST", "/sim/event-fault", `{"mode":"slow-replay"}`, 400, "delay: 0s: must be above 0"},
		{"POST", "/sim/event-fault", `{"mode":"drop","for":"soon"}`, 400, "must be a duration"},
		{"POST", "/sim/event-fault", `{"mode":"drop","count":3,"for":"5s"}`, 200, `[{"mode":"drop","count":3,"for":"5s"}]`},
		{"GET", "/sim/state", "", 200, `"event_faults":[{"mode":"drop","count":3,"for":"5s"}]`},
		{"GET", "/sim/state", "", 200, `"blocks":{"device":0,"disk":0,"host":0}`},
		{"GET", "/sim/state", "", 200, `"dialect":"vllm-map"`},
		{"GET", "/sim/state", "", 200, `"events":"tcp://127.0.0.1:`},
		{"POST", "/sim/restart", "", 200, `{"epoch":2}`},
		{"GET", "/sim/state", "", 200, `{"epoch":2,`},
		{"POST", "/flush_cache", "", 404, "Not Found"},
		{"POST", "/kv_cache_events", "", 404, "Not Found"},
	} {
		resp, text, err := r.send(t.Context(), c.method, c.path, c.body)
		if err != nil || resp.StatusCode != c.status || !strings.Contains(text, c.contains) {
			t.Errorf("%s %s %s: %v, %v, %s; want %d with %s", c.method, c.path, c.body, resp, err, text, c.status, c.contains)
		}
	}
}

// What a listener makes of SGLang: a clear at the start, prompts at once, answers later.
func TestSGLangPublishes(t *testing.T) {
	r := publishing(t, func(c *Config) {
		c.Dialect, c.DecodeInterval, c.KVBlocks, c.BlockTokens = DialectSGLang, 8, 1000, 4
	})
	r.eventually("it tells of its empty cache", func() bool { return r.Contents(0).Sequence == 1 })
	r.must("POST", "/v1/chat/completions", chatBody(strings.Repeat("hello ", 20), 23, ""))
	r.eventually("it tells the rest when it is idle", func() bool { return r.Contents(0).Pending == 0 })
	messages, _ := replay(t, r.Engine, 0)
	var stored []int
	for i, m := range messages {
		var b wire.Batch
		if err := b.Decode(m.Payload); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, e := range b.Events {
			if n += len(e.Hashes); (e.Kind == wire.Cleared) != (i == 0) {
				t.Errorf("batch %d has %v", i, e.Kind)
			}
		}
		stored = append(stored, n)
	}
	// The first token comes with the prompt, 22 more in steps of which each 8th publishes, and the 4th fills a block.
	if len(stored) != 5 || stored[0] != 0 || stored[1] != 9 || stored[2] != 2 || stored[3] != 2 || stored[4] < 1 {
		t.Errorf("blocks by batch: %v", stored)
	}
	if _, text := r.must("GET", "/server_info", ""); !strings.Contains(text, `"page_size":4,"dp_size":1,"max_total_num_tokens":4000`) ||
		!strings.Contains(text, `"kv_events":{"publisher":"zmq","endpoint_host":"127.0.0.1","endpoint_port_base":`) {
		t.Error(text)
	}
	next := r.Contents(0).Sequence
	r.must("POST", "/flush_cache", "")
	r.eventually("it tells that it is empty", func() bool {
		c := r.Contents(0)
		return c.Sequence == next+1 && len(c.Blocks[slot.Device]) == 0
	})
	_, text := r.must("GET", "/metrics", "")
	for _, want := range []string{"sglang:page_size{", "sglang:num_pages{", "sglang:max_total_num_tokens{", `dp_rank="0"`, "sglang:num_running_reqs{",
		"sglang:time_to_first_token_seconds_count{"} {
		if !strings.Contains(text, want) {
			t.Errorf("without %s", want)
		}
	}
}

func TestTensorRTIsPulled(t *testing.T) {
	r := start(t, func(c *Config) {
		c.Dialect, c.Speed, c.KVBlocks, c.HostBlocks = DialectTensorRT, 1000, 60, 40
	})
	l := newListener(&r.cfg)
	var kinds []wire.Kind
	var next uint64
	partial := false
	pull := func() {
		t.Helper()
		_, text := r.must("POST", "/kv_cache_events", "")
		var b wire.Batch
		if err := b.DecodeTensorRT([]byte(text)); err != nil {
			t.Fatal(err)
		}
		for i, e := range b.Events {
			if i == 0 || e.ID != b.Events[i-1].ID {
				if e.ID != next {
					t.Fatalf("event %d, want %d", e.ID, next)
				}
				next++
			}
			partial = partial || e.Kind == wire.Stored && e.BlockTokens > 0 && int(e.BlockTokens) < r.cfg.BlockTokens
			kinds = append(kinds, e.Kind)
		}
		l.applyBatch(&b, []byte(text))
	}
	pull()
	if len(kinds) != 1 || kinds[0] != wire.Created {
		t.Errorf("it begins with %v", kinds)
	}
	for range 5 {
		talk(r, 20, "")
		pull()
	}
	truth := r.Contents(0)
	if d := l.differs(truth); d != "" || truth.Pending != 0 || truth.Sequence != next || len(truth.Blocks[slot.Host]) == 0 {
		t.Errorf("%s; %d pending, number %d, want %d; %d blocks in the host's memory", d, truth.Pending, truth.Sequence, next, len(truth.Blocks[slot.Host]))
	}
	if !partial || len(l.bad) > 0 {
		t.Errorf("partial blocks: %v; %v", partial, l.bad)
	}
	r.Reset()
	r.eventually("all blocks are removed", func() bool { return r.Contents(0).Pending == 0 })
	pull()
	if d := l.differs(r.Contents(0)); d != "" || len(r.Contents(0).Blocks[slot.Device]) != 0 {
		t.Error(d)
	}
	_, text := r.must("GET", "/prometheus/metrics", "")
	if !strings.Contains(text, "trtllm_kv_cache_tokens_per_block{") || !strings.Contains(text, "trtllm_num_requests_running{") {
		t.Error(text)
	}
	if _, text := r.must("GET", "/metrics", ""); text != "[]" {
		t.Error(text)
	}
}

func TestEventConfigErrors(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*Config)
	}{
		{"dialect: \"esperanto\": must be one of vllm-map", func(c *Config) { c.Dialect = "esperanto" }},
		{"events: \"127.0.0.1:5557\": must be tcp://", func(c *Config) { c.Events = "127.0.0.1:5557" }},
		{"events: \"ipc:///tmp/e\": must be tcp:// when there are several ranks", func(c *Config) { c.Events, c.Ranks = "ipc:///tmp/e", 2 }},
		{"events: \"tcp://h:65535\": must leave a port for every rank", func(c *Config) { c.Events, c.Ranks = "tcp://h:65535", 2 }},
		{"events: \"tcp://h:1\": must be empty: TensorRT-LLM's are pulled", func(c *Config) { c.Events, c.Dialect = "tcp://h:1", DialectTensorRT }},
		{"replay: \"tcp://h:1\": must be empty without events", func(c *Config) { c.Replay = "tcp://h:1" }},
		{"ranks: 0: must be 1 to 64", func(c *Config) { c.Ranks = 0 }},
		{"host-blocks: -1: must be", func(c *Config) { c.HostBlocks = -1 }},
		{"disk-blocks: -1: must be", func(c *Config) { c.DiskBlocks = -1 }},
		{"lora: \"sim-model\": must be a name", func(c *Config) { c.LoRAs = []string{c.Model} }},
		{"buffer-steps: 0: must be", func(c *Config) { c.BufferSteps = 0 }},
		{"decode-interval: 0: must be", func(c *Config) { c.DecodeInterval = 0 }},
	} {
		cfg := DefaultConfig()
		c.change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v; want %q", err, c.want)
		}
	}
}
