package replica_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"
)

// bus is a Log in memory that can be broken in every way that matters.
type bus struct {
	mu      sync.Mutex
	records [][]byte
	trimmed int           // records that are not there any more
	broken  bool          // nobody reaches it
	slow    time.Duration // of every call
	added   int
	losing  bool          // every third record
	more    chan struct{} // closed when something was added
}

var errBroken = errors.New("the bus is broken")

func newBus() *bus { return &bus{more: make(chan struct{})} }

func (b *bus) enter(ctx context.Context) error {
	b.mu.Lock()
	slow, broken := b.slow, b.broken
	b.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if broken {
		return errBroken
	}
	return nil
}

func (b *bus) Append(ctx context.Context, records ...[]byte) error {
	if err := b.enter(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range records {
		if b.added++; !b.losing || b.added%3 != 0 {
			b.records = append(b.records, slices.Clone(r))
		}
	}
	close(b.more)
	b.more = make(chan struct{})
	return nil
}

func (b *bus) End(ctx context.Context) (string, error) {
	if err := b.enter(ctx); err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return position(b.trimmed + len(b.records)), nil
}

func (b *bus) Read(ctx context.Context, after string, wait time.Duration, visit func([]byte)) (string, bool, error) {
	if err := b.enter(ctx); err != nil {
		return "", false, err
	}
	at, deadline := place(after), time.After(wait)
	for {
		b.mu.Lock()
		lost := at < b.trimmed
		at = max(at, b.trimmed)
		found, more := slices.Clone(b.records[at-b.trimmed:]), b.more
		b.mu.Unlock()
		if len(found) > 0 || lost {
			for _, r := range found {
				visit(r)
			}
			return position(at + len(found)), lost, nil
		}
		select {
		case <-more:
		case <-deadline:
			return after, false, nil
		case <-ctx.Done():
			return after, false, ctx.Err()
		}
	}
}

func (b *bus) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// trim forgets all records that are there.
func (b *bus) trim() {
	b.set(func() { b.trimmed += len(b.records); b.records = nil })
}

func position(n int) string { return strconv.Itoa(n) }

func place(s string) (n int) { n, _ = strconv.Atoi(s); return n }
