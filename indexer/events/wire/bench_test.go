package wire

import (
	"math/rand/v2"
	"testing"
)

// benchDraft is one stored event of 100 blocks and 1,600 tokens, whose ids are what ids says.
func benchDraft(r *rand.Rand, ids func(*rand.Rand) uint32) Draft {
	e := DraftEvent{Kind: Stored, BlockTokens: 16, Medium: "GPU", HasGroup: true, Spec: "full_attention", Extra: make([][]DraftKey, 100)}
	for range 100 {
		e.Hashes = append(e.Hashes, r.Uint64()|1<<63)
		for range 16 {
			e.Tokens = append(e.Tokens, ids(r))
		}
	}
	return Draft{Time: 1.7e9, Events: []DraftEvent{e}}
}

// Distributions of token ids.
func idsBelow64K(r *rand.Rand) uint32  { return r.Uint32N(65536) }
func idsBelow152K(r *rand.Rand) uint32 { return r.Uint32N(152_000) } // 43 % take three bytes, the others five, at random

// idsOfText has it as text does: most tokens are frequent.
func idsOfText(r *rand.Rand) uint32 {
	if r.IntN(5) == 0 {
		return r.Uint32N(152_000)
	}
	return r.Uint32N(20_000)
}

func BenchmarkDecode(b *testing.B) {
	of := func(ids func(*rand.Rand) uint32) func(*rand.Rand) Draft {
		return func(r *rand.Rand) Draft { return benchDraft(r, ids) }
	}
	digests := func(r *rand.Rand) Draft {
		d := benchDraft(r, idsBelow64K)
		for range d.Events[0].Hashes {
			d.Events[0].Digests = append(d.Events[0].Digests, make([]byte, 32))
		}
		return d
	}
	removals := func(r *rand.Rand) (d Draft) {
		for range 100 {
			d.Events = append(d.Events, DraftEvent{Kind: Removed, Hashes: []uint64{r.Uint64() | 1<<63}, Medium: "GPU", HasGroup: true})
		}
		return d
	}
	for _, c := range []struct {
		name  string
		enc   Encoder
		draft func(*rand.Rand) Draft
	}{
		{"stored 100 hashes 1600 tokens/ids below 65536/array", Encoder{Dialect: VLLMArray}, of(idsBelow64K)},
		{"stored 100 hashes 1600 tokens/ids below 65536/map", Encoder{Dialect: VLLMMap}, of(idsBelow64K)},
		{"stored 100 hashes 1600 tokens/ids below 152000/map", Encoder{Dialect: VLLMMap}, of(idsBelow152K)},
		{"stored 100 hashes 1600 tokens/ids as in text/map", Encoder{Dialect: VLLMMap}, of(idsOfText)},
		{"stored 100 digests 1600 tokens/map", Encoder{Dialect: VLLMMap}, digests},
		{"100 removals/array", Encoder{Dialect: VLLMArray}, removals},
		{"100 removals/map", Encoder{Dialect: VLLMMap}, removals},
	} {
		b.Run(c.name, func(b *testing.B) {
			// Different payloads in turn: of one alone the processor learns every branch by heart.
			var payloads [32][]byte
			for i := range payloads {
				payloads[i] = c.enc.Append(nil, c.draft(rand.New(rand.NewPCG(1, uint64(i)))))
			}
			var batch Batch
			b.SetBytes(int64(len(payloads[0])))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := batch.Decode(payloads[i%len(payloads)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRecording decodes the live messages of a running server.
func BenchmarkRecording(b *testing.B) {
	var payloads [][]byte
	size := 0
	for _, r := range read(b, "vllm-0.32.0-sha256-int-bs32") {
		if m, ok := r.message(b); ok {
			payloads = append(payloads, m.Payload)
			size += len(m.Payload)
		}
	}
	var batch Batch
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range payloads {
			if err := batch.Decode(p); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(len(payloads)), "messages/op")
}

func BenchmarkDecodeTensorRT(b *testing.B) {
	var events []DraftTensorRT
	for i := range 8 {
		events = append(events, DraftTensorRT{ID: uint64(i), Type: "stored", Blocks: []DraftBlock{{Hash: rand.Uint64(), Tokens: upTo(32)}, {Hash: rand.Uint64(), Tokens: upTo(32)}}})
	}
	payload := AppendTensorRT(nil, events)
	var batch Batch
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := batch.DecodeTensorRT(payload); err != nil {
			b.Fatal(err)
		}
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	for _, enc := range encoders {
		d := benchDraft(rand.New(rand.NewPCG(1, 1)), (*rand.Rand).Uint32)
		d.Events[0].Extra = [][]DraftKey{{{Form: Text, Text: "salt"}, {Form: Item, Text: "abcd"}}}
		payload := enc.Append(nil, d)
		var b Batch
		if n := testing.AllocsPerRun(10, func() {
			if err := b.Decode(payload); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%+v: %v allocations", enc, n)
		}
	}
}
