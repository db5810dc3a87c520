package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Append implements Store. All records travel in one round trip, and a script adds them: it numbers them without gaps, which tells readers
// exactly whether they missed one (position), and nobody else's records come between.
func (r *Redis) Append(ctx context.Context, stream string, records ...[]byte) error {
	if err := r.limits.appending(stream, records); err != nil || len(records) == 0 {
		return err
	}
	args := make([]any, 0, len(records)+2)
	args = append(args, r.limits.stream, milliseconds(r.limits.streamTTL))
	for _, record := range records {
		args = append(args, record)
	}
	return r.do(ctx, opAppend, stream, func(ctx context.Context) error {
		return r.runOnce(ctx, r.scripts.append, r.keys.log(stream), args)
	})
}

// once is a command that the library must not repeat when a connection fails: the server may have done it.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// runOnce is run for what must not be done twice. A server that does not know a script has not begun with it.
func (r *Redis) runOnce(ctx context.Context, s *script, key string, args []any) error {
	call := func(name, script string) error {
		return r.client.Process(ctx, once{redis.NewCmd(ctx, append([]any{name, script, 1, key}, args...)...)})
	}
	err := call("evalsha", s.known.Hash())
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = call("eval", s.text)
	}
	return err
}

// End implements Store.
func (r *Redis) End(ctx context.Context, stream string) (string, error) {
	if err := r.limits.name("stream", stream); err != nil {
		return "", err
	}
	var end position
	err := r.do(ctx, opEnd, stream, func(ctx context.Context) (err error) {
		end, err = r.end(ctx, stream)
		return err
	})
	if err != nil {
		return "", err
	}
	return end.String(), nil
}

func (r *Redis) end(ctx context.Context, stream string) (position, error) {
	last, err := r.client.XRevRangeN(ctx, r.keys.log(stream), "+", "-", 1).Result()
	if err != nil || len(last) == 0 {
		return position{}, err
	}
	at, _, err := parseRecord(last[0])
	return at, err
}

// Read implements Store. Whoever waits does so on a connection of its own, which is closed when ctx ends before.
func (r *Redis) Read(ctx context.Context, stream, after string, most int, wait time.Duration) ([]Record, bool, error) {
	from, err := r.limits.reading(stream, after, most, wait)
	if err != nil {
		return nil, false, err
	}
	var messages []redis.XMessage
	if wait == 0 {
		err = r.do(ctx, opRead, stream, func(ctx context.Context) (err error) {
			messages, err = read(ctx, r.client, r.keys.log(stream), from, most, -1)
			return err
		})
	} else {
		messages, err = r.wait(ctx, stream, from, most, wait)
	}
	if err == nil && len(messages) == 0 {
		messages, err = r.rewind(ctx, stream, from, most)
	}
	if err != nil {
		return nil, false, err
	}
	records, lost, err := parseRecords(messages, from)
	return records, lost, r.explain(ctx, opRead, stream, err)
}

// wait reads with a connection of its own. It is done apart, for the library heeds the end of a context only before it waits for an answer.
func (r *Redis) wait(ctx context.Context, stream string, from position, most int, wait time.Duration) ([]redis.XMessage, error) {
	reader, err := r.reader()
	if err != nil {
		return nil, r.explain(ctx, opRead, stream, err)
	}
	type answer struct {
		messages []redis.XMessage
		err      error
	}
	answers := make(chan answer, 1)
	limited, cancel := context.WithTimeout(ctx, wait+r.cfg.Timeout)
	defer cancel()
	open := r.aside(func() {
		// Redis waits in milliseconds, and for ever when it is told 0.
		messages, err := read(limited, reader, r.keys.log(stream), from, most, max(wait.Round(time.Millisecond), time.Millisecond))
		answers <- answer{messages, err}
	})
	if !open {
		return nil, r.explain(ctx, opRead, stream, errClosed)
	}
	select {
	case a := <-answers:
		r.rest(reader)
		if a.err == nil {
			return a.messages, nil
		}
		err = a.err
	case <-limited.Done():
		r.discard(reader) // which ends what waits on its connection
		err = limited.Err()
	}
	if ctx.Err() == nil {
		r.metrics.observe(opRead, 0, err)
	}
	return nil, r.explain(limited, opRead, stream, err)
}

// read asks for what comes after a position; block below 0 does not wait.
func read(ctx context.Context, c redis.UniversalClient, key string, from position, most int, block time.Duration) ([]redis.XMessage, error) {
	streams, err := c.XRead(ctx, &redis.XReadArgs{Streams: []string{key, from.id()}, Count: int64(most), Block: block}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil || len(streams) == 0 {
		return nil, err
	}
	return streams[0].Messages, nil
}

// rewind is asked when there is nothing after a position: one that is ahead of the stream is from before the stream was forgotten, by a
// server whose clock went back; then there is all of the stream to read.
func (r *Redis) rewind(ctx context.Context, stream string, from position, most int) (messages []redis.XMessage, err error) {
	if from == (position{}) {
		return nil, nil
	}
	err = r.do(ctx, opRead, stream, func(ctx context.Context) error {
		end, err := r.end(ctx, stream)
		if err != nil || end == (position{}) || !end.before(from) {
			return err
		}
		messages, err = read(ctx, r.client, r.keys.log(stream), position{}, most, -1)
		return err
	})
	return messages, err
}

// maxReaders is how many clients of readers are kept while nobody uses them.
const maxReaders = 16

// reader takes a client that nobody uses, or makes one.
func (r *Redis) reader() (redis.UniversalClient, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	for reader, used := range r.readers {
		if !used {
			r.readers[reader] = true
			return reader, nil
		}
	}
	reader := r.connect()
	r.readers[reader] = true
	return reader, nil
}

// rest keeps a client for the next reader, unless there are enough.
func (r *Redis) rest(reader redis.UniversalClient) {
	r.mu.Lock()
	keep := len(r.readers) <= maxReaders
	if keep && !r.closed {
		r.readers[reader] = false
	}
	r.mu.Unlock()
	if !keep {
		r.discard(reader)
	}
}

// discard closes a client, apart: a client of sentinels that is just connecting is closed when that is over. Close does it otherwise.
func (r *Redis) discard(reader redis.UniversalClient) {
	r.aside(func() {
		r.mu.Lock()
		delete(r.readers, reader)
		r.mu.Unlock()
		_ = reader.Close()
	})
}

// parseRecords reads what a stream returned. lost says that it does not begin with the record after from.
func parseRecords(messages []redis.XMessage, from position) (records []Record, lost bool, err error) {
	for i, m := range messages {
		at, value, err := parseRecord(m)
		if err != nil {
			return nil, false, err
		}
		if i == 0 {
			lost = at.number != from.number+1
		}
		records = append(records, Record{Position: at.String(), Value: []byte(value)})
	}
	return records, lost, nil
}

// parseRecord reads one record.
func parseRecord(m redis.XMessage) (position, string, error) {
	number, hasNumber := m.Values["n"].(string)
	value, hasValue := m.Values["v"].(string)
	if !hasNumber || !hasValue {
		return position{}, "", fmt.Errorf("record %.50q: must have a number n and a value v: something else writes to this stream", m.ID)
	}
	at, err := parseID(m.ID, number)
	if err == nil && at.number == 0 {
		err = errors.New("number 0: must be 1 or more")
	}
	if err != nil {
		return position{}, "", fmt.Errorf("record %.50q: %w", m.ID, err)
	}
	return at, value, nil
}
