package events

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/indexer/events/zmtp"
	"attache/indexer/runs"
	"attache/internal/block"
	"attache/internal/slot"
	"attache/internal/worker"
)

// Ledger is what the engines of one pool say they hold, and the feeds that follow them. Overlap, Evidence, Follows and Expect belong to
// the request path and wait for nobody; all methods are safe for concurrent use.
type Ledger struct {
	cfg         Config
	source      PoolConfig
	pool        string
	blockTokens int
	auto        bool
	stored      func(slot.Slot) // nil: nobody is told
	now         func() time.Time
	log         *slog.Logger
	metrics     *metrics
	finder      *finder
	sub         *zmtp.Sub // that engines dial; nil: they do not
	bound       *bound    // of a pool whose engines dial; else nobody talks to it

	evidence atomic.Pointer[[]Evidence] // by slot
	feeds    atomic.Pointer[[]*feed]    // by slot; nil elements
	set      atomic.Pointer[worker.Set]
	changed  chan struct{}
	looked   atomic.Bool // at who is there, once
	begun    time.Time

	writing sync.Mutex // guards the writer's side of index
	index   atomic.Pointer[runs.Index]
	resumed map[home]resumed // what a snapshot says of feeds that have not begun; Run's
	parked  atomic.Bool      // there are such

	judging sync.Mutex // guards replacing evidence

	verify atomic.Int64 // recommended interval for asking silent engines, in nanoseconds
	missed uint64       // batches found so far by asking; Run's
	tuned  time.Time    // when the interval was worked out last; Run's
}

// Params are what a Ledger needs.
type Params struct {
	Config      Config
	Source      PoolConfig
	Pool        string
	BlockTokens int  // of the pool
	Auto        bool // applies the recommended interval for asking silent engines
	Now         func() time.Time
	Log         *slog.Logger
	Metrics     prometheus.Registerer // with the pool's label
	// Stored is told whenever a slot's engine has said that it holds new blocks, once readers see them. It is called by whoever
	// follows that engine, and must not block. nil: nobody is told.
	Stored func(slot.Slot)
}

// New makes a ledger that knows nothing; Run follows the workers that Observe tells. The configuration must have been
// validated.
func New(p Params) (*Ledger, error) {
	l := &Ledger{
		cfg: p.Config, source: p.Source, pool: p.Pool, blockTokens: p.BlockTokens, auto: p.Auto, now: p.Now, log: p.Log, stored: p.Stored,
		changed: make(chan struct{}, 1), begun: p.Now(),
	}
	l.index.Store(runs.New(p.Config.Index))
	l.evidence.Store(&[]Evidence{})
	l.feeds.Store(&[]*feed{})
	l.verify.Store(int64(p.Config.VerifyInterval))
	l.finder = newFinder(l)
	l.bound = newBound(l)
	if p.Source.Bind != "" && p.Source.Mode != modeOff {
		var err error
		if l.sub, err = l.bound.open(); err != nil {
			return nil, fmt.Errorf("pool %s: events.bind: %w", p.Pool, err)
		}
	}
	l.metrics = newMetrics(l)
	if err := p.Metrics.Register(l.metrics); err != nil {
		return nil, err
	}
	return l, nil
}

// Overlap finds how many leading blocks of chain each slot holds, as far as engines said. See runs.Index.
func (l *Ledger) Overlap(chain []block.Hash, o *runs.Overlap) { l.index.Load().Overlap(chain, o) }

// Evidence is what Overlap's answer for a slot is worth.
func (l *Ledger) Evidence(s slot.Slot) Evidence {
	if all := *l.evidence.Load(); int(s) < len(all) && all[s].Mode != "" {
		return all[s]
	}
	return Evidence{Mode: Approximate}
}

// Follows reports whether the slot's engine is followed, whatever that is worth at the moment.
func (l *Ledger) Follows(s slot.Slot) bool { return l.feed(s) != nil }

// Discount is what a block of such evidence is worth at a moment, of one that is known for sure: 1 while the stream holds, and
// halving with every half-life since it broke off.
func (c Config) Discount(e Evidence, now time.Time) float64 {
	if e.Lost.IsZero() || c.HalfLife == 0 {
		return 1
	}
	return halved(now.Sub(e.Lost).Seconds() / c.HalfLife.Seconds())
}

// Begun tells whether what the slot's engine published before the start is known, as far as it can be, or Config.ReadyWait is over;
// and whether the engine was found to be another process than before, since the start or, if there is one, since the snapshot.
// Of a slot that is not followed, and will not be, nothing more will be known: begun is true.
func (l *Ledger) Begun(s slot.Slot) (begun, renewed bool) {
	f := l.feed(s)
	if f == nil {
		return l.looked.Load(), false
	}
	return f.begun.Load() || l.now().Sub(l.begun) >= l.cfg.ReadyWait, f.status.Load().Counts.Restarts > 0
}

// Emptied counts the times that what a slot holds was lost or given up: a restart, a flush, a gap. What was sent there before is
// not there any more, unless its request still runs.
func (l *Ledger) Emptied(s slot.Slot) uint64 {
	if f := l.feed(s); f != nil {
		return f.emptied.Load()
	}
	return 0
}

// Expect notes that a request ended for which the slot's engine must have stored new blocks since it was sent. That may be known
// long after the engine has told of them.
func (l *Ledger) Expect(s slot.Slot, sent time.Time) {
	if f := l.feed(s); f != nil && f.spoke.Load() < sent.UnixNano() {
		f.expected.Add(1)
	}
}

func (l *Ledger) feed(s slot.Slot) *feed {
	if all := *l.feeds.Load(); int(s) < len(all) {
		return all[s]
	}
	return nil
}

// write gives the writer's side of the index to one caller at a time.
func (l *Ledger) write(f func(*runs.Index)) {
	l.writing.Lock()
	defer l.writing.Unlock()
	f(l.index.Load())
}

// judge publishes what is known of a slot.
func (l *Ledger) judge(s slot.Slot, e Evidence) {
	l.judging.Lock()
	defer l.judging.Unlock()
	all := *l.evidence.Load()
	if int(s) < len(all) && all[s] == e {
		return
	}
	all = slices.Clone(all)
	for int(s) >= len(all) {
		all = append(all, Evidence{})
	}
	all[s] = e
	l.evidence.Store(&all)
}

// Observe takes in who serves now. It returns at once.
func (l *Ledger) Observe(set *worker.Set) {
	l.set.Store(set)
	l.poke()
}

func (l *Ledger) poke() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// janitor is how often memory of what was forgotten is freed, and capacities are looked at.
const janitor = 250 * time.Millisecond

// Run follows the workers until ctx ends.
func (l *Ledger) Run(ctx context.Context) error {
	following := map[key]*feed{}
	defer func() {
		for _, f := range following {
			f.stop()
		}
		for _, f := range following {
			<-f.done
		}
		l.finder.wait()
	}()
	if l.sub != nil {
		var listening sync.WaitGroup
		listening.Go(func() { _ = l.sub.Run(ctx) })
		defer listening.Wait()
	}
	tick := time.NewTicker(janitor)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.changed:
			l.follow(ctx, following)
		case <-tick.C:
			l.follow(ctx, following) // engines may have told their ranks or ports meanwhile
			l.tidy(ctx)
			l.tune()
			if l.parked.Load() && l.now().Sub(l.begun) >= Parked {
				l.unpark()
			}
		}
	}
}

// key tells feeds apart: another source is another feed.
type key struct {
	slot   slot.Slot
	worker string
	source Source
}

// wanted are the feeds that there should be: one for every rank that tells of its cache.
func (l *Ledger) wanted(ctx context.Context) map[key]*worker.Worker {
	wanted := map[key]*worker.Worker{}
	set := l.set.Load()
	if set == nil {
		return wanted
	}
	for _, w := range set.Pool(l.pool) {
		found := l.finder.find(ctx, w, l.source)
		for rank, s := range w.Slots() {
			if source, ok := l.source.source(w, rank, found); ok {
				wanted[key{s, w.Name, source}] = w
			}
		}
	}
	return wanted
}

// follow starts and ends feeds.
func (l *Ledger) follow(ctx context.Context, following map[key]*feed) {
	wanted := l.wanted(ctx)
	moved := false
	for k, f := range following {
		if _, still := wanted[k]; !still {
			f.stop()
			<-f.done
			l.bound.forget(f)
			l.write(func(x *runs.Index) { x.RemoveSlot(k.slot) })
			l.judge(k.slot, Evidence{})
			delete(following, k)
			moved = true
		}
	}
	for k, w := range wanted {
		f := following[k]
		if f == nil {
			mine, stop := context.WithCancel(ctx)
			f = newFeed(mine, l, k.worker, k.slot, k.source)
			f.addr = w.Endpoint
			l.resume(f)
			f.process.Store(w.Epoch)
			l.measure(f, w)
			f.stop = stop
			go f.run()
			following[k] = f
			moved = true
			continue
		}
		if f.process.Swap(w.Epoch) != w.Epoch {
			f.restart.Store(true)
			f.poke()
		}
		l.measure(f, w)
	}
	if moved {
		l.list(following)
	}
	if set := l.set.Load(); set != nil {
		workers := set.Pool(l.pool)
		l.bound.workers.Store(&workers)
	}
	l.looked.Store(l.set.Load() != nil)
}

// measure takes in how many blocks the engine has room for.
func (l *Ledger) measure(f *feed, w *worker.Worker) {
	f.names.Store(w)
	stats := w.Stats()
	f.pageTokens.Store(int64(stats.BlockTokens))
	blocks := int64(stats.Blocks) * int64(stats.BlockTokens) / int64(l.blockTokens) / int64(len(w.Slots()))
	if f.capacity.Swap(blocks) != blocks {
		l.write(func(x *runs.Index) { f.configure(x) })
	}
}

// list publishes the feeds by slot.
func (l *Ledger) list(following map[key]*feed) {
	var all []*feed
	for k, f := range following {
		for int(k.slot) >= len(all) {
			all = append(all, nil)
		}
		all[k.slot] = f
	}
	l.feeds.Store(&all)
}

// The bounds of the recommended interval for asking silent engines, and how often it is worked out.
const (
	verifyLeast = time.Second
	verifyMost  = time.Minute
	tuning      = 30 * time.Second
)

// Verify is how often silent engines should be asked whether anything was missed: oftener where something was, seldomer where
// nothing is. 0: never, as configured.
func (l *Ledger) Verify() time.Duration { return time.Duration(l.verify.Load()) }

// interval is how often they are asked.
func (l *Ledger) interval() time.Duration {
	if l.auto {
		return l.Verify()
	}
	return l.cfg.VerifyInterval
}

func (l *Ledger) tune() {
	if l.cfg.VerifyInterval == 0 || l.now().Sub(l.tuned) < tuning {
		return
	}
	l.tuned = l.now()
	var missed uint64
	for _, f := range *l.feeds.Load() {
		if f != nil {
			missed += f.status.Load().Counts.Missed
		}
	}
	next := l.Verify() * 5 / 4
	if missed > l.missed {
		next = l.Verify() / 2
	}
	l.missed = missed
	l.verify.Store(int64(min(max(next, verifyLeast), verifyMost)))
}

// tidy frees the memory of what was forgotten, a little at a time so that no batch waits for long.
func (l *Ledger) tidy(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		l.write(func(x *runs.Index) { more = x.Tidy(tidyRuns) })
	}
}

// tidyRuns is how many runs are looked at at a time: less than a millisecond.
const tidyRuns = 2000

// Status is every feed as people see it, by worker and rank.
func (l *Ledger) Status() []Status {
	var all []Status
	for _, f := range *l.feeds.Load() {
		if f == nil {
			continue
		}
		s := f.Status()
		l.write(func(x *runs.Index) {
			stats := x.SlotStats(f.slot)
			s.Held, s.Waiting = stats.Held, stats.Waiting
		})
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Status) int {
		if a.Worker != b.Worker {
			if a.Worker < b.Worker {
				return -1
			}
			return 1
		}
		return a.Rank - b.Rank
	})
	return all
}

// Stats are the figures of the index.
func (l *Ledger) Stats() (s runs.Stats) {
	l.write(func(x *runs.Index) { s = x.Stats() })
	return s
}

// Held is how many blocks a slot holds on all tiers, as its engine said.
func (l *Ledger) Held(s slot.Slot) (blocks int) {
	l.write(func(x *runs.Index) {
		for _, n := range x.SlotStats(s).Held {
			blocks += n
		}
	})
	return blocks
}

// OnDevice is how many blocks a slot holds on its device, as its engine said with its last batch. It takes no lock.
func (l *Ledger) OnDevice(s slot.Slot) int {
	if f := l.feed(s); f != nil {
		return int(f.onDevice.Load())
	}
	return 0
}

// Dump writes what the index knows, for people.
func (l *Ledger) Dump(to io.Writer) (err error) {
	l.write(func(x *runs.Index) { err = x.Dump(to) })
	return err
}

// Pending is how many feeds have not had their first replay; readiness waits for them. It is 0 from Config.ReadyWait after the
// start on.
func (l *Ledger) Pending() (feeds int) {
	switch {
	case l.now().Sub(l.begun) >= l.cfg.ReadyWait:
		return 0
	case !l.looked.Load():
		return 1 // who is there has not been looked at
	}
	for _, f := range *l.feeds.Load() {
		if f != nil && !f.begun.Load() {
			feeds++
		}
	}
	return feeds
}
