package wire

import "github.com/zeebo/xxh3"

// noteKeys notes where the extra keys of an event stand and passes them. Lists of nothing but nil, the usual case, are done
// with that.
func (d *decoder) noteKeys(f field) {
	at := d.i
	if n, ok := d.array(); ok {
		for n > 0 && d.i < len(d.b) && d.b[d.i] == leadNil {
			d.i++
			n--
		}
		if n == 0 {
			return
		}
		d.i = at
	}
	d.skip()
	// Extra keys have precedence; no engine sends both.
	if f == fieldExtraKeys || d.extra == 0 {
		d.extra = at
	}
}

// extraKeys reads the list with an entry for each block, once everything else about the event is known. An entry is nil or a
// list, which vLLM fills in this order: name of the adapter (a string), multimodal items (pairs of identifier and offset),
// salt (a string, first block of a sequence alone), digest of prompt embeddings (bytes).
//
// Two strings look alike, so: the first one that is the event's lora_name is the adapter; a string that is the event's
// cache_salt (SGLang plans to send both) is that salt; the last one in the first block of a sequence is the salt if there was
// no other. What is left is the identifier of a multimodal item, which vLLM before 2026-03-20 sent without an offset; such an
// item alone in the first block is taken for a salt, and separates the sequence just as well.
func (d *decoder) extraKeys(e *Event) Reason {
	n, ok := d.array()
	if !ok {
		return d.opaque(e, 0)
	}
	salted := !e.Salt.Empty()
	for block := range n {
		if block >= len(e.Hashes) || d.err != nil {
			return 0
		}
		if d.null() {
			continue
		}
		parts, ok := d.array()
		if !ok {
			if why := d.opaque(e, block); why != 0 {
				return why
			}
			continue
		}
		first := block == 0 && !e.HasParent && !salted
		if why := d.blockKeys(e, block, parts, first); why != 0 {
			return why
		}
	}
	return 0
}

// blockKeys reads the entry of one block, of n parts. maySalt says that its last string is the salt.
func (d *decoder) blockKeys(e *Event, block, n int, maySalt bool) Reason {
	named := e.LoRA.Empty()
	last := -1 // the key of the last string
	for range n {
		at := d.i
		if s, ok := d.text(); ok {
			text := s.In(d.b)
			switch {
			case !named && string(text) == string(e.LoRA.In(d.b)):
				named = true
				continue
			case !maySalt && !e.Salt.Empty() && string(text) == string(e.Salt.In(d.b)):
				continue
			}
			last = len(e.Keys)
			if why := d.key(e, Key{Block: uint32(block), Form: Text, At: s}); why != 0 {
				return why
			}
			continue
		}
		if s, ok := d.bytes(); ok {
			if why := d.key(e, Key{Block: uint32(block), Form: Digest, At: s}); why != 0 {
				return why
			}
			continue
		}
		if s, offset, ok := d.item(); ok {
			if why := d.key(e, Key{Block: uint32(block), Form: Item, At: s, Offset: offset}); why != 0 {
				return why
			}
			continue
		}
		d.i = at
		if why := d.opaque(e, block); why != 0 {
			return why
		}
	}
	if maySalt && last >= 0 {
		e.Salt = e.Keys[last].At
		e.Keys = append(e.Keys[:last], e.Keys[last+1:]...)
		d.out.keys = d.out.keys[:len(d.out.keys)-1]
	}
	return 0
}

// item reads a pair of identifier and offset.
func (d *decoder) item() (id Span, offset int64, ok bool) {
	if n, ok := d.array(); !ok || n != 2 {
		return Span{}, 0, false
	}
	if id, ok = d.text(); !ok {
		return Span{}, 0, false
	}
	offset, ok = d.signed()
	return id, offset, ok
}

// opaque reads a value of any shape as a key.
func (d *decoder) opaque(e *Event, block int) Reason {
	from := d.i
	d.skip()
	if block >= len(e.Hashes) {
		return 0
	}
	d.out.Counts.OpaqueKeys++
	return d.key(e, Key{Block: uint32(block), Form: Opaque, At: Span{uint32(from), uint32(d.i)}})
}

// key adds a key to the event.
func (d *decoder) key(e *Event, k Key) Reason {
	k.Hash = xxh3.Hash(k.At.In(d.b))
	return d.out.addKey(e, k)
}

// addKey adds a key to the event that is being read, whose keys are the last of the arena.
func (b *Batch) addKey(e *Event, k Key) Reason {
	if len(e.Keys) == MaxKeys || len(b.keys) == maxBatchKeys {
		return ReasonCap
	}
	b.keys = append(b.keys, k)
	from := len(b.keys) - 1 - len(e.Keys)
	e.Keys = b.keys[from:len(b.keys):len(b.keys)]
	return 0
}
