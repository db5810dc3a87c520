package state

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Save implements Store.
func (r *Redis) Save(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if err := r.limits.saving(key, value, ttl); err != nil {
		return err
	}
	return r.do(ctx, opSave, key, func(ctx context.Context) error {
		args := []any{"set", r.keys.blob(key), value}
		if ttl > 0 {
			args = append(args, "px", milliseconds(ttl))
		}
		return r.client.Do(ctx, args...).Err()
	})
}

// SaveFenced implements Store.
func (r *Redis) SaveFenced(ctx context.Context, key string, value []byte, token uint64, ttl time.Duration) (stale bool, err error) {
	if err := r.limits.saving(key, value, ttl); err != nil {
		return false, err
	}
	err = r.do(ctx, opSaveFenced, key, func(ctx context.Context) error {
		n, err := r.run(ctx, r.scripts.saveFenced, []string{r.keys.blob(key), r.keys.fence(key)},
			value, strconv.FormatUint(token, 10), milliseconds(ttl), forgottenAfter).Int()
		stale = n == 1
		return err
	})
	return stale && err == nil, err
}

// Load implements Store. A value above the bound, of whoever put it there, is not brought here as a whole.
func (r *Redis) Load(ctx context.Context, key string) (value []byte, err error) {
	if err := r.limits.name("key", key); err != nil {
		return nil, err
	}
	err = r.do(ctx, opLoad, key, func(ctx context.Context) error {
		var there *redis.IntCmd
		var text *redis.StringCmd
		_, err := r.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			there = p.Exists(ctx, r.keys.blob(key))
			text = p.GetRange(ctx, r.keys.blob(key), 0, int64(r.limits.value))
			return nil
		})
		if err != nil {
			return err
		}
		if there.Val() == 0 {
			return ErrNone
		}
		if value, err = text.Bytes(); err == nil && len(value) > int(r.limits.value) {
			value, err = nil, fmt.Errorf("%w: the value has more than %d bytes (max_value)", ErrTooLarge, r.limits.value)
		}
		return err
	})
	return value, err
}

// Delete implements Store. The server frees large values in the background.
func (r *Redis) Delete(ctx context.Context, key string) error {
	if err := r.limits.name("key", key); err != nil {
		return err
	}
	return r.do(ctx, opDelete, key, func(ctx context.Context) error { return r.client.Unlink(ctx, r.keys.blob(key)).Err() })
}
