// Package statetest is what a store of internal/state must do, as a suite that every implementation runs, and real Redis servers to run it
// with.
package statetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"attache/internal/state"
)

// Limits of the stores that the suite makes: small ones, so that they can be reached.
const (
	MaxStreamLength = 20
	MaxMembers      = 5
	MaxRecord       = 4 << 10
	MaxValue        = 64 << 10
)

// Config is the configuration that the suite expects its stores to have; addresses are the caller's to add.
func Config() state.Config {
	cfg := state.DefaultConfig()
	cfg.MaxStreamLength, cfg.MaxMembers, cfg.MaxRecord, cfg.MaxValue = MaxStreamLength, MaxMembers, MaxRecord, MaxValue
	// A call may be slow where many tests run; those that are about time have deadlines of their own.
	cfg.Timeout, cfg.DialTimeout = 30*time.Second, 30*time.Second
	return cfg
}

// What lives for long lives through every pause of the machine; what lives for short is over after advance(short).
const (
	long  = 10 * time.Minute
	short = 20 * time.Millisecond
)

// suite is one case under way.
type suite struct {
	*testing.T

	store   state.Store
	advance func(time.Duration)
}

// Run holds a store to everything that state.Store promises. store makes an empty one with Config, and ends it with the test; advance lets
// time pass for it.
func Run(t *testing.T, store func(t *testing.T) state.Store, advance func(time.Duration)) {
	for _, c := range []struct {
		name string
		run  func(suite)
	}{
		{"log/order", suite.order},
		{"log/waiting", suite.waiting},
		{"log/waiting in vain", suite.waitingInVain},
		{"log/the end of waiting", suite.waitingEnds},
		{"log/positions", suite.positions},
		{"log/lost records", suite.lost},
		{"log/bound", suite.bound},
		{"log/many writers, many readers", suite.manyWriters},
		{"log/arguments", suite.logArguments},
		{"blobs", suite.blobs},
		{"blobs/time to live", suite.blobTTL},
		{"blobs/arguments", suite.blobArguments},
		{"leases", suite.leases},
		{"leases/ends", suite.leaseEnds},
		{"leases/full", suite.leasesFull},
		{"leases/arguments", suite.leaseArguments},
		{"leader", suite.leader},
		{"leader/ends", suite.leaderEnds},
		{"leader/one of many", suite.leaderOfMany},
		{"fenced", suite.fenced},
		{"fenced/time to live", suite.fencedTTL},
		{"names", suite.names},
		{"copies", suite.copies},
		{"contexts", suite.contexts},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(suite{t, store(t), advance}) })
	}
}

// ok fails the test at once for an error that should not be.
func (s suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// is demands an error of a kind, whose text says where and what.
func (s suite) is(err, kind error, says ...string) {
	s.Helper()
	if !errors.Is(err, kind) {
		s.Fatalf("got %v, want %v", err, kind)
	}
	for _, part := range says {
		if !strings.Contains(err.Error(), part) {
			s.Errorf("%q does not say %q", err, part)
		}
	}
}

func (s suite) append(stream string, records ...string) {
	s.Helper()
	var values [][]byte
	for _, r := range records {
		values = append(values, []byte(r))
	}
	s.ok(s.store.Append(s.Context(), stream, values...))
}

// read reads without waiting, and returns where to go on.
func (s suite) read(stream, after string, most int) (values []string, next string, lost bool) {
	s.Helper()
	records, lost, err := s.store.Read(s.Context(), stream, after, most, 0)
	s.ok(err)
	for _, r := range records {
		values, after = append(values, string(r.Value)), r.Position
	}
	return values, after, lost
}

// reads demands what comes after a position, and returns where to go on.
func (s suite) reads(stream, after string, most int, want ...string) string {
	s.Helper()
	got, next, lost := s.read(stream, after, most)
	if !slices.Equal(got, want) || lost {
		s.Fatalf("read %q lost %v, want %q", got, lost, want)
	}
	return next
}

func (s suite) end(stream string) string {
	s.Helper()
	end, err := s.store.End(s.Context(), stream)
	s.ok(err)
	return end
}

// numbers are texts that tell where in a stream they stand.
func numbers(from, to int) (texts []string) {
	for i := from; i <= to; i++ {
		texts = append(texts, fmt.Sprintf("record %d", i))
	}
	return texts
}

func (s suite) order() {
	empty := s.end("a")
	s.reads("a", "", 10)
	s.reads("a", empty, 10)
	s.append("a")
	s.append("a", "1", "2", "3")
	s.append("b", "other")
	s.append("a", "4")
	s.append("a", "", "\x00\xff\r\n")
	s.reads("a", "", 100, "1", "2", "3", "4", "", "\x00\xff\r\n")
	next := s.reads("a", empty, 2, "1", "2")
	next = s.reads("a", next, 3, "3", "4", "")
	next = s.reads("a", next, 3, "\x00\xff\r\n")
	s.reads("a", next, 3)
	if end := s.end("a"); end != next {
		s.Errorf("the end is %s, and the position of the last record %s", end, next)
	}
	s.reads("b", "", 3, "other")
	s.reads("b", s.end("b"), 3)
	s.append("a", "5")
	s.reads("a", next, 3, "5")
	s.reads("a", next, 3, "5") // as often as one likes
}

func (s suite) waiting() {
	end := s.end("a")
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			records, lost, err := s.store.Read(s.Context(), "a", end, 10, long)
			if err != nil || lost || len(records) != 2 || string(records[0].Value) != "1" {
				s.Errorf("read %q, lost %v, error %v", records, lost, err)
			}
		})
	}
	s.append("b", "something else")
	s.append("a", "1", "2")
	group.Wait()
	// What is there is not waited for.
	records, lost, err := s.store.Read(s.Context(), "a", end, 1, long)
	s.ok(err)
	if len(records) != 1 || lost {
		s.Errorf("read %q, lost %v", records, lost)
	}
}

func (s suite) waitingInVain() {
	s.append("a", "1")
	for range 3 {
		for _, wait := range []time.Duration{short, time.Microsecond} {
			records, lost, err := s.store.Read(s.Context(), "a", s.end("a"), 10, wait)
			if len(records) > 0 || lost || err != nil {
				s.Fatalf("read %q, lost %v, error %v", records, lost, err)
			}
		}
	}
}

func (s suite) waitingEnds() {
	ctx, cancel := context.WithCancel(s.Context())
	var group sync.WaitGroup
	for _, stream := range []string{"a", "a", "b"} {
		group.Go(func() {
			_, _, err := s.store.Read(ctx, stream, "", 10, long)
			if !errors.Is(err, context.Canceled) {
				s.Errorf("got %v, want that the call was given up", err)
			}
		})
	}
	time.Sleep(short) // some may wait by now; the others end as well
	cancel()
	group.Wait()
	ctx, cancel = context.WithTimeout(s.Context(), short)
	defer cancel()
	_, _, err := s.store.Read(ctx, "a", "", 10, long)
	s.is(err, context.DeadlineExceeded)
	// Others read on.
	s.append("a", "1")
	records, _, err := s.store.Read(s.Context(), "a", "", 10, long)
	s.ok(err)
	if len(records) != 1 {
		s.Errorf("read %q", records)
	}
}

func (s suite) positions() {
	s.append("a", numbers(1, 5)...)
	seen := map[string]bool{"": true}
	at := ""
	for i := 1; i <= 5; i++ {
		at = s.reads("a", at, 1, numbers(i, i)...)
		if seen[at] {
			s.Errorf("two records at %s", at)
		}
		seen[at] = true
	}
	// Positions in the middle are good for ever.
	for at := range seen {
		if at != "" {
			s.read("a", at, 5)
		}
	}
}

// lost: a reader hears of records that it can no longer have, and only then.
func (s suite) lost() {
	start := s.end("a")
	s.append("a", numbers(1, 3)...)
	third := s.end("a")
	for i := 4; i <= 400; i++ {
		s.append("a", numbers(i, i)...)
	}
	last := s.end("a")
	for _, from := range []string{"", start, third} {
		got, next, lost := s.read("a", from, 1000)
		if len(got) < MaxStreamLength || !slices.Equal(got, numbers(400-len(got)+1, 400)) || next != last || !lost {
			s.Errorf("from %q read %q up to %s (the end is %s), lost %v", from, got, next, last, lost)
		}
	}
	// Piece by piece it is lost once.
	_, next, lost := s.read("a", third, 3)
	if !lost {
		s.Error("lost nothing")
	}
	for next != last {
		var got []string
		if got, next, lost = s.read("a", next, 3); lost || len(got) == 0 {
			s.Fatalf("read %q, lost %v", got, lost)
		}
	}
	// The record after this position is the oldest there is: nothing was lost.
	got, _, _ := s.read("a", "", 1000)
	_, oldest, _ := s.read("a", "", 1)
	s.reads("a", oldest, 1000, got[1:]...)
	s.reads("a", last, 10)
	s.append("a", "more")
	s.reads("a", last, 10, "more")
}

func (s suite) bound() {
	for i := range 50 {
		s.append("a", numbers(20*i, 20*i+19)...)
	}
	got, _, _ := s.read("a", "", 1000)
	if len(got) < MaxStreamLength || len(got) > MaxStreamLength+200 {
		s.Errorf("%d records are kept, want about %d", len(got), MaxStreamLength)
	}
	// More at once than a stream holds.
	s.append("b", numbers(1, 300)...)
	if got, _, lost := s.read("b", "", 1000); !lost || !slices.Equal(got, numbers(300-len(got)+1, 300)) {
		s.Errorf("read %q, lost %v", got, lost)
	}
}

// manyWriters: all readers see one order, in which every batch is whole.
func (s suite) manyWriters() {
	const writers, batches, readers = 4, 5, 3
	end := s.end("a")
	orders := make([][]string, readers)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for b := range batches {
				if err := s.store.Append(s.Context(), "a", fmt.Appendf(nil, "%d %d x", w, b)); err != nil {
					s.Error(err)
				}
			}
		})
	}
	group.Wait()
	for r := range readers {
		group.Go(func() {
			at := end
			for len(orders[r]) < writers*batches {
				records, lost, err := s.store.Read(s.Context(), "a", at, 1+r, long)
				if err != nil || lost {
					s.Errorf("lost %v, error %v", lost, err)
					return
				}
				for _, record := range records {
					orders[r], at = append(orders[r], string(record.Value)), record.Position
				}
			}
		})
	}
	group.Wait()
	for r := range readers {
		if !slices.Equal(orders[r], orders[0]) {
			s.Errorf("one reader saw %q, another one %q", orders[0], orders[r])
		}
	}
	for w := range writers {
		mine := slices.DeleteFunc(slices.Clone(orders[0]), func(v string) bool { return v[0] != byte('0'+w) })
		if len(mine) != batches || !slices.IsSorted(mine) {
			s.Errorf("records of writer %d are %q", w, mine)
		}
	}
	for w := range writers {
		group.Go(func() {
			for b := range batches {
				if err := s.store.Append(s.Context(), "b", fmt.Appendf(nil, "%d %d", w, b), fmt.Appendf(nil, "%d %d", w, b)); err != nil {
					s.Error(err)
				}
			}
		})
	}
	group.Wait()
	got, _, _ := s.read("b", "", 100)
	for i := len(got) - 1; i > 0; i -= 2 {
		if got[i] != got[i-1] {
			s.Fatalf("a batch is torn apart: %q", got)
		}
	}
}

func (s suite) logArguments() {
	ctx := s.Context()
	s.is(s.store.Append(ctx, "a", []byte("x"), make([]byte, MaxRecord+1)), state.ErrTooLarge, "record 1", "4097", "4096")
	s.is(s.store.Append(ctx, "a", make([][]byte, 1025)...), state.ErrTooLarge, "1025", "1024")
	s.reads("a", "", 1)
	s.ok(s.store.Append(ctx, "a", make([]byte, MaxRecord)))
	for _, at := range []string{"0", "x", "1-1", "1:1", "-1-0:0", "1-0:", "01-0:1", "1-0:1 ", "$", "18446744073709551615-0:1", strings.Repeat("1", 100)} {
		_, _, err := s.store.Read(ctx, "a", at, 1, 0)
		s.is(err, state.ErrArgument, "position")
	}
	for _, most := range []int{-1, 0, 10_001} {
		_, _, err := s.store.Read(ctx, "a", "", most, 0)
		s.is(err, state.ErrArgument, "1 to 10000")
	}
	_, _, err := s.store.Read(ctx, "a", "", 1, -1)
	s.is(err, state.ErrArgument, "waiting")
}

// loads demands what a key holds.
func (s suite) loads(key, want string) {
	s.Helper()
	got, err := s.store.Load(s.Context(), key)
	s.ok(err)
	if string(got) != want {
		s.Fatalf("%s is %.50q, want %.50q", key, got, want)
	}
}

// none demands that a key holds nothing.
func (s suite) none(key string) {
	s.Helper()
	got, err := s.store.Load(s.Context(), key)
	if !errors.Is(err, state.ErrNone) || !errors.Is(err, fs.ErrNotExist) {
		s.Fatalf("%s is %.50q with error %v, want none", key, got, err)
	}
}

func (s suite) blobs() {
	ctx := s.Context()
	s.none("a")
	s.ok(s.store.Delete(ctx, "a"))
	s.ok(s.store.Save(ctx, "a", []byte("1"), 0))
	s.ok(s.store.Save(ctx, "b", []byte("2"), long))
	s.ok(s.store.Save(ctx, "empty", nil, 0))
	s.loads("a", "1")
	s.loads("b", "2")
	s.loads("empty", "")
	whole := strings.Repeat("\x00\xff\r\n", MaxValue/4)
	s.ok(s.store.Save(ctx, "a", []byte(whole), long))
	s.loads("a", whole)
	s.ok(s.store.Delete(ctx, "a"))
	s.none("a")
	s.loads("b", "2")
}

func (s suite) blobTTL() {
	ctx := s.Context()
	s.ok(s.store.Save(ctx, "a", []byte("1"), short))
	s.ok(s.store.Save(ctx, "b", []byte("1"), short))
	s.ok(s.store.Save(ctx, "c", []byte("1"), short))
	s.ok(s.store.Save(ctx, "d", []byte("1"), time.Nanosecond))
	s.ok(s.store.Save(ctx, "b", []byte("2"), long))
	s.ok(s.store.Save(ctx, "c", []byte("2"), 0))
	s.advance(short)
	s.none("a")
	s.none("d")
	s.loads("b", "2")
	s.loads("c", "2")
}

func (s suite) blobArguments() {
	ctx := s.Context()
	s.is(s.store.Save(ctx, "a", make([]byte, MaxValue+1), 0), state.ErrTooLarge, "65537", "65536")
	_, err := s.store.SaveFenced(ctx, "a", make([]byte, MaxValue+1), 1, 0)
	s.is(err, state.ErrTooLarge)
	s.is(s.store.Save(ctx, "a", nil, -1), state.ErrArgument, "time to live")
	s.none("a")
}

// members demands who is in a group, as "name=value".
func (s suite) members(group string, want ...string) {
	s.Helper()
	members, err := s.store.Members(s.Context(), group)
	s.ok(err)
	var got []string
	for _, m := range members {
		got = append(got, m.Name+"="+string(m.Value))
		if m.Left <= 0 || m.Left > long {
			s.Errorf("%s has %v left", m.Name, m.Left)
		}
	}
	if !slices.Equal(got, want) {
		s.Fatalf("%s has %q, want %q", group, got, want)
	}
}

func (s suite) leases() {
	ctx := s.Context()
	s.members("g")
	s.ok(s.store.Remove(ctx, "g", "nobody"))
	s.ok(s.store.Put(ctx, "g", "b", []byte("1"), long))
	s.ok(s.store.Put(ctx, "g", "ä {braces}", nil, long))
	s.ok(s.store.Put(ctx, "g", "a", []byte("\x00\xff"), long))
	s.ok(s.store.Put(ctx, "other", "c", []byte("1"), long))
	s.members("g", "a=\x00\xff", "b=1", "ä {braces}=")
	s.ok(s.store.Put(ctx, "g", "b", []byte("2"), long))
	s.members("g", "a=\x00\xff", "b=2", "ä {braces}=")
	s.ok(s.store.Remove(ctx, "g", "b"))
	s.members("g", "a=\x00\xff", "ä {braces}=")
	s.ok(s.store.Remove(ctx, "g", "a"))
	s.ok(s.store.Remove(ctx, "g", "ä {braces}"))
	s.members("g")
	s.members("other", "c=1")
}

func (s suite) leaseEnds() {
	ctx := s.Context()
	for _, name := range []string{"a", "b", "c", "d"} {
		s.ok(s.store.Put(ctx, "g", name, []byte("1"), short))
		s.ok(s.store.Put(ctx, "all", name, []byte("1"), short))
	}
	s.ok(s.store.Put(ctx, "g", "b", []byte("2"), long)) // a longer lease
	s.ok(s.store.Put(ctx, "g", "e", nil, long))
	s.ok(s.store.Put(ctx, "g", "e", nil, time.Millisecond)) // a shorter one
	s.advance(short)
	s.members("g", "b=2")
	s.members("all")
	s.ok(s.store.Put(ctx, "g", "a", []byte("3"), long)) // comes back
	s.members("g", "a=3", "b=2")
}

func (s suite) leasesFull() {
	ctx := s.Context()
	for i := range MaxMembers {
		ttl := long
		if i == 0 {
			ttl = short
		}
		s.ok(s.store.Put(ctx, "g", fmt.Sprint("m", i), nil, ttl))
	}
	s.advance(short)
	s.ok(s.store.Put(ctx, "g", "in place of the one that ended", nil, long))
	s.is(s.store.Put(ctx, "g", "one too many", nil, long), state.ErrFull)
	s.ok(s.store.Put(ctx, "g", "m1", []byte("renewed"), long))
	s.ok(s.store.Put(ctx, "other", "x", nil, long))
	s.ok(s.store.Remove(ctx, "g", "m2"))
	s.ok(s.store.Put(ctx, "g", "m9", nil, long))
	s.members("g", "in place of the one that ended=", "m1=renewed", "m3=", "m4=", "m9=")
}

func (s suite) leaseArguments() {
	ctx := s.Context()
	s.is(s.store.Put(ctx, "g", "a", make([]byte, MaxRecord+1), long), state.ErrTooLarge, "4097", "4096")
	for _, ttl := range []time.Duration{-1, 0, 11 * 365 * 24 * time.Hour} {
		s.is(s.store.Put(ctx, "g", "a", nil, ttl), state.ErrArgument, "time to live")
		_, _, err := s.store.Acquire(ctx, "l", "a", ttl)
		s.is(err, state.ErrArgument, "time to live")
	}
	s.members("g")
}

// acquires demands that owner leads, and returns its token.
func (s suite) acquires(name, owner string, ttl time.Duration) uint64 {
	s.Helper()
	token, held, err := s.store.Acquire(s.Context(), name, owner, ttl)
	s.ok(err)
	if !held || token == 0 {
		s.Fatalf("%s does not lead: token %d", owner, token)
	}
	return token
}

// refused demands that owner does not lead.
func (s suite) refused(name, owner string) {
	s.Helper()
	token, held, err := s.store.Acquire(s.Context(), name, owner, long)
	s.ok(err)
	if held || token != 0 {
		s.Fatalf("%s leads with token %d", owner, token)
	}
}

// grew demands that a token is above another one.
func (s suite) grew(before, after uint64) uint64 {
	s.Helper()
	if after <= before {
		s.Fatalf("token %d came after %d", after, before)
	}
	return after
}

func (s suite) leader() {
	ctx := s.Context()
	first := s.acquires("l", "a", long)
	s.refused("l", "b")
	if again := s.acquires("l", "a", long); again != first {
		s.Errorf("renewed, the token went from %d to %d", first, again)
	}
	s.acquires("other", "b", long)
	s.refused("other", "a")
	s.ok(s.store.Release(ctx, "l", "b")) // who does not lead gives nothing up
	s.ok(s.store.Release(ctx, "nothing", "b"))
	s.refused("l", "b")
	s.ok(s.store.Release(ctx, "l", "a"))
	second := s.grew(first, s.acquires("l", "b", long))
	s.refused("l", "a")
	s.ok(s.store.Release(ctx, "l", "b"))
	s.grew(second, s.acquires("l", "b", long))
}

func (s suite) leaderEnds() {
	first := s.acquires("l", "a", short)
	s.advance(short)
	second := s.grew(first, s.acquires("l", "b", long))
	s.refused("l", "a")
	if again := s.acquires("l", "b", short); again != second { // a shorter lease than it had
		s.Errorf("renewed, the token went from %d to %d", second, again)
	}
	s.advance(short)
	s.grew(second, s.acquires("l", "b", long)) // who comes too late takes it anew
}

func (s suite) leaderOfMany() {
	var mu sync.Mutex
	var tokens []uint64
	for range 5 {
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				token, held, err := s.store.Acquire(s.Context(), "l", fmt.Sprint("owner ", i), long)
				if err != nil || held != (token > 0) {
					s.Errorf("token %d, held %v, error %v", token, held, err)
				}
				if held {
					mu.Lock()
					tokens = append(tokens, token)
					mu.Unlock()
				}
			})
		}
		group.Wait()
		for i := range 8 {
			s.ok(s.store.Release(s.Context(), "l", fmt.Sprint("owner ", i)))
		}
	}
	if len(tokens) != 5 || !slices.IsSorted(tokens) || len(slices.Compact(tokens)) != 5 {
		s.Errorf("tokens of five leaders: %d", tokens)
	}
}

// saves demands whether a value is refused for its token.
func (s suite) saves(key, value string, token uint64, ttl time.Duration, stale bool) {
	s.Helper()
	got, err := s.store.SaveFenced(s.Context(), key, []byte(value), token, ttl)
	s.ok(err)
	if got != stale {
		s.Fatalf("saving %q with token %d: stale %v", value, token, got)
	}
}

func (s suite) fenced() {
	const largest = 1<<64 - 1
	s.saves("a", "5", 5, 0, false)
	s.saves("a", "4", 4, 0, true)
	s.loads("a", "5")
	s.saves("a", "5 again", 5, 0, false)
	s.saves("a", "10", 10, long, false)
	s.saves("a", "9", 9, 0, true)
	s.loads("a", "10")
	s.saves("b", "1", 1, 0, false)
	s.ok(s.store.Delete(s.Context(), "a"))
	s.none("a")
	s.saves("a", "9", 9, 0, true) // deleting forgives nothing
	s.none("a")
	s.saves("a", "largest", largest, 0, false)
	s.saves("a", "nearly", largest-1, 0, true)
	s.loads("a", "largest")
	s.ok(s.store.Save(s.Context(), "a", []byte("not fenced"), 0))
	s.loads("a", "not fenced")
	s.saves("a", "nearly", largest-1, 0, true)
	// Tokens of leaders fence.
	old := s.acquires("l", "a", long)
	s.ok(s.store.Release(s.Context(), "l", "a"))
	current := s.acquires("l", "b", long)
	s.saves("plan", "b's", current, long, false)
	s.saves("plan", "a's", old, long, true)
	s.loads("plan", "b's")
}

func (s suite) fencedTTL() {
	s.saves("a", "5", 5, short, false)
	s.advance(short)
	s.none("a")
	s.saves("a", "4", 4, short, true) // the token is remembered longer than the value
	s.none("a")
	s.saves("a", "6", 6, long, false)
	s.loads("a", "6")
}

func (s suite) names() {
	ctx := s.Context()
	for _, name := range []string{"", strings.Repeat("x", 257), "a{b", "a}b", "new\nline", "\xff"} {
		value := []byte("1")
		_, endErr := s.store.End(ctx, name)
		_, _, readErr := s.store.Read(ctx, name, "", 1, 0)
		_, loadErr := s.store.Load(ctx, name)
		_, fencedErr := s.store.SaveFenced(ctx, name, value, 1, 0)
		_, membersErr := s.store.Members(ctx, name)
		_, _, acquireErr := s.store.Acquire(ctx, name, "a", long)
		for _, err := range []error{s.store.Append(ctx, name, value), endErr, readErr, s.store.Save(ctx, name, value, 0), loadErr,
			s.store.Delete(ctx, name), fencedErr, s.store.Put(ctx, name, "a", value, long), s.store.Remove(ctx, name, "a"), membersErr,
			acquireErr, s.store.Release(ctx, name, "a")} {
			s.is(err, state.ErrArgument, "must")
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 257), "new\nline", "\xff"} {
		_, _, acquireErr := s.store.Acquire(ctx, "l", name, long)
		for _, err := range []error{s.store.Put(ctx, "g", name, nil, long), s.store.Remove(ctx, "g", name), acquireErr, s.store.Release(ctx, "l", name)} {
			s.is(err, state.ErrArgument, "must")
		}
	}
	// One name for everything, with all that may be in it.
	name := "meta-llama/Llama-3.1-8B:lora * [a] \"ü\"" + strings.Repeat("x", 200)
	s.append(name, "1")
	s.reads(name, "", 1, "1")
	s.ok(s.store.Save(ctx, name, []byte("1"), 0))
	s.loads(name, "1")
	s.ok(s.store.Put(ctx, name, name, []byte("1"), long))
	s.members(name, name+"=1")
	s.acquires(name, name, long)
	s.saves(name, "2", 1, 0, false)
}

// copies: what was given may be changed afterwards.
func (s suite) copies() {
	ctx := s.Context()
	value := []byte("before")
	s.ok(s.store.Append(ctx, "a", value))
	s.ok(s.store.Save(ctx, "a", value, 0))
	s.ok(s.store.Put(ctx, "a", "m", value, long))
	_, err := s.store.SaveFenced(ctx, "b", value, 1, 0)
	s.ok(err)
	copy(value, bytes.Repeat([]byte("x"), len(value)))
	s.reads("a", "", 1, "before")
	s.loads("a", "before")
	s.loads("b", "before")
	s.members("a", "m=before")
}

// contexts: a call that is over does nothing.
func (s suite) contexts() {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	for name, err := range calls(ctx, s.store) {
		if !errors.Is(err, context.Canceled) {
			s.Errorf("%s: %v, want that the call is over", name, err)
		}
	}
	s.reads("a", "", 1)
	s.none("a")
	s.members("a")
	s.acquires("a", "b", long)
}

// calls makes every call once.
func calls(ctx context.Context, store state.Store) map[string]error {
	errs := map[string]error{
		"Append":  store.Append(ctx, "a", []byte("1")),
		"Save":    store.Save(ctx, "a", []byte("1"), 0),
		"Delete":  store.Delete(ctx, "a"),
		"Put":     store.Put(ctx, "a", "m", nil, long),
		"Remove":  store.Remove(ctx, "a", "m"),
		"Release": store.Release(ctx, "a", "a"),
	}
	_, errs["End"] = store.End(ctx, "a")
	_, _, errs["Read"] = store.Read(ctx, "a", "", 1, 0)
	_, _, errs["Read, waiting"] = store.Read(ctx, "a", "", 1, long)
	_, errs["Load"] = store.Load(ctx, "a")
	_, errs["Members"] = store.Members(ctx, "a")
	_, _, errs["Acquire"] = store.Acquire(ctx, "a", "a", long)
	_, errs["SaveFenced"] = store.SaveFenced(ctx, "a", nil, 1, 0)
	return errs
}

// Away demands that every call to a store that is away fails with a text that says whom was asked.
func Away(t *testing.T, store state.Store, where string) {
	t.Helper()
	for name, err := range calls(t.Context(), store) {
		switch {
		case err == nil:
			t.Errorf("%s: no error", name)
		case !strings.Contains(err.Error(), where):
			t.Errorf("%s: %q does not say whom was asked: %s", name, err, where)
		}
	}
}
