package state

import (
	"bytes"
	"context"
	"sort"
	"time"
)

// stream holds the newest records of a stream, in their order.
type stream struct {
	entries []entry
	ends    time.Time     // when they are forgotten, unless something is appended
	changed chan struct{} // closed with the next record; made by whoever waits for that
}

// entry is a record and where it lies.
type entry struct {
	at    position
	value []byte
}

// last is the position after the last record.
func (s *stream) last() position {
	if len(s.entries) == 0 {
		return position{}
	}
	return s.entries[len(s.entries)-1].at
}

// wake tells everybody who waits.
func (s *stream) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// Append implements Store.
func (m *Memory) Append(ctx context.Context, name string, records ...[]byte) error {
	if err := m.limits.appending(name, records); err != nil {
		return err
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if len(records) == 0 {
		return nil
	}
	s, now := m.stream(name), m.now()
	at := s.last()
	for _, r := range records {
		next := position{time: uint64(max(now.UnixMilli(), 0)), number: at.number + 1}
		if !at.before(next) {
			next.time, next.sequence = at.time, at.sequence+1
		}
		s.entries = append(s.entries, entry{next, bytes.Clone(r)})
		at = next
	}
	s.ends = now.Add(m.limits.streamTTL)
	if over := len(s.entries) - m.limits.stream; over > 0 {
		clear(s.entries[:over])
		s.entries = s.entries[over:]
	}
	s.wake()
	return nil
}

// stream returns a stream, with nothing in it when it is new or was forgotten. It must be called under the lock.
func (m *Memory) stream(name string) *stream {
	s := m.streams[name]
	if s == nil {
		s = &stream{}
		m.streams[name] = s
	}
	if !s.ends.After(m.now()) {
		s.entries = nil
	}
	return s
}

// End implements Store.
func (m *Memory) End(ctx context.Context, name string) (string, error) {
	if err := m.limits.name("stream", name); err != nil {
		return "", err
	}
	if err := m.lock(ctx); err != nil {
		return "", err
	}
	defer m.mu.Unlock()
	return m.stream(name).last().String(), nil
}

// Read implements Store.
func (m *Memory) Read(ctx context.Context, name, after string, most int, wait time.Duration) ([]Record, bool, error) {
	from, err := m.limits.reading(name, after, most, wait)
	if err != nil {
		return nil, false, err
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		if err := m.lock(ctx); err != nil {
			return nil, false, err
		}
		s := m.stream(name)
		records, lost := s.read(from, most)
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		m.mu.Unlock()
		if len(records) > 0 || wait == 0 {
			return records, lost, nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			return nil, false, nil
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// read returns what comes after a position. One that is ahead of the stream is from before the stream was forgotten.
func (s *stream) read(from position, most int) (records []Record, lost bool) {
	first := sort.Search(len(s.entries), func(i int) bool { return from.before(s.entries[i].at) })
	if s.last().before(from) {
		first = 0
	}
	if first == len(s.entries) {
		return nil, false
	}
	for _, e := range s.entries[first:min(first+most, len(s.entries))] {
		records = append(records, Record{Position: e.at.String(), Value: e.value})
	}
	return records, s.entries[first].at.number != from.number+1
}
