package state

import (
	"context"
	"time"
)

// Stream is one stream of a log, for whoever needs no more.
type Stream struct {
	Log  Log
	Name string
}

// Append is Log.Append.
func (s Stream) Append(ctx context.Context, records ...[]byte) error {
	return s.Log.Append(ctx, s.Name, records...)
}

// End is Log.End.
func (s Stream) End(ctx context.Context) (position string, err error) {
	return s.Log.End(ctx, s.Name)
}

// atOnce is how many records are read at most in one go.
const atOnce = 1000

// Read is Log.Read that calls visit for each record, and returns where reading goes on.
func (s Stream) Read(ctx context.Context, after string, wait time.Duration, visit func(record []byte)) (position string, lost bool, err error) {
	records, lost, err := s.Log.Read(ctx, s.Name, after, atOnce, wait)
	position = after
	for _, r := range records {
		visit(r.Value)
		position = r.Position
	}
	return position, lost, err
}
