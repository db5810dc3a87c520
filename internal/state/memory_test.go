package state_test

import (
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"attache/internal/bubble"
	"attache/internal/state"
	"attache/internal/state/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock stands still unless it is advanced.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestMemory(t *testing.T) {
	c := &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	statetest.Run(t, func(t *testing.T) state.Store {
		m := state.NewMemoryAt(statetest.Config(), c.Now)
		t.Cleanup(func() { _ = m.Close() })
		return m
	}, c.advance)
}

func TestMemoryForgetsStreams(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := statetest.Config()
		cfg.StreamTTL = time.Hour
		m := state.NewMemory(cfg)
		if err := m.Append(t.Context(), "a", []byte("1"), []byte("2")); err != nil {
			t.Fatal(err)
		}
		end, _ := m.End(t.Context(), "a")
		time.Sleep(time.Hour)
		if records, lost, err := m.Read(t.Context(), "a", end, 1, time.Minute); len(records) > 0 || lost || err != nil {
			t.Errorf("read %v, lost %v, error %v from a stream that was forgotten", records, lost, err)
		}
		if err := m.Append(t.Context(), "a", []byte("3")); err != nil {
			t.Fatal(err)
		}
		if records, lost, err := m.Read(t.Context(), "a", end, 1, 0); len(records) != 1 || !lost || err != nil {
			t.Errorf("read %v, lost %v, error %v: want the record, and that others are lost", records, lost, err)
		}
	})
}

func TestMemoryClosed(t *testing.T) {
	m := state.NewMemory(statetest.Config())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if _, _, err := m.Read(t.Context(), "a", "", 1, time.Hour); err == nil {
			t.Error("waiting ended without an error")
		}
	})
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	statetest.Away(t, m, "closed")
	if !m.Health().Up {
		t.Error("not up")
	}
}
