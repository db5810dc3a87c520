package sim

import (
	"context"
	"time"

	"attache/indexer/events/wire"
	"attache/internal/block"
	"attache/internal/slot"
)

// rank is one data-parallel rank: a core, the loop that steps it, and what tells of its cache.
//
// The loop waits for work, lets a step form its batch, sleeps until the step's end, tells the world what happened in the cache
// and the streams how many tokens they have, and goes on.
type rank struct {
	life    *life
	number  int
	wake    chan struct{} // there is work; capacity 1
	metrics *metrics

	publisher *publisher // nil: nothing is published
	pull      *pull      // nil: nothing is pulled

	// Guarded by life.mu.
	core    *Core
	pending []Change // what happened and is not told yet
	decodes int      // steps without prompts since SGLang published
	told    told
}

// told is what a listener that missed nothing believes: by tier, how many copies there are of each block. nil: nobody can
// listen.
type told []map[block.Hash]int

func newTold() told {
	t := make(told, slot.Disk+1)
	for i := range t {
		t[i] = make(map[block.Hash]int)
	}
	return t
}

// apply does to it what a change says.
func (t told) apply(ch *Change) {
	if ch.Kind == Cleared {
		for _, tier := range t {
			clear(tier)
		}
		return
	}
	if ch.Again {
		return
	}
	for _, b := range ch.Blocks {
		if b.Partial {
			continue
		}
		if ch.Kind != Removed {
			t[ch.Tier][b.Sequence]++
		}
		from := ch.Tier
		switch ch.Kind {
		case Moved:
			from = ch.From
		case Removed:
		default:
			continue
		}
		if t[from][b.Sequence]--; t[from][b.Sequence] == 0 {
			delete(t[from], b.Sequence)
		}
	}
}

// newRank makes a rank of a life; where it tells of its cache is filled in later.
func newRank(l *life, number int) *rank {
	r := &rank{life: l, number: number, wake: make(chan struct{}, 1), core: NewCore(l.cfg)}
	if l.cfg.records() {
		r.told = newTold()
	}
	switch l.cfg.Dialect {
	case DialectSGLang:
		r.core.cache.changes.cleared() // its cache is reset when it is made
	case DialectTensorRT:
		r.pull = &pull{most: l.cfg.BufferSteps, faults: l.eventFaults}
		r.pull.add([]wire.DraftTensorRT{{Type: "created", Window: uint32(l.cfg.MaxModelTokens), Rank: uint32(number), HasRank: l.cfg.Ranks > 1}})
	}
	return r
}

// rouse makes the loop look for work.
func (r *rank) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// loop steps the core until ctx ends.
func (r *rank) loop(ctx context.Context) {
	l := r.life
	end := time.Now() // of the last step, by the model
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		fault, over := l.faults.get()
		if fault.Mode == FaultHang {
			select {
			case <-ctx.Done():
				return
			case <-over:
			}
			continue
		}
		if now := time.Now(); now.Sub(end) > catchUp {
			end = now
		}
		took, events := r.step(end.Sub(l.started))
		if took == 0 {
			select {
			case <-ctx.Done():
				return
			case <-r.wake:
			}
			end = time.Now()
			continue
		}
		if fault.Mode == FaultSlow {
			took += fault.Delay
		}
		end = end.Add(took)
		timer.Reset(time.Until(end))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		r.deliver(events)
	}
}

// step steps the core. An idle SGLang or TensorRT-LLM tells what there is; an idle vLLM tells nothing, not even of a reset.
func (r *rank) step(now time.Duration) (took time.Duration, events []Event) {
	r.life.mu.Lock()
	defer r.life.mu.Unlock()
	took, events = r.core.Step(now)
	r.pending = append(r.pending, r.core.Changes()...)
	if took == 0 && (r.life.cfg.Dialect == DialectSGLang || r.pull != nil) {
		r.tellLocked()
	}
	return took, events
}

// deliver ends a step: it tells what happened in the cache, and streams what they have got.
func (r *rank) deliver(events []Event) {
	r.life.mu.Lock()
	defer r.life.mu.Unlock()
	if r.dueLocked() {
		r.tellLocked()
	}
	for _, ev := range events {
		s := r.life.streams[ev.ID]
		if s == nil {
			continue // aborted meanwhile
		}
		now := time.Now()
		if ev.Token == 1 {
			s.cached = ev.Cached
			r.metrics.firstToken.Observe(now.Sub(s.arrived).Seconds())
			r.metrics.queueTime.Observe(ev.Waited.Seconds())
		} else {
			r.metrics.interToken.Observe(now.Sub(s.last).Seconds())
		}
		s.last = now
		s.tokens.Store(int32(ev.Token))
		select {
		case s.ready <- struct{}{}:
		default:
		}
	}
}

// dueLocked says whether the end of a step is one at which the engine publishes.
func (r *rank) dueLocked() bool {
	if r.life.cfg.Dialect != DialectSGLang || r.core.prefill {
		return true
	}
	if r.decodes++; r.decodes < r.life.cfg.DecodeInterval {
		return false
	}
	r.decodes = 0
	return true
}

// tellLocked publishes what is pending, as one batch.
func (r *rank) tellLocked() {
	if len(r.pending) == 0 {
		return
	}
	changes := r.pending
	r.pending = nil
	for i := range changes {
		r.told.apply(&changes[i])
	}
	cfg := &r.life.cfg
	if r.life.eventFaults.take(EventSilence) {
		return
	}
	if r.pull != nil {
		events := make([]wire.DraftTensorRT, len(changes))
		for i := range changes {
			events[i] = cfg.draftTensorRT(&changes[i])
			events[i].Rank, events[i].HasRank = uint32(r.number), cfg.Ranks > 1
		}
		r.pull.add(events)
		return
	}
	d := wire.Draft{Time: float64(time.Now().UnixMicro()) / 1e6, Rank: uint32(r.number)}
	size := r.life.eventFaults.blockTokens(cfg.BlockTokens)
	for i := range changes {
		d.Events = append(d.Events, cfg.draft(&changes[i], size))
	}
	r.publisher.publish(cfg.encoder().Append(nil, d))
}

// sequenceLocked is the number of the next batch, or of TensorRT-LLM's next event.
func (r *rank) sequenceLocked() uint64 {
	switch {
	case r.publisher != nil:
		return r.publisher.sequence()
	case r.pull != nil:
		return r.pull.sequence()
	default:
		return 0
	}
}
