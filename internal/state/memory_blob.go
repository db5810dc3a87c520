package state

import (
	"bytes"
	"context"
	"time"
)

// blob is a value and when it ends; the zero time is never.
type blob struct {
	value []byte
	ends  time.Time
}

// fence is the newest token that a key was saved with, and until when it is remembered; the zero time is for ever.
type fence struct {
	token uint64
	ends  time.Time
}

// Save implements Store.
func (m *Memory) Save(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if err := m.limits.saving(key, value, ttl); err != nil {
		return err
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.save(key, value, ttl)
	return nil
}

// save must be called under the lock.
func (m *Memory) save(key string, value []byte, ttl time.Duration) {
	b := blob{value: bytes.Clone(value)}
	if ttl > 0 {
		b.ends = m.now().Add(ttl)
	}
	m.blobs[key] = b
}

// SaveFenced implements Store.
func (m *Memory) SaveFenced(ctx context.Context, key string, value []byte, token uint64, ttl time.Duration) (bool, error) {
	if err := m.limits.saving(key, value, ttl); err != nil {
		return false, err
	}
	if err := m.lock(ctx); err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	known := m.fences[key]
	if known.token > token && (known.ends.IsZero() || known.ends.After(m.now())) {
		return true, nil
	}
	known = fence{token: token}
	if ttl > 0 {
		known.ends = m.now().Add(ttl + forgottenAfter*time.Millisecond)
	}
	m.fences[key] = known
	m.save(key, value, ttl)
	return false, nil
}

// Load implements Store.
func (m *Memory) Load(ctx context.Context, key string) ([]byte, error) {
	if err := m.limits.name("key", key); err != nil {
		return nil, err
	}
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	b, ok := m.blobs[key]
	switch {
	case !ok:
		return nil, ErrNone
	case !b.ends.IsZero() && !b.ends.After(m.now()):
		delete(m.blobs, key)
		return nil, ErrNone
	}
	return b.value, nil
}

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, key string) error {
	if err := m.limits.name("key", key); err != nil {
		return err
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	delete(m.blobs, key)
	return nil
}
