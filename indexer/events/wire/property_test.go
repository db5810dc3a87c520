package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

// encoders are all dialects and versions.
var encoders = []Encoder{
	{Dialect: VLLMArray, Fields: 6, NoRank: true}, {Dialect: VLLMArray, Fields: 6}, {Dialect: VLLMArray, Fields: 7}, {Dialect: VLLMArray, Fields: 8},
	{Dialect: VLLMArray, Fields: 9}, {Dialect: VLLMArray, Fields: 10}, {Dialect: VLLMArray}, {Dialect: VLLMMap}, {Dialect: VLLMMap, MapBatch: true},
	{Dialect: VLLMArray, MapBatch: true}, {Dialect: SGLangArray}, {Dialect: SGLangMap}, {Dialect: TensorRTMap},
}

func word(extra ...string) *rapid.Generator[string] {
	return rapid.SampledFrom(append([]string{"", "a", "tenant-a", "größer", strings.Repeat("long", 20)}, extra...))
}

var anyHash = rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 127, 128, 1<<63 - 1, 1 << 63, 1<<64 - 1, 1<<64 - 129}))

func drawKeys(t *rapid.T) []DraftKey {
	keys := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) DraftKey {
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
			return DraftKey{Form: Text, Text: rapid.SampledFrom([]string{"lora-a", "tenant-a", "image"}).Draw(t, "text")}
		case 1:
			return DraftKey{Form: Item, Text: word().Draw(t, "identifier"), Offset: rapid.Int64().Draw(t, "offset")}
		case 2:
			return DraftKey{Form: Digest, Raw: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "digest")}
		default:
			return DraftKey{Form: Opaque, Raw: pack(nil, rapid.SampledFrom([]any{nil, 5, 1.5, list{1}, pairs{"x", list{nil}}}).Draw(t, "opaque"))}
		}
	}), 0, 4).Draw(t, "keys")
	if rapid.Bool().Draw(t, "none") {
		return nil
	}
	return keys
}

func drawEvent(t *rapid.T) DraftEvent {
	e := DraftEvent{
		Kind:        rapid.SampledFrom([]Kind{Stored, Stored, Stored, Removed, Cleared}).Draw(t, "kind"),
		Hashes:      rapid.SliceOfN(anyHash, 0, 20).Draw(t, "hashes"),
		Parent:      anyHash.Draw(t, "parent"),
		HasParent:   rapid.Bool().Draw(t, "has parent"),
		Tokens:      rapid.SliceOfN(rapid.Uint32(), 0, 40).Draw(t, "tokens"),
		NextToken:   rapid.Uint32().Draw(t, "next"),
		BlockTokens: rapid.Uint32().Draw(t, "size"),
		LoRAID:      rapid.Int64().Draw(t, "lora id"),
		HasLoRAID:   rapid.Bool().Draw(t, "has lora id"),
		Medium:      rapid.SampledFrom([]string{"", "GPU", "cpu", "CPU_PINNED", "STORAGE", "EXTERNAL", "TAPE"}).Draw(t, "medium"),
		LoRA:        word("lora-a").Draw(t, "lora"),
		Group:       rapid.Int32Min(0).Draw(t, "group"),
		HasGroup:    rapid.Bool().Draw(t, "has group"),
		Spec:        word("full_attention", "mamba").Draw(t, "spec"),
		Window:      rapid.Uint32().Draw(t, "window"),
		Locality:    rapid.SampledFrom([]string{"", "LOCAL", "REMOTE", "NEAR"}).Draw(t, "locality"),
		Ownership:   word("kvcr").Draw(t, "ownership"),
		Session:     word().Draw(t, "session"),
		Salt:        word().Draw(t, "salt"),
	}
	e.Bigram = len(e.Tokens) > 0 && rapid.Bool().Draw(t, "bigram")
	if rapid.Bool().Draw(t, "digests") {
		for _, h := range e.Hashes {
			e.Digests = append(e.Digests, binary.BigEndian.AppendUint64(make([]byte, 24), h))
		}
	}
	if rapid.Bool().Draw(t, "parent digest") {
		e.ParentDigest = binary.BigEndian.AppendUint64(make([]byte, 8), e.Parent)
	}
	if rapid.Bool().Draw(t, "has extra keys") {
		e.Extra = [][]DraftKey{}
		for range e.Hashes {
			e.Extra = append(e.Extra, drawKeys(t))
		}
	}
	return e
}

// expect is describe of an event after its way through a dialect that drops what it cannot say.
func expect(e DraftEvent, c Encoder, rank uint32) string {
	var s strings.Builder
	s.WriteString(kinds[e.Kind])
	say := func(is bool, format string, v any) {
		if is {
			fmt.Fprintf(&s, " "+format, v)
		}
	}
	stored, removed := e.Kind == Stored, e.Kind == Removed
	length := c.Fields
	vllmMap := c.Dialect == VLLMMap || c.Dialect == TensorRTMap
	switch {
	case vllmMap:
		length = 15
	case c.Dialect == SGLangArray:
		length = 7
	case c.Dialect == SGLangMap:
		length = 7
	case length == 0:
		length = 12
	}
	sglangMap := c.Dialect == SGLangMap
	medium := (stored || removed) && length >= 7 && e.Medium != ""
	say(medium, "tier=%v", TierOf([]byte(e.Medium)))
	say(medium, "medium=%q", e.Medium)
	say(stored || removed, "hashes=%v", e.Hashes)
	parent := stored && (e.HasParent || len(e.ParentDigest) > 0)
	say((stored || removed) && len(e.Digests) > 0 || stored && len(e.ParentDigest) > 0, "%s", "digests=true")
	say(parent, "parent=%v", e.Parent)
	say(stored, "tokens=%v", e.Tokens)
	say(stored && e.Bigram, "next=%v", e.NextToken)
	say(stored && e.BlockTokens > 0, "size=%v", e.BlockTokens)
	lora := ""
	if stored && (length >= 8 || sglangMap) {
		lora = e.LoRA
	}
	say(lora != "", "lora=%q", lora)
	say(stored && e.HasLoRAID, "lora_id=%v", e.LoRAID)
	salt, keys := "", ""
	if stored && c.Dialect >= SGLangArray && c.Dialect <= SGLangMap {
		salt = e.Salt
	}
	if stored && length >= 9 {
		salt, keys = expectKeys(e.Extra, lora, !parent)
	}
	say(salt != "", "salt=%q", salt)
	s.WriteString(keys)
	say((stored || removed) && length >= 10 && e.HasGroup, "group=%v", e.Group)
	spec := stored && length >= 12 && e.Spec != ""
	say(spec, "spec=%d", SpecOf([]byte(e.Spec)))
	say(spec, "specs=%q", e.Spec)
	say(stored && length >= 12 && e.Window > 0, "window=%v", e.Window)
	say((stored || removed) && vllmMap && e.Locality != "", "locality=%v", LocalityOf([]byte(e.Locality)))
	say((stored || removed) && vllmMap && e.Ownership != "", "ownership=%q", e.Ownership)
	say(stored && (vllmMap || sglangMap) && e.Session != "", "session=%q", e.Session)
	say(!c.NoRank, "rank=%d", rank)
	return s.String()
}

func expectKeys(extra [][]DraftKey, lora string, first bool) (salt, keys string) {
	for block, entry := range extra {
		named := lora == ""
		last := -1
		var rest []DraftKey
		for _, k := range entry {
			if k.Form == Text && !named && k.Text == lora {
				named = true
				continue
			}
			if k.Form == Text && salt != "" && k.Text == salt {
				continue
			}
			if k.Form == Text {
				last = len(rest)
			}
			rest = append(rest, k)
		}
		for i, k := range rest {
			text := []byte(k.Text)
			if block == 0 && first && i == last {
				salt = k.Text
				continue
			}
			if k.Form == Digest || k.Form == Opaque {
				text = k.Raw
			}
			keys += fmt.Sprintf(" key=%d/%d/%q%+d#%x", block, k.Form, text, k.Offset, xxh3.Hash(text))
		}
	}
	return salt, keys
}

func TestEncodeDecode(t *testing.T) {
	var b Batch // used again and again, so that nothing of one batch may show in the next
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(encoders).Draw(t, "encoder")
		d := Draft{Time: rapid.Float64Range(0, 2e9).Draw(t, "time"), Rank: uint32(rapid.Int32Min(0).Draw(t, "rank"))}
		for range rapid.IntRange(0, 5).Draw(t, "events") {
			d.Events = append(d.Events, drawEvent(t))
		}
		payload := c.Append(nil, d)
		if err := b.Decode(payload); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("batch time=%v", d.Time)
		if !c.NoRank {
			want += fmt.Sprintf(" rank=%d", d.Rank)
		}
		for _, e := range d.Events {
			want += "\n" + expect(e, c, d.Rank)
		}
		got, _, _ := strings.Cut(describe(&b, payload), "\ncounts")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
		if b.Counts.UnknownTags+b.Counts.ExtraFields+b.Counts.Missed() > 0 {
			t.Fatalf("counts %+v", b.Counts)
		}
		tree, ok := dumbTree(payload)
		twin, is := describeTwin(tree)
		if !ok || !is || twin != describe(&b, payload) {
			t.Fatalf("the twin reads\n%s\nnot\n%s", twin, describe(&b, payload))
		}
		if cut := rapid.IntRange(0, len(payload)-1).Draw(t, "cut"); b.Decode(payload[:cut]) == nil {
			t.Fatalf("cut to %d of %d bytes there is no error", cut, len(payload))
		}
	})
}
