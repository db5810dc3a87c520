package state

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Put implements Store.
func (r *Redis) Put(ctx context.Context, group, member string, value []byte, ttl time.Duration) error {
	if err := r.limits.leasing(group, member, value, ttl); err != nil {
		return err
	}
	return r.do(ctx, opPut, group, func(ctx context.Context) error {
		n, err := r.run(ctx, r.scripts.put, r.group(group), member, value, milliseconds(ttl), r.limits.members).Int()
		if err == nil && n == 0 {
			return ErrFull
		}
		return err
	})
}

// Remove implements Store.
func (r *Redis) Remove(ctx context.Context, group, member string) error {
	if err := r.limits.member(group, member); err != nil {
		return err
	}
	return r.do(ctx, opRemove, group, func(ctx context.Context) error {
		return r.run(ctx, r.scripts.remove, r.group(group), member).Err()
	})
}

// Members implements Store.
func (r *Redis) Members(ctx context.Context, group string) (members []Member, err error) {
	if err := r.limits.name("group", group); err != nil {
		return nil, err
	}
	err = r.do(ctx, opMembers, group, func(ctx context.Context) error {
		texts, err := r.run(ctx, r.scripts.members, r.group(group)).StringSlice()
		if err != nil {
			return err
		}
		members, err = parseMembers(texts)
		return err
	})
	return members, err
}

// group is the keys of a group, as its scripts want them.
func (r *Redis) group(name string) []string { return []string{r.keys.ends(name), r.keys.values(name)} }

// parseMembers reads what lease_members.lua returns.
func parseMembers(texts []string) ([]Member, error) {
	if len(texts)%3 != 0 {
		return nil, fmt.Errorf("%d texts for members: must be three for each", len(texts))
	}
	var members []Member
	for i := 0; i < len(texts); i += 3 {
		left, err := strconv.ParseInt(texts[i+2], 10, 64)
		if err != nil || left < 1 || left > int64(maxTTL/time.Millisecond) {
			return nil, fmt.Errorf("member %.40q: %.30q left: must be a number of milliseconds, above 0 and within %v", texts[i], texts[i+2], maxTTL)
		}
		members = append(members, Member{Name: texts[i], Value: []byte(texts[i+1]), Left: time.Duration(left) * time.Millisecond})
	}
	byName(members)
	return members, nil
}
