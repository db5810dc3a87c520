package warm

import (
	"container/list"
	"slices"
	"time"

	"attache/internal/router"
)

// schedule is what is kept, and when each prompt is to be sent. Time is an argument. Not safe for concurrent use.
//
//	add ──► running ──ended──► waiting ──due──► sending ──sent──► waiting …
//	           │                  │                │
//	           └──── its time is over, its worker is gone, a later one of its key, no room ────► dropped
//
// The sizes of all entries together never exceed maxBytes, nor their number maxEntries: the oldest ones make room.
type schedule struct {
	interval   time.Duration
	maxBytes   int
	maxEntries int

	byKey map[uint64]*list.Element
	order list.List // of *entry, the oldest in front
	bytes int
}

// entry is a prompt that is kept.
type entry struct {
	prompt  *router.Prompt
	place   *router.Place // nil while its request runs
	size    int           // bytes
	due     time.Time
	sending bool
	dropped bool
}

func newSchedule(cfg Config) *schedule {
	return &schedule{interval: cfg.Interval, maxBytes: int(cfg.MaxBytes), maxEntries: cfg.MaxEntries, byKey: map[uint64]*list.Element{}}
}

// add takes in the prompt of a request that runs. crowded is how many, this one perhaps among them, had to go for want of room.
func (s *schedule) add(p *router.Prompt) (e *entry, crowded int) {
	s.forget(p.Key)
	e = &entry{prompt: p, size: p.Size}
	if p.Size > s.maxBytes {
		e.dropped = true
		return e, 1
	}
	s.byKey[p.Key] = s.order.PushBack(e)
	s.bytes += p.Size
	return e, s.bound()
}

// bound gives up the oldest entries until the others are within the bounds, and returns how many.
func (s *schedule) bound() (crowded int) {
	for s.bytes > s.maxBytes || s.order.Len() > s.maxEntries {
		s.drop(s.order.Front())
		crowded++
	}
	return crowded
}

// ended says where a prompt is, now that its request is over; nil: nowhere. The next turn's is due at once. crowded is as of add.
func (s *schedule) ended(e *entry, place *router.Place, now time.Time) (crowded int) {
	if place == nil || e.prompt.Until.IsZero() && len(place.Next) == 0 {
		s.remove(e)
	}
	if e.dropped {
		return 0
	}
	e.place, e.due = place, now.Add(s.interval)
	if len(place.Next) > 0 {
		e.due = now
		e.size += len(place.Next)
		s.bytes += len(place.Next)
	}
	return s.bound()
}

// take appends up to most entries that are due, the longest due first, and marks them as being sent. Entries whose time is over are
// dropped.
func (s *schedule) take(due []*entry, now time.Time, most int) []*entry {
	from := len(due)
	for at := s.order.Front(); at != nil; {
		e, next := entryOf(at), at.Next()
		switch {
		case !e.prompt.Until.IsZero() && !now.Before(e.prompt.Until):
			s.drop(at)
		case e.place != nil && !e.sending && !now.Before(e.due):
			due = append(due, e)
		}
		at = next
	}
	slices.SortStableFunc(due[from:], func(a, b *entry) int { return a.due.Compare(b.due) })
	due = due[:min(len(due), from+most)]
	for _, e := range due[from:] {
		e.sending = true
	}
	return due
}

// sent says that an entry is not being sent any more. again is false when there is no use in sending it once more.
func (s *schedule) sent(e *entry, now time.Time, again bool) {
	e.sending, e.due = false, now.Add(s.interval)
	if !again || e.prompt.Until.IsZero() {
		s.remove(e)
	}
}

// forget drops what is kept under a key.
func (s *schedule) forget(key uint64) {
	if at := s.byKey[key]; at != nil {
		s.drop(at)
	}
}

// remove drops an entry, unless it is dropped already.
func (s *schedule) remove(e *entry) {
	if !e.dropped {
		s.drop(s.byKey[e.prompt.Key])
	}
}

func (s *schedule) drop(at *list.Element) {
	e := entryOf(at)
	e.dropped = true
	s.bytes -= e.size
	delete(s.byKey, e.prompt.Key)
	s.order.Remove(at)
}

func entryOf(at *list.Element) *entry {
	return at.Value.(*entry) //nolint:forcetypeassert // nothing else is in the list
}
