package wire

import "math"

// field is a field of an event. Their names are common to all engines and kinds of events.
type field uint8

const (
	fieldUnknown field = iota
	fieldHashes
	fieldParent
	fieldTokens
	fieldBlockSize
	fieldLoRAID
	fieldMedium
	fieldLoRA
	fieldExtraKeys
	fieldGroup
	fieldSpec
	fieldWindow
	fieldLocality
	fieldOwnership
	fieldSession
	fieldSalt
	fieldMediaInfos
	fieldCopies
	fieldType
)

// storedOrder and removedOrder are the positions of fields behind the tag of array events: vLLM 0.9 to 0.23, SGLang up to
// 0.5.15. Older versions end earlier.
var (
	storedOrder = [...]field{fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldLoRAID, fieldMedium, fieldLoRA,
		fieldExtraKeys, fieldGroup, fieldSpec, fieldWindow}
	removedOrder = [...]field{fieldHashes, fieldMedium, fieldGroup}
)

// fieldOf is the field that a map event calls name.
func fieldOf(name []byte) field {
	switch string(name) {
	case "type":
		return fieldType
	case "block_hashes":
		return fieldHashes
	case "parent_block_hash":
		return fieldParent
	case "token_ids":
		return fieldTokens
	case "block_size":
		return fieldBlockSize
	case "lora_id":
		return fieldLoRAID
	case "medium":
		return fieldMedium
	case "lora_name":
		return fieldLoRA
	case "extra_keys":
		return fieldExtraKeys
	case "group_idx":
		return fieldGroup
	case "kv_cache_spec_kind":
		return fieldSpec
	case "kv_cache_spec_sliding_window":
		return fieldWindow
	case "locality":
		return fieldLocality
	case "ownership":
		return fieldOwnership
	case "session_id":
		return fieldSession
	case "cache_salt":
		return fieldSalt
	case "block_mm_infos":
		return fieldMediaInfos
	case "remaining_copy_counts":
		return fieldCopies
	default:
		return fieldUnknown
	}
}

// kindOf is the kind of event that a tag stands for; 0 when we do not know it.
func kindOf(tag []byte) Kind {
	switch string(tag) {
	case "BlockStored":
		return Stored
	case "BlockRemoved":
		return Removed
	case "AllBlocksCleared":
		return Cleared
	default:
		return 0
	}
}

// byPosition reads an array event of n elements.
func (d *decoder) byPosition(e *Event, n int) Reason {
	if n == 0 {
		return ReasonShape
	}
	tag, ok := d.text()
	if !ok {
		return ReasonShape
	}
	d.seen |= 1 << fieldType
	var order []field
	switch e.Kind = kindOf(tag.In(d.b)); e.Kind {
	case Stored:
		order = storedOrder[:]
	case Removed:
		order = removedOrder[:]
	case Cleared:
	default:
		return 0
	}
	for i := range n - 1 {
		if i >= len(order) {
			d.extraField()
			continue
		}
		var why Reason
		if order[i] == fieldLoRA && d.isMap() {
			// SGLang between 2026-08-12 (#30827) and its map events: {"cache_salt": s} where vLLM has the adapter's name.
			m, _ := d.object()
			why = d.members(e, m)
		} else {
			why = d.field(e, order[i])
		}
		if why != 0 || d.err != nil {
			return why
		}
	}
	return 0
}

// byName reads a map event of n members.
func (d *decoder) byName(e *Event, n int) Reason {
	why := d.members(e, n)
	if why == 0 && !d.told(fieldType) {
		return ReasonShape
	}
	return why
}

// members reads n named fields. It stops at the tag of an unknown kind; fields before it that are wrong are no reason then.
func (d *decoder) members(e *Event, n int) (wrong Reason) {
	for ; n > 0 && d.err == nil; n-- {
		key, ok := d.text()
		if !ok {
			d.skip()
			d.extraField()
			continue
		}
		f, at := fieldOf(key.In(d.b)), d.i
		switch {
		case f == fieldUnknown, f == fieldType && d.told(fieldType):
			d.extraField()
		case f == fieldType:
			tag, ok := d.text()
			if !ok {
				return ReasonShape
			}
			d.seen |= 1 << fieldType
			if e.Kind = kindOf(tag.In(d.b)); e.Kind == 0 {
				return 0
			}
		default:
			if why := d.field(e, f); why != 0 && d.err == nil {
				if e.Kind != 0 {
					return why
				}
				wrong = why
				d.i = at
				d.skip()
			}
		}
	}
	return wrong
}

// told reports whether the event has the field.
func (d *decoder) told(f field) bool { return d.seen&(1<<f) != 0 }

// field reads the value of a known field. nil stands for an absent field everywhere but in the required lists, where it is an
// empty one.
func (d *decoder) field(e *Event, f field) Reason {
	d.seen |= 1 << f
	if d.null() {
		return 0
	}
	ok := true
	var v uint64
	switch f {
	case fieldHashes:
		return d.hashList(e)
	case fieldTokens:
		return d.tokenList(e)
	case fieldParent:
		var digest bool
		if e.Parent, digest, e.HasParent = d.hash(); !e.HasParent {
			return ReasonHashes
		}
		e.Digests = e.Digests || digest
	case fieldExtraKeys, fieldMediaInfos:
		d.noteKeys(f)
	case fieldCopies:
		return d.copyList(e)
	case fieldBlockSize:
		v, ok = d.within(math.MaxUint32)
		e.BlockTokens = uint32(v)
	case fieldWindow:
		v, ok = d.within(math.MaxUint32)
		e.Window = uint32(v)
	case fieldGroup:
		v, ok = d.within(math.MaxInt32)
		e.Group, e.HasGroup = int32(v), ok
	case fieldLoRAID:
		e.LoRAID, ok = d.signed()
		e.HasLoRAID = ok
	case fieldMedium:
		e.Medium, ok = d.text()
		e.Tier = TierOf(e.Medium.In(d.b))
	case fieldLoRA:
		e.LoRA, ok = d.text()
	case fieldSpec:
		e.SpecText, ok = d.text()
		e.Spec = SpecOf(e.SpecText.In(d.b))
	case fieldLocality:
		var s Span
		s, ok = d.text()
		e.Locality = LocalityOf(s.In(d.b))
	case fieldOwnership:
		e.Ownership, ok = d.text()
	case fieldSession:
		e.Session, ok = d.text()
	case fieldSalt:
		e.Salt, ok = d.text()
	case fieldUnknown, fieldType:
	}
	if !ok {
		return ReasonField
	}
	return 0
}

func (d *decoder) hashList(e *Event) Reason {
	n, ok := d.array()
	switch {
	case !ok:
		return ReasonHashes
	case n > MaxHashes || len(d.out.hashes)+n > maxBatchHashes:
		return ReasonCap
	}
	e.Hashes = take(&d.out.hashes, n)
	digests, ok := d.hashes(e.Hashes)
	if !ok {
		return ReasonHashes
	}
	e.Digests = e.Digests || digests
	return 0
}

func (d *decoder) tokenList(e *Event) Reason {
	n, ok := d.array()
	switch {
	case !ok:
		return ReasonTokens
	case n > MaxTokens || len(d.out.tokens)+n > maxBatchTokens:
		return ReasonCap
	}
	e.Tokens, e.Bigram, e.NextToken = take(&d.out.tokens, n), false, 0
	if n > 0 && d.peek()&0xf0 == 0x90 {
		e.Bigram = true
		e.NextToken, ok = d.pairs(e.Tokens)
	} else {
		ok = d.tokens(e.Tokens)
	}
	if !ok {
		return ReasonTokens
	}
	return 0
}

func (d *decoder) copyList(e *Event) Reason {
	n, ok := d.array()
	switch {
	case !ok:
		return ReasonField
	case n > MaxHashes || len(d.out.tokens)+n > maxBatchTokens:
		return ReasonCap
	}
	e.Copies = take(&d.out.tokens, n)
	if !d.tokens(e.Copies) {
		return ReasonField
	}
	return 0
}
