package events

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"attache/indexer/events/wire"
	"attache/indexer/events/zmtp"
	"attache/indexer/runs"
	"attache/internal/block"
	"attache/internal/slot"
)

// recorded is one message of a recording: 'P' live, 'R' of a replay.
type recorded struct {
	kind   byte
	frames zmtp.Message
}

// recording reads the messages of a running server or of a real publisher; ../events/wire/testdata has their story.
func recording(t *testing.T, name string) (all []recorded) {
	t.Helper()
	b, err := os.ReadFile("wire/testdata/recordings/" + name + ".bin")
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 {
		r := recorded{kind: b[0]}
		n := binary.BigEndian.Uint32(b[9:])
		b = b[13:]
		for range n {
			size := binary.BigEndian.Uint32(b)
			r.frames = append(r.frames, b[4:4+size:4+size])
			b = b[4+size:]
		}
		all = append(all, r)
	}
	return all
}

// TestRecordings plays what engines sent to a feed, in blocks of the engine's size, of half and of twice of it. Where the tokens
// of a prompt are on record, at some time the index must have credited all its full blocks: our chain of the request's tokens
// is the chain of the events.
func TestRecordings(t *testing.T) {
	const running = "vllm-0.32.0-sha256-int-bs32"
	for _, c := range []struct {
		name   string
		rank   int
		page   int
		prompt string // engine in the recorded requests
		held   [4]int // blocks of the page's size in the end, by tier
		alike  int    // blocks of half a page that are left of a page which another one has the tokens of, under another name
		counts Counts // some of them
	}{
		{name: running, page: 32, prompt: "vllm-0.32.0", held: [4]int{5}},
		{name: "vllm-0.23.0-sha256-int-bs32", page: 32, prompt: "vllm-0.23.0", held: [4]int{5}},
		{name: "vllm-0.32.0-cbor-bytes-lora", page: 32, held: [4]int{3}},
		{name: "vllm-0.32.0-hybrid-sliding", page: 32, held: [4]int{7}},
		{name: "vllm-0.32.0-dp2-xxhash", page: 32, held: [4]int{3}},
		{name: "vllm-0.32.0-dp2-xxhash", rank: 1, page: 32, held: [4]int{3}},
		{name: "vllm-0.32.0-kill9-restart", page: 32, held: [4]int{4}, counts: Counts{Restarts: 1}},
		{name: "sglang-0.5.15-publisher-only", page: 4, held: [4]int{2, 1}, alike: 1},
		{name: "sglang-0.5.20-publisher-only", page: 4, held: [4]int{3, 1}},
		{name: "sglang-0.5.23-publisher-only", page: 4, held: [4]int{3, 1}},
	} {
		for _, size := range []int{c.page, c.page / 2, 2 * c.page} {
			w := newWorld(t, false, size)
			w.source.Rank = c.rank
			w.connect()
			whole := map[string]bool{} // prompts that were credited in full
			prompts := promptsOf(t, c.prompt)
			for _, r := range recording(t, c.name) {
				var b wire.Batch
				if r.kind != 'P' || b.Decode(r.frames[2]) != nil || int(b.Rank) != c.rank {
					continue
				}
				w.receive(r.frames)
				for step, ids := range prompts {
					full := ids[:len(ids)/c.page*c.page] // what the engine keeps
					chain := block.AppendBlocks(nil, full, size, block.Plain)
					var o runs.Overlap
					w.ledger.Overlap(chain, &o)
					whole[step] = whole[step] || o.Of(w.slot).Upto(slot.Remote) == len(chain)
				}
			}
			for step := range prompts {
				if !whole[step] {
					t.Errorf("%s in blocks of %d: %q was never credited in full", c.name, size, step)
				}
			}
			s := w.Status()
			if s.State != Live || s.PageTokens != c.page || s.Counts.Restarts != c.counts.Restarts || s.Counts.Unreadable != 0 {
				t.Errorf("%s in blocks of %d: %+v", c.name, size, s)
			}
			held := [4]int{}
			w.ledger.write(func(x *runs.Index) { held = x.SlotStats(w.slot).Held })
			total, pages := 0, 0
			for tier := range held {
				total, pages = total+held[tier], pages+c.held[tier]
				want := c.held[tier] * c.page / size
				if size < c.page && tier == int(slot.Device) {
					want += c.alike
				}
				if size <= c.page && held[tier] != want {
					t.Errorf("%s in blocks of %d: %d blocks held on %s, want %d", c.name, size, held[tier], slot.Tier(tier), want)
				}
			}
			// A larger block may have its pages on several tiers: only all together bound how many there can be.
			if most := pages * c.page / size; size > c.page && total > most {
				t.Errorf("%s in blocks of %d: %d blocks held, want at most %d", c.name, size, held, most)
			}
		}
	}
}

// TestRecordedReplays learns from a recorded replay what the live messages told: the end is the same.
func TestRecordedReplays(t *testing.T) {
	for _, name := range []string{"vllm-0.32.0-sha256-int-bs32", "vllm-0.23.0-sha256-int-bs32"} {
		live, late := newWorld(t, false, 32), newWorld(t, true, 32)
		live.connect()
		var replays []wire.Message
		last := uint64(0)
		for _, r := range recording(t, name) {
			if m, end, err := wire.ParseReplay(r.frames); r.kind == 'R' && err == nil && !end {
				replays = append(replays, wire.Message{Seq: m.Seq, Payload: bytes.Clone(m.Payload)})
				last = max(last, m.Seq)
			}
		}
		for _, r := range recording(t, name) {
			if m, err := wire.ParseLive(r.frames); r.kind == 'P' && err == nil && m.Seq <= last {
				live.receive(r.frames)
			}
		}
		late.ask = func(_ context.Context, from uint64, take func(wire.Message)) error {
			next := from
			for _, m := range replays { // several answers, one after the other
				if m.Seq == next {
					take(m)
					next++
				}
			}
			return nil
		}
		late.connect()
		a, b := live.Status(), late.Status()
		var held [2][4]int
		for i, w := range []*world{live, late} {
			w.ledger.write(func(x *runs.Index) { held[i] = x.SlotStats(w.slot).Held })
		}
		if !b.Complete || b.Sequence != a.Sequence || held[0] != held[1] {
			t.Errorf("%s: live up to %d, %v held; by the replay up to %d, %v held, complete %v", name, a.Sequence, held[0], b.Sequence,
				held[1], b.Complete)
		}
	}
}

// promptsOf are the tokens of recorded prompts of an engine, by what they were for.
func promptsOf(t *testing.T, engine string) map[string][]uint32 {
	t.Helper()
	b, err := os.ReadFile("../../internal/prompt/testdata/vllm-requests.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	prompts := map[string][]uint32{}
	for line := range bytes.Lines(b) {
		var r struct {
			Engine string   `json:"engine"`
			Step   string   `json:"step"`
			Path   string   `json:"path"`
			IDs    []uint32 `json:"prompt_token_ids"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if engine != "" && r.Engine == engine && r.Path == "/v1/chat/completions" && !strings.Contains(r.Step, ".") {
			prompts[r.Step] = r.IDs
		}
	}
	return prompts
}
