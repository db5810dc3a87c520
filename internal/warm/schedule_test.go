package warm

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"attache/internal/field"
	"attache/internal/router"
)

// twin is the schedule as a list that is searched for everything.
type twin struct {
	cfg Config
	all []*twinEntry // the oldest first
}

type twinEntry struct {
	id      int
	p       *router.Prompt
	next    int // bytes
	running bool
	sending bool
	due     time.Time
}

func (w *twin) drop(gone func(*twinEntry) bool) int {
	before := len(w.all)
	w.all = slices.DeleteFunc(w.all, gone)
	return before - len(w.all)
}

func (w *twin) bytes() (n int) {
	for _, e := range w.all {
		n += e.p.Size + e.next
	}
	return n
}

func (w *twin) add(id int, p *router.Prompt) (crowded int) {
	w.drop(func(e *twinEntry) bool { return e.p.Key == p.Key })
	if p.Size > int(w.cfg.MaxBytes) {
		return 1
	}
	w.all = append(w.all, &twinEntry{id: id, p: p, running: true})
	return w.bound()
}

func (w *twin) ended(id, next int, now time.Time) (crowded int) {
	e := w.find(id)
	if e == nil {
		return 0
	}
	switch {
	case next > 0:
		e.running, e.next, e.due = false, next, now
	case e.p.Until.IsZero():
		w.drop(func(other *twinEntry) bool { return other == e })
	default:
		e.running, e.due = false, now.Add(w.cfg.Interval)
	}
	return w.bound()
}

func (w *twin) bound() (crowded int) {
	for w.bytes() > int(w.cfg.MaxBytes) || len(w.all) > w.cfg.MaxEntries {
		w.all = w.all[1:]
		crowded++
	}
	return crowded
}

func (w *twin) find(id int) *twinEntry {
	for _, e := range w.all {
		if e.id == id {
			return e
		}
	}
	return nil
}

// take is which prompts are due; they come in the order in which they are.
func (w *twin) take(now time.Time, most int) (ids []int) {
	w.drop(func(e *twinEntry) bool { return !e.p.Until.IsZero() && !now.Before(e.p.Until) })
	for len(ids) < most {
		var next *twinEntry
		for _, e := range w.all {
			if !e.running && !e.sending && !now.Before(e.due) && (next == nil || e.due.Before(next.due)) {
				next = e
			}
		}
		if next == nil {
			break
		}
		next.sending = true
		ids = append(ids, next.id)
	}
	return ids
}

func TestScheduleAgainstItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Interval: 10 * time.Second, MaxBytes: field.Bytes(rapid.IntRange(50, 400).Draw(t, "max bytes")), MaxEntries: rapid.IntRange(1, 6).Draw(t, "max entries")}
		s, w := newSchedule(cfg), &twin{cfg: cfg}
		now := time.Unix(1_000_000, 0)
		var entries []*entry
		pick := func() int { return rapid.IntRange(0, max(len(entries)-1, 0)).Draw(t, "entry") }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if s.bytes != w.bytes() || s.order.Len() != len(w.all) || len(s.byKey) != len(w.all) {
					t.Fatalf("%d bytes, %d entries, %d keys; want %d bytes, %d entries", s.bytes, s.order.Len(), len(s.byKey), w.bytes(), len(w.all))
				}
				if s.bytes > s.maxBytes || s.order.Len() > s.maxEntries {
					t.Fatalf("out of bounds: %d bytes, %d entries", s.bytes, s.order.Len())
				}
			},
			"add": func(t *rapid.T) {
				p := &router.Prompt{Key: rapid.Uint64Range(1, 8).Draw(t, "key"), Size: rapid.IntRange(1, 120).Draw(t, "size")}
				if ttl := rapid.IntRange(0, 60).Draw(t, "ttl"); ttl > 0 {
					p.Until = now.Add(time.Duration(ttl) * time.Second)
				}
				e, crowded := s.add(p)
				if want := w.add(len(entries), p); crowded != want {
					t.Fatalf("%d made room, want %d", crowded, want)
				}
				entries = append(entries, e)
			},
			"ended": func(t *rapid.T) {
				i := pick()
				if i >= len(entries) || entries[i].place != nil {
					return
				}
				if place := (&router.Place{Next: make([]byte, rapid.IntRange(0, 60).Draw(t, "next"))}); rapid.Bool().Draw(t, "held") {
					if crowded, want := s.ended(entries[i], place, now), w.ended(i, len(place.Next), now); crowded != want {
						t.Fatalf("%d made room, want %d", crowded, want)
					}
					return
				}
				s.ended(entries[i], nil, now)
				w.drop(func(e *twinEntry) bool { return e.id == i })
			},
			"forget": func(t *rapid.T) {
				key := rapid.Uint64Range(1, 8).Draw(t, "key")
				s.forget(key)
				w.drop(func(e *twinEntry) bool { return e.p.Key == key })
			},
			"take": func(t *rapid.T) {
				most := rapid.IntRange(0, 3).Draw(t, "most")
				var got []int
				for _, e := range s.take(nil, now, most) {
					got = append(got, slices.Index(entries, e))
				}
				if want := w.take(now, most); !slices.Equal(got, want) {
					t.Fatalf("%v are due, want %v", got, want)
				}
			},
			"sent": func(t *rapid.T) {
				i := pick()
				if i >= len(entries) || !entries[i].sending {
					return
				}
				again := rapid.Bool().Draw(t, "again")
				s.sent(entries[i], now, again)
				if e := w.find(i); e != nil {
					e.sending, e.due = false, now.Add(cfg.Interval)
				}
				if !again || entries[i].prompt.Until.IsZero() {
					w.drop(func(e *twinEntry) bool { return e.id == i })
				}
			},
			"time passes": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(1, 15).Draw(t, "seconds")) * time.Second) },
		})
	})
}
