package wire

import "slices"

// Decode reads the payload of one message. The error is a *SyntaxError, after which there are no events: what was read before
// the break is not delivered, because whoever applies half a batch does not know which half.
func (b *Batch) Decode(payload []byte) error {
	b.reset()
	if len(payload) > MaxPayload {
		return &SyntaxError{Offset: MaxPayload, Want: "a payload of at most 64 MiB", Got: "more"}
	}
	d := decoder{reader: reader{b: payload}, out: b}
	d.batch()
	if d.err == nil && d.i < len(payload) {
		d.fail(d.i, "the end of the payload")
	}
	if d.err != nil {
		b.reset()
		return d.err
	}
	if b.HasRank {
		for i := range b.Events {
			b.Events[i].Rank, b.Events[i].HasRank = b.Rank, true
		}
	}
	return nil
}

// decoder reads MessagePack into a Batch.
type decoder struct {
	reader

	out *Batch

	// Of the event being read: the fields that were there, a bit each, and where its extra keys stand. Those are read last,
	// because their meaning depends on other fields.
	seen  uint32
	extra int
}

// batch reads [time, events, rank], or a map of ts, events and data_parallel_rank.
func (d *decoder) batch() {
	if n, ok := d.array(); ok {
		if n < 2 {
			d.fail(d.i, "a batch of at least a time and events")
			return
		}
		d.time()
		d.events()
		if n > 2 {
			d.rank()
		}
		for ; n > 3; n-- {
			d.extraField()
		}
		return
	}
	n, ok := d.object()
	if !ok {
		d.fail(d.i, "a batch: an array or a map")
		return
	}
	told := false
	for ; n > 0 && d.err == nil; n-- {
		key, ok := d.text()
		switch name := key.In(d.b); {
		case !ok:
			d.skip()
			d.extraField()
		case string(name) == "ts":
			d.time()
		case string(name) == "events" && !told:
			told = true
			d.events()
		case string(name) == "data_parallel_rank" || string(name) == "attn_dp_rank":
			d.rank()
		default:
			d.extraField()
		}
	}
	if !told {
		d.fail(d.i, `a batch with "events"`)
	}
}

// extraField passes a value that we do not know.
func (d *decoder) extraField() {
	d.out.Counts.ExtraFields++
	d.skip()
}

func (d *decoder) time() {
	v, ok := d.number()
	if d.out.Time = v; !ok && !d.null() {
		d.extraField()
	}
}

func (d *decoder) rank() {
	if d.null() {
		return
	}
	v, ok := d.within(1<<31 - 1)
	if d.out.Rank, d.out.HasRank = int32(v), ok; !ok {
		d.extraField()
	}
}

func (d *decoder) events() {
	n, ok := d.array()
	if !ok {
		d.fail(d.i, "the list of events")
		return
	}
	d.out.Events = slices.Grow(d.out.Events, min(n, (len(d.b)-d.i)/leastEvent, MaxEvents))
	for ; n > 0 && d.err == nil; n-- {
		d.event()
	}
}

// event reads one event, or passes over it.
func (d *decoder) event() {
	at, m := d.i, d.out.mark()
	if len(d.out.Events) == MaxEvents {
		d.out.Counts.unread(ReasonCap, at)
		d.skip()
		return
	}
	d.out.Events = append(d.out.Events, Event{})
	e := &d.out.Events[len(d.out.Events)-1]
	d.seen, d.extra = 0, 0
	why := d.form(e)
	if why == 0 && e.Kind != 0 {
		why = d.finish(e)
	}
	if why == 0 && e.Kind != 0 {
		e.At = Span{uint32(at), uint32(d.i)}
		return
	}
	// Neither an unknown tag nor an unreadable event leaves anything behind but a count.
	d.out.Events = d.out.Events[:len(d.out.Events)-1]
	d.out.backTo(m)
	if why == 0 {
		d.out.Counts.UnknownTags++
	} else {
		d.out.Counts.unread(why, at)
	}
	if d.err == nil {
		d.i = at
		d.skip()
	}
}

// form reads the fields of an event. Without a reason against it and without a kind, the event has a tag that we do not know;
// it need not have been read to its end then.
func (d *decoder) form(e *Event) Reason {
	if n, ok := d.array(); ok {
		return d.byPosition(e, n)
	}
	if n, ok := d.object(); ok {
		return d.byName(e, n)
	}
	return ReasonShape
}

// finish checks an event of which all fields are read, and reads its extra keys.
func (d *decoder) finish(e *Event) Reason {
	if d.err != nil {
		return 0
	}
	switch {
	case e.Kind == Cleared:
		return 0
	case !d.told(fieldHashes), e.Kind == Stored && (!d.told(fieldTokens) || !d.told(fieldBlockSize)):
		return ReasonMissing
	case d.extra == 0:
		return 0
	}
	end := d.i
	d.i = d.extra
	why := d.extraKeys(e)
	d.i = end
	return why
}
