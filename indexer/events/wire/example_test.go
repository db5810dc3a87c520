package wire_test

import (
	"fmt"

	"attache/indexer/events/wire"
)

// A subscriber reads message after message into one Batch.
func ExampleBatch() {
	// What an engine sends: here one that is simulated.
	engine := wire.Encoder{Dialect: wire.VLLMMap}
	payload := engine.Append(nil, wire.Draft{Time: 1.7e9, Rank: 1, Events: []wire.DraftEvent{
		{Kind: wire.Removed, Hashes: []uint64{41}, Medium: "GPU"},
		{Kind: wire.Stored, Hashes: []uint64{42, 43}, Tokens: []uint32{1, 2, 3, 4}, BlockTokens: 2, Medium: "GPU"},
	}})
	frames := wire.LiveFrames(wire.Message{Topic: []byte("kv@pod@model"), Seq: 7, Payload: payload})

	var batch wire.Batch
	m, err := wire.ParseLive(frames)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := batch.Decode(m.Payload); err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range batch.Events {
		switch e.Kind {
		case wire.Stored:
			fmt.Printf("%d: rank %d stored %v in its %s memory\n", m.Seq, batch.Rank, e.Hashes, e.Tier)
		case wire.Removed:
			fmt.Printf("%d: rank %d removed %v\n", m.Seq, batch.Rank, e.Hashes)
		case wire.Cleared:
			fmt.Printf("%d: rank %d is empty\n", m.Seq, batch.Rank)
		}
	}
	// Output:
	// 7: rank 1 removed [41]
	// 7: rank 1 stored [42 43] in its device memory
}
