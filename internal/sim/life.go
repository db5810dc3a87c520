package sim

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// life is an engine from one start to the next: everything that a restart loses. Safe for concurrent use.
//
// A loop for each rank steps its core; see rank. Handlers submit and abort under the same mutex; what they submit during a
// step is seen by the next one, as on a real engine.
type life struct {
	cfg         Config // with the hash seed of this life
	epoch       uint64 // 1 is the first
	started     time.Time
	log         *slog.Logger
	faults      *faults
	eventFaults *eventFaults
	metrics     *registry
	ranks       []*rank
	stopped     chan struct{} // closed when the loops have ended

	mu      sync.Mutex // guards the fields below and those of ranks that say so
	streams map[uint64]*stream
	lastID  uint64
}

// newLife starts an engine anew, except that nothing runs yet. Its sockets are opened at at, one entry for each rank; nil:
// where the configuration says.
func (e *Engine) newLife(epoch uint64, at []endpoints) (*life, error) {
	l := &life{
		cfg: e.cfg, epoch: epoch, started: time.Now(), log: e.log, faults: e.faults, eventFaults: &e.eventFaults,
		stopped: make(chan struct{}), streams: make(map[uint64]*stream),
	}
	for l.cfg.HashSeed == 0 {
		l.cfg.HashSeed = rand.Uint64()
	}
	for i := range l.cfg.Ranks {
		l.ranks = append(l.ranks, newRank(l, i))
	}
	l.metrics = newRegistry(l)
	if l.cfg.Events == "" {
		return l, nil
	}
	for i, r := range l.ranks {
		where, err := l.cfg.endpointsOf(i)
		if err == nil && at != nil {
			where = at[i]
		}
		if err == nil {
			r.publisher, err = newPublisher(&l.cfg, where, l.eventFaults)
		}
		if err != nil {
			for _, r := range l.ranks[:i] {
				r.publisher.close()
			}
			return nil, err
		}
	}
	return l, nil
}

// endpointsOf is where a rank publishes and replays.
func (c *Config) endpointsOf(rank int) (at endpoints, err error) {
	if at.events, err = endpointOf(c.Events, rank); err == nil && c.Replay != "" {
		at.replay, err = endpointOf(c.Replay, rank)
	}
	return at, err
}

// at is where the ranks publish and replay, with the ports they got.
func (l *life) at() []endpoints {
	all := make([]endpoints, len(l.ranks))
	for i, r := range l.ranks {
		if r.publisher != nil {
			all[i] = r.publisher.at()
		}
	}
	return all
}

// run lives until ctx ends, and then closes the sockets.
func (l *life) run(ctx context.Context) {
	var publishing, stepping sync.WaitGroup
	for _, r := range l.ranks {
		if r.publisher != nil {
			publishing.Go(func() { r.publisher.run(ctx) })
		}
		stepping.Go(func() { r.loop(ctx) })
	}
	stepping.Wait()
	close(l.stopped)
	publishing.Wait()
}

// submit puts a request into the queue of a rank, or below 0 of the one that has the least to do. The stream must be handed
// to leave when the caller is done with it.
func (l *life) submit(j *job, rank int) (*stream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastID++
	r := l.chooseLocked(rank)
	s := &stream{id: l.lastID, rank: r, arrived: time.Now(), ready: make(chan struct{}, 1)}
	err := r.core.Submit(time.Since(l.started), Request{
		ID: s.id, Prompt: j.prompt, Output: j.output, Chain: j.chain, Tokens: j.tokens, LoRA: j.lora, Salt: j.salt,
		Session: j.session, Report: j.report, Bypass: j.bypass,
	})
	if err != nil {
		return nil, err
	}
	l.streams[s.id] = s
	r.rouse()
	return s, nil
}

// chooseLocked chooses a rank. Equals take turns.
func (l *life) chooseLocked(wanted int) *rank {
	if wanted >= 0 && wanted < len(l.ranks) {
		return l.ranks[wanted]
	}
	var best *rank
	least := 0
	for i := range l.ranks {
		r := l.ranks[(int(l.lastID)+i)%len(l.ranks)]
		if load := len(r.core.running) + len(r.core.waiting); best == nil || load < least {
			best, least = r, load
		}
	}
	return best
}

// leave gives a stream up; a request that is not done is aborted and its memory freed at once.
func (l *life) leave(s *stream, j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams, s.id)
	reason := finishAbort
	if !s.rank.core.Abort(s.id) && int(s.tokens.Load()) == j.output {
		reason = j.finish
	}
	s.rank.metrics.finished(j, time.Since(s.arrived), reason)
	s.rank.rouse() // some engines tell at once what the abort did to the cache
}

// reset empties the prefix caches. Unless it is forced it does so only where nothing is held, and reports whether that was
// everywhere.
func (l *life) reset(forced bool) (all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = true
	for _, r := range l.ranks {
		if !forced && r.core.Stats().Held > 0 {
			all = false
			continue
		}
		r.core.Reset()
		r.rouse()
	}
	return all
}

// stats are the figures of all ranks together.
func (l *life) stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sum Stats
	for _, r := range l.ranks {
		sum.add(r.core.Stats())
	}
	return sum
}
