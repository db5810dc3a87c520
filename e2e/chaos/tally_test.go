package chaos

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"

	"attache/indexer/events"
)

// tally counts what happened, by name. Safe for concurrent use.
type tally struct {
	mu     sync.Mutex // guards counts
	counts map[string]uint64
}

func newTally() *tally { return &tally{counts: map[string]uint64{}} }

func (t *tally) add(name string, n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[name] += n
}

func (t *tally) of(name string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[name]
}

// feed adds what a feed counted in its life.
func (t *tally) feed(s events.Status) {
	c := s.Counts
	ignored := uint64(0)
	for _, n := range c.Ignored {
		ignored += n
	}
	for name, n := range map[string]uint64{
		"feed: batches": c.Batches, "feed: events": c.Events, "feed: repeated": c.Repeated, "feed: gaps": c.Gaps, "feed: missed": c.Missed,
		"feed: closed": c.Closed, "feed: cleared": c.Cleared, "feed: restarts": c.Restarts, "feed: replays": c.Replays,
		"feed: failed replays": c.FailedReplays, "feed: unreadable": c.Unreadable, "feed: drifts": c.Drifts, "feed: ignored": ignored,
	} {
		t.add(name, n)
	}
}

// String is a table.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for name := range t.counts {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "%-32s %10d\n", name, t.counts[name])
	}
	return b.String()
}

// journal keeps the last lines that were logged, to be read when something went wrong. Safe for concurrent use.
type journal struct {
	tally *tally

	mu    sync.Mutex // guards the fields below
	lines [8192]string
	next  int
}

// Write takes in one line.
func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines[j.next%len(j.lines)] = string(bytes.TrimSpace(line))
	j.next++
	for _, told := range []string{"the index was read from a snapshot", "the snapshot of the index cannot be used"} {
		if bytes.Contains(line, []byte(told)) {
			j.tally.add("seen: "+told, 1)
		}
	}
	return len(line), nil
}

// of are the last lines about a worker.
func (j *journal) of(name string, most int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []string
	for i := j.next - 1; i >= max(0, j.next-len(j.lines)) && len(found) < most; i-- {
		if line := j.lines[i%len(j.lines)]; strings.Contains(line, "worker="+name) {
			found = append(found, line)
		}
	}
	slices.Reverse(found)
	return strings.Join(found, "\n")
}
