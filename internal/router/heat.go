package router

import (
	"sync"
	"time"

	"attache/internal/slot"
	"attache/internal/worker"
)

// heat is how many prompt tokens that had to be computed were sent to each slot of a pool in the last minute. The zero value is cold.
// Safe for concurrent use.
type heat struct {
	mu    sync.Mutex // guards spans
	spans [12]span   // a ring
}

// span is a part of the minute.
type span struct {
	number int64 // since the epoch
	bySlot []int64
}

// spanSeconds is how long a part is; the newest is not over, so that all are between 55 s and a minute.
const spanSeconds = 5

func (h *heat) add(s slot.Slot, tokens int, now time.Time) {
	number := now.Unix() / spanSeconds
	h.mu.Lock()
	defer h.mu.Unlock()
	x := &h.spans[number%int64(len(h.spans))]
	if x.number != number {
		x.number = number
		clear(x.bySlot)
	}
	x.bySlot = put(x.bySlot, s, at64(x.bySlot, s)+int64(max(tokens, 0)))
}

// at64 is an element of a slice by slot; 0 beyond its end.
func at64(by []int64, s slot.Slot) int64 {
	if int(s) >= len(by) {
		return 0
	}
	return by[s]
}

// forget begins anew with a slot.
func (h *heat) forget(s slot.Slot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.spans {
		if int(s) < len(h.spans[i].bySlot) {
			h.spans[i].bySlot[s] = 0
		}
	}
}

// factor is the most that was sent to one of the workers over the mean of all: 1 when they had equal shares, their number when one
// had all. Workers that may not be chosen count only if they had something. ok is false when nobody had.
func (h *heat) factor(ws []*worker.Worker, now time.Time) (factor float64, ok bool) {
	oldest := now.Unix()/spanSeconds - int64(len(h.spans)) + 1
	h.mu.Lock()
	defer h.mu.Unlock()
	most, sum, n := int64(0), int64(0), 0
	for _, w := range ws {
		had := int64(0)
		for _, s := range w.Slots() {
			for i := range h.spans {
				if h.spans[i].number >= oldest {
					had += at64(h.spans[i].bySlot, s)
				}
			}
		}
		if had > 0 || w.Eligible() {
			most, sum, n = max(most, had), sum+had, n+1
		}
	}
	if sum == 0 {
		return 0, false
	}
	return float64(most) * float64(n) / float64(sum), true
}
