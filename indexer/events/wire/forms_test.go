package wire

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestForms reads every form that MessagePack has, where a field is known and where it is skipped.
func TestForms(t *testing.T) {
	text := func(lead byte, size ...byte) raw { return append(append(raw{lead}, size...), "GPU"...) }
	object := func(lead byte, size ...byte) raw {
		return append(append(raw{lead}, size...), pack(nil, pairs{"type", "AllBlocksCleared"})[1:]...)
	}
	for name, v := range map[string]any{
		"fixed text": "GPU", "text of 8 bits": text(leadStr8, 3), "text of 16 bits": text(leadStr16, 0, 3), "text of 32 bits": text(leadStr32, 0, 0, 0, 3),
		"long text": strings.Repeat("x", 300), "longest text": strings.Repeat("x", 70_000), "data": []byte("x"), "long data": bytes.Repeat([]byte{1}, 300),
		"longest data": bytes.Repeat([]byte{1}, 70_000), "map of 16 bits": object(leadMap16, 0, 1), "map of 32 bits": object(leadMap32, 0, 0, 0, 1),
		"long list": ints(20), "true": raw{leadTrue}, "false": raw{leadFalse}, "float": 1.5, "short float": raw{leadFloat32, 0x3f, 0xc0, 0, 0},
		"negative": -5, "far negative": -1 << 40, "extension of 1": raw{leadFixExt1, 1, 2}, "extension of 16": append(raw{leadFixExt16, 1}, make([]byte, 16)...),
		"extension of 8 bits": raw{leadExt8, 2, 1, 0, 0}, "extension of 16 bits": raw{0xc8, 0, 2, 1, 0, 0}, "extension of 32 bits": raw{leadExt32, 0, 0, 0, 2, 1, 0, 0},
		"many members": append(appendMap(nil, 20), bytes.Repeat([]byte{0xa1, 'k', 5}, 20)...),
	} {
		if b, ok := v.([]byte); ok && name == "many members" {
			v = raw(b)
		}
		for place, in := range map[string]any{
			"time": list{v, list{}, 1}, "rank": list{1, list{}, v}, "besides": list{1, list{}, 1, v}, "event": batchOf(v, list{"AllBlocksCleared"}),
			"tag": batchOf(pairs{"type", v}), "name": batchOf(pairs{v, 1, "type", "AllBlocksCleared"}), "batch name": pairs{v, 1, "events", list{}},
			"medium": batchOf(pairs{"type", "BlockRemoved", "block_hashes", list{1}, "medium", v}), "hash": batchOf(list{"BlockRemoved", list{v, 1}}),
			"unknown": batchOf(list{"X", v, list{v}}), "batch": v,
			"key": batchOf(pairs{"type", "BlockStored", "block_hashes", list{1}, "token_ids", list{1}, "block_size", 1, "parent_block_hash", 5,
				"extra_keys", list{list{v, list{v, 1}, list{"id", v}, list{v}}}}),
			"keys":   batchOf(pairs{"type", "BlockStored", "block_hashes", list{1}, "token_ids", list{1}, "block_size", 1, "extra_keys", v, "block_mm_infos", list{v}}),
			"copies": batchOf(pairs{"type", "BlockRemoved", "block_hashes", list{1}, "remaining_copy_counts", v}),
		} {
			payload := pack(nil, in)
			tree, ok := dumbTree(payload)
			want := ""
			if ok {
				want, ok = describeTwin(tree)
			}
			var b Batch
			if err := b.Decode(payload); (err == nil) != ok {
				t.Errorf("%s as %s: error %v, the twin reads: %v", name, place, err, ok)
			} else if err == nil {
				if diff := cmp.Diff(want, describe(&b, payload)); diff != "" {
					t.Errorf("%s as %s: (-twin +got)\n%s", name, place, diff)
				}
			}
		}
	}
}

func TestTensorRTCaps(t *testing.T) {
	list := func(n int, one string) string { return strings.Repeat(one+",", n-1) + one }
	removed := func(n int) string { return `{"data":{"type":"removed","block_hashes":[` + list(n, "1") + `]}}` }
	stored := func(n int, block string) string {
		return `{"data":{"type":"stored","blocks":[` + list(n, block) + `]}}`
	}
	block := func(tokens int) string { return `{"block_hash":1,"tokens":[` + list(tokens, `{"token_id":1}`) + `]}` }
	for name, c := range map[string]struct {
		in     string
		missed int
	}{
		"as many hashes as allowed": {removed(MaxHashes), 0},
		"one more":                  {removed(MaxHashes + 1), 1},
		"one more block":            {stored(MaxHashes+1, `{"block_hash":1}`), 1},
		"one more token":            {stored(1, block(MaxTokens+1)), 1},
		"one more token, in blocks": {stored(2, block(MaxTokens/2+1)), 1},
		"one more key":              {stored(1, `{"block_hash":1,"mm_keys":[`+list(MaxKeys+1, `{"hash":""}`)+`]}`), 1},
		"one more event":            {list(MaxEvents+1, `{"data":{"type":"created"}}`), 1},
	} {
		var b Batch
		if err := b.DecodeTensorRT([]byte("[" + c.in + "]")); err != nil {
			t.Fatal(err)
		}
		if b.Counts.Missed() != c.missed || b.Counts.Unread[ReasonCap] != c.missed {
			t.Errorf("%s: %+v", name, b.Counts)
		}
	}
	var b Batch
	if err := b.DecodeTensorRT(make([]byte, MaxPayload+1)); err == nil {
		t.Error("a payload above the cap is read")
	}
}
