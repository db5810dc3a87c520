package state

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"attache/internal/field"
)

// limits are the bounds that both stores hold, so that what one takes is good for the other. One method checks the arguments of one call.
type limits struct {
	stream, members int
	streamTTL       time.Duration
	record, value   field.Bytes
}

// Bounds that need no configuration.
const (
	// maxName is the length of a name in bytes.
	maxName = 256
	// maxRecords is how many records one Append takes: a script of Redis holds up everybody else for as long as it runs.
	maxRecords = 1024
	// maxRead is how many records one Read returns.
	maxRead = 10_000
	// maxTTL keeps sums of times within the 53 bits that numbers of a script have.
	maxTTL = 10 * 365 * 24 * time.Hour
	// least is the shortest time to live: Redis counts milliseconds.
	least = time.Millisecond
)

func (c Config) limits() limits {
	return limits{stream: c.MaxStreamLength, members: c.MaxMembers, streamTTL: c.StreamTTL, record: c.MaxRecord, value: c.MaxValue}
}

func (l limits) appending(stream string, records [][]byte) error {
	if err := l.name("stream", stream); err != nil {
		return err
	}
	if len(records) > maxRecords {
		return fmt.Errorf("%w: %d records at once, at most %d may be", ErrTooLarge, len(records), maxRecords)
	}
	for i, r := range records {
		if len(r) > int(l.record) {
			return fmt.Errorf("%w: record %d has %d bytes, at most %d (max_record) may be", ErrTooLarge, i, len(r), l.record)
		}
	}
	return nil
}

// reading also reads the position.
func (l limits) reading(stream, after string, most int, wait time.Duration) (position, error) {
	if err := l.name("stream", stream); err != nil {
		return position{}, err
	}
	if most < 1 || most > maxRead {
		return position{}, fmt.Errorf("%w: %d records: must be 1 to %d", ErrArgument, most, maxRead)
	}
	if wait < 0 || wait > maxTTL {
		return position{}, fmt.Errorf("%w: waiting %v: must be 0 to %v", ErrArgument, wait, maxTTL)
	}
	return parsePosition(after)
}

func (l limits) saving(key string, value []byte, ttl time.Duration) error {
	if err := l.name("key", key); err != nil {
		return err
	}
	if len(value) > int(l.value) {
		return fmt.Errorf("%w: the value has %d bytes, at most %d (max_value) may be", ErrTooLarge, len(value), l.value)
	}
	return l.ttl(ttl, 0)
}

func (l limits) member(group, member string) error {
	if err := l.name("group", group); err != nil {
		return err
	}
	return l.label("member", member)
}

func (l limits) leasing(group, member string, value []byte, ttl time.Duration) error {
	if err := l.member(group, member); err != nil {
		return err
	}
	if len(value) > int(l.record) {
		return fmt.Errorf("%w: the value of a member has %d bytes, at most %d (max_record) may be", ErrTooLarge, len(value), l.record)
	}
	return l.ttl(ttl, least)
}

func (l limits) leading(name, owner string, ttl time.Duration) error {
	if err := l.name("leader", name); err != nil {
		return err
	}
	if err := l.label("owner", owner); err != nil {
		return err
	}
	return l.ttl(ttl, least)
}

// name checks the name of a stream, key, group or leader. Braces would change which slot of a cluster a key lies in.
func (l limits) name(what, name string) error {
	if err := l.label(what, name); err != nil {
		return err
	}
	if strings.ContainsAny(name, "{}") {
		return fmt.Errorf("%w: %s %q: must not contain braces", ErrArgument, what, name)
	}
	return nil
}

// label checks the name of a member or an owner.
func (limits) label(what, name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("%w: %s %.40q: must be 1 to %d bytes, is %d", ErrArgument, what, name, maxName, len(name))
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w: %s %.40q: must be UTF-8 without control characters", ErrArgument, what, name)
	}
	return nil
}

// ttl checks a time to live.
func (limits) ttl(ttl, least time.Duration) error {
	if ttl < least || ttl > maxTTL {
		return fmt.Errorf("%w: time to live %v: must be %v to %v", ErrArgument, ttl, least, maxTTL)
	}
	return nil
}

// nextToken is the token of somebody who takes the lead at now: above the last one, and above all that were given by a store that has
// forgotten them, as long as its clock goes forward.
func nextToken(last uint64, now time.Time) uint64 {
	return max(last+1, uint64(max(now.UnixMicro(), 0)))
}

// milliseconds rounds up, so that what is above 0 stays above 0: to Redis 0 is for ever.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
