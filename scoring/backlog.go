package scoring

import "attache/internal/slot"

// slotLoad is what is booked on one slot, with the clock that works its prefill off. It is not safe for concurrent use.
//
// The backlog is a list of bookings in the order they were made, and the slot works on the first. Where the end of a prefill
// is told and the policy holds on to it (Booking.live), a booking stays until then, and of the first one at least a tenth is
// left. Otherwise the wall clock works the first off, and when that has nothing left the next one's turn comes; what leaves
// early takes only what it has left. Estimates are kept raw, that is without the speed factor k: a second on the clock works
// off 1/k seconds of them, so that a better k corrects what is booked already.
type slotLoad struct {
	Load
	speed

	slot slot.Slot
	idle idle

	head, tail *Booking // bookings with prefill left
	left       float64  // raw seconds of all of them
	tokens     int      // uncached tokens of all of them, the first one's in full
	at         float64  // the instant up to which work is done
	turn       float64  // since when the first one is the first
}

// leastLeft is the share of a prefill that is not believed done before somebody says so.
const leastLeft = .1

// advance works the backlog off up to an instant, and brings the figures of Load that depend on time up to it.
func (l *slotLoad) advance(now, k float64) {
	if work := (now - l.at) / k; work > 0 {
		l.at = now
		for l.head != nil && !l.head.live && l.head.left <= work {
			work -= l.head.left
			l.leave(l.head)
			l.turn = now - work*k
		}
		if h := l.head; h != nil {
			least := 0.0
			if h.live {
				least = min(h.left, leastLeft*h.prefill)
			}
			done := min(work, h.left-least)
			h.left -= done
			l.left = max(0, l.left-done)
		}
	}
	l.SpeedFactor, l.QueueSeconds, l.PrefillTokens = k, k*l.left, l.pending()
}

// join puts a booking's whole prefill at the end of the backlog, which must be up to date.
func (l *slotLoad) join(b *Booking) {
	b.queued, b.left = true, b.prefill
	b.prev, b.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = b
	} else {
		l.head, l.turn = b, l.at
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
		l.head, l.turn = b.next, l.at
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

// progress notes that a booking in the backlog has only so many raw seconds and uncached tokens left. If the clock believes
// that fewer seconds are left, it goes on to believe it.
func (l *slotLoad) progress(b *Booking, left float64, uncached int) {
	if !b.queued {
		return
	}
	l.tokens -= b.uncached - uncached
	b.uncached, b.prefill = uncached, max(left, minPrefill)
	if left < b.left {
		l.left = max(0, l.left-(b.left-left))
		b.left = left
	}
}

// minPrefill keeps what is left of a prefill from being divided by nothing.
const minPrefill = 1e-9

// pending is how many uncached tokens have not been worked off: the first booking's in proportion, unless its end is told.
func (l *slotLoad) pending() int {
	if l.head == nil || l.head.live {
		return l.tokens
	}
	done := 1 - l.head.left/l.head.prefill
	return l.tokens - int(float64(l.head.uncached)*done)
}

// enter and exit count a request that is in flight.
func (l *slotLoad) enter(b *Booking) {
	l.InFlight++
	l.ContextTokens += b.prompt
	l.ContextBlocks += b.blocks
	l.OutputTokens += b.output
}

func (l *slotLoad) exit(b *Booking) {
	l.InFlight--
	l.ContextTokens -= b.prompt
	l.ContextBlocks -= b.blocks
	l.OutputTokens -= b.output
}
