package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"attache/indexer/events/wire"
	"attache/indexer/events/zmtp"
)

// maxReplay bounds one replay: vLLM keeps 10,000 batches unless told otherwise.
const maxReplay = 1 << 20

var errNoEnd = errors.New("the replay does not end")

// askReplay asks a replay socket for the batches from a number on, and gives each to take as it comes. Engines ignore requests
// that they do not understand, so waiting ends after timeout without an answer. The error is nil when the end was told.
func askReplay(ctx context.Context, endpoint string, from uint64, timeout time.Duration, cfg zmtp.Config, take func(wire.Message)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := fmt.Errorf("no answer within %s from %s", timeout, endpoint)
	timer := time.AfterFunc(timeout, func() { cancel(silent) })
	defer timer.Stop()
	d, err := zmtp.DialDealer(ctx, endpoint, cfg)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Send(wire.ReplayRequest(from)...); err != nil {
		return err
	}
	for range maxReplay {
		frames, err := d.Receive()
		if err != nil {
			return err
		}
		timer.Reset(timeout)
		m, end, err := wire.ParseReplay(frames)
		if err != nil {
			return fmt.Errorf("replay from %s: %w", endpoint, err)
		}
		if end {
			return nil
		}
		take(m)
	}
	return errNoEnd
}
