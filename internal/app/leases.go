package app

import (
	"context"

	"attache/internal/state"
	"attache/internal/worker/register"
)

// leases is the shared store as registrations take it.
type leases struct{ state.Leases }

// Members implements register.Store.
func (l leases) Members(ctx context.Context, group string) ([]register.Member, error) {
	found, err := l.Leases.Members(ctx, group)
	members := make([]register.Member, len(found))
	for i, m := range found {
		members[i] = register.Member(m)
	}
	return members, err
}
