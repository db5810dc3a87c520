package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"attache/indexer/events/wire"
	"attache/indexer/events/zmtp"
	"attache/indexer/runs"
	"attache/internal/slot"
	"attache/internal/worker"
)

// feed follows one rank of one worker. See the package documentation.
//
// One mutex serialises all that happens to it: batches as they come, replays, and looking after it twice a second. While a
// replay runs batches wait in the connection, and the engine's publisher queues what does not fit there.
type feed struct {
	ledger *Ledger
	worker string
	addr   string // of the worker
	slot   slot.Slot
	source Source
	log    *slog.Logger
	ask    func(ctx context.Context, from uint64, take func(wire.Message)) error // a replay; nil: there is no socket for it
	stop   context.CancelFunc
	done   chan struct{}
	wake   chan struct{}

	expected   atomic.Int64  // requests with new blocks that were sent after the last batch, and have ended
	spoke      atomic.Int64  // when the last batch came, in Unix nanoseconds
	capacity   atomic.Int64  // blocks of the pool's size that the rank can hold on its device; 0 not known
	pageTokens atomic.Int64  // size of the engine's blocks, as its metrics say; 0 not known
	process    atomic.Uint64 // the worker's epoch, as the registry counts
	restart    atomic.Bool   // the registry says that it changed
	onDevice   atomic.Int64  // blocks that the engine holds there
	emptied    atomic.Uint64 // times that what it holds was lost, or given up
	drifted    atomic.Bool   // announcements are not counted any more
	begun      atomic.Bool   // what was there at the beginning is known, as far as it can be
	status     atomic.Pointer[Status]

	names atomic.Pointer[worker.Worker] // that tells by which names it serves; nil: not known
	topic []byte                        // that was looked at last; guarded by mu

	place place // up to where the index knows the history; guarded as the index is

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // of run, for replays that a batch calls for
	seq     sequence
	applier applier
	batch   wire.Batch
	counts  Counts

	state     State
	reason    string
	since     time.Time // of state and reason
	connected bool
	fresh     bool      // it was asked right after connecting, when the subscription may not have been there yet
	barred    bool      // what comes cannot be used: it is left unread until the engine restarts or is reached anew
	complete  bool      // every batch since the engine's start was applied
	owed      bool      // a failed replay may still make the history complete
	askAgain  time.Time // the earliest time for it
	askPause  time.Duration
	epoch     uint64
	renewed   time.Time // when the stream was seen to begin anew
	heard     time.Time // of the engine, last
	lag       time.Duration
	waited    time.Time // since when events are overdue; zero while they are not

	mode  Mode
	falls int       // times that the mode fell to approximate, lately
	live  time.Time // since when the state is Live
}

func newFeed(ctx context.Context, l *Ledger, worker string, s slot.Slot, source Source) *feed {
	f := &feed{
		ctx: ctx, ledger: l, worker: worker, slot: s, source: source, done: make(chan struct{}), wake: make(chan struct{}, 1),
		log:  l.log.With("worker", worker, "rank", source.Rank, "endpoint", source.address()),
		mode: Approximate, state: Connecting, since: l.now(), epoch: 1,
		applier: applier{slot: s, block: l.blockTokens, pulled: source.Pull},
	}
	if source.Replay != "" {
		f.ask = func(ctx context.Context, from uint64, take func(wire.Message)) error {
			return askReplay(ctx, source.Replay, from, l.cfg.ReplayTimeout, l.cfg.Socket, take)
		}
	}
	f.publish()
	return f
}

// run follows the engine until its context ends.
func (f *feed) run() {
	defer close(f.done)
	ctx := f.ctx
	var following sync.WaitGroup
	defer following.Wait()
	if err := f.follow(ctx, &following); err != nil {
		f.mu.Lock()
		f.enter(Stale, err.Error())
		f.mu.Unlock()
		return
	}
	tick := time.NewTicker(lookAfter)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.wake:
		}
		f.mu.Lock()
		f.look()
		f.mu.Unlock()
	}
}

// follow begins to take in what the engine publishes.
func (f *feed) follow(ctx context.Context, running *sync.WaitGroup) error {
	if f.source.Pull {
		running.Go(func() { f.pull(ctx) })
		return nil
	}
	if f.source.Bound {
		return nil // the pool's socket brings what it gets
	}
	sub, err := zmtp.NewSub(zmtp.SubParams{
		Endpoint: f.source.Endpoint, Topics: []string{f.source.Topic}, Config: f.ledger.cfg.Socket,
		Receive: func(_ zmtp.Peer, m zmtp.Message) { f.receive(m) }, Notify: f.notice,
	})
	if err != nil {
		return err
	}
	running.Go(func() { _ = sub.Run(ctx) })
	return nil
}

// lookAfter is how often a feed is looked after when nothing happens.
const lookAfter = 500 * time.Millisecond

// poke has the feed looked after at once.
func (f *feed) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// notice takes in that the connection changed.
func (f *feed) notice(c zmtp.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch c.State {
	case zmtp.Connecting:
	case zmtp.Connected:
		f.connected, f.fresh, f.barred = true, true, false
		f.askAgain, f.askPause = time.Time{}, 0
		f.enter(Replaying, "")
		f.poke()
	case zmtp.Lost:
		f.connected = false
		reason := "the connection ended"
		if c.Err != nil {
			reason = c.Err.Error()
		}
		f.enter(Connecting, reason)
	}
}

// receive takes in a live batch.
func (f *feed) receive(frames zmtp.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.speaks()
	m, err := wire.ParseLive(frames)
	if err != nil {
		f.unreadable(err)
		return
	}
	if f.barred {
		return
	}
	if other := f.otherModel(m.Topic); other != "" {
		f.refuse(other)
		return
	}
	if f.state == Replaying && f.seq.has && (f.ask == nil || !f.catchUp()) && f.ctx.Err() == nil {
		// Numbers that follow each other are no proof that it is the same process: a new one may have got as far.
		f.seq.forget()
		f.clear("reached again, and it cannot be asked whether it is still the same process")
		f.owed = f.ask != nil
	}
	if f.state == Stale {
		f.afterSilence()
	}
	asked, d := true, digest(m.Payload)
	switch f.seq.judge(m.Seq, d) {
	case next:
	case repeated:
		f.counts.Repeated++
		return
	case missing:
		asked = f.missing(m.Seq)
	case restarted:
		f.renew("its batches begin anew")
		if m.Seq != 0 {
			asked = f.catchUp()
		}
	}
	if f.ctx.Err() != nil {
		return // it was not answered because we stop: what is known stays as it is
	}
	switch f.seq.judge(m.Seq, d) {
	case next:
		f.complete = f.complete || m.Seq == 0
		f.apply(m, d)
	case repeated: // a replay brought it
		f.counts.Repeated++
	case missing, restarted:
		f.owed = f.owed || !asked && f.ask != nil
		f.beginAt(m, d)
	}
	if f.batch.Time > 0 {
		f.lag = f.ledger.now().Sub(time.UnixMicro(int64(f.batch.Time * 1e6)))
	}
	f.goLive()
}

// speaks notes that the engine publishes.
func (f *feed) speaks() {
	f.spoke.Store(f.ledger.now().UnixNano())
	f.expected.Store(0)
}

// afterSilence takes in that a stream speaks again that should have spoken before: what it published meanwhile may be no more
// than a part of what happened. All that there is to be had is learnt anew.
func (f *feed) afterSilence() {
	const reason = "events come again after a silence"
	if f.ask == nil {
		f.clear(reason)
		return
	}
	f.resync(reason)
}

// otherModel says what is wrong with a topic that names another model than the worker serves, by llm-d's convention
// kv@worker@model; "" when nothing is. Where a topic is configured it is the user's own choice.
func (f *feed) otherModel(topic []byte) string {
	w := f.names.Load()
	if len(topic) == 0 || w == nil || f.source.Topic != "" || bytes.Equal(topic, f.topic) {
		return ""
	}
	f.topic = append(f.topic[:0], topic...)
	parts := strings.SplitN(string(topic), "@", 3)
	served := w.Stats().Model
	if len(parts) < 3 || parts[2] == "" || served == "" || w.Serves(parts[2]) {
		return ""
	}
	f.topic = f.topic[:0] // it is looked at again when it comes again
	return fmt.Sprintf("its topic %q tells of model %q, but the worker serves %q: is it another engine's port? If it is right, set events.topic "+
		"to this topic", topic, parts[2], served)
}

// missing tries to close the gap before a batch. It reports whether the engine could be asked.
func (f *feed) missing(seq uint64) (asked bool) {
	if !f.seq.has {
		return f.catchUp()
	}
	f.counts.Gaps++
	f.enter(Gap, fmt.Sprintf("batches %d to %d were lost", f.seq.last+1, seq-1))
	cleared := f.counts.Cleared + f.counts.Restarts
	if asked = f.catchUp(); asked && seq <= f.seq.last+1 && f.counts.Cleared+f.counts.Restarts == cleared {
		f.counts.Closed++
	}
	return asked
}

// beginAt gives up what is known and begins with a batch in the middle of a history.
func (f *feed) beginAt(m wire.Message, d uint64) {
	if f.seq.has {
		f.clear(fmt.Sprintf("batches before %d are lost for good", m.Seq))
	}
	f.complete = m.Seq == 0
	f.apply(m, d)
}

// catchUp asks the engine for all that it published since the batch applied last, and applies it. It reports whether the
// engine answered.
func (f *feed) catchUp() bool {
	if f.ask == nil {
		return false
	}
	for range 3 { // a restart is found by the first answer, and needs a second
		again, err := f.replay()
		if err != nil {
			f.counts.FailedReplays++
			f.askPause = min(max(2*f.askPause, time.Second), time.Minute)
			f.askAgain = f.ledger.now().Add(f.askPause)
			if f.ctx.Err() == nil {
				f.log.Warn("asking an engine for what it published before failed", "error", err, "again_in", f.askPause.String())
			}
			return false
		}
		if !again {
			f.askPause, f.askAgain, f.heard = 0, time.Time{}, f.ledger.now()
			return true
		}
	}
	return false
}

// replay asks once. The last batch applied is asked for, too: if it does not come back as it was, the process is another one.
// again says that all was forgotten, and must be asked for from the start.
func (f *feed) replay() (again bool, err error) {
	from, first := uint64(0), true
	if f.seq.has {
		from = f.seq.last
	}
	had := f.seq.has
	f.counts.Replays++
	err = f.ask(f.ctx, from, func(m wire.Message) {
		if again || f.barred {
			return
		}
		d := digest(m.Payload)
		verdict := f.seq.judge(m.Seq, d)
		switch {
		case verdict == next && (!first || !had):
			f.complete = f.complete || m.Seq == 0
			f.apply(m, d)
		case verdict == repeated:
		case verdict == restarted:
			f.renew("a replay shows another history")
			again = true
		case !f.seq.has:
			f.complete = false
			f.apply(m, d)
		default:
			f.clear(fmt.Sprintf("the engine keeps no batches before %d", m.Seq))
			f.complete = false
			f.apply(m, d)
		}
		first = false
	})
	if err != nil {
		return false, err
	}
	if first && had { // the engine's newest is older than ours
		f.renew("a replay shows a shorter history")
		return true, nil
	}
	if first {
		f.complete = true // it has published nothing so far
	}
	return again, nil
}

// apply brings a batch into the index.
func (f *feed) apply(m wire.Message, d uint64) {
	f.seq.applied(m.Seq, d)
	f.heard = f.ledger.now()
	f.counts.Batches++
	f.counts.Bytes += uint64(len(m.Payload))
	if err := f.batch.Decode(m.Payload); err != nil {
		f.unreadable(err)
		return
	}
	if f.batch.HasRank && int(f.batch.Rank) != f.source.Rank {
		f.refuse(fmt.Sprintf("its batches are of data-parallel rank %d, expected is %d: check its port, or set events.first_rank "+
			"in the workers file", f.batch.Rank, f.source.Rank))
		return
	}
	f.take(m.Payload)
}

// take brings what was decoded into the index.
func (f *feed) take(payload []byte) {
	missed := f.batch.Counts.Missed()
	if missed > 0 {
		f.unreadable(fmt.Errorf("%d events at byte %d and later", missed, f.batch.Counts.UnreadAt))
	}
	f.counts.Events += uint64(len(f.batch.Events))
	left := f.applier.leftOut()
	changes, err := f.applier.read(&f.batch, payload)
	if errors.Is(err, errLargerPages) {
		f.clear(err.Error())
		f.owed = f.ask != nil
		changes, err = f.applier.read(&f.batch, payload)
	}
	if err != nil {
		f.refuse(err.Error())
		return
	}
	if emptied(changes) {
		f.emptied.Add(1)
		f.complete = missed == 0 // whatever was there before
	}
	if f.applier.leftOut() > left {
		f.complete = false // the engine holds blocks that the index will not know
	}
	f.ledger.write(func(x *runs.Index) {
		if apply(x, f.slot, changes) > 0 {
			f.complete = false // the index is full
		}
		f.place = f.placeNow()
		f.onDevice.Store(int64(x.SlotStats(f.slot).Held[slot.Device]))
	})
	if f.ledger.stored != nil && slices.ContainsFunc(changes, func(c change) bool { return c.kind <= move }) {
		f.ledger.stored(f.slot)
	}
}

// unreadable takes in that something could not be read: a removal may be among it, so that nothing known can be trusted.
func (f *feed) unreadable(err error) {
	f.counts.Unreadable++
	f.clear("events that cannot be read: " + err.Error())
}

// refuse takes in that the stream as a whole cannot be used.
func (f *feed) refuse(reason string) {
	f.barred = true
	f.clear(reason)
	f.enter(Stale, reason)
}

// clear forgets what is known of the rank. The numbers go on.
func (f *feed) clear(reason string) {
	f.counts.Cleared++
	f.emptied.Add(1)
	f.complete = false
	f.log.Warn("what an engine holds is not known any more, and learnt anew", "reason", reason)
	f.applier.room, f.applier.plain = int(f.capacity.Load()), f.drifted.Load()
	f.applier.clear()
	f.ledger.write(func(x *runs.Index) {
		clearSlot(x, f.slot)
		f.onDevice.Store(0)
		f.place = f.placeNow()
	})
}

// renew takes in that the engine's publisher is another process.
func (f *feed) renew(reason string) {
	f.counts.Restarts++
	f.emptied.Add(1)
	f.epoch++
	f.renewed = f.ledger.now()
	f.log.Info("an engine's history begins anew", "reason", reason, "epoch", f.epoch)
	f.seq.forget()
	f.complete, f.barred, f.owed = false, false, false
	f.drifted.Store(false)
	f.enter(Replaying, reason) // what comes until it has caught up is the past
	page := 0
	if f.source.Pull {
		page = int(f.pageTokens.Load())
	}
	f.applier.room, f.applier.plain = int(f.capacity.Load()), false
	f.applier.reset(page)
	f.ledger.write(func(x *runs.Index) {
		clearSlot(x, f.slot)
		f.onDevice.Store(0)
		f.configure(x)
		f.place = place{}
	})
}
