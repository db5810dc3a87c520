package router

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/zeebo/xxh3"

	"attache/indexer/events"
	"attache/internal/field"
	"attache/internal/worker"
)

// filled is a world that knows a prompt by decisions, with its snapshot.
func filled(t testing.TB, dir string) (w *world, snapshot []byte) {
	t.Helper()
	w = worldOf(t, func(c *Config) { c.Snapshot.Dir = dir }, nil, workers("default", 1, worker.Ready)...)
	d, err := w.Route(t.Context(), chatOf(t, "m", long("a story", 4000)))
	if err != nil {
		t.Fatal(err)
	}
	d.Done.End()
	var b bytes.Buffer
	if err := w.pools[0].freeze(w.fleet.set, w.clock).write(&b, field.GiB); err != nil {
		t.Fatal(err)
	}
	return w, b.Bytes()
}

// knows is how much of the prompt is known once all that waits has been offered.
func (w *world) knows(t testing.TB) int {
	t.Helper()
	p := w.pools[0]
	p.remember(w.fleet.set, w.clock)
	e, err := w.Explain(t.Context(), chatOf(t, "m", long("a story", 4000)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return e.Captured
}

// looks runs the ledger of the pool for a moment, so that it has seen who is there.
func (w *world) looks(t testing.TB) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.pools[0].ledger.Run(ctx)
	}()
	for w.pools[0].ledger.Pending() > 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	<-done
}

// TestSnapshotsThatCannotBeUsed: they cost the warmth, and nothing else.
func TestSnapshotsThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	_, good := filled(t, dir)
	path := filepath.Join(dir, "default.snapshot")
	tooNew := bytes.Clone(good)
	tooNew[len(warmMagic)]++
	for _, c := range []struct {
		name     string
		snapshot []byte
		want     string // of the error; "" it is taken
	}{
		{"whole", good, ""},
		{"empty", nil, "it ends early"},
		{"something else", []byte("<html>something else</html>"), "it begins otherwise"},
		{"too new", tooNew, "it is of version 2, expected is 1"},
		{"cut off", good[:len(good)*2/3], "ends early"},
		{"another pool's", rewritten(t, good, func(z *frozen) { z.pool = "other" }), `it is of pool "other" with blocks of 32 tokens, expected are "default" and 32`},
		{"of other blocks", rewritten(t, good, func(z *frozen) { z.blockTokens = 64 }), `blocks of 64 tokens`},
		{"too large", bomb(t), "exceeds router.snapshot.max_bytes"},
	} {
		if err := os.WriteFile(path, c.snapshot, 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		w := worldOf(t, func(cfg *Config) { cfg.Snapshot.Dir, cfg.Snapshot.MaxBytes = dir, field.MiB }, &log, workers("default", 5, worker.Ready)...)
		w.fleet.set = worker.NewSet(workers("default", 1, worker.Ready)...)
		w.Observe(w.fleet.set)
		w.restoreAll(t.Context())
		w.looks(t)
		if got := w.knows(t); got > 0 != (c.want == "") || !strings.Contains(log.String(), strings.ReplaceAll(c.want, `"`, `\"`)) {
			t.Errorf("%s: %d tokens known; the log says %s, want %s", c.name, got, log.String(), c.want)
		}
		want := "restored"
		if c.want != "" {
			want = "refused"
		}
		if got := testutil.ToFloat64(w.metrics.snapshots.WithLabelValues("default", want)); got != 1 {
			t.Errorf("%s: %s %v times, want once", c.name, want, got)
		}
	}
}

// rewritten is a snapshot with another head, and nothing behind it.
func rewritten(t *testing.T, good []byte, change func(*frozen)) []byte {
	t.Helper()
	w, _ := filled(t, t.TempDir())
	z := w.pools[0].freeze(w.fleet.set, w.clock)
	change(z)
	var b bytes.Buffer
	if err := z.write(&b, field.GiB); err != nil || len(b.Bytes()) < len(good)/2 {
		t.Fatal(err)
	}
	return b.Bytes()
}

// bomb is a small file that says a lot: a head with a million ranks.
func bomb(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	const pool, blockTokens = "default", 32
	b.Write(append([]byte(warmMagic), warmVersion))
	deflate, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	head := binary.AppendUvarint(append(binary.AppendUvarint(nil, uint64(len(pool))), pool...), blockTokens)
	head = binary.AppendUvarint(binary.AppendUvarint(head, 0), maxRanks)
	if _, err := deflate.Write(append(head, make([]byte, 10*maxRanks)...)); err != nil || deflate.Close() != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// worldOf is newWorld with a log.
func worldOf(t testing.TB, change func(*Config), log io.Writer, ws ...*worker.Worker) *world {
	t.Helper()
	w := &world{fleet: &fleet{set: worker.NewSet(ws...)}, clock: time.Unix(1_000_000, 0), reg: prometheus.NewRegistry()}
	cfg := DefaultConfig()
	change(&cfg)
	if log == nil {
		log = io.Discard
	}
	r, err := New(Params{Config: cfg, Pools: []PoolConfig{{Name: "default"}}, Replica: "r1", Workers: w.fleet, Now: func() time.Time { return w.clock },
		Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: w.reg})
	if err != nil {
		t.Fatal(err)
	}
	w.Router = r
	r.Observe(w.fleet.set)
	return w
}

// TestWorkersThatComeLater: what is remembered of a worker waits until it is there and it is known who it is, but not for ever.
func TestWorkersThatComeLater(t *testing.T) {
	with := func(state worker.State, process float64) *worker.Worker {
		return workers("default", 7, state)[0].WithStats(worker.Stats{ProcessStart: process})
	}
	for _, c := range []struct {
		name    string
		process float64 // in the snapshot
		then    *worker.Worker
		after   time.Duration
		want    identity
	}{
		{"it is there", 11, with(worker.Ready, 11), 0, itself},
		{"nobody says when it started", 0, with(worker.Ready, 11), 0, itself},
		{"it has not said yet", 11, with(worker.Ready, 0), 0, unsure},
		{"it has never answered", 11, with(worker.Starting, 11), 0, unsure},
		{"it started later", 11, with(worker.Ready, 12), 0, another},
		{"too late", 11, with(worker.Ready, 11), events.Parked, another},
	} {
		w, _ := filled(t, t.TempDir())
		p, chain := w.pools[0], []uint64{4, 5, 6}
		p.index.Remember(2, chain)
		m := recollection{rankName: rankName{c.then.Endpoint, 0}, process: c.process, held: p.index.Freeze(2)}
		p.memories.begin([]recollection{m}, w.clock)
		p.remember(w.fleet.set, w.clock)
		if !p.memories.waiting() {
			t.Errorf("%s: nothing waits for a worker that is not there", c.name)
		}
		w.looks(t)
		w.publish(c.then)
		w.clock = w.clock.Add(c.after)
		p.remember(worker.NewSet(), w.clock)
		p.remember(w.fleet.set, w.clock)
		if got, waits := p.index.Held(7), p.memories.waiting(); got > 0 != (c.want == itself) || waits != (c.want == unsure) {
			t.Errorf("%s: %d blocks held, waiting %v", c.name, got, waits)
		}
		if pending := w.PendingReplays(); pending > 0 != (c.want == unsure && c.then.State == worker.Ready) {
			t.Errorf("%s: %d pending", c.name, pending)
		}
	}
}

// TestSharedShelf: snapshots in pieces, the newest of all replicas.
func TestSharedShelf(t *testing.T) {
	store := &blobs{values: map[string][]byte{}}
	now := time.Unix(1000, 0)
	at := func(replica string) shared {
		return shared{blobs: store, replica: replica, enough: time.Minute, now: func() time.Time { return now }}
	}
	large := make([]byte, 2*pieceBytes+5)
	for i := range large {
		large[i] = byte(i >> 10)
	}
	put := func(s shared, value []byte, fails error) error {
		return s.put(t.Context(), "p", func(to io.Writer) error {
			for p := range slices.Chunk(value, 1<<20) {
				if _, err := to.Write(p); err != nil {
					return err
				}
			}
			return fails
		})
	}
	get := func(s shared) ([]byte, error) {
		r, err := s.get(t.Context(), "p")
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	}
	a, b := at("a"), at("b")
	if _, err := get(a); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	if a.fresh(t.Context(), "p", now) || put(a, large, nil) != nil || len(store.values) != 4 {
		t.Errorf("%d values, want 3 pieces and the contents page", len(store.values))
	}
	for key, value := range store.values {
		if len(value) > pieceBytes {
			t.Errorf("%s has %d bytes", key, len(value))
		}
	}
	if got, err := get(b); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(large))
	}
	if a.fresh(t.Context(), "p", now) || !b.fresh(t.Context(), "p", now.Add(59*time.Second)) || b.fresh(t.Context(), "p", now.Add(time.Minute)) ||
		b.fresh(t.Context(), "p", now.Add(-time.Hour)) {
		t.Error("what another replica has put lately is not replaced, everything else is")
	}
	reading, err := b.get(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := put(b, large, broken); !errors.Is(err, broken) || len(store.values) != 4 {
		t.Errorf("%v, %d values; want the former ones", err, len(store.values))
	}
	if err := put(b, []byte("newer"), nil); err != nil || len(store.values) != 2 {
		t.Errorf("%v, %d values left: %v", err, len(store.values), slices.Collect(maps.Keys(store.values)))
	}
	if _, err := io.ReadAll(reading); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading what was replaced meanwhile: %v", err)
	}
	if got, err := get(a); err != nil || string(got) != "newer" {
		t.Errorf("%q, %v", got, err)
	}
	store.fails = broken
	if err := put(a, large, nil); !errors.Is(err, broken) {
		t.Errorf("a store that fails: %v", err)
	}
	store.fails = nil
	store.values[a.key("p")][3] ^= 1
	if _, err := get(a); !errors.Is(err, errContents) {
		t.Errorf("a damaged contents page: %v", err)
	}
}

// TestTheNewestSnapshotIsTaken, and when that is damaged the other one.
func TestTheNewestSnapshotIsTaken(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		dir, store := t.TempDir(), &blobs{values: map[string][]byte{}}
		w, _ := filled(t, dir)
		newer := shared{blobs: store, replica: "other", now: func() time.Time { return w.clock }}
		w.kept = []shelf{folder(dir)}
		w.keepAll(t.Context(), false)
		w.clock = w.clock.Add(time.Minute)
		w.kept = []shelf{newer}
		w.keepAll(t.Context(), false)
		if n := len(store.values); n != 2 {
			t.Fatalf("%d values", n)
		}
		if damaged {
			for key, value := range store.values {
				if strings.HasSuffix(key, "/0") {
					value[len(value)/2] ^= 1
				}
			}
		}
		var log bytes.Buffer
		after := worldOf(t, func(*Config) {}, &log, w.fleet.set.All()...)
		after.kept = []shelf{folder(dir), newer}
		after.restoreAll(t.Context())
		want := "the shared store"
		if damaged {
			want = dir
		}
		if told := fmt.Sprintf("from=%q", want); !strings.Contains(strings.ReplaceAll(log.String(), "from="+dir, fmt.Sprintf("from=%q", dir)), "pool=default "+told+" age") {
			t.Errorf("damaged %v: want %s in %s", damaged, told, log.String())
		}
	}
}

// TestSnapshotsAreKept: often, at the end, and not while a part of the former one waits.
func TestSnapshotsAreKept(t *testing.T) {
	dir := t.TempDir()
	w, _ := filled(t, dir)
	path := filepath.Join(dir, "default.snapshot")
	w.pools[0].memories.begin(make([]recollection, 1), w.clock)
	w.keepAll(t.Context(), true)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want nothing to be kept while something waits", err)
	}
	w.pools[0].memories.begin(nil, w.clock)
	w.keepAll(t.Context(), true)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	small := *w.settings.Load()
	small.Snapshot.MaxBytes = 10
	w.settings.Store(&small)
	w.keepAll(t.Context(), true)
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("%v, want the former one after one that is too large", err)
	}
	if got := testutil.ToFloat64(w.metrics.snapshots.WithLabelValues("default", "failed")); got != 1 {
		t.Errorf("failed %v times, want once", got)
	}
}

// FuzzSnapshot reads anything behind the compression, with a head whose checksum is right.
func FuzzSnapshot(f *testing.F) {
	_, good := filled(f, f.TempDir())
	plain, err := io.ReadAll(flate.NewReader(bytes.NewReader(good[len(warmMagic)+1:])))
	if err != nil {
		f.Fatal(err)
	}
	w, _ := filled(f, f.TempDir())
	z := w.pools[0].freeze(w.fleet.set, w.clock)
	head := 1 + len(z.pool) + 1 + 4 // up to the ranks: a name, a number below 128, a time of three bytes
	for sum := head; sum+8 < len(plain); sum++ {
		if binary.LittleEndian.Uint64(plain[sum:]) == xxh3.Hash(plain[:sum]) {
			f.Add(plain[:sum], plain[sum+8:])
			break
		}
	}
	f.Fuzz(func(t *testing.T, head, tail []byte) {
		var b bytes.Buffer
		b.Write(append([]byte(warmMagic), warmVersion))
		deflate, err := flate.NewWriter(&b, flate.HuffmanOnly)
		if err != nil {
			t.Fatal(err)
		}
		sum := binary.LittleEndian.AppendUint64(nil, xxh3.Hash(head))
		if _, err := deflate.Write(slices.Concat(head, sum, tail)); err != nil || deflate.Close() != nil {
			t.Fatal(err)
		}
		p := w.pools[0]
		o := &opened{}
		if err := p.readHead(o, &b, field.MiB); err != nil {
			return
		}
		if err := p.restore(o); err == nil {
			p.remember(w.fleet.set, w.clock)
			p.memories.begin(nil, w.clock)
		}
	})
}
