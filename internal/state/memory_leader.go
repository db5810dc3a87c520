package state

import (
	"context"
	"time"
)

// lead is who leads, or led last. Nothing forgets it: there are few names.
type lead struct {
	owner string
	token uint64
	ends  time.Time
}

// Acquire implements Store.
func (m *Memory) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (uint64, bool, error) {
	if err := m.limits.leading(name, owner, ttl); err != nil {
		return 0, false, err
	}
	if err := m.lock(ctx); err != nil {
		return 0, false, err
	}
	defer m.mu.Unlock()
	l, now := m.leaders[name], m.now()
	switch {
	case !l.ends.After(now):
		l.token = nextToken(l.token, now)
	case l.owner != owner:
		return 0, false, nil
	}
	l.owner, l.ends = owner, now.Add(ttl)
	m.leaders[name] = l
	return l.token, true, nil
}

// Release implements Store.
func (m *Memory) Release(ctx context.Context, name, owner string) error {
	if err := m.limits.leading(name, owner, least); err != nil {
		return err
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if l := m.leaders[name]; l.owner == owner {
		l.ends = time.Time{}
		m.leaders[name] = l
	}
	return nil
}
