package events

import (
	"fmt"
	"time"

	"attache/indexer/runs"
	"attache/internal/slot"
)

// look does what time alone calls for: asks for what was missed, notices silence and drift, and says what is known is worth.
func (f *feed) look() {
	now := f.ledger.now()
	if f.restart.Swap(false) && !f.source.Pull {
		f.doubt(now)
	}
	switch {
	case !f.connected || f.barred || now.Before(f.askAgain) || f.source.Pull:
	case f.state == Replaying:
		f.begin()
	case f.owed:
		f.resync("a replay that failed before")
	case f.state == Live && f.ask != nil && f.ledger.interval() > 0 && (f.fresh || now.Sub(f.heard) >= f.ledger.interval()):
		f.fresh = false
		f.verify()
	}
	f.silence(now)
	f.drift()
	f.weigh(now)
	f.publish()
}

// begin makes sure, after connecting, of what is known.
func (f *feed) begin() {
	switch {
	case f.ask == nil && f.seq.has:
		f.seq.forget()
		f.clear("reached again, and there is no replay socket to ask whether it is still the same process")
	case f.owed:
		f.resync("a replay that failed before")
	case f.ask != nil && !f.catchUp():
		if f.seq.has {
			return // asked again later
		}
		f.owed = true
	}
	if !f.barred {
		f.goLive()
	}
}

// goLive enters Live, unless what came cannot be used.
func (f *feed) goLive() {
	f.begun.Store(true)
	switch {
	case f.barred:
	case f.complete:
		f.enter(Live, "")
	default:
		f.enter(Live, "its history is not known from the start: it may hold more than it said since")
	}
}

// doubt takes in that the worker's process was seen gone or restarted.
func (f *feed) doubt(now time.Time) {
	const recently = 30 * time.Second
	switch {
	case !f.connected: // reaching it again begins with the question
	case f.ask != nil:
		f.enter(Replaying, "the worker was seen gone or restarted")
	case now.Sub(f.renewed) > recently:
		f.clear("the worker was seen gone or restarted")
	}
}

// resync learns everything anew.
func (f *feed) resync(reason string) {
	f.owed = false
	f.log.Info("asking an engine for all that it published", "reason", reason)
	f.enter(Replaying, reason) // what comes is the past
	f.seq.forget()
	f.clear(reason)
	f.owed = !f.catchUp()
	f.goLive()
}

// verify asks a silent engine whether anything was missed.
func (f *feed) verify() {
	f.found()
	f.heard = f.ledger.now() // also of failures: the interval holds for them, too
	f.goLive()
}

// found asks a silent engine for what it published, and tells whether there was anything that had not arrived.
func (f *feed) found() bool {
	before := f.counts.Batches
	if !f.catchUp() || f.counts.Batches == before {
		return false
	}
	f.counts.Missed += f.counts.Batches - before
	f.log.Info("a silent engine had published batches that did not arrive", "batches", f.counts.Batches-before)
	return true
}

// silentReason is why a stream is stale that brings nothing.
const silentReason = "requests with new blocks end, but no events come: does this engine publish any?"

// overdue is how late events may be: SGLang publishes those of decoding every 40 steps.
const overdue = 5 * time.Second

// silence notices that the engine publishes nothing, though it must have stored blocks.
func (f *feed) silence(now time.Time) {
	limit := int64(f.ledger.cfg.SilentRequests)
	switch {
	case limit == 0 || f.state != Live || f.expected.Load() < limit:
		f.waited = time.Time{}
	case f.waited.IsZero():
		f.waited = now
	case now.Sub(f.waited) >= overdue:
		f.waited = time.Time{}
		if f.found() {
			f.expected.Store(0)
			f.goLive()
			return
		}
		f.enter(Stale, silentReason)
	}
}

// drift notices that more blocks are counted than the engine has: removals were missed, or announcements were repeated that were
// no copies. Then announcements are not counted any more.
func (f *feed) drift() {
	capacity := int(f.capacity.Load())
	if capacity == 0 || f.drifted.Load() || f.state != Live {
		return
	}
	if f.applier.joiner != nil {
		capacity *= f.applier.block / f.applier.page // blocks may share all their pages but one
	}
	var announced int
	f.ledger.write(func(x *runs.Index) { announced = x.SlotStats(f.slot).Announced[slot.Device] })
	if announced <= capacity {
		return
	}
	f.counts.Drifts++
	f.drifted.Store(true)
	reason := fmt.Sprintf("%d blocks counted, but it has room for %d", announced, capacity)
	f.ledger.write(f.configure)
	if f.ask != nil {
		f.resync(reason)
		return
	}
	f.clear(reason)
}

// configure tells the index what is known of the rank.
func (f *feed) configure(x *runs.Index) {
	settings := runs.Settings{Sets: f.drifted.Load()}
	settings.Blocks[slot.Device] = int(f.capacity.Load())
	x.Configure(f.slot, settings)
}

const (
	maxSettle = time.Minute
	forgiven  = 10 * time.Minute // a stream that holds for so long has not fallen lately
)

// weigh says what is known is worth. It falls as soon as the stream cannot be trusted, except for a moment's trouble; it rises
// at once the first time, and the later the more often it fell.
func (f *feed) weigh(now time.Time) {
	want := Approximate
	switch {
	case f.state == Live && f.complete:
		want = Exact
	case f.state == Live:
		want = Partial
	case f.state != Stale && now.Sub(f.since) < f.ledger.cfg.Grace:
		want = f.mode
	}
	switch {
	case want == Approximate && f.mode != Approximate:
		f.falls++
	case f.mode.Worse(want) && now.Sub(f.live) < f.settle():
		want = f.mode
	case f.state == Live && now.Sub(f.live) >= forgiven:
		f.falls = 0
	}
	if want != f.mode {
		f.log.Info("the worker's overlap is "+string(want), "before", string(f.mode), "state", string(f.state), "reason", f.reason)
	}
	f.mode = want
	e := Evidence{Mode: want}
	if f.state != Live {
		e.Lost = f.since
	}
	f.ledger.judge(f.slot, e)
}

// settle is how long a stream must hold before it is trusted again.
func (f *feed) settle() time.Duration {
	if f.falls == 0 {
		return 0
	}
	return min(time.Second<<min(f.falls-1, 10), maxSettle)
}

// enter changes the state.
func (f *feed) enter(state State, reason string) {
	if state == f.state && reason == f.reason {
		return
	}
	now := f.ledger.now()
	if state == Live && f.state != Live {
		f.live = now
	}
	if state != f.state {
		f.ledger.metrics.moved(state)
		log := f.log.Info
		if state == Gap || state == Stale {
			log = f.log.Warn
		}
		log("events "+string(state), "before", string(f.state), "reason", reason)
		f.since = now
	}
	f.state, f.reason = state, reason
	f.weigh(now)
	f.publish()
}

// publish shows the feed to people.
func (f *feed) publish() {
	s := f.view()
	f.status.Store(&s)
}

func (f *feed) view() Status {
	return Status{
		Pool: f.ledger.pool, Worker: f.worker, Slot: f.slot, Rank: f.source.Rank, Endpoint: f.source.address(), Replay: f.source.Replay,
		State: f.state, Reason: f.reason, Since: f.since, Mode: f.mode, Epoch: f.epoch, Sequence: f.seq.last, Known: f.seq.has, Digest: f.seq.digest(),
		Complete: f.complete, Heard: f.heard, Lag: f.lag, PageTokens: f.applier.page, Counts: f.countsNow(),
	}
}

func (f *feed) countsNow() Counts {
	c := f.counts
	c.Ignored = f.applier.ignored
	return c
}

// Status is the feed as people see it: as it is now, or while a replay runs, as it was before.
func (f *feed) Status() Status {
	if f.mu.TryLock() {
		f.publish()
		f.mu.Unlock()
	}
	return *f.status.Load()
}
