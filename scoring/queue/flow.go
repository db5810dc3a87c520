package queue

import (
	"math"
	"time"
)

// flow is one who asks, and what was done for it.
type flow[T any] struct {
	name string
	// service is the attained service in tokens of the time flows.base: what was attained t later counts 2^(t/half-life)
	// times, instead of all that was attained before being halved again and again. So decay changes no order.
	service float64
	turn    uint64 // when it was last served, in dispatches; the tie-break that makes equals take turns
	lines   []*line[T]
	inIdle  int
}

// before orders idle flows by who loses least when it is forgotten.
func (f *flow[T]) before(other *flow[T]) bool {
	switch {
	case f.service != other.service:
		return f.service < other.service
	case f.turn != other.turn:
		return f.turn < other.turn
	}
	return f.name < other.name
}

func (f *flow[T]) place() *int { return &f.inIdle }

// flows remembers a bounded number of them. When all that it knows are waiting, further ones share one.
type flows[T any] struct {
	most     int
	halfLife time.Duration
	byName   map[string]*flow[T]
	idle     heap[*flow[T]] // those that wait in no line
	others   flow[T]        // stands for all that there was no room for
	base     time.Duration
	turns    uint64
}

// outputWeight is what an output token counts, in input tokens; as in llm-d's program-aware fairness.
const outputWeight = 2

// of finds or makes the flow; it may forget an idle one for it.
func (s *flows[T]) of(name string) *flow[T] {
	if f, ok := s.byName[name]; ok {
		return f
	}
	if len(s.byName) >= s.most {
		if len(s.idle) == 0 {
			return &s.others
		}
		least := s.idle[0]
		s.idle.remove(least)
		delete(s.byName, least.name)
	}
	f := &flow[T]{name: name}
	s.byName[name] = f
	s.idle.push(f)
	return f
}

// join and leave keep the lines of a flow.
func (s *flows[T]) join(f *flow[T], l *line[T]) {
	l.inFlow = len(f.lines)
	f.lines = append(f.lines, l)
	s.idle.remove(f)
}

func (s *flows[T]) leave(f *flow[T], l *line[T]) {
	n := len(f.lines) - 1
	last := f.lines[n]
	f.lines[l.inFlow], last.inFlow = last, l.inFlow
	f.lines[n] = nil
	f.lines = f.lines[:n]
	if n == 0 && f != &s.others {
		s.idle.push(f)
	}
}

// serve adds to what a flow attained.
func (s *flows[T]) serve(f *flow[T], tokens float64, now time.Duration) {
	f.lift()
	f.service += tokens * math.Exp2(s.halfLives(now))
	f.settle()
	s.idle.fix(f)
}

// rotate says that the flow has had its turn.
func (s *flows[T]) rotate(f *flow[T]) {
	f.lift()
	s.turns++
	f.turn = s.turns
	f.settle()
}

// lift takes the lanes in which the flow waits out of their order while the flow changes, settle puts them back: with
// several of them at the wrong place at once, a heap could not be mended one by one.
func (f *flow[T]) lift() {
	for _, l := range f.lines {
		l.lane.lifted = l.lane.inReady > 0
		l.lane.class.ready.remove(l.lane)
	}
}

func (f *flow[T]) settle() {
	for _, l := range f.lines {
		l.lane.lines.fix(l)
		if l.lane.lifted {
			l.lane.class.ready.push(l.lane)
		}
	}
}

func (s *flows[T]) halfLives(now time.Duration) float64 {
	return max(0, (now-s.base).Seconds()/s.halfLife.Seconds())
}

// maxHalfLives is far from where 2^t leaves the range of a float64.
const maxHalfLives = 256

// rebase counts service in tokens of now once the old unit has become too small, and reports whether it did: flows that
// fell to nothing are equals from then on, so whoever sorts by flow must sort again.
func (s *flows[T]) rebase(now time.Duration) bool {
	passed := s.halfLives(now)
	if passed < maxHalfLives {
		return false
	}
	s.base = now
	for _, f := range s.byName {
		f.service *= math.Exp2(-passed)
	}
	s.others.service *= math.Exp2(-passed)
	s.idle.rebuild()
	return true
}

// attained is the service of a flow as of now, in input tokens.
func (s *flows[T]) attained(f *flow[T], now time.Duration) float64 {
	return f.service * math.Exp2(-s.halfLives(now))
}
