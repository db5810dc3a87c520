package state

import (
	"context"
	"sync"
	"time"
)

// Memory is the store of a single process, and of tests in which several replicas share one. It forgets everything with the process. Safe
// for concurrent use; it runs in a bubble of testing/synctest.
type Memory struct {
	limits limits
	now    func() time.Time
	since  time.Time

	mu      sync.Mutex // guards what follows
	closed  bool
	streams map[string]*stream
	blobs   map[string]blob
	fences  map[string]fence
	groups  map[string]map[string]lease
	leaders map[string]lead
}

var _ Store = (*Memory)(nil)

// NewMemory makes an empty store with the bounds of cfg; what cfg says of Redis is not looked at.
func NewMemory(cfg Config) *Memory { return newMemory(cfg, time.Now) }

func newMemory(cfg Config, now func() time.Time) *Memory {
	return &Memory{limits: cfg.limits(), now: now, since: now(),
		streams: map[string]*stream{}, blobs: map[string]blob{}, fences: map[string]fence{},
		groups: map[string]map[string]lease{}, leaders: map[string]lead{}}
}

// Health is always good.
func (m *Memory) Health() Health { return Health{Up: true, Since: m.since} }

// Run waits until ctx ends; there is nothing to watch.
func (m *Memory) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Close makes all further calls fail. What is shared is gone.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, s := range m.streams {
		s.wake()
	}
	return nil
}

// lock is taken by every call, unless the store is closed or the call over.
func (m *Memory) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return errClosed
	}
	return nil
}
