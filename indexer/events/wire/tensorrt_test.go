package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

func TestDecodeTensorRT(t *testing.T) {
	const token = `{"type":"unique_token","token_id":%d,"token_extra_id":0}`
	block := func(hash, level string, tokens ...int) string {
		var parts []string
		for _, id := range tokens {
			parts = append(parts, fmt.Sprintf(token, id))
		}
		return `{"type":"stored_block","block_hash":` + hash + `,"tokens":[` + strings.Join(parts, ",") + `],"cache_level":` + level + `,"priority":35}`
	}
	stored := func(parent string, blocks ...string) string {
		return `{"event_id":7,"data":{"type":"stored","parent_hash":` + parent + `,"blocks":[` + strings.Join(blocks, ",") + `]},"window_size":4096}`
	}
	extra := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, 1), 9)
	cases := []struct {
		name, in, want string
	}{
		{"nothing", ` [ ] `, `batch time=0`},
		{"created", `[{"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[100,5]},"window_size":4096,"attention_dp_rank":1}]`, `
		batch time=0
		created window=4096 rank=1`},
		{"stored", "[" + stored("null", block("18446744073709551615", "0", 1, 2), block("-2", "0", 3, 4)) + "]", `
		batch time=0
		stored tier=device hashes=[18446744073709551615 18446744073709551614] tokens=[1 2 3 4] size=2 window=4096 id=7`},
		{"a block that is not full, a block elsewhere", "[" + stored("5", block("1", "0", 1, 2), block("2", "0", 3), block("3", "1", 4), block("4", "1", 5)) + "]", `
		batch time=0
		stored tier=device hashes=[1] parent=5 tokens=[1 2] size=2 window=4096 id=7
		stored tier=device hashes=[2] parent=1 tokens=[3] size=1 window=4096 id=7
		stored tier=host hashes=[3 4] parent=2 tokens=[4 5] size=1 window=4096 id=7`},
		{"members in another order, spread over lines", "[ {\n\"window_size\" : 64 , \"data\" : { \"blocks\" : [ { \"tokens\" : [ { \"token_id\" : 1 } ] , \"block_hash\" : 3 } ] ,\r\n\"parent_hash\" : 4 , \"type\" : \"stored\" } , \"event_id\" : 1 } ]", `
		batch time=0
		stored hashes=[3] parent=4 tokens=[1] size=1 window=64 id=1`},
		{"media and extra ids", `[{"event_id":1,"data":{"type":"stored","parent_hash":null,"blocks":[` + block("1", "0", 1, 2) + `,{"block_hash":2,"tokens":[{"token_id":3,"token_extra_id":0},
			{"token_id":4,"token_extra_id":9}],"cache_level":0,"mm_keys":[{"type":"mm_key","hash":"ab","start_offset":-3,"uuid":"u"}]}]},"window_size":64,"layer_group_id":2,"hash_algo":"v2_sha256"}]`,
			"batch time=0\nstored tier=device hashes=[1 2] tokens=[1 2 3 4] size=2" + fmt.Sprintf(` key=1/4/""+0#%x key=1/1/"ab"-3#%x`, xxh3.Hash(extra), xxh3.HashString("ab")) +
				" group=2 window=64 id=1\ncounts unknown=0 extra=0 opaque=1 missed=0"},
		{"removed", `[{"event_id":2,"data":{"type":"removed","block_hashes":[1,2]},"window_size":64}]`, "batch time=0\nremoved hashes=[1 2] window=64 id=2"},
		{"moved to the host", `[{"event_id":3,"data":{"type":"updated","block_hash":9,"cache_level":{"type":"event_diff","new_value":1,"old_value":0},"priority":null},"window_size":64}]`, `
		batch time=0
		stored tier=host hashes=[9] tokens=[] window=64 id=3
		removed tier=device hashes=[9] window=64 id=3`},
		{"another priority", `[{"event_id":3,"data":{"type":"updated","block_hash":9,"cache_level":null,"priority":{"type":"event_diff","new_value":1,"old_value":0}}}]`, `batch time=0`},
		{"all cleared", `[{"event_id":3,"data":{"type":"all_cleared"}}]`, "batch time=0\ncleared id=3"},
		{"of the future", `[{"event_id":3,"data":{"type":"shrunk","x":[{"y":"]}"}]}},{"event_id":4,"x":"\"}","data":{"type":"removed","block_hashes":[],"z":null}}]`,
			"batch time=0\nremoved hashes=[] id=4\ncounts unknown=1 extra=2 opaque=0 missed=0"},
		{"unreadable", `[1,null,[],{},{"data":1},{"data":{}},{"event_id":-1,"data":{"type":"created"}},{"data":{"type":"created"},"window_size":1.5},
			{"data":{"type":"stored","parent_hash":null}},{"data":{"type":"stored","blocks":{}}},{"data":{"type":"stored","blocks":[1]}},
			{"data":{"type":"stored","blocks":[{"tokens":[]}]}},{"data":{"type":"stored","blocks":[{"block_hash":"x"}]}},{"data":{"type":"stored","blocks":[{"block_hash":1,"block_hash":2}]}},
			{"data":{"type":"stored","blocks":[{"block_hash":1,"tokens":[1]}]}},{"data":{"type":"stored","blocks":[{"block_hash":1,"tokens":[{"token_id":-1}]}]}},
			{"data":{"type":"stored","blocks":[{"block_hash":1,"mm_keys":[{}]}]}},{"data":{"type":"stored","parent_hash":"x","blocks":[]}},
			{"data":{"type":"removed"}},{"data":{"type":"removed","block_hashes":1}},{"data":{"type":"removed","block_hashes":[18446744073709551616]}},
			{"data":{"type":"updated"}},{"data":{"type":"updated","block_hash":1,"cache_level":1}},{"data":{"type":"updated","block_hash":1,"cache_level":{"new_value":1}}},
			{"event_id":8,"data":{"type":"removed","block_hashes":[1]}}]`,
			"batch time=0\nremoved hashes=[1] id=8\ncounts unknown=0 extra=0 opaque=0 missed=24"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var b Batch
			for range 2 {
				if err := b.DecodeTensorRT([]byte(c.in)); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(lines(c.want), describe(&b, []byte(c.in))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			whole := strings.TrimRight(c.in, " ")
			for n := range whole {
				var syntax *SyntaxError
				if err := b.DecodeTensorRT([]byte(whole[:n])); !errors.As(err, &syntax) || syntax.Offset != n || len(b.Events) > 0 {
					t.Fatalf("cut to %d bytes: error %v, %d events", n, err, len(b.Events))
				}
			}
		})
	}
	for in, offset := range map[string]int{"": 0, "{}": 0, "[1,]": 3, "[}": 1, "[] x": 3, "nul": 3} {
		var b Batch
		var syntax *SyntaxError
		if err := b.DecodeTensorRT([]byte(in)); !errors.As(err, &syntax) || syntax.Offset != offset {
			t.Errorf("%s: %v, want an error at %d", in, err, offset)
		}
	}
}

// A dumb twin: the answer decoded by encoding/json, as far as events can be told that way. It knows drafts only.
func describeDrafts(events []DraftTensorRT) string {
	s := "batch time=0"
	for _, e := range events {
		tail := ""
		if e.Window > 0 {
			tail += fmt.Sprintf(" window=%d", e.Window)
		}
		if e.HasRank {
			tail += fmt.Sprintf(" rank=%d", e.Rank)
		}
		if e.ID > 0 {
			tail += fmt.Sprintf(" id=%d", e.ID)
		}
		tier := func(level uint32) string { return [...]string{"device", "host", "other"}[min(level, 2)] }
		switch e.Type {
		case "created":
			s += "\ncreated" + tail
		case "removed":
			s += fmt.Sprintf("\nremoved hashes=%v", e.Hashes) + tail
		case "updated":
			if tier(e.OldLevel) != tier(e.NewLevel) {
				s += fmt.Sprintf("\nstored tier=%s hashes=%v tokens=[]%s\nremoved tier=%s hashes=%v%s", tier(e.NewLevel), e.Hashes, tail, tier(e.OldLevel), e.Hashes, tail)
			}
		case "stored":
			for i := 0; i < len(e.Blocks); {
				first := e.Blocks[i]
				parent, hasParent := e.Parent, e.HasParent
				if i > 0 {
					parent, hasParent = e.Blocks[i-1].Hash, true
				}
				hashes, tokens, keys := []uint64{}, []uint32{}, ""
				for ; i < len(e.Blocks) && tier(e.Blocks[i].Level) == tier(first.Level) && len(e.Blocks[i].Tokens) == len(first.Tokens); i++ {
					for _, m := range e.Blocks[i].Media {
						keys += fmt.Sprintf(" key=%d/1/%q%+d#%x", len(hashes), m.Text, m.Offset, xxh3.HashString(m.Text))
					}
					hashes = append(hashes, e.Blocks[i].Hash)
					tokens = append(tokens, e.Blocks[i].Tokens...)
				}
				s += fmt.Sprintf("\nstored tier=%s hashes=%v", tier(first.Level), hashes)
				if hasParent {
					s += fmt.Sprintf(" parent=%d", parent)
				}
				s += fmt.Sprintf(" tokens=%v", tokens)
				if len(first.Tokens) > 0 {
					s += fmt.Sprintf(" size=%d", len(first.Tokens))
				}
				s += keys + tail
			}
		}
	}
	return s
}

func TestEncodeDecodeTensorRT(t *testing.T) {
	var b Batch
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) DraftTensorRT {
			e := DraftTensorRT{
				ID: rapid.Uint64().Draw(t, "id"), Window: rapid.Uint32().Draw(t, "window"), Rank: uint32(rapid.Int32Min(0).Draw(t, "rank")),
				HasRank: rapid.Bool().Draw(t, "has rank"), Type: rapid.SampledFrom([]string{"created", "stored", "stored", "removed", "updated"}).Draw(t, "type"),
				Parent: anyHash.Draw(t, "parent"), HasParent: rapid.Bool().Draw(t, "has parent"),
				OldLevel: rapid.Uint32Range(0, 2).Draw(t, "old"), NewLevel: rapid.Uint32Range(0, 2).Draw(t, "new"),
			}
			e.Hashes = rapid.SliceOfN(anyHash, 1, 5).Draw(t, "hashes")
			if e.Type == "updated" {
				e.Hashes = e.Hashes[:1]
			}
			for range rapid.IntRange(0, 6).Draw(t, "blocks") {
				k := DraftBlock{Hash: anyHash.Draw(t, "hash"), Level: rapid.Uint32Range(0, 2).Draw(t, "level"), Tokens: rapid.SliceOfN(rapid.Uint32(), 1, 2).Draw(t, "tokens")}
				for range rapid.IntRange(0, 2).Draw(t, "media") {
					k.Media = append(k.Media, DraftKey{Form: Item, Text: strconv.FormatUint(rapid.Uint64().Draw(t, "hash"), 16), Offset: rapid.Int64().Draw(t, "offset")})
				}
				e.Blocks = append(e.Blocks, k)
			}
			return e
		}), 0, 5).Draw(t, "events")
		payload := AppendTensorRT(nil, events)
		if err := b.DecodeTensorRT(payload); err != nil {
			t.Fatalf("%v\n%s", err, payload)
		}
		if diff := cmp.Diff(describeDrafts(events), describe(&b, payload)); diff != "" {
			t.Fatalf("(-want +got)\n%s\n%s", diff, payload)
		}
	})
}

func TestIntegersOfJSON(t *testing.T) {
	for in, want := range map[string]string{"0": "0 true", "-1": "18446744073709551615 true", "18446744073709551615": "18446744073709551615 true",
		"18446744073709551616": "0 false", "-9223372036854775808": "9223372036854775808 true", "-9223372036854775809": "0 false", "1.0": "0 false", "1e3": "0 false",
		"true": "0 false", `"1"`: "0 false"} {
		c := cursor{b: []byte(in)}
		v, _, ok := c.integer()
		if !ok {
			v = 0
		}
		if got := fmt.Sprint(v, ok); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// FuzzDecodeTensorRT: no panic, an error exactly where encoding/json has one or there is no array, and as many elements accounted
// for as there are.
func FuzzDecodeTensorRT(f *testing.F) {
	f.Add([]byte(`[{"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[100,5]},"window_size":4096,"attention_dp_rank":1}]`))
	f.Add([]byte(`[{"event_id":3,"data":{"type":"updated","block_hash":9,"cache_level":{"new_value":1,"old_value":0}}},{"data":{"type":"x"}}]`))
	f.Add(AppendTensorRT(nil, []DraftTensorRT{{ID: 1, Window: 9, Type: "stored", Blocks: []DraftBlock{{Hash: math.MaxUint64, Tokens: upTo(3), Media: []DraftKey{{Text: "ab"}}},
		{Hash: 2, Tokens: upTo(3)}, {Hash: 3, Tokens: upTo(2), Level: 1}}}, {ID: 2, Type: "removed", Hashes: []uint64{1, 2}}}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var b Batch
		err := b.DecodeTensorRT(payload)
		var elements []json.RawMessage
		ok := json.Unmarshal(payload, &elements) == nil && elements != nil
		if ok != (err == nil) {
			t.Fatalf("error %v, encoding/json reads an array: %v", err, ok)
		}
		if err != nil {
			return
		}
		if b.Counts.UnknownTags+b.Counts.Missed() > len(elements) {
			t.Fatalf("%+v of %d elements", b.Counts, len(elements))
		}
		at := uint32(0)
		for i := range b.Events {
			e := &b.Events[i]
			if e.At.From < at || int(e.At.To) > len(payload) || !json.Valid(e.At.In(payload)) {
				t.Fatalf("event %d stands at %v", i, e.At)
			}
			at = e.At.From
			if e.Kind == Stored && !e.Placeholder() && !e.Even() && e.BlockTokens > 0 {
				t.Fatalf("event %d: %d hashes, %d tokens, %d each", i, len(e.Hashes), len(e.Tokens), e.BlockTokens)
			}
			for _, k := range e.Keys {
				if int(k.Block) >= len(e.Hashes) {
					t.Fatalf("event %d: a key of block %d of %d", i, k.Block, len(e.Hashes))
				}
			}
		}
	})
}
