package queue

import "time"

// Class is one of the configured classes, as Queue.ClassOf says.
type Class int

// class is what waits in one class. Entries stand in lines (one flow in one lane), lines in lanes, lanes in the class,
// each ordered by its head; so the next entry is the head of the head of the head:
//
//	class ── ready ──► lane 0 ── lines ──► flow "a" ── entries ──► e4, e1, e9
//	                   lane 7              flow "b"                e2
//
// In a class that is not fair among flows each lane has one line.
type class[T any] struct {
	number  Class
	cfg     ClassConfig
	rank    policy
	used    usage
	rate    rate
	lanes   map[uint64]*lane[T]
	ready   heap[*lane[T]] // the lanes that are not blocked in this round
	victims heap[byWorth[T]]
}

// lane is what waits for the same workers in one class.
type lane[T any] struct {
	class   *class[T]
	key     uint64
	length  int
	lines   heap[*line[T]]
	flows   map[*flow[T]]*line[T]
	inReady int
	lifted  bool // see flow.lift
}

func (l *lane[T]) head() *Entry[T]            { return l.lines[0].entries[0] }
func (l *lane[T]) before(other *lane[T]) bool { return l.lines[0].before(other.lines[0]) }
func (l *lane[T]) place() *int                { return &l.inReady }

// line is what one flow has waiting in one lane.
type line[T any] struct {
	lane    *lane[T]
	flow    *flow[T] // nil in a class that is not fair
	entries heap[*Entry[T]]
	inLane  int
	inFlow  int
}

// before is the order of lines: the higher tier, then the flow that attained least, then the one whose turn is longer
// ago, then as their heads.
func (l *line[T]) before(other *line[T]) bool {
	head, theirs := l.entries[0], other.entries[0]
	if head.Request.Tier == theirs.Request.Tier && l.flow != other.flow {
		switch a, b := l.flow, other.flow; {
		case a.service != b.service:
			return a.service < b.service
		case a.turn != b.turn:
			return a.turn < b.turn
		}
	}
	return head.before(theirs)
}

func (l *line[T]) place() *int { return &l.inLane }

// maxWait is the stricter of the class's limit and the queue's; 0: none.
func (c *class[T]) maxWait(total time.Duration) time.Duration {
	if own := c.cfg.Limits.MaxWait; own > 0 && (total == 0 || own < total) {
		return own
	}
	return total
}

// insert puts an entry into its line.
func (c *class[T]) insert(e *Entry[T], s *flows[T]) {
	at := c.lanes[e.Request.Lane]
	if at == nil {
		at = &lane[T]{class: c, key: e.Request.Lane, flows: map[*flow[T]]*line[T]{}}
		c.lanes[at.key] = at
	}
	var f *flow[T]
	if c.cfg.Fair {
		f = s.of(e.Request.Flow)
	}
	e.line = at.flows[f]
	if e.line == nil {
		e.line = &line[T]{lane: at, flow: f}
		at.flows[f] = e.line
		if f != nil {
			s.join(f, e.line)
		}
	}
	e.line.entries.push(e)
	at.length++
	if e.line.inLane == 0 {
		at.lines.push(e.line)
	} else {
		at.lines.fix(e.line)
	}
	if at.inReady == 0 {
		c.ready.push(at)
	} else {
		c.ready.fix(at)
	}
}

// detach takes an entry out of its line.
func (c *class[T]) detach(e *Entry[T], s *flows[T]) {
	from := e.line
	at := from.lane
	e.line = nil
	at.length--
	if len(from.entries) > 1 {
		from.entries.remove(e)
		at.lines.fix(from)
		c.ready.fix(at)
		return
	}
	// The line goes with its last entry, which still gives it a place in the order while others are moved.
	if at.length == 0 {
		c.ready.remove(at)
		delete(c.lanes, at.key)
	} else {
		at.lines.remove(from)
		c.ready.fix(at)
	}
	from.entries.remove(e)
	delete(at.flows, from.flow)
	if from.flow != nil {
		s.leave(from.flow, from)
	}
}
