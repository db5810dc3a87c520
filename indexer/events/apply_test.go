package events

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"attache/indexer/events/wire"
	"attache/indexer/runs"
	"attache/internal/block"
	"attache/internal/field"
	"attache/internal/slot"
)

func ids(from, n uint32) (tokens []uint32) {
	for i := range n {
		tokens = append(tokens, from+i)
	}
	return tokens
}

// stored is an announcement of consecutive blocks of 4 tokens that begin with token first.
func stored(medium string, parent uint64, first uint32, hashes ...uint64) wire.DraftEvent {
	return wire.DraftEvent{Kind: wire.Stored, Hashes: hashes, Parent: parent, HasParent: parent != 0,
		Tokens: ids(first, 4*uint32(len(hashes))), BlockTokens: 4, Medium: medium}
}

func removed(medium string, hashes ...uint64) wire.DraftEvent {
	return wire.DraftEvent{Kind: wire.Removed, Hashes: hashes, Medium: medium}
}

func with(e wire.DraftEvent, change func(*wire.DraftEvent)) wire.DraftEvent {
	change(&e)
	return e
}

// TestApply reads events of blocks of 4 tokens, and asks for the prompt 1, 2, 3 … in blocks of 4.
func TestApply(t *testing.T) {
	inGroup := func(group int32, spec string) func(*wire.DraftEvent) {
		return func(e *wire.DraftEvent) { e.HasGroup, e.Group, e.Spec = true, group, spec }
	}
	for _, c := range []struct {
		name   string
		events []wire.DraftEvent
		seed   uint64 // of the prompt that is asked for; 0: the plain one
		want   [4]int32
		ignore Ignored
		times  uint64 // that something is ignored for that reason
	}{
		{name: "a prompt and its continuation", events: []wire.DraftEvent{stored("GPU", 0, 1, 11, 12), stored("GPU", 12, 9, 13)}, want: [4]int32{3}},
		{name: "a block is removed", events: []wire.DraftEvent{stored("GPU", 0, 1, 11, 12, 13), removed("GPU", 12)}, want: [4]int32{1}},
		{name: "a block with two copies loses one", events: []wire.DraftEvent{stored("GPU", 0, 1, 11, 12), stored("GPU", 11, 5, 12), removed("GPU", 12)},
			want: [4]int32{2}},
		{name: "all is cleared", events: []wire.DraftEvent{stored("GPU", 0, 1, 11), {Kind: wire.Cleared}, stored("GPU", 0, 1, 21)}, want: [4]int32{1}},
		{name: "lower tiers go on where upper ones end", events: []wire.DraftEvent{stored("GPU", 0, 1, 11), stored("CPU", 11, 5, 12), stored("STORAGE", 12, 9, 13)},
			want: [4]int32{1, 1, 1}},
		{name: "an offload told by hash alone, then the device loses it", events: []wire.DraftEvent{stored("GPU", 0, 1, 11, 12),
			{Kind: wire.Stored, Hashes: []uint64{12}, Medium: "CPU"}, removed("GPU", 12)}, want: [4]int32{1, 1}},
		{name: "a medium that nobody knows", events: []wire.DraftEvent{stored("GPU", 0, 1, 11), stored("FLOPPY", 11, 5, 12)}, want: [4]int32{1},
			ignore: IgnoredTier, times: 1},
		{name: "another salt", events: []wire.DraftEvent{with(stored("GPU", 0, 1, 11, 12), func(e *wire.DraftEvent) {
			e.Extra = [][]wire.DraftKey{{{Form: wire.Text, Text: "tenant"}}, nil}
		})}},
		{name: "the same salt, and a block behind that does not name it", events: []wire.DraftEvent{with(stored("GPU", 0, 1, 11, 12), func(e *wire.DraftEvent) {
			e.Extra = [][]wire.DraftKey{{{Form: wire.Text, Text: "tenant"}}, nil}
		}), stored("GPU", 12, 9, 13)}, seed: block.Seed("", "tenant"), want: [4]int32{3}},
		{name: "an adapter", events: []wire.DraftEvent{with(stored("GPU", 0, 1, 11), func(e *wire.DraftEvent) {
			e.LoRA, e.Extra = "lora-a", [][]wire.DraftKey{{{Form: wire.Text, Text: "lora-a"}}}
		})}, seed: block.Seed("lora-a", ""), want: [4]int32{1}},
		{name: "an adapter that is known by its number only", events: []wire.DraftEvent{with(stored("GPU", 0, 1, 11), func(e *wire.DraftEvent) {
			e.LoRAID, e.HasLoRAID = 3, true
		})}},
		{name: "an image in the second block", events: []wire.DraftEvent{with(stored("GPU", 0, 1, 11, 12), func(e *wire.DraftEvent) {
			e.Extra = [][]wire.DraftKey{nil, {{Form: wire.Item, Text: "cat.png", Offset: 2}}}
		})}, want: [4]int32{1}},
		{name: "groups: the one with full attention counts, though it is not the first", events: []wire.DraftEvent{
			with(stored("GPU", 0, 1, 11, 12), inGroup(0, "sliding_window")), with(stored("GPU", 0, 1, 11, 12, 13), inGroup(1, "full_attention")),
			with(removed("GPU", 12), inGroup(0, "")), with(removed("GPU", 13), inGroup(1, ""))}, want: [4]int32{2}, ignore: IgnoredGroup, times: 2},
		{name: "groups that do not say what they are: the first counts", events: []wire.DraftEvent{
			with(stored("GPU", 0, 1, 11), inGroup(0, "")), with(stored("GPU", 11, 5, 12), inGroup(1, ""))}, want: [4]int32{1}, ignore: IgnoredGroup, times: 1},
		{name: "tokens of blocks that are left out", events: []wire.DraftEvent{stored("GPU", 0, 1, 11), with(stored("GPU", 11, 5, 12), func(e *wire.DraftEvent) {
			e.Tokens = ids(5, 8)
		})}, want: [4]int32{1}, ignore: IgnoredUneven, times: 1},
		{name: "a block that is not full", events: []wire.DraftEvent{stored("GPU", 0, 1, 11), with(stored("GPU", 11, 5, 12), func(e *wire.DraftEvent) {
			e.Tokens, e.BlockTokens = ids(5, 2), 2
		})}, want: [4]int32{1}, ignore: IgnoredPartial, times: 1},
		{name: "no hashes at all", events: []wire.DraftEvent{with(stored("GPU", 0, 1, 11), func(e *wire.DraftEvent) { e.Hashes = []uint64{} })}},
		{name: "children before their parents", events: []wire.DraftEvent{stored("GPU", 11, 5, 12), stored("GPU", 0, 1, 11)}, want: [4]int32{2}},
	} {
		payload := wire.Encoder{Dialect: wire.VLLMMap}.Append(nil, wire.Draft{Time: 1, Events: c.events})
		var b wire.Batch
		if err := b.Decode(payload); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if b.Counts.Missed() > 0 {
			t.Fatalf("%s: %+v", c.name, b.Counts)
		}
		a := applier{slot: 2, block: 4}
		changes, err := a.read(&b, payload)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		x := runs.New(runs.Config{MaxBytes: field.MiB, MaxOrphans: 100, MaxSlots: 8})
		apply(x, 2, changes)
		seed := c.seed
		if seed == 0 {
			seed = block.Plain
		}
		var o runs.Overlap
		x.Overlap(block.AppendBlocks(nil, ids(1, 12), 4, seed), &o)
		if got := o.Of(2).Blocks; got != c.want {
			t.Errorf("%s: %v blocks by tier, want %v", c.name, got, c.want)
		}
		for r, n := range a.ignored {
			want := uint64(0)
			if c.times > 0 && Ignored(r) == c.ignore {
				want = c.times
			}
			if n != want {
				t.Errorf("%s: ignored %d times for %s, want %d", c.name, n, Ignored(r), want)
			}
		}
	}
}

func TestTensorRTSaysNoTier(t *testing.T) {
	payload := wire.AppendTensorRT(nil, []wire.DraftTensorRT{
		{ID: 0, Window: 4096, Type: "created"},
		{ID: 1, Window: 4096, Type: "stored", Blocks: []wire.DraftBlock{{Hash: 11, Tokens: ids(1, 4)}, {Hash: 12, Tokens: ids(5, 4)}}},
		{ID: 2, Window: 128, Type: "stored", Blocks: []wire.DraftBlock{{Hash: 13, Tokens: ids(9, 4)}}},
		{ID: 3, Window: 4096, Type: "stored", Parent: 12, HasParent: true, Blocks: []wire.DraftBlock{{Hash: 14, Tokens: ids(9, 3)}}},
		{ID: 4, Window: 4096, Type: "updated", Hashes: []uint64{12}, OldLevel: 0, NewLevel: 1},
		{ID: 5, Window: 4096, Type: "removed", Hashes: []uint64{14}},
	})
	var b wire.Batch
	if err := b.DecodeTensorRT(payload); err != nil {
		t.Fatal(err)
	}
	a := applier{slot: 0, block: 4, pulled: true}
	x := runs.New(runs.Config{MaxBytes: field.MiB, MaxOrphans: 100, MaxSlots: 8})
	changes, err := a.read(&b, payload)
	if err != nil {
		t.Fatal(err)
	}
	apply(x, 0, changes)
	asked := block.AppendBlocks(nil, ids(1, 12), 4, block.Plain)
	var o runs.Overlap
	if x.Overlap(asked, &o); o.Of(0).Blocks != [4]int32{1, 1} {
		t.Errorf("%v blocks by tier, want 1 on the device and 1 in host memory", o.Of(0).Blocks)
	}
	payload = wire.AppendTensorRT(nil, []wire.DraftTensorRT{{ID: 6, Window: 4096, Type: "removed", Hashes: []uint64{12}}})
	if err := b.DecodeTensorRT(payload); err != nil {
		t.Fatal(err)
	}
	if changes, err = a.read(&b, payload); err != nil {
		t.Fatal(err)
	}
	apply(x, 0, changes)
	if x.Overlap(asked, &o); o.Of(0).Upto(slot.Remote) != 1 {
		t.Errorf("%d blocks held, want 1: removals are from every tier", o.Of(0).Upto(slot.Remote))
	}
	if want := [ignoredReasons]uint64{IgnoredGroup: 1, IgnoredPartial: 1}; a.ignored != want {
		t.Errorf("ignored %v, want %v", a.ignored, want)
	}
}

func TestPagesThatDoNotFit(t *testing.T) {
	for _, c := range []struct {
		page, block int
		fits        bool
	}{{16, 16, true}, {32, 16, true}, {1, 16, true}, {1, 64, true}, {1, 128, false}, {24, 16, false}, {16, 24, false}, {3, 16, false}} {
		a := applier{block: c.block}
		_, err := a.fit(c.page)
		var mismatch *MismatchError
		if (err == nil) != c.fits || err != nil && (!errors.As(err, &mismatch) || !strings.Contains(err.Error(), "block_tokens")) {
			t.Errorf("pages of %d in blocks of %d: %v", c.page, c.block, err)
		}
	}
}

func TestPieceKeysDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for _, page := range []uint64{0, 1, 2, 1 << 63, ^uint64(0)} {
		for piece := range 64 {
			if k := pieceKey(page, piece); seen[k] {
				t.Fatalf("piece %d of page %x has the key of another", piece, page)
			} else {
				seen[k] = true
			}
		}
	}
}

func TestShift(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		n        int
		want     string
	}{
		{"tcp://10.0.0.1:5557", 0, "tcp://10.0.0.1:5557"}, {"tcp://10.0.0.1:5557", 3, "tcp://10.0.0.1:5560"},
		{"tcp://[fd00::1]:5557", 1, "tcp://[fd00::1]:5558"}, {"ipc:///run/e", 1, "ipc:///run/e"}, {"", 1, ""},
	} {
		if got := shift(c.endpoint, c.n); got != c.want {
			t.Errorf("%s and %d: %s, want %s", c.endpoint, c.n, got, c.want)
		}
	}
}

func TestParseAdvertised(t *testing.T) {
	vllm := func(text string) string {
		return `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":` + text + `,"buffer_steps":10000,"topic":"kv"}}`
	}
	for _, c := range []struct {
		name  string
		parse func([]byte) (advertised, error)
		text  string
		want  []ports
		err   string
	}{
		{"SGLang, two ranks", parseInfo, `{"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":5557,"topic":"","block_size":16,"dp_size":2}}`,
			[]ports{{events: 5557}, {events: 5558}}, ""},
		{"SGLang publishes nothing", parseInfo, `{"kv_events":null}`, nil, ""},
		{"an older SGLang", parseInfo, `{"page_size":1}`, nil, ""},
		{"SGLang's goes nowhere", parseInfo, `{"kv_events":{"publisher":"null","endpoint_port_base":5557}}`, nil, ""},
		{"a port that is none", parseInfo, `{"kv_events":{"publisher":"zmq","endpoint_port_base":70000}}`, nil, "out of range"},
		{"more ranks than ports", parseInfo, `{"kv_events":{"publisher":"zmq","endpoint_port_base":65500,"dp_size":100}}`, nil, "out of range"},
		{"no JSON", parseInfo, `<html>`, nil, "invalid character"},
		{"vLLM", parseSources, vllm(`"tcp://*:5557","replay_endpoint":"tcp://*:5657"`), []ports{{5557, 5657, "kv"}}, ""},
		{"vLLM without replays", parseSources, vllm(`"tcp://*:5557","replay_endpoint":null`), []ports{{5557, 0, "kv"}}, ""},
		{"a vLLM that dials", parseSources, vllm(`"tcp://gateway:5557"`), []ports{{0, 0, "kv"}}, ""},
		{"vLLM on IPv6", parseSources, vllm(`"tcp://[::]:5557"`), []ports{{5557, 0, "kv"}}, ""},
		{"vLLM publishes nothing", parseSources, `{}`, nil, ""},
		{"one of two ranks of vLLM", parseSources, `{"1":{"publisher":"zmq","endpoint":"tcp://*:5558"}}`, []ports{{}, {events: 5558}}, ""},
		{"a rank that is none", parseSources, `{"x":{}}`, nil, `"x" is no rank`},
	} {
		got, err := c.parse([]byte(c.text))
		if !slices.Equal(got.ranks, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, %v; want %+v, %q", c.name, got.ranks, err, c.want, c.err)
		}
	}
}

func FuzzParseAdvertised(f *testing.F) {
	f.Add([]byte(`{"kv_events":{"publisher":"zmq","endpoint_port_base":5557,"dp_size":2}}`))
	f.Add([]byte(`{"0":{"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5657"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, parse := range []func([]byte) (advertised, error){parseInfo, parseSources} {
			a, err := parse(text)
			if err != nil {
				continue
			}
			for _, p := range a.ranks {
				if p.events < 0 || p.events > 65535 || p.replay < 0 || p.replay > 65535 {
					t.Errorf("%+v", p)
				}
			}
		}
	})
}

// FuzzReceive gives a feed batches with any payload: it must never credit more than it could count, nor break.
func FuzzReceive(f *testing.F) {
	w := newWorld(f, false, pageTokens)
	w.say(0, 3)
	w.engine.publish(w.engine.evict(0, 1))
	f.Add(w.engine.batches[0].payload, w.engine.batches[1].payload)
	f.Fuzz(func(t *testing.T, a, b []byte) {
		w := newWorld(t, false, 8)
		w.connect()
		w.receive(frames(0, slices.Clone(a)))
		w.receive(frames(1, slices.Clone(b)))
		w.lookNow()
		if s := w.Status(); !slices.Contains(States(), s.State) {
			t.Errorf("state %q", s.State)
		}
	})
}
