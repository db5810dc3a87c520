package replica

import (
	"context"
	"time"
)

// Log is an append-only record of one stream, bounded in length, that all replicas write and read.
type Log interface {
	// Append adds records behind all others, in one go.
	Append(ctx context.Context, records ...[]byte) error
	// End is the position behind the last record.
	End(ctx context.Context) (position string, err error)
	// Read waits at most so long for records behind a position, calls visit for each, and returns the position behind the last one.
	// lost says that some behind the position are not there any more; then it goes on with the oldest there are.
	Read(ctx context.Context, after string, wait time.Duration, visit func(record []byte)) (position string, lost bool, err error)
}

// LogLink is a Link over a shared log.
type LogLink struct {
	Log Log
	// Gather is how long records are left to gather between two readings: reading is what costs, not what is read. 0: not at all.
	Gather time.Duration
}

// Publish implements Link.
func (l LogLink) Publish(ctx context.Context, records ...[]byte) error {
	return l.Log.Append(ctx, records...)
}

// readWait is how long one reading waits for records; some heartbeats of others come within it.
const readWait = 2 * time.Second

// Follow implements Link.
func (l LogLink) Follow(ctx context.Context, events Events) {
	position, pause := "", time.Duration(0)
	for ctx.Err() == nil {
		var err error
		var lost bool
		if position == "" {
			if position, err = l.Log.End(ctx); err == nil {
				events.Joined()
			}
		} else {
			position, lost, err = l.follow(ctx, position, events)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			events.Lost(err)
			pause = min(max(2*pause, firstPause), longestPause)
			rest(ctx, pause)
		case lost:
			events.Joined()
			fallthrough
		default:
			pause = 0
			rest(ctx, l.Gather)
		}
	}
}

// follow reads once.
func (l LogLink) follow(ctx context.Context, position string, events Events) (next string, lost bool, err error) {
	next, lost, err = l.Log.Read(ctx, position, readWait, events.Delivered)
	if err != nil {
		return position, false, err
	}
	return next, lost, nil
}
