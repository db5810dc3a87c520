package register

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// Store is where the gateways keep who is registered. Every call ends with its context; after an error nobody knows whether it counted.
type Store interface {
	// Put makes a member of a group known until its lease ends, in place of what it said before.
	Put(ctx context.Context, group, member string, value []byte, ttl time.Duration) error
	// Members are those whose leases have not ended, by the store's own clock.
	Members(ctx context.Context, group string) ([]Member, error)
}

// Member is one of a group: its value, and how long its lease still lasts.
type Member struct {
	Name  string
	Value []byte
	Left  time.Duration
}

// Local is a Store of one process. Safe for concurrent use.
type Local struct {
	mu     sync.Mutex // guards groups
	groups map[string]map[string]lease
}

type lease struct {
	value []byte
	ends  time.Time
}

// NewLocal makes an empty store.
func NewLocal() *Local { return &Local{groups: map[string]map[string]lease{}} }

// Put implements Store.
func (l *Local) Put(_ context.Context, group, member string, value []byte, ttl time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.groups[group] == nil {
		l.groups[group] = map[string]lease{}
	}
	l.groups[group][member] = lease{slices.Clone(value), time.Now().Add(ttl)}
	return nil
}

// Members implements Store.
func (l *Local) Members(_ context.Context, group string) ([]Member, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	var members []Member
	for name, held := range l.groups[group] {
		if left := held.ends.Sub(now); left > 0 {
			members = append(members, Member{Name: name, Value: held.value, Left: left})
		} else {
			delete(l.groups[group], name)
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return members, nil
}
