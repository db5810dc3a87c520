package router

import (
	"bufio"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"sync"
	"time"

	"attache/indexer"
	"attache/indexer/events"
	"attache/internal/field"
	"attache/internal/packed"
	"attache/internal/slot"
	"attache/internal/worker"
)

// SnapshotConfig says where what is known of the workers' caches is kept, so that a replica that starts knows at once who holds
// what. Nothing is kept where neither a folder nor a shared store is named.
type SnapshotConfig struct {
	// Dir is a folder for a file of each pool, with its name. It must exist, and outlive the process: a container needs a volume. The
	// files hold hashes of prompts, and where engines' pages are smaller than the pool's blocks their token ids. Empty: none.
	Dir string `yaml:"dir"`
	// Interval is how often a snapshot is taken, besides at the end. A replica that is killed knows what it knew at most so long
	// ago, and what engines that publish events have told since, as far as they keep it.
	Interval time.Duration `yaml:"interval"`
	// MaxBytes bounds a pool's snapshot, before it is compressed. It takes about 21 bytes for each block that a worker holds by its
	// events and 10 for one by decisions, and 12 for each page where engines' pages are of one token. A larger one is neither written
	// nor read: the former stays.
	MaxBytes field.Bytes `yaml:"max_bytes"`
	// Shared keeps snapshots in the store that replicas share, when there is one. The newest of all replicas serves any that starts,
	// a new one, too.
	Shared bool `yaml:"shared"`
}

// DefaultSnapshotConfig keeps nothing.
func DefaultSnapshotConfig() SnapshotConfig {
	return SnapshotConfig{Interval: 5 * time.Minute, MaxBytes: field.GiB}
}

// Validate reports every field that breaks its rule.
func (c SnapshotConfig) Validate() error {
	var check field.Checker
	check.Check(c.Interval >= time.Second, "interval", c.Interval, "must be at least 1s")
	check.Check(c.MaxBytes >= field.MiB, "max_bytes", int64(c.MaxBytes), "must be at least 1MiB")
	return check.Err()
}

// A snapshot of a pool is
//
//	"attache warm" and the version, one byte
//	compressed by deflate, without looking for repetitions, as there are none in hashes:
//	    the pool's name, the tokens of its blocks, when it was taken (Unix seconds), and what is remembered of decisions: how many
//	    ranks; each the worker's address, the rank, and when its process started (8 bytes; 0 not known)
//	    for each of them what it holds (see indexer.Frozen)
//	    what engines said (see events.Frozen)
//
// Every part has its own checksum. Workers are named by address, because slots change from process to process. What is said of a
// worker whose process is another one by now is dropped: see recollections for what is remembered of decisions, and package events
// for how feeds find out.
const (
	warmMagic   = "attache warm"
	warmVersion = 1
	maxRanks    = 1 << 20
	maxName     = 1 << 10
)

// errSnapshot says that what was read is no snapshot of this version and this pool, or is damaged.
var errSnapshot = errors.New("not a sound snapshot of a pool")

// frozen is what is known of a pool at one moment.
type frozen struct {
	pool        string
	blockTokens int
	at          time.Time
	memories    []recollection
	told        *events.Frozen
}

// freeze captures what is known of a pool. Decisions go on meanwhile.
func (p *pool) freeze(set *worker.Set, now time.Time) *frozen {
	z := &frozen{pool: p.name, blockTokens: p.keyer.BlockTokens(), at: now}
	for _, w := range set.Pool(p.name) {
		for rank, s := range w.Slots() {
			if p.index.Held(s) > 0 {
				z.memories = append(z.memories, recollection{rankName{w.Endpoint, rank}, w.Stats().ProcessStart, p.index.Freeze(s)})
			}
		}
	}
	z.told = p.ledger.Freeze()
	return z
}

// write writes a snapshot of at most so many bytes before compression.
func (z *frozen) write(to io.Writer, most field.Bytes) error {
	if _, err := to.Write(append([]byte(warmMagic), warmVersion)); err != nil {
		return err
	}
	deflate, err := flate.NewWriter(to, flate.HuffmanOnly)
	if err != nil {
		return err
	}
	out := &limited{to: deflate, left: int64(most)}
	w := packed.NewWriter(out)
	w.Text(z.pool)
	w.Number(z.blockTokens)
	w.Number(int(max(z.at.Unix(), 0)))
	w.Number(len(z.memories))
	for _, m := range z.memories {
		w.Text(m.addr)
		w.Number(m.rank)
		w.Word(math.Float64bits(m.process))
	}
	if _, err := w.Close(); err != nil {
		return err
	}
	for _, m := range z.memories {
		if _, err := m.held.WriteTo(out); err != nil {
			return err
		}
	}
	if _, err := z.told.WriteTo(out); err != nil {
		return err
	}
	return deflate.Close()
}

// limited fails when too much is written.
type limited struct {
	to   io.Writer
	left int64
}

var errTooLarge = errors.New("it exceeds router.snapshot.max_bytes")

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, errTooLarge
	}
	return l.to.Write(p)
}

// capped fails when too much is read.
type capped struct {
	from io.Reader
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// opened is a snapshot of which the beginning was read.
type opened struct {
	io.Closer

	in       *bufio.Reader
	at       time.Time
	memories []recollection
	from     shelf
}

// open reads the beginning of what a shelf keeps of a pool.
func (p *pool) open(ctx context.Context, from shelf, most field.Bytes) (*opened, error) {
	file, err := from.get(ctx, p.name)
	if err != nil {
		return nil, err
	}
	o := &opened{Closer: file, from: from}
	if err := p.readHead(o, file, most); err != nil {
		_ = file.Close() // only read
		return nil, err
	}
	return o, nil
}

func (p *pool) readHead(o *opened, file io.Reader, most field.Bytes) error {
	plain := bufio.NewReader(file)
	head := make([]byte, len(warmMagic)+1)
	if _, err := io.ReadFull(plain, head); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: it ends early", errSnapshot)
		}
		return err
	}
	switch version := head[len(warmMagic)]; {
	case string(head[:len(warmMagic)]) != warmMagic:
		return fmt.Errorf("%w: it begins otherwise", errSnapshot)
	case version != warmVersion:
		return fmt.Errorf("%w: it is of version %d, expected is %d", errSnapshot, version, warmVersion)
	}
	o.in = bufio.NewReader(&capped{from: flate.NewReader(plain), left: int64(most)})
	r := packed.NewReader(o.in, errSnapshot)
	pool, blocks := r.Text(maxName), r.Number(math.MaxInt32)
	o.at = time.Unix(int64(r.Number(math.MaxInt)), 0)
	for n := r.Number(maxRanks); n > 0 && r.Err() == nil; n-- {
		o.memories = append(o.memories, recollection{rankName: rankName{r.Text(maxName), r.Number(maxRanks)}, process: math.Float64frombits(r.Word())})
	}
	r.Check(pool == p.name && blocks == p.keyer.BlockTokens(), fmt.Sprintf("it is of pool %q with blocks of %d tokens, expected are %q and %d",
		pool, blocks, p.name, p.keyer.BlockTokens()))
	return r.Close()
}

// restore takes over the rest. It is all or nothing.
func (p *pool) restore(o *opened) error {
	for i := range o.memories {
		held, err := indexer.Load(o.in)
		if err != nil {
			return err
		}
		o.memories[i].held = held
	}
	if err := p.ledger.Restore(o.in); err != nil {
		return err
	}
	p.memories.begin(o.memories, o.at)
	return nil
}

// shelves are where snapshots are kept.
func (r *Router) shelves(p Params) (all []shelf) {
	if dir := p.Config.Snapshot.Dir; dir != "" {
		all = append(all, folder(dir))
	}
	if p.Config.Snapshot.Shared && p.Blobs == nil {
		r.log.Warn("router.snapshot.shared has no effect: there is no store that replicas share")
	}
	if p.Config.Snapshot.Shared && p.Blobs != nil {
		all = append(all, shared{blobs: p.Blobs, replica: p.Replica, enough: p.Config.Snapshot.Interval / 2, now: p.Now})
	}
	return all
}

const (
	// restoreWait bounds how long reading snapshots may take at the start.
	restoreWait = 10 * time.Second
	// keepWait bounds how long writing them may take.
	keepWait = 10 * time.Second
	// restoreTries is how often a snapshot is read that is replaced at the same time.
	restoreTries = 3
)

// restoreAll brings back what is known of the pools, as far as it is kept anywhere. It must be called before the ledgers run.
func (r *Router) restoreAll(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, restoreWait)
	defer stop()
	var reading sync.WaitGroup
	for _, p := range r.pools {
		reading.Go(func() { r.restorePool(ctx, p) })
	}
	reading.Wait()
}

// restorePool takes the newest snapshot that can be used.
func (r *Router) restorePool(ctx context.Context, p *pool) {
	for range restoreTries {
		if again := r.restoreNewest(p, r.openAll(ctx, p)); !again {
			return
		}
	}
}

// restoreNewest takes the first of several snapshots that can be used. again says that one was replaced while it was read.
func (r *Router) restoreNewest(p *pool, all []*opened) (again bool) {
	defer func() {
		for _, o := range all {
			_ = o.Close() // only read
		}
	}()
	for _, o := range all {
		began := r.now()
		err := p.restore(o)
		if err == nil {
			r.metrics.snapshots.WithLabelValues(p.name, "restored").Inc()
			r.log.Info("what workers hold was read from a snapshot", "pool", p.name, "from", o.from.String(),
				"age", began.Sub(o.at).Round(time.Second).String(), "took", r.now().Sub(began).Round(time.Millisecond).String(),
				"ranks", len(o.memories), "blocks", p.ledger.Stats().Held)
			return false
		}
		again = again || errors.Is(err, fs.ErrNotExist)
		r.refused(p, o.from, err)
	}
	return again
}

// openAll opens a pool's snapshots, the newest first.
func (r *Router) openAll(ctx context.Context, p *pool) (all []*opened) {
	for _, from := range r.kept {
		o, err := p.open(ctx, from, r.settings.Load().Snapshot.MaxBytes)
		switch {
		case err == nil:
			all = append(all, o)
		case !errors.Is(err, fs.ErrNotExist):
			r.refused(p, from, err)
		}
	}
	slices.SortStableFunc(all, func(a, b *opened) int { return b.at.Compare(a.at) })
	return all
}

func (r *Router) refused(p *pool, from shelf, err error) {
	r.metrics.snapshots.WithLabelValues(p.name, "refused").Inc()
	r.log.Warn("the snapshot of what workers hold cannot be used; it is learnt anew", "pool", p.name, "from", from.String(), "error", err)
}

// keepAll saves what is known of the pools; last says that there will be no other time. A pool of which a part is still waiting
// for its workers is left out: what is kept of it is more.
func (r *Router) keepAll(ctx context.Context, last bool) {
	if len(r.kept) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(ctx, keepWait)
	defer stop()
	for _, p := range r.pools {
		if p.ledger.Waiting() || p.memories.waiting() {
			continue
		}
		var z *frozen
		for _, to := range r.kept {
			if !last && to.fresh(ctx, p.name, r.now()) {
				continue
			}
			if z == nil {
				z = p.freeze(r.workers.Set(), r.now())
			}
			r.keepIn(ctx, p, to, z)
		}
	}
}

func (r *Router) keepIn(ctx context.Context, p *pool, to shelf, z *frozen) {
	if err := to.put(ctx, p.name, func(w io.Writer) error { return z.write(w, r.settings.Load().Snapshot.MaxBytes) }); err != nil {
		r.metrics.snapshots.WithLabelValues(p.name, "failed").Inc()
		r.log.Error("saving what workers hold failed; the former snapshot stays", "pool", p.name, "to", to.String(), "error", err)
		return
	}
	r.metrics.snapshots.WithLabelValues(p.name, "saved").Inc()
	r.metrics.snapshotAt.WithLabelValues(p.name).Set(float64(z.at.Unix()))
}

// runSnapshots saves and brings back until ctx ends.
func (r *Router) runSnapshots(ctx context.Context) (wait func()) {
	var running sync.WaitGroup
	running.Go(func() { r.recall(ctx) })
	running.Go(func() { r.keepOften(ctx) })
	return running.Wait
}

// keepOften saves what is known until ctx ends, and then once more.
func (r *Router) keepOften(ctx context.Context) {
	if len(r.kept) == 0 {
		return
	}
	tick := time.NewTicker(r.settings.Load().Snapshot.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.keepAll(context.WithoutCancel(ctx), true)
			return
		case <-tick.C:
			r.keepAll(ctx, false)
		}
	}
}

// recall gives memories to the workers that they are of, until none waits or ctx ends.
func (r *Router) recall(ctx context.Context) {
	tick := time.NewTicker(recalling)
	defer tick.Stop()
	for {
		waiting := false
		for _, p := range r.pools {
			p.remember(r.workers.Set(), r.now())
			waiting = waiting || p.memories.waiting()
		}
		if !waiting {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// recalling is how often it is looked whether workers have appeared that memories wait for.
const recalling = 50 * time.Millisecond

// remember gives memories to those workers of the pool that are there by now.
func (p *pool) remember(set *worker.Set, now time.Time) {
	if !p.memories.waiting() {
		return
	}
	p.memories.offer(now, func(m recollection, age time.Duration) (done bool) {
		for _, w := range set.Pool(p.name) {
			if w.Endpoint != m.addr || m.rank >= len(w.Slots()) {
				continue
			}
			s := w.Slots()[m.rank]
			switch p.knows(w, s, m) {
			case itself:
				p.index.Restore(s, m.held, age)
				return true
			case another:
				return true
			case unsure:
				return false
			}
		}
		return false
	})
}

// identity is whether a worker is still the process that a memory is of.
type identity uint8

const (
	unsure  identity = iota // that is not known yet
	itself                  // it is, as far as can be seen
	another                 // it is not
)

// knows tells whether a worker is the process that a memory is of: by when it started, and by its events, if there are any.
func (p *pool) knows(w *worker.Worker, s slot.Slot, m recollection) identity {
	if w.State == worker.Starting || w.State == worker.Unhealthy {
		return unsure
	}
	if m.process != 0 {
		switch start := w.Stats().ProcessStart; {
		case start == 0:
			return unsure
		case start != m.process:
			return another
		}
	}
	switch begun, renewed := p.ledger.Begun(s); {
	case renewed:
		return another
	case !begun:
		return unsure
	default:
		return itself
	}
}
