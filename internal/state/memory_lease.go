package state

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// lease is what is known of a member.
type lease struct {
	value []byte
	ends  time.Time
}

// Put implements Store.
func (m *Memory) Put(ctx context.Context, group, member string, value []byte, ttl time.Duration) error {
	if err := m.limits.leasing(group, member, value, ttl); err != nil {
		return err
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	members := m.living(group)
	if _, there := members[member]; !there && len(members) >= m.limits.members {
		return ErrFull
	}
	if members == nil {
		members = map[string]lease{}
		m.groups[group] = members
	}
	members[member] = lease{value: bytes.Clone(value), ends: m.now().Add(ttl)}
	return nil
}

// living drops the members whose lease has ended, and returns the others; nil when there is none. It must be called under the lock.
func (m *Memory) living(group string) map[string]lease {
	members, now := m.groups[group], m.now()
	maps.DeleteFunc(members, func(_ string, l lease) bool { return !l.ends.After(now) })
	if len(members) == 0 {
		delete(m.groups, group)
		return nil
	}
	return members
}

// Remove implements Store.
func (m *Memory) Remove(ctx context.Context, group, member string) error {
	if err := m.limits.member(group, member); err != nil {
		return err
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	delete(m.groups[group], member)
	return nil
}

// Members implements Store.
func (m *Memory) Members(ctx context.Context, group string) ([]Member, error) {
	if err := m.limits.name("group", group); err != nil {
		return nil, err
	}
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var members []Member
	now := m.now()
	for name, l := range m.living(group) {
		members = append(members, Member{Name: name, Value: l.value, Left: l.ends.Sub(now)})
	}
	byName(members)
	return members, nil
}

// byName sorts members.
func byName(members []Member) {
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
}
