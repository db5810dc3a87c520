package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"
)

// pack writes MessagePack from a sketch: Go values, lists, and pairs for maps whose order matters.
func pack(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, leadNil)
	case bool:
		return append(b, leadTrue)
	case int:
		return appendInt(b, int64(v))
	case uint64:
		return appendUint(b, v)
	case float64:
		return appendFloat(b, v)
	case string:
		return appendText(b, v)
	case []byte:
		return appendBytes(b, v)
	case list:
		b = appendArray(b, len(v))
		for _, one := range v {
			b = pack(b, one)
		}
		return b
	case pairs:
		b = appendMap(b, len(v)/2)
		for _, one := range v {
			b = pack(b, one)
		}
		return b
	case raw:
		return append(b, v...)
	default:
		panic("pack: type")
	}
}

type (
	list  []any
	pairs []any
	raw   []byte
)

// batchOf is a batch of events without time and rank.
func batchOf(events ...any) list { return list{0, list(events), nil} }

func TestDecode(t *testing.T) {
	digest := func(last ...byte) []byte { return append(bytes.Repeat([]byte{0xee}, 32-len(last)), last...) }
	hash := func(v any) uint64 { return xxh3.Hash(pack(nil, v)) }
	text := xxh3.HashString
	stored := func(more ...any) pairs {
		return append(pairs{"type", "BlockStored", "block_hashes", list{7, 8}, "token_ids", list{1, 2, 3, 4}, "block_size", 2}, more...)
	}
	const base = "batch time=0\nstored hashes=[7 8] tokens=[1 2 3 4] size=2"
	cases := []struct {
		name string
		in   any
		want string
		args []any
	}{
		{"a batch without rank", list{1.5, list{}}, `batch time=1.5`, nil},
		{"a map batch", pairs{"ts", 1.5, "events", list{list{"AllBlocksCleared"}}, "data_parallel_rank", 3}, "batch time=1.5 rank=3\ncleared rank=3", nil},
		{"a map batch, rank first, as SGLang calls it", pairs{"attn_dp_rank", 3, "events", list{pairs{"type", "AllBlocksCleared"}}}, "batch time=0 rank=3\ncleared rank=3", nil},
		{"what a batch says besides", list{1, list{}, 2, 3, list{4}}, "batch time=1 rank=2\ncounts unknown=0 extra=2 opaque=0 missed=0", nil},
		{"a time and a rank that are none", list{"now", list{}, "first"}, "batch time=0\ncounts unknown=0 extra=2 opaque=0 missed=0", nil},
		{"array of 6: vLLM 0.9", batchOf(list{"BlockStored", list{7, 8}, 6, list{1, 2, 3, 4}, 2, 5}, list{"BlockRemoved", list{7}}), `
		batch time=0
		stored hashes=[7 8] parent=6 tokens=[1 2 3 4] size=2 lora_id=5
		removed hashes=[7]`, nil},
		{"array of 8 with adapter", batchOf(list{"BlockStored", list{7}, nil, list{1, 2}, 2, nil, "CPU", "lora-a"}, list{"BlockRemoved", list{7}, "cpu"}), `
		batch time=0
		stored tier=host medium="CPU" hashes=[7] tokens=[1 2] size=2 lora="lora-a"
		removed tier=host medium="cpu" hashes=[7]`, nil},
		{"array of 8 with SGLang's salt", batchOf(list{"BlockStored", list{7}, nil, list{1, 2}, 2, nil, "GPU", pairs{"cache_salt", "t"}}), `
		batch time=0
		stored tier=device medium="GPU" hashes=[7] tokens=[1 2] size=2 salt="t"`, nil},
		{"array with elements of the future", batchOf(list{"BlockStored", list{}, nil, list{}, 2, nil, nil, nil, nil, 1, nil, 9, "x", list{1}}, list{"AllBlocksCleared", 1}), `
		batch time=0
		stored hashes=[] tokens=[] size=2 group=1 window=9
		cleared
		counts unknown=0 extra=3 opaque=0 missed=0`, nil},
		{"map in another order", batchOf(pairs{"block_size", 2, "token_ids", list{1, 2}, "group_idx", 1, "block_hashes", list{7}, "type", "BlockStored"}),
			"batch time=0\nstored hashes=[7] tokens=[1 2] size=2 group=1", nil},
		{"all that vLLM 0.32 says", batchOf(stored("parent_block_hash", nil, "lora_id", nil, "medium", "STORAGE", "lora_name", nil, "group_idx", 2,
			"kv_cache_spec_kind", "sliding_window", "kv_cache_spec_sliding_window", 64, "locality", "REMOTE", "ownership", "kvcr", "session_id", "s"),
			pairs{"type", "BlockRemoved", "block_hashes", list{7, 8}, "medium", nil, "locality", "LOCAL", "ownership", "kvcr", "remaining_copy_counts", list{1, 0}}), `
		batch time=0
		stored tier=disk medium="STORAGE" hashes=[7 8] tokens=[1 2 3 4] size=2 group=2 spec=3 specs="sliding_window" window=64 locality=2 ownership="kvcr" session="s"
		removed hashes=[7 8] copies=[1 0] locality=1 ownership="kvcr"`, nil},
		{"fields of the future", batchOf(stored("event_version", 2, 5, 6, "x", pairs{"y", list{nil}})), base + "\ncounts unknown=0 extra=3 opaque=0 missed=0", nil},
		{"tags of the future", batchOf(list{"BlockMoved", list{7}}, pairs{"type", "BlockMoved", "x", 1}, pairs{"block_hashes", "?", "type", "BlockMoved"}, list{"AllBlocksCleared"}),
			"batch time=0\ncleared\ncounts unknown=3 extra=0 opaque=0 missed=0", nil},
		{"hashes of all forms", batchOf(list{"BlockRemoved", list{uint64(1 << 63), -1, -2, 200, -200, 70000, -70000, digest(0, 0, 0, 0, 0, 0, 1, 2), []byte{9, 1}}}),
			"batch time=0\nremoved hashes=[9223372036854775808 18446744073709551615 18446744073709551614 200 18446744073709551416 70000 18446744073709481616 258 2305] digests=true", nil},
		{"a parent of bytes", batchOf(list{"BlockStored", list{7}, digest(0, 0, 0, 0, 0, 0, 0, 5), list{1, 2}, 2, nil}),
			"batch time=0\nstored hashes=[7] digests=true parent=5 tokens=[1 2] size=2", nil},
		{"tokens of all widths", batchOf(list{"BlockStored", list{7}, nil, list{0, 127, 128, 255, 256, 65535, 65536, uint64(1<<32 - 1), raw{leadUint64, 0, 0, 0, 0, 0, 0, 0, 5},
			raw{leadInt8, 5}, raw{leadInt64, 0, 0, 0, 0, 0, 0, 0, 6}, raw{leadUint16, 0, 7}}, 12, nil}),
			"batch time=0\nstored hashes=[7] tokens=[0 127 128 255 256 65535 65536 4294967295 5 5 6 7] size=12", nil},
		{"bigrams", batchOf(stored("token_ids", list{list{10, 20}, list{20, 30}, list{30, 70000}})), "batch time=0\nstored hashes=[7 8] tokens=[10 20 30] next=70000 size=2", nil},
		{"a placeholder", batchOf(stored("token_ids", list{}, "block_size", 0, "medium", "CPU")), "batch time=0\nstored tier=host medium=\"CPU\" hashes=[7 8] tokens=[]", nil},
		{"nil lists", batchOf(pairs{"type", "BlockStored", "block_hashes", nil, "token_ids", nil, "block_size", nil}), "batch time=0\nstored hashes=[] tokens=[]", nil},
		{"events that cannot be read", batchOf(1, nil, list{}, list{1}, pairs{}, pairs{"type", 1}, pairs{"block_hashes", list{}},
			list{"BlockStored"}, list{"BlockStored", list{7}, nil, list{1}}, pairs{"type", "BlockRemoved"},
			list{"BlockRemoved", 7}, list{"BlockRemoved", list{"x"}}, list{"BlockRemoved", list{[]byte{}}}, list{"BlockStored", list{7}, "x", list{1}, 1},
			stored("token_ids", 5), stored("token_ids", list{-1}), stored("token_ids", list{uint64(1 << 32)}), stored("token_ids", list{1, 2, 3, 4, 5, 6, 7, 8, 1.5}),
			stored("token_ids", list{list{1, 2}, list{3, 4}}), stored("token_ids", list{list{1, 2}, 2}), stored("token_ids", list{list{1, 2, 3}}),
			stored("block_size", -1), stored("medium", 1), stored("group_idx", -1), stored("session_id", list{}), stored("lora_id", uint64(1<<63)),
			stored("remaining_copy_counts", 1), list{"AllBlocksCleared"}),
			"batch time=0\ncleared\ncounts unknown=0 extra=0 opaque=0 missed=27", nil},
		{"salt of a first block", batchOf(stored("extra_keys", list{list{"tenant-a"}, nil})), base + ` salt="tenant-a"`, nil},
		{"adapter, then salt", batchOf(stored("extra_keys", list{list{"lora-a", "tenant-a"}, list{"lora-a"}}, "lora_name", "lora-a")),
			base + ` lora="lora-a" salt="tenant-a"`, nil},
		{"adapter and salt of one spelling", batchOf(stored("lora_name", "x", "extra_keys", list{list{"x", "x"}, list{"x"}})), base + ` lora="x" salt="x"`, nil},
		{"media, salt and embeddings in the order of vLLM", batchOf(stored("extra_keys", list{list{list{"abcd", -3}, "s", []byte{1, 2}}, list{list{"abcd", -5}}})),
			base + ` salt="s" key=0/1/"abcd"-3#%x key=0/3/"\x01\x02"+0#%x key=1/1/"abcd"-5#%x`, []any{text("abcd"), text("\x01\x02"), text("abcd")}},
		{"strings of a later block are media", batchOf(stored("parent_block_hash", 6, "extra_keys", list{list{"img"}, list{"img"}})),
			"batch time=0\nstored hashes=[7 8] parent=6 tokens=[1 2 3 4] size=2" + ` key=0/2/"img"+0#%x key=1/2/"img"+0#%x`, []any{text("img"), text("img")}},
		{"the last string is the salt", batchOf(stored("extra_keys", list{list{"img", "s", list{"late", 0}}, list{"img"}})),
			base + ` salt="s" key=0/2/"img"+0#%x key=0/1/"late"+0#%x key=1/2/"img"+0#%x`, []any{text("img"), text("late"), text("img")}},
		{"SGLang's salt twice", batchOf(stored("cache_salt", "s", "extra_keys", list{list{"s"}, list{"s", "img"}})),
			base + ` salt="s" key=1/2/"img"+0#%x`, []any{text("img")}},
		{"opaque keys", batchOf(stored("extra_keys", list{list{pairs{"type", "mm"}, 5}, pairs{"a", 1}, list{"beyond"}})),
			base + ` key=0/4/"\x81\xa4type\xa2mm"+0#%x key=0/4/"\x05"+0#%x key=1/4/"\x81\xa1a\x01"+0#%x` + "\ncounts unknown=0 extra=0 opaque=3 missed=0",
			[]any{hash(pairs{"type", "mm"}), hash(5), hash(pairs{"a", 1})}},
		{"keys that are no list", batchOf(stored("extra_keys", pairs{"a", 1})), base + ` key=0/4/"\x81\xa1a\x01"+0#%x` + "\ncounts unknown=0 extra=0 opaque=1 missed=0", []any{hash(pairs{"a", 1})}},
		{"Dynamo's media", batchOf(stored("block_mm_infos", list{nil, pairs{"mm_hash", 5}})),
			base + ` key=1/4/"\x81\xa7mm_hash\x05"+0#%x` + "\ncounts unknown=0 extra=0 opaque=1 missed=0", []any{hash(pairs{"mm_hash", 5})}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			payload := pack(nil, c.in)
			var b Batch
			for range 2 { // the second time into used memory
				if err := b.Decode(payload); err != nil {
					t.Fatal(err)
				}
			}
			want := lines(c.want)
			if len(c.args) > 0 {
				want = sprintf(want, c.args)
			}
			if diff := cmp.Diff(want, describe(&b, payload)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			tree, ok := dumbTree(payload)
			if twin, is := describeTwin(tree); !ok || !is || twin != want {
				t.Errorf("the twin reads\n%s", twin)
			}
		})
	}
}

// sprintf puts the hashes into the %x of a text that has other percent signs nowhere.
func sprintf(format string, args []any) string {
	for _, a := range args {
		format = strings.Replace(format, "%x", hex16(a.(uint64)), 1)
	}
	return format
}

func hex16(v uint64) string {
	const digits = "0123456789abcdef"
	s := ""
	for ; v > 0; v >>= 4 {
		s = string(digits[v&15]) + s
	}
	return s
}

func TestSyntaxErrors(t *testing.T) {
	huge := func(lead byte, rest ...byte) raw { return append(raw{lead, 0xff, 0xff, 0xff, 0xff}, rest...) }
	cases := []struct {
		name   string
		in     any
		offset int
		want   string
	}{
		{"nothing", raw{}, 0, "a value"},
		{"no batch", 5, 0, "a batch: an array or a map"},
		{"half a batch", list{1}, 1, "a batch of at least a time and events"},
		{"no list of events", list{1, "x", 2}, 2, "the list of events"},
		{"a map without events", pairs{"ts", 1}, 5, `a batch with "events"`},
		{"a byte that begins nothing", list{1, list{raw{0xc1}}}, 3, "a value"},
		{"something behind", raw{0x92, 1, 0x90, 0}, 3, "the end of the payload"},
		{"more events than bytes", list{1, huge(leadArray32)}, 7, "as many elements as the list says"},
		{"more hashes than bytes", batchOf(list{"BlockRemoved", huge(leadArray32)}), 23, "as many elements as the list says"},
		{"more text than bytes", list{1, list{pairs{huge(leadStr32), 1}}}, 10, "the rest of a value"},
		{"more unknown elements than bytes", list{1, list{list{"X", huge(leadMap32, 0, 0)}}}, 13, "as many elements as the list says"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var b Batch
			err := b.Decode(pack(nil, c.in))
			var syntax *SyntaxError
			if !errors.As(err, &syntax) || syntax.Offset != c.offset || syntax.Want != c.want {
				t.Errorf("error %v, want at %d: %s", err, c.offset, c.want)
			}
		})
	}
	if got, want := (&SyntaxError{Offset: 17, Want: "the list of events", Got: "byte 0xc0"}).Error(), "batch: byte 17: expected the list of events, found byte 0xc0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var b Batch
	if err := b.Decode(make([]byte, MaxPayload+1)); err == nil {
		t.Error("a payload above the cap is read")
	}
}

// ints is a list of n ones.
func ints(n int) raw {
	return append(raw(binary.BigEndian.AppendUint32([]byte{leadArray32}, uint32(n))), bytes.Repeat([]byte{1}, n)...)
}

func TestCaps(t *testing.T) {
	event := func(hashes, tokens int) list { return list{"BlockStored", ints(hashes), nil, ints(tokens), 1} }
	repeat := func(n int, v any) (l list) {
		for range n {
			l = append(l, v)
		}
		return l
	}
	keys := func(n int) pairs {
		return pairs{"type", "BlockStored", "block_hashes", list{1}, "token_ids", list{}, "block_size", 0, "extra_keys", list{ints(n)}}
	}
	cases := []struct {
		name   string
		in     list
		events int
		why    Reason
		missed int
	}{
		{"as many hashes as allowed", list{event(MaxHashes, 0)}, 1, ReasonCap, 0},
		{"one more", list{event(MaxHashes+1, 0), event(1, 1)}, 1, ReasonCap, 1},
		{"as many tokens as allowed", list{event(1, MaxTokens)}, 1, ReasonCap, 0},
		{"one more token", list{event(1, MaxTokens+1), event(1, 1)}, 1, ReasonCap, 1},
		{"as many keys as allowed", list{keys(MaxKeys)}, 1, ReasonCap, 0},
		{"one more key", list{keys(MaxKeys + 1), event(1, 1)}, 1, ReasonCap, 1},
		{"hashes of a batch", repeat(65, event(MaxHashes, 0)), 64, ReasonCap, 1},
		{"tokens of a batch", repeat(9, event(1, MaxTokens)), 8, ReasonCap, 1},
		{"keys of a batch", repeat(9, keys(MaxKeys)), 8, ReasonCap, 1},
		{"events of a batch", repeat(MaxEvents+2, list{"AllBlocksCleared"}), MaxEvents, ReasonCap, 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var b Batch
			if err := b.Decode(pack(nil, list{0, c.in, nil})); err != nil {
				t.Fatal(err)
			}
			if len(b.Events) != c.events || b.Counts.Unread[c.why] != c.missed || b.Counts.Missed() != c.missed {
				t.Errorf("%d events, %+v; want %d events and %d missed", len(b.Events), b.Counts, c.events, c.missed)
			}
			if err := b.Decode(pack(nil, batchOf())); err != nil {
				t.Fatal(err)
			}
			if cap(b.Events) > keepEvents || cap(b.hashes) > keepHashes || cap(b.tokens) > keepTokens || cap(b.keys) > keepKeys {
				t.Errorf("kept %d events, %d hashes, %d tokens, %d keys", cap(b.Events), cap(b.hashes), cap(b.tokens), cap(b.keys))
			}
		})
	}
}

func TestUnread(t *testing.T) {
	in := batchOf(list{"AllBlocksCleared"}, 5, list{"BlockRemoved", 7}, list{"BlockRemoved"}, pairs{"type", "BlockRemoved", "block_hashes", list{}, "medium", 1},
		list{"BlockStored", list{1}, nil, list{-1}, 1})
	var b Batch
	if err := b.Decode(pack(nil, in)); err != nil {
		t.Fatal(err)
	}
	want := Counts{UnreadAt: 21}
	for _, why := range []Reason{ReasonShape, ReasonHashes, ReasonMissing, ReasonField, ReasonTokens} {
		want.Unread[why] = 1
	}
	if b.Counts != want {
		t.Errorf("%+v, want %+v", b.Counts, want)
	}
	var labels []string
	for _, r := range Reasons() {
		labels = append(labels, r.String())
	}
	if got := strings.Join(labels, " "); got != "shape missing hashes tokens field cap" {
		t.Errorf("labels %q", got)
	}
	if e := b.Events[0]; string(e.At.In(pack(nil, in))) != string(pack(nil, list{"AllBlocksCleared"})) {
		t.Errorf("the event stands at %v", e.At)
	}
}

func TestShapesOfEvents(t *testing.T) {
	for _, c := range []struct {
		e                 Event
		placeholder, even bool
	}{
		{Event{Kind: Stored, Hashes: []uint64{1}}, true, false},
		{Event{Kind: Removed, Hashes: []uint64{1}}, false, false},
		{Event{Kind: Stored, Hashes: []uint64{1, 2}, Tokens: upTo(4), BlockTokens: 2}, false, true},
		{Event{Kind: Stored, Hashes: []uint64{1}, Tokens: upTo(4), BlockTokens: 2}, false, false},
		{Event{Kind: Stored, Tokens: upTo(4), BlockTokens: 2}, false, false},
	} {
		if c.e.Placeholder() != c.placeholder || c.e.Even() != c.even {
			t.Errorf("%+v: placeholder %v, even %v", c.e, c.e.Placeholder(), c.e.Even())
		}
	}
}

func TestWords(t *testing.T) {
	for word, want := range map[string]Tier{"": TierUnsaid, "GPU": Device, "gpu": Device, "CPU": Host, "cpu": Host, "CPU_PINNED": Host, "STORAGE": Disk,
		"DISK": Disk, "EXTERNAL": Remote, "LocalCPUBackend": Host, "TAPE": TierOther} {
		if got := TierOf([]byte(word)); got != want {
			t.Errorf("tier of %q: %v, want %v", word, got, want)
		}
	}
	for word, want := range map[string]Spec{"": SpecUnsaid, "full_attention": FullAttention, "mamba": Mamba, "unknown": SpecUnknown, "linear": SpecOther} {
		if got := SpecOf([]byte(word)); got != want {
			t.Errorf("kind of %q: %v, want %v", word, got, want)
		}
	}
	for s := SpecUnsaid; s <= SpecOther; s++ {
		if full := s == FullAttention || s == MLAAttention || s == SinkFullAttention; s.Full() != full {
			t.Errorf("%v: full %v", s, s.Full())
		}
	}
	if SpecOther.String() != "other" || Mamba.String() != "mamba" || Remote.String() != "remote" || Tier(99).String() != "other" {
		t.Error("names")
	}
}
