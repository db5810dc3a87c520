package direct

import (
	"context"
	"sync/atomic"

	"attache/internal/replica"
)

// Link carries the records of one pool between replicas. It implements replica.Link. Safe for concurrent use;
// one Follow at a time.
type Link struct {
	node      *Node
	pool      string
	figures   figures
	hub       hub
	following atomic.Pointer[follower]
}

// Publish puts records before every replica that follows this one. It never waits, and keeps nothing of them. A record of more than
// 1 MiB is an error, and so is every one when the node has stopped.
func (l *Link) Publish(_ context.Context, records ...[]byte) error { return l.hub.publish(records) }

// Follow implements replica.Link: Joined at the beginning, and whenever a replica was found or found again. Lost says that there should be
// others, and why none of them can be reached; again when the reason is another.
func (l *Link) Follow(ctx context.Context, events replica.Events) {
	f := &follower{
		node: l.node, pool: l.pool, events: events, figures: l.figures, log: l.node.log.With("pool", l.pool),
		callers: map[target]*caller{}, heard: map[random]*caller{},
	}
	l.following.Store(f)
	f.run(ctx)
	l.following.CompareAndSwap(f, nil)
}
