package zmtp

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is the pauses between attempts: they double, up to a bound.
type backoff struct {
	least, most time.Duration
	next        time.Duration
}

func (c Config) backoff() backoff {
	return backoff{least: c.MinPause, most: c.MaxPause, next: c.MinPause}
}

// pause is the pause after an attempt whose connection lasted so long (0: there was none). Up to half of it is taken off by
// chance, lest a thousand gateways dial a restarted engine at one moment.
func (b *backoff) pause(lasted time.Duration) time.Duration {
	if lasted >= b.next {
		b.next = b.least
	}
	d := b.next
	b.next = min(2*d, b.most)
	return d - rand.N(d/2+1)
}

// sleep returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
