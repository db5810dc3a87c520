package queue

import "time"

// Placement is what became of an entry that was offered.
type Placement int

const (
	// Blocked: there is no room for it now. It stays, and with it, for this Dispatch, all behind it in its lane.
	Blocked Placement = iota
	// Placed: it is on its way, and leaves the queue.
	Placed
	// Dropped: it will never be served, and leaves the queue; the owner knows why.
	Dropped
)

// Dispatch offers entries in order until every lane is blocked or empty, and returns how many were placed. It asks once
// more than it places for each lane with a backlog, so a call that finds no room at all costs one question per lane.
//
// Call Expire first, or place is asked for entries that are overdue. place must not call the queue.
func (q *Queue[T]) Dispatch(now time.Duration, place func(*Entry[T]) Placement) (placed int) {
	defer q.unblock()
	for {
		l := q.next()
		if l == nil {
			return placed
		}
		e := l.head()
		switch place(e) {
		case Placed:
			placed++
			q.served(now, e)
		case Dropped:
			q.rounds.undo()
			q.Remove(e)
		default:
			q.rounds.undo()
			l.class.ready.remove(l)
			q.blocked = append(q.blocked, l)
		}
	}
}

// next is the lane whose head is next: of the highest tier, of the class whose turn it is among those that have any of
// that tier, of the first in the class.
func (q *Queue[T]) next() *lane[T] {
	found, tier := false, uint32(0)
	for _, c := range q.classes {
		if len(c.ready) > 0 {
			found, tier = true, max(tier, c.ready[0].head().Request.Tier)
		}
	}
	if !found {
		return nil
	}
	for i, c := range q.classes {
		q.costs[i] = 0
		if len(c.ready) > 0 {
			if r := &c.ready[0].head().Request; r.Tier == tier {
				q.costs[i] = r.cost()
			}
		}
	}
	return q.classes[q.rounds.next(q.costs)].ready[0]
}

// served takes an entry out that was placed.
func (q *Queue[T]) served(now time.Duration, e *Entry[T]) {
	c := q.classes[e.Request.Class]
	q.rate.serve(now)
	c.rate.serve(now)
	q.rounds.spend(int(c.number), e.Request.cost())
	if f := e.line.flow; f != nil {
		q.flows.rotate(f)
	}
	q.Remove(e)
}

// unblock ends the round.
func (q *Queue[T]) unblock() {
	for i, l := range q.blocked {
		l.class.ready.push(l)
		q.blocked[i] = nil
	}
	q.blocked = q.blocked[:0]
}
