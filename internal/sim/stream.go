package sim

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// stream is a submitted request as its handler sees it. The loop never waits for a handler: it counts tokens up, and a
// slow handler finds several at once.
type stream struct {
	id      uint64
	rank    *rank
	arrived time.Time
	ready   chan struct{} // tokens went up; capacity 1
	tokens  atomic.Int32

	// Written by the loop; the handler reads cached after it has seen a token.
	cached int
	last   time.Time // when the last token came
}

// Why an answer ends without its end.
var (
	errStopped = errors.New("the engine stops")
	errCut     = errors.New("injected fault")
)

// wait returns how many tokens there are, once that is more than have.
func (s *stream) wait(ctx context.Context, stopped <-chan struct{}, have int) (int, error) {
	for {
		if n := int(s.tokens.Load()); n > have {
			return n, nil
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return have, ctx.Err()
		case <-stopped:
			return have, errStopped
		}
	}
}
