package state

import (
	"context"
	"time"
)

// Acquire implements Store.
func (r *Redis) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (token uint64, held bool, err error) {
	if err := r.limits.leading(name, owner, ttl); err != nil {
		return 0, false, err
	}
	err = r.do(ctx, opAcquire, name, func(ctx context.Context) error {
		token, err = r.run(ctx, r.scripts.acquire, []string{r.keys.leader(name)}, owner, milliseconds(ttl), forgottenAfter).Uint64()
		return err
	})
	return token, token != 0, err
}

// Release implements Store.
func (r *Redis) Release(ctx context.Context, name, owner string) error {
	if err := r.limits.leading(name, owner, least); err != nil {
		return err
	}
	return r.do(ctx, opRelease, name, func(ctx context.Context) error {
		return r.run(ctx, r.scripts.release, []string{r.keys.leader(name)}, owner).Err()
	})
}
