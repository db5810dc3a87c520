package wire

import "strconv"

// AppendTensorRT appends what TensorRT-LLM answers to POST /kv_cache_events, with the separators of Python's json.
func AppendTensorRT(b []byte, events []DraftTensorRT) []byte {
	b = append(b, '[')
	for i := range events {
		b = separate(b, i)
		e := &events[i]
		b = strconv.AppendUint(append(b, `{"event_id": `...), e.ID, 10)
		b = append(b, `, "data": `...)
		b = appendData(b, e)
		b = strconv.AppendUint(append(b, `, "window_size": `...), uint64(e.Window), 10)
		if e.HasRank {
			b = strconv.AppendUint(append(b, `, "attention_dp_rank": `...), uint64(e.Rank), 10)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

func separate(b []byte, i int) []byte {
	if i > 0 {
		b = append(b, ", "...)
	}
	return b
}

func appendData(b []byte, e *DraftTensorRT) []byte {
	b = append(append(append(b, `{"type": "`...), e.Type...), '"')
	switch e.Type {
	case "created":
		b = append(b, `, "num_blocks_per_cache_level": [100, 0]`...)
	case "stored":
		b = append(b, `, "parent_hash": `...)
		if e.HasParent {
			b = strconv.AppendUint(b, e.Parent, 10)
		} else {
			b = append(b, "null"...)
		}
		b = append(b, `, "blocks": [`...)
		for i := range e.Blocks {
			b = appendBlock(separate(b, i), &e.Blocks[i])
		}
		b = append(b, ']')
	case "removed":
		b = append(b, `, "block_hashes": [`...)
		for i, h := range e.Hashes {
			b = strconv.AppendUint(separate(b, i), h, 10)
		}
		b = append(b, ']')
	case "updated":
		for _, h := range e.Hashes {
			b = strconv.AppendUint(append(b, `, "block_hash": `...), h, 10)
		}
		b = append(b, `, "cache_level": `...)
		if e.OldLevel == e.NewLevel {
			b = append(b, `null, "priority": {"type": "event_diff", "new_value": 90, "old_value": 35}`...)
			break
		}
		b = strconv.AppendUint(append(b, `{"type": "event_diff", "new_value": `...), uint64(e.NewLevel), 10)
		b = strconv.AppendUint(append(b, `, "old_value": `...), uint64(e.OldLevel), 10)
		b = append(b, `}, "priority": null`...)
	}
	return append(b, '}')
}

func appendBlock(b []byte, k *DraftBlock) []byte {
	b = strconv.AppendUint(append(b, `{"type": "stored_block", "block_hash": `...), k.Hash, 10)
	b = append(b, `, "tokens": [`...)
	for i, token := range k.Tokens {
		b = strconv.AppendUint(append(separate(b, i), `{"type": "unique_token", "token_id": `...), uint64(token), 10)
		b = append(b, `, "token_extra_id": 0}`...)
	}
	b = strconv.AppendUint(append(b, `], "cache_level": `...), uint64(k.Level), 10)
	b = append(b, `, "priority": 35`...)
	if len(k.Media) > 0 {
		b = append(b, `, "mm_keys": [`...)
		for i, m := range k.Media {
			b = append(append(append(separate(b, i), `{"type": "mm_key", "hash": "`...), m.Text...), '"')
			b = append(strconv.AppendInt(append(b, `, "start_offset": `...), m.Offset, 10), '}')
		}
		b = append(b, ']')
	}
	return append(b, '}')
}
