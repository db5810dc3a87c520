package router

import (
	"slices"
	"sync"
	"time"
)

// misses are how far predicted times to first token were off lately, each as a share of the observed one. The zero value has seen
// none. Safe for concurrent use.
type misses struct {
	mu   sync.Mutex // guards all
	ring [512]miss
	n    int
}

type miss struct {
	at    time.Time
	share float64
}

// missesFor is how long a miss counts.
const missesFor = 5 * time.Minute

func (m *misses) add(now time.Time, share float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ring[m.n%len(m.ring)] = miss{now, share}
	m.n++
}

// quantiles are the smallest misses that so large a share of them does not exceed; nil when there were none.
func (m *misses) quantiles(now time.Time, shares ...float64) []float64 {
	m.mu.Lock()
	var recent []float64
	for _, x := range m.ring[:min(m.n, len(m.ring))] {
		if now.Sub(x.at) <= missesFor {
			recent = append(recent, x.share)
		}
	}
	m.mu.Unlock()
	if len(recent) == 0 {
		return nil
	}
	slices.Sort(recent)
	found := make([]float64, len(shares))
	for i, share := range shares {
		found[i] = recent[min(int(share*float64(len(recent))), len(recent)-1)]
	}
	return found
}
