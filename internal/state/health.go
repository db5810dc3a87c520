package state

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Health is how a store was when it was last asked.
type Health struct {
	// Up says that it answered.
	Up bool
	// Since is since when Up is what it is.
	Since time.Time
	// Err is why it is not up, nil otherwise.
	Err error
	// RoundTrip is how long the last answer took, 0 before the first.
	RoundTrip time.Duration
}

var errNotAsked = errors.New("not asked yet")

// watch asks a store again and again whether it is there.
type watch struct {
	interval, timeout time.Duration
	ping              func(context.Context) error
	where             string
	log               *slog.Logger

	mu     sync.Mutex // guards health
	health Health
}

// run asks until ctx ends. It says so when the store goes away, and when it is back.
func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		w.ask(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (w *watch) ask(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	start := time.Now()
	err := w.ping(limited)
	if ctx.Err() != nil {
		return // the end of watching says nothing about the store
	}
	took := time.Since(start)

	w.mu.Lock()
	before := w.health
	after := Health{Up: err == nil, Since: before.Since, Err: err, RoundTrip: before.RoundTrip}
	if err == nil {
		after.RoundTrip = took
	}
	first := errors.Is(before.Err, errNotAsked)
	if first || before.Up != after.Up {
		after.Since = time.Now()
	}
	w.health = after
	w.mu.Unlock()

	switch {
	case err != nil && (first || before.Up):
		w.log.Warn("redis is away: this replica goes on with what it knows itself", "addresses", w.where, "error", err)
	case err == nil && !before.Up:
		w.log.Info("redis is there", "addresses", w.where, "after", time.Since(before.Since).Round(time.Millisecond))
	}
}

func (w *watch) now() Health {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.health
}
