package state

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// position is a place in a stream: after the record with this id of Redis, which is the time of its appending in milliseconds and a number
// within that, and with this number within the stream.
//
// Ids of records are in order and, being times, never come again, not even after the store has lost everything. Numbers have no gaps: the
// record after position n is n+1, and any other says that records between them are gone, however that came. With ids alone, one that is
// no longer there could as well be the last one that was trimmed away.
type position struct {
	time, sequence uint64
	number         uint64
}

// maxPosition is the length of the longest text of a position.
const maxPosition = 3*20 + 2

// String is how callers hold it: "1700000000000-0:42".
func (p position) String() string { return fmt.Sprintf("%s:%d", p.id(), p.number) }

// id is the position as Redis spells it.
func (p position) id() string { return fmt.Sprintf("%d-%d", p.time, p.sequence) }

// before tells whether p comes before q.
func (p position) before(q position) bool {
	return p.time < q.time || p.time == q.time && p.sequence < q.sequence
}

// parsePosition reads what String wrote; "" is before the first record there ever was.
func parsePosition(s string) (position, error) {
	if s == "" {
		return position{}, nil
	}
	id, number, ok := strings.Cut(s, ":")
	if ok && len(s) <= maxPosition {
		if p, err := parseID(id, number); err == nil {
			return p, nil
		}
	}
	return position{}, fmt.Errorf("%w: position %.70q: must be one that the store gave, such as 1700000000000-0:42", ErrArgument, s)
}

// parseID reads the id and the number of a record.
func parseID(id, number string) (position, error) {
	ms, seq, ok := strings.Cut(id, "-")
	if !ok {
		return position{}, fmt.Errorf("id %.50q: must be two numbers with a hyphen between", id)
	}
	var p position
	for _, part := range []struct {
		to   *uint64
		text string
	}{{&p.time, ms}, {&p.sequence, seq}, {&p.number, number}} {
		n, err := strconv.ParseUint(part.text, 10, 64)
		if err != nil || n == math.MaxUint64 || strconv.FormatUint(n, 10) != part.text {
			return position{}, fmt.Errorf("%.30q: must be a number", part.text)
		}
		*part.to = n
	}
	return p, nil
}
