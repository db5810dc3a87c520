package wire

import "math"

// DecodeTensorRT reads the answer of TensorRT-LLM to POST /kv_cache_events: a JSON array of what happened since the last time
// (tensorrt_llm/_utils.py, KVCacheEventSerializer). The error is a *SyntaxError, after which there are no events; they are lost,
// because the request drained them.
//
// In terms of Event:
//
//   - "created" is Created.
//   - "stored" is one Stored for every run of blocks with the same number of tokens and the same cache level: blocks that are
//     not full end a run. BlockTokens is what they have; those with fewer than the engine's tokens_per_block are to be ignored.
//   - "removed" is Removed from every tier: it does not say which.
//   - "updated" with another cache level is a Stored placeholder in the new tier and then a Removed from the old one. With
//     another priority alone it is nothing.
//   - "all_cleared", which the engine's own fan-out makes of a gap, is Cleared.
//
// Keys are mm_keys as Item, and an Opaque one for a block with any token_extra_id that is not 0.
func (b *Batch) DecodeTensorRT(payload []byte) error {
	b.reset()
	if len(payload) > MaxPayload {
		return &SyntaxError{Offset: MaxPayload, Want: "a payload of at most 64 MiB", Got: "more"}
	}
	if err := checkJSON(payload); err != nil {
		return err
	}
	d := pulled{cursor: cursor{b: payload}, out: b}
	if !d.open('[') {
		return &SyntaxError{Offset: d.i, Want: "the list of events", Got: found(payload, d.i)}
	}
	for d.more() {
		d.event()
	}
	return nil
}

// pulled reads the JSON of TensorRT-LLM into a Batch.
type pulled struct {
	cursor

	out     *Batch
	from    int // the first event that the one being read became
	scratch []byte
}

// event reads one event, or passes over it.
func (d *pulled) event() {
	d.peek()
	at, m := d.i, d.out.mark()
	d.from = len(d.out.Events)
	var all Event // what all events have that this one becomes
	why := d.fields(&all)
	d.i = at
	d.skip()
	events := d.out.Events[d.from:]
	if why != 0 {
		d.out.Events = d.out.Events[:d.from]
		d.out.backTo(m)
		if why == unknownTag {
			d.out.Counts.UnknownTags++
		} else {
			d.out.Counts.unread(why, at)
		}
		return
	}
	for i := range events {
		e := &events[i]
		e.ID, e.Window, e.Rank, e.HasRank = all.ID, all.Window, all.Rank, all.HasRank
		e.Group, e.HasGroup = all.Group, all.HasGroup
		e.At = Span{uint32(at), uint32(d.i)}
	}
}

// unknownTag is a Reason that is not delivered as one.
const unknownTag = reasons

// fields reads the members of an event.
func (d *pulled) fields(all *Event) (why Reason) {
	if !d.open('{') {
		return ReasonShape
	}
	why = ReasonShape // until there are data
	for d.more() {
		ok := true
		switch string(d.key()) {
		case "event_id":
			all.ID, ok = d.within(math.MaxUint64)
		case "window_size":
			var v uint64
			v, ok = d.within(math.MaxUint32)
			all.Window = uint32(v)
		case "attention_dp_rank":
			if !d.null() {
				var v uint64
				v, ok = d.within(math.MaxInt32)
				all.Rank, all.HasRank = int32(v), ok
			}
		case "layer_group_id":
			if !d.null() {
				var v uint64
				v, ok = d.within(math.MaxInt32)
				all.Group, all.HasGroup = int32(v), ok
			}
		case "data":
			d.out.Events = d.out.Events[:d.from]
			if why = d.data(); why != 0 {
				return why
			}
		case "hash_algo", "uuid":
			d.skip()
		default:
			d.out.Counts.ExtraFields++
			d.skip()
		}
		if !ok {
			return ReasonField
		}
	}
	return why
}

// data reads what happened. Its type need not come first, so it is looked for.
func (d *pulled) data() Reason {
	look := d.cursor
	if !look.open('{') {
		return ReasonShape
	}
	kind := ""
	for look.more() {
		if string(look.key()) == "type" {
			s, _ := look.text()
			kind = string(s.In(d.b))
			break
		}
		look.skip()
	}
	switch kind {
	case "":
		return ReasonShape
	case "created":
		d.skip()
		return d.add(Event{Kind: Created})
	case "all_cleared":
		d.skip()
		return d.add(Event{Kind: Cleared})
	case "stored":
		return d.stored()
	case "removed":
		return d.removed()
	case "updated":
		return d.updated()
	default:
		return unknownTag
	}
}

// add appends an event.
func (d *pulled) add(e Event) Reason {
	if len(d.out.Events) == MaxEvents {
		return ReasonCap
	}
	d.out.Events = append(d.out.Events, e)
	return 0
}

func (d *pulled) removed() Reason {
	e := Event{Kind: Removed}
	told := false
	d.open('{')
	for d.more() {
		switch string(d.key()) {
		case "block_hashes":
			if told = true; !d.open('[') {
				return ReasonHashes
			}
			for d.more() {
				if why := d.hashInto(&e); why != 0 {
					return why
				}
			}
		case "type":
			d.skip()
		default:
			d.out.Counts.ExtraFields++
			d.skip()
		}
	}
	if !told {
		return ReasonMissing
	}
	return d.add(e)
}

func (d *pulled) updated() Reason {
	var e Event
	var before, after Tier
	d.open('{')
	for d.more() {
		switch string(d.key()) {
		case "block_hash":
			if why := d.hashInto(&e); why != 0 {
				return why
			}
		case "cache_level":
			if d.null() {
				continue
			}
			if !d.open('{') {
				return ReasonField
			}
			for d.more() {
				switch string(d.key()) {
				case "new_value":
					after = d.level()
				case "old_value":
					before = d.level()
				default:
					d.skip()
				}
			}
		case "type", "priority":
			d.skip()
		default:
			d.out.Counts.ExtraFields++
			d.skip()
		}
	}
	switch {
	case len(e.Hashes) != 1:
		return ReasonMissing
	case before == after:
		return 0
	case before == TierUnsaid || after == TierUnsaid:
		return ReasonField
	}
	if why := d.add(Event{Kind: Stored, Hashes: e.Hashes, Tier: after}); why != 0 {
		return why
	}
	return d.add(Event{Kind: Removed, Hashes: e.Hashes, Tier: before})
}
