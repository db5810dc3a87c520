package wire

import (
	"encoding/binary"
	"math"

	"github.com/zeebo/xxh3"
)

// stored reads the blocks that were stored, each with tokens and cache level of its own, and joins them to as few events as it
// can.
func (d *pulled) stored() Reason {
	var parent uint64
	var hasParent, told bool
	first := d.i
	d.open('{')
	for d.more() {
		switch string(d.key()) {
		case "parent_hash":
			if d.null() {
				continue
			}
			var ok bool
			if parent, _, ok = d.integer(); !ok {
				return ReasonHashes
			}
			hasParent = true
		case "blocks":
			// A second list would double the blocks: nothing sends one.
			if d.peek() != '[' || told {
				return ReasonShape
			}
			told = true
			d.open('[')
			for d.more() {
				if why := d.block(); why != 0 {
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
		d.i = first
		return ReasonMissing
	}
	if made := d.out.Events[d.from:]; len(made) > 0 {
		made[0].Parent, made[0].HasParent = parent, hasParent
	}
	return 0
}

// block reads one stored block and adds it to the last event, or begins a new one that continues it.
func (d *pulled) block() Reason {
	var one Event
	hashAt, tokensAt, keysAt := len(d.out.hashes), len(d.out.tokens), len(d.out.keys)
	if why := d.blockFields(&one); why != 0 {
		return why
	}
	switch len(one.Hashes) {
	case 0:
		return ReasonMissing
	case 1:
	default:
		return ReasonHashes
	}
	one.BlockTokens = uint32(len(one.Tokens))
	if len(d.out.Events) > d.from {
		last := &d.out.Events[len(d.out.Events)-1]
		if last.BlockTokens == one.BlockTokens && last.Tier == one.Tier {
			if len(last.Hashes) == MaxHashes || len(last.Tokens)+len(one.Tokens) > MaxTokens || len(last.Keys)+len(one.Keys) > MaxKeys {
				return ReasonCap
			}
			for i := range one.Keys {
				one.Keys[i].Block = uint32(len(last.Hashes))
			}
			// The arenas hold what was read last at their ends, so both lists are one.
			last.Hashes = d.out.hashes[hashAt-len(last.Hashes):]
			last.Tokens = d.out.tokens[tokensAt-len(last.Tokens):]
			last.Keys = d.out.keys[keysAt-len(last.Keys):]
			return 0
		}
		one.Parent, one.HasParent = last.Hashes[len(last.Hashes)-1], true
	}
	one.Kind = Stored
	return d.add(one)
}

func (d *pulled) blockFields(e *Event) Reason {
	if !d.open('{') {
		return ReasonShape
	}
	var why Reason
	for d.more() && why == 0 {
		switch string(d.key()) {
		case "block_hash":
			why = d.hashInto(e)
		case "tokens":
			why = d.tokens(e)
		case "mm_keys":
			why = d.mediaKeys(e)
		case "cache_level":
			if !d.null() {
				e.Tier = d.level()
			}
		case "type", "priority":
			d.skip()
		default:
			d.out.Counts.ExtraFields++
			d.skip()
		}
	}
	return why
}

// level reads the number of a cache level: 0 is the device, 1 the host.
func (d *pulled) level() Tier {
	v, ok := d.within(1)
	switch {
	case !ok:
		return TierOther
	case v == 0:
		return Device
	default:
		return Host
	}
}

// hashInto reads a hash and appends it to the event that is being read, whose hashes are the last of the arena.
func (d *pulled) hashInto(e *Event) Reason {
	h, _, ok := d.integer()
	switch {
	case !ok:
		return ReasonHashes
	case len(e.Hashes) == MaxHashes || len(d.out.hashes) == maxBatchHashes:
		return ReasonCap
	}
	d.out.hashes = append(d.out.hashes, h)
	e.Hashes = d.out.hashes[len(d.out.hashes)-1-len(e.Hashes):]
	return 0
}

// tokens reads a list of {"type":"unique_token","token_id":1,"token_extra_id":0}.
func (d *pulled) tokens(e *Event) Reason {
	if !d.open('[') || len(e.Tokens) > 0 {
		return ReasonTokens
	}
	d.scratch = d.scratch[:0]
	from := len(d.out.tokens)
	for d.more() {
		if len(d.out.tokens)-from == MaxTokens || len(d.out.tokens) == maxBatchTokens {
			return ReasonCap
		}
		id, extra, ok := d.token()
		if !ok {
			return ReasonTokens
		}
		if extra != 0 {
			d.scratch = binary.LittleEndian.AppendUint32(d.scratch, uint32(len(d.out.tokens)-from))
			d.scratch = binary.LittleEndian.AppendUint64(d.scratch, extra)
		}
		d.out.tokens = append(d.out.tokens, uint32(id))
	}
	e.Tokens = d.out.tokens[from:]
	if len(d.scratch) == 0 {
		return 0
	}
	d.out.Counts.OpaqueKeys++
	return d.out.addKey(e, Key{Form: Opaque, Hash: xxh3.Hash(d.scratch)})
}

func (d *pulled) token() (id, extra uint64, ok bool) {
	if !d.open('{') {
		return 0, 0, false
	}
	told, fine := false, true
	for d.more() {
		switch string(d.key()) {
		case "token_id":
			id, ok = d.within(math.MaxUint32)
			told = true
		case "token_extra_id":
			extra, _, ok = d.integer()
		default:
			d.skip()
			continue
		}
		fine = fine && ok
	}
	return id, extra, told && fine
}

// mediaKeys reads a list of {"type":"mm_key","hash":"<hex>","start_offset":0}.
func (d *pulled) mediaKeys(e *Event) Reason {
	if d.null() {
		return 0
	}
	if !d.open('[') {
		return ReasonField
	}
	for d.more() {
		k := Key{Form: Item}
		ok, told := d.open('{'), false
		for ok && d.more() {
			switch string(d.key()) {
			case "hash":
				k.At, ok = d.text()
				k.Hash, told = xxh3.Hash(k.At.In(d.b)), true
			case "start_offset":
				var v uint64
				v, _, ok = d.integer()
				k.Offset = int64(v)
			default:
				d.skip()
			}
		}
		if !ok || !told {
			return ReasonField
		}
		if why := d.out.addKey(e, k); why != 0 {
			return why
		}
	}
	return 0
}
