package scoring

// slotLoad is what is booked on one slot, with the clock that works its prefill off. It is not safe for concurrent use.
//
// The backlog is a list of bookings in the order they were made. The slot works on the first, by the wall clock; when that
// has nothing left the next one's turn comes, and the first leaves the list. Estimates are kept raw, that is without the
// speed factor k: a second on the clock works off 1/k seconds of them, so that a better k corrects what is booked already.
type slotLoad struct {
	inFlight      int
	contextTokens int
	contextBlocks int
	lastTurn      uint64

	head, tail *Booking // bookings with prefill left
	left       float64  // raw seconds of all of them
	tokens     int      // uncached tokens of all of them, the first one's in full
	at         float64  // the instant up to which work is done
}

// advance works the backlog off up to an instant, at 1/k raw seconds per second.
func (l *slotLoad) advance(now, k float64) {
	work := (now - l.at) / k
	if work <= 0 {
		return
	}
	l.at = now
	for l.head != nil && l.head.left <= work {
		work -= l.head.left
		l.leave(l.head)
	}
	if l.head != nil {
		l.head.left -= work
		l.left = max(0, l.left-work)
	}
}

// join puts a booking's whole prefill at the end of the backlog, which must be up to date.
func (l *slotLoad) join(b *Booking) {
	b.queued, b.left = true, b.prefill
	b.prev, b.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = b
	} else {
		l.head = b
	}
	l.tail = b
	l.left += b.left
	l.tokens += b.uncached
}

// leave takes a booking out of the backlog, with what it has left; nothing happens when it is not there.
func (l *slotLoad) leave(b *Booking) {
	if !b.queued {
		return
	}
	if b.prev != nil {
		b.prev.next = b.next
	} else {
		l.head = b.next
	}
	if b.next != nil {
		b.next.prev = b.prev
	} else {
		l.tail = b.prev
	}
	l.left -= b.left
	l.tokens -= b.uncached
	b.queued, b.left, b.prev, b.next = false, 0, nil, nil
	if l.head == nil { // no dust from adding and subtracting
		l.left, l.tokens = 0, 0
	}
	l.left = max(0, l.left)
}

// pending is how many uncached tokens the clock has not worked off: the first booking's in proportion.
func (l *slotLoad) pending() int {
	if l.head == nil {
		return 0
	}
	done := 1 - l.head.left/l.head.prefill
	return l.tokens - int(float64(l.head.uncached)*done)
}

// enter and exit count a request that is in flight.
func (l *slotLoad) enter(b *Booking) {
	l.inFlight++
	l.contextTokens += b.prompt
	l.contextBlocks += b.blocks
}

func (l *slotLoad) exit(b *Booking) {
	l.inFlight--
	l.contextTokens -= b.prompt
	l.contextBlocks -= b.blocks
}

// snapshot is the load as policies see it; the backlog must be up to date.
func (l *slotLoad) snapshot(k float64) Load {
	return Load{
		InFlight: l.inFlight, QueueSeconds: k * l.left, PrefillTokens: l.pending(),
		ContextTokens: l.contextTokens, ContextBlocks: l.contextBlocks, LastTurn: l.lastTurn,
	}
}
