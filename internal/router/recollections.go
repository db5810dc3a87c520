package router

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"attache/indexer"
	"attache/indexer/events"
)

// recollection is what a rank was remembered to hold when a snapshot was taken.
type recollection struct {
	rankName

	process float64 // when its process started, Unix time; 0 not known
	held    *indexer.Frozen
}

// rankName names a rank over restarts.
type rankName struct {
	addr string
	rank int
}

// recollections are what a snapshot says of workers that have not appeared yet, or of which it is not known yet whether they are still
// the same process. The zero value has none.
type recollections struct {
	some atomic.Bool

	mu    sync.Mutex // guards the fields below
	all   []recollection
	saved time.Time // when the snapshot was taken
	begun time.Time // when they began to wait; zero before the first offer
}

// begin takes them in.
func (m *recollections) begin(all []recollection, saved time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all, m.saved, m.begun = all, saved, time.Time{}
	m.some.Store(len(all) > 0)
}

// waiting reports whether there are any.
func (m *recollections) waiting() bool { return m.some.Load() }

// offer drops those that take is done with, and all after events.Parked. age is that of the snapshot.
func (m *recollections) offer(now time.Time, take func(of recollection, age time.Duration) (done bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.begun.IsZero() {
		m.begun = now
	}
	m.all = slices.DeleteFunc(m.all, func(of recollection) bool { return take(of, now.Sub(m.saved)) })
	if now.Sub(m.begun) >= events.Parked {
		m.all = nil
	}
	m.some.Store(len(m.all) > 0)
}

// of is how many wait for workers that are there.
func (m *recollections) of(there func(recollection) bool) (n int) {
	if !m.waiting() {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.all {
		if there(one) {
			n++
		}
	}
	return n
}
