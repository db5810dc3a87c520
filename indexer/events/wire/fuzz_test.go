package wire

import (
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzDecode compares Decode with its twin on anything: neither panics, both see the same events or both see none, and memory
// stays in proportion.
func FuzzDecode(f *testing.F) {
	for _, g := range goldens {
		f.Add(unhex(f, g.hex))
	}
	for _, name := range recordings(f) {
		seen := map[string]bool{}
		for _, r := range read(f, name) {
			if m, ok := r.message(f); ok && !seen[r.step] && len(m.Payload) < 1500 {
				seen[r.step] = true
				f.Add(m.Payload)
			}
		}
	}
	f.Add(pack(nil, batchOf(pairs{"type", "BlockStored", "block_hashes", list{7, []byte{1}}, "token_ids", list{list{1, 2}, list{2, 3}}, "block_size", 2,
		"lora_name", "x", "extra_keys", list{list{"x", "s", list{"abcd", -3}, []byte{1}, pairs{"a", 1}}, nil}, "session_id", "s"},
		pairs{"type", "BlockRemoved", "block_hashes", list{-1}, "remaining_copy_counts", list{1}, "locality", "LOCAL"},
		list{"BlockStored", list{7}, nil, list{1, 2}, 2, nil, "GPU", pairs{"cache_salt", "t"}}, list{"X", raw{leadExt8, 1, 2, 3}})))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var b Batch
		err := b.Decode(payload)
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20+200*uint64(len(payload)) {
			t.Errorf("%d bytes allocated for %d", grown, len(payload))
		}
		if len(payload) > 1<<16 {
			return // the twin is slow, and deep
		}
		tree, ok := dumbTree(payload)
		want := ""
		if ok {
			want, ok = describeTwin(tree)
		}
		if ok != (err == nil) {
			t.Fatalf("error %v, the twin reads: %v\n%s", err, ok, want)
		}
		if err != nil {
			return
		}
		if diff := cmp.Diff(want, describe(&b, payload)); diff != "" {
			t.Errorf("(-twin +got)\n%s", diff)
		}
	})
}
