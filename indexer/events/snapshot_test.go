package events

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/zeebo/xxh3"

	"attache/indexer/pages"
	"attache/indexer/runs"
	"attache/internal/slot"
	"attache/internal/worker"
)

// snapshot is what the ledger knows now.
func (f *following) snapshot(tb testing.TB) []byte {
	tb.Helper()
	var b bytes.Buffer
	if n, err := f.Freeze().WriteTo(&b); err != nil || n != int64(b.Len()) {
		tb.Fatalf("%d bytes, said to be %d: %v", b.Len(), n, err)
	}
	return b.Bytes()
}

func TestASnapshotIsGoneOnFrom(t *testing.T) {
	for _, block := range []int{pageTokens, 2 * pageTokens} {
		a := serve(t, &publisher{block: block, process: 1, tree: map[uint64]bool{}, ring: 2})
		b := serve(t, &publisher{block: block, process: 2, tree: map[uint64]bool{}})
		gone := serve(t, &publisher{block: block, process: 3, tree: map[uint64]bool{}})
		per := block / pageTokens // pages of a block
		l := followIn(t, block, nil, workerAt("a", 0, a), workerAt("b", 1, b), workerAt("gone", 2, gone))
		eventually(t, "all are exact and subscribed to", func() bool {
			return a.pub.Subscribers() > 0 && l.Evidence(0).Mode == Exact && l.Evidence(1).Mode == Exact && l.Evidence(2).Mode == Exact
		})
		for blocks := range 2 {
			a.say(0, (blocks+1)*per)
			b.say(2, (blocks+1)*per)
			gone.say(3, (blocks+1)*per)
		}
		eventually(t, "all have told", func() bool { return l.holds(0, 0) == 2 && l.holds(2, 1) == 2 && l.holds(3, 2) == 2 })
		saved := l.snapshot(t)
		l.stop()

		a.say(0, 3*per) // while we are away
		b.mu.Lock()
		b.publisher = &publisher{block: block, process: 4, tree: map[uint64]bool{}} // another process at the same address
		b.mu.Unlock()
		b.say(3, 3*per)
		was := workerAt("a", 0, a)
		renamed, late := was.Spec, workerAt("b", 1, b).Spec
		renamed.Name = "a by another name"
		l = followIn(t, block, saved, worker.NewWorker(renamed, 1, worker.Ready)) // in another slot
		eventually(t, "a's history goes on from the snapshot, though the engine does not keep it from the start", func() bool {
			return l.Evidence(1).Mode == Exact && l.holds(0, 1) == 3
		})
		if !l.Waiting() {
			t.Error("nothing waits for b")
		}
		l.Observe(worker.NewSet(worker.NewWorker(renamed, 1, worker.Ready), worker.NewWorker(late, 0, worker.Ready)))
		eventually(t, "b's is given up: it is another process", func() bool {
			return l.Evidence(0).Mode == Exact && l.holds(2, 0) == 2/per && l.holds(3, 0) == 3
		})
		l.stop()
		l.unpark()
		for l.index.Load().Tidy(100) {
		}
		if n := l.Stats().Held; n != 6 || l.Waiting() {
			t.Errorf("%d blocks held, want 6: nothing of the worker that is gone", n)
		}
	}
}

// TestPagesOfASnapshotAreRemoved: what was announced before a restart is taken back after it.
func TestPagesOfASnapshotAreRemoved(t *testing.T) {
	for _, block := range []int{pageTokens, 2 * pageTokens} {
		per := block / pageTokens
		a := serve(t, &publisher{block: block, process: 1, tree: map[uint64]bool{}, ring: 2})
		l := followIn(t, block, nil, workerAt("a", 0, a))
		eventually(t, "exact", func() bool { return a.pub.Subscribers() > 0 && l.Evidence(0).Mode == Exact })
		a.say(0, 3*per)
		eventually(t, "told", func() bool { return l.holds(0, 0) == 3 })
		saved := l.snapshot(t)
		l.stop()
		a.mu.Lock()
		a.publish(a.evict(0, per))
		a.mu.Unlock()
		l = followIn(t, block, saved, workerAt("a", 3, a))
		eventually(t, "one block is gone", func() bool { return l.Evidence(3).Mode == Exact && l.holds(0, 3) == 2 })
		l.stop()
	}
}

// TestAGapAfterASnapshot: what the engine does not keep up to the snapshot is no basis to go on from.
func TestAGapAfterASnapshot(t *testing.T) {
	a := serve(t, &publisher{block: pageTokens, process: 1, tree: map[uint64]bool{}, ring: 1})
	l := follow(t, nil, workerAt("a", 0, a))
	eventually(t, "exact", func() bool { return a.pub.Subscribers() > 0 && l.Evidence(0).Mode == Exact })
	a.say(0, 2)
	eventually(t, "told", func() bool { return l.holds(0, 0) == 2 })
	saved := l.snapshot(t)
	l.stop()
	for n := range 3 {
		a.say(2, n+1)
	}
	l = follow(t, saved, workerAt("a", 0, a))
	eventually(t, "partial", func() bool { return l.Evidence(0).Mode == Partial && l.Pending() == 0 })
	if got := l.holds(0, 0); got != 0 {
		t.Errorf("%d blocks are credited that nothing is known of", got)
	}
}

func newLedger(tb testing.TB, block int) *Ledger {
	tb.Helper()
	l, err := New(Params{Config: DefaultConfig(), Pool: "p", BlockTokens: block, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry()})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// someSnapshot is of a feed with blocks and one with small pages.
func someSnapshot(tb testing.TB) []byte {
	tb.Helper()
	j, err := pages.New(pages.Config{Page: 2, Block: 4, Limit: 100, Waiting: 10})
	if err != nil {
		tb.Fatal(err)
	}
	j.Store(pages.Stored{Root: true, Seed: 1, Pages: []uint64{5, 6, 7}, Tokens: make([]uint32, 6)}, func(pages.Blocks) {}, func(slot.Tier, []uint64) {})
	x := runs.New(runs.DefaultConfig())
	x.Store(runs.Holder{Slot: 3}, runs.Stored{Root: true, Engine: []uint64{1, 2}, Hashes: []uint64{11, 12}})
	z := &Frozen{blockTokens: 4, pages: []*pages.Frozen{j.Freeze()}, index: x.Freeze(nil), feeds: []frozenFeed{
		{home{"10.0.0.1:80", 0}, place{Known: true, Sequence: 7, Digest: 8, Page: 2, Small: true}, 1},
		{home{"10.0.0.2:80", 1}, place{Known: true, Sequence: 9, Digest: 1, Page: 4, Complete: true, HasGroup: true, Group: -1}, 3},
	}}
	var b bytes.Buffer
	if _, err := z.WriteTo(&b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func TestSnapshotsThatCannotBeUsed(t *testing.T) {
	good := someSnapshot(t)
	if l := newLedger(t, 4); l.Restore(bytes.NewReader(good)) != nil || len(l.resumed) != 2 {
		t.Errorf("%d ranks restored, want 2", len(l.resumed))
	}
	for i := range good {
		l := newLedger(t, 4)
		if err := l.Restore(bytes.NewReader(good[:i])); err == nil || l.Waiting() {
			t.Errorf("cut at %d: %v", i, err)
		}
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if err := l.Restore(bytes.NewReader(bad)); err == nil || l.Waiting() || l.Stats().Held > 0 {
			t.Errorf("changed at %d: %v", i, err)
		}
	}
	if err := newLedger(t, 8).Restore(bytes.NewReader(good)); !errors.Is(err, ErrSnapshot) {
		t.Errorf("blocks of another size: %v", err)
	}
}

func FuzzRestore(f *testing.F) {
	good := someSnapshot(f)
	for n := 8; n < len(good); n++ { // up to where the head ends
		if _, err := readFeeds(bytes.NewReader(good[:n]), 4); err == nil {
			f.Add(good[:n-8], good[n:])
			break
		}
	}
	f.Fuzz(func(t *testing.T, head, tail []byte) {
		b := binary.LittleEndian.AppendUint64(bytes.Clone(head), xxh3.Hash(head))
		l := newLedger(t, 4)
		if err := l.Restore(bytes.NewReader(append(b, tail...))); err != nil && (l.Waiting() || l.Stats().Held > 0) {
			t.Errorf("something was restored in spite of %v", err)
		}
	})
}
