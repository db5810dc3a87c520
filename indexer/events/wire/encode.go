package wire

// Dialect is how an engine writes events.
type Dialect uint8

// The dialects.
const (
	// VLLMArray is vLLM up to 0.23: arrays, of a length that grew. See Encoder.Fields.
	VLLMArray Dialect = iota + 1
	// VLLMMap is vLLM since 0.24, as of 0.32.
	VLLMMap
	// SGLangArray is SGLang up to 0.5.15, with the map that carries a salt on sources after it.
	SGLangArray
	// SGLangMap is SGLang since 0.5.20, as of 0.5.23.
	SGLangMap
	// TensorRTMap is TensorRT-LLM through Dynamo's publisher: vLLM's maps with signed hashes.
	TensorRTMap
)

// Encoder writes drafts, byte by byte as the engine does. The zero value of every field but Dialect is the latest version.
type Encoder struct {
	Dialect Dialect
	// Fields is the length of VLLMArray's stored events, tag included: 6 (0.9), 7 (0.10), 8, 9 (0.19), 10 or 12 (0.23; 0 means
	// 12). Removed events follow: 2, 3 and, from 10 on, 4 elements.
	Fields int
	// NoRank leaves the rank out: vLLM before 2025-06-03.
	NoRank bool
	// MapBatch writes the batch as a map, as an unmerged version of vLLM did.
	MapBatch bool
}

// Append appends the payload of one message to b.
func (c Encoder) Append(b []byte, d Draft) []byte {
	if c.MapBatch {
		b = appendMap(b, 3)
		b = appendFloat(appendText(b, "ts"), d.Time)
		b = c.events(appendText(b, "events"), d.Events)
		return appendUint(appendText(b, "data_parallel_rank"), uint64(d.Rank))
	}
	n := 3
	if c.NoRank {
		n = 2
	}
	b = c.events(appendFloat(appendArray(b, n), d.Time), d.Events)
	if c.NoRank {
		return b
	}
	return appendUint(b, uint64(d.Rank))
}

func (c Encoder) events(b []byte, events []DraftEvent) []byte {
	b = appendArray(b, len(events))
	for i := range events {
		if c.Dialect == VLLMArray || c.Dialect == SGLangArray {
			b = c.array(b, &events[i])
		} else {
			b = c.object(b, &events[i])
		}
	}
	return b
}

func tagOf(k Kind) string {
	switch k {
	case Stored:
		return "BlockStored"
	case Removed:
		return "BlockRemoved"
	default:
		return "AllBlocksCleared"
	}
}

// array writes an event by position.
func (c Encoder) array(b []byte, e *DraftEvent) []byte {
	fields := c.Fields
	if fields == 0 {
		fields = 12
	}
	if c.Dialect == SGLangArray {
		fields = 7
	}
	var order []field
	switch e.Kind {
	case Stored:
		order = storedOrder[:fields-1]
	case Removed:
		switch {
		case fields < 7:
			order = removedOrder[:1]
		case fields < 10:
			order = removedOrder[:2]
		default:
			order = removedOrder[:]
		}
	default:
	}
	salted := c.Dialect == SGLangArray && e.Kind == Stored && e.Salt != ""
	n := 1 + len(order)
	if salted {
		n++
	}
	b = appendText(appendArray(b, n), tagOf(e.Kind))
	for _, f := range order {
		b = c.value(b, e, f)
	}
	if salted {
		b = appendText(appendText(appendMap(b, 1), "cache_salt"), e.Salt)
	}
	return b
}

// member is a field of a map event.
type member struct {
	field field
	name  string
	// always says that the field is there even if it is None.
	always bool
}

// The members of map events in the order in which the engines write them.
var (
	vllmStored = []member{
		{fieldHashes, "block_hashes", true}, {fieldParent, "parent_block_hash", true}, {fieldTokens, "token_ids", true},
		{fieldBlockSize, "block_size", true}, {fieldLoRAID, "lora_id", true}, {fieldMedium, "medium", true},
		{fieldLoRA, "lora_name", true}, {fieldExtraKeys, "extra_keys", false}, {fieldGroup, "group_idx", false},
		{fieldSpec, "kv_cache_spec_kind", false}, {fieldWindow, "kv_cache_spec_sliding_window", false},
		{fieldLocality, "locality", false}, {fieldOwnership, "ownership", false}, {fieldSession, "session_id", false},
	}
	vllmRemoved = []member{
		{fieldHashes, "block_hashes", true}, {fieldMedium, "medium", true}, {fieldGroup, "group_idx", false},
		{fieldLocality, "locality", false}, {fieldOwnership, "ownership", false},
	}
	sglangStored = []member{
		{fieldHashes, "block_hashes", true}, {fieldParent, "parent_block_hash", true}, {fieldTokens, "token_ids", true},
		{fieldBlockSize, "block_size", true}, {fieldLoRAID, "lora_id", true}, {fieldMedium, "medium", false},
		{fieldSalt, "cache_salt", false}, {fieldSession, "session_id", false}, {fieldLoRA, "lora_name", false},
	}
	sglangRemoved = []member{{fieldHashes, "block_hashes", true}, {fieldMedium, "medium", false}}
)

// object writes an event by name.
func (c Encoder) object(b []byte, e *DraftEvent) []byte {
	stored, removed := vllmStored, vllmRemoved
	if c.Dialect == SGLangMap {
		stored, removed = sglangStored, sglangRemoved
	}
	var members []member
	switch e.Kind {
	case Stored:
		members = stored
	case Removed:
		members = removed
	default:
	}
	n := 1
	for _, m := range members {
		if m.always || e.says(m.field) {
			n++
		}
	}
	b = appendText(appendText(appendMap(b, n), "type"), tagOf(e.Kind))
	for _, m := range members {
		if m.always || e.says(m.field) {
			b = c.value(appendText(b, m.name), e, m.field)
		}
	}
	return b
}

// says reports whether an optional field is not None.
func (e *DraftEvent) says(f field) bool {
	switch f {
	case fieldMedium:
		return e.Medium != ""
	case fieldLoRA:
		return e.LoRA != ""
	case fieldExtraKeys:
		return e.Extra != nil
	case fieldGroup:
		return e.HasGroup
	case fieldSpec:
		return e.Spec != ""
	case fieldWindow:
		return e.Window != 0
	case fieldLocality:
		return e.Locality != ""
	case fieldOwnership:
		return e.Ownership != ""
	case fieldSession:
		return e.Session != ""
	case fieldSalt:
		return e.Salt != ""
	default:
		return true
	}
}

// value writes the value of a field.
func (c Encoder) value(b []byte, e *DraftEvent, f field) []byte {
	if !e.says(f) {
		return append(b, leadNil)
	}
	switch f {
	case fieldHashes:
		return c.hashes(b, e)
	case fieldParent:
		switch {
		case len(e.ParentDigest) > 0:
			return appendBytes(b, e.ParentDigest)
		case e.HasParent:
			return c.hash(b, e.Parent)
		default:
			return append(b, leadNil)
		}
	case fieldTokens:
		return appendTokens(b, e)
	case fieldBlockSize:
		return appendUint(b, uint64(e.BlockTokens))
	case fieldLoRAID:
		if !e.HasLoRAID {
			return append(b, leadNil)
		}
		return appendInt(b, e.LoRAID)
	case fieldMedium:
		return appendText(b, e.Medium)
	case fieldLoRA:
		return appendText(b, e.LoRA)
	case fieldExtraKeys:
		return appendExtra(b, e.Extra)
	case fieldGroup:
		return appendUint(b, uint64(e.Group))
	case fieldSpec:
		return appendText(b, e.Spec)
	case fieldWindow:
		return appendUint(b, uint64(e.Window))
	case fieldLocality:
		return appendText(b, e.Locality)
	case fieldOwnership:
		return appendText(b, e.Ownership)
	case fieldSession:
		return appendText(b, e.Session)
	case fieldSalt:
		return appendText(b, e.Salt)
	default:
		return append(b, leadNil)
	}
}

// hash writes a hash as the dialect does: vLLM unsigned, others signed.
func (c Encoder) hash(b []byte, h uint64) []byte {
	if c.Dialect == VLLMArray || c.Dialect == VLLMMap {
		return appendUint(b, h)
	}
	return appendInt(b, int64(h))
}

func (c Encoder) hashes(b []byte, e *DraftEvent) []byte {
	if len(e.Digests) > 0 {
		b = appendArray(b, len(e.Digests))
		for _, d := range e.Digests {
			b = appendBytes(b, d)
		}
		return b
	}
	b = appendArray(b, len(e.Hashes))
	for _, h := range e.Hashes {
		b = c.hash(b, h)
	}
	return b
}

func appendTokens(b []byte, e *DraftEvent) []byte {
	b = appendArray(b, len(e.Tokens))
	for i, token := range e.Tokens {
		if !e.Bigram {
			b = appendUint(b, uint64(token))
			continue
		}
		next := e.NextToken
		if i+1 < len(e.Tokens) {
			next = e.Tokens[i+1]
		}
		b = appendUint(appendUint(appendArray(b, 2), uint64(token)), uint64(next))
	}
	return b
}

func appendExtra(b []byte, extra [][]DraftKey) []byte {
	b = appendArray(b, len(extra))
	for _, keys := range extra {
		if keys == nil {
			b = append(b, leadNil)
			continue
		}
		b = appendArray(b, len(keys))
		for _, k := range keys {
			switch k.Form {
			case Text:
				b = appendText(b, k.Text)
			case Item:
				b = appendInt(appendText(appendArray(b, 2), k.Text), k.Offset)
			case Digest:
				b = appendBytes(b, k.Raw)
			default:
				b = append(b, k.Raw...)
			}
		}
	}
	return b
}
