package queue

import (
	"cmp"
	"slices"
	"time"
)

// Queue holds the requests that wait for a worker, and knows which one is next. It is not safe for concurrent use: its
// owner locks. Times are durations since any fixed start, from a clock that does not go back.
type Queue[T any] struct {
	cfg     Config
	classes []*class[T]
	byName  map[string]Class
	used    usage
	others  usage // what waits in other queues, and counts against Config.Limits
	rate    rate
	flows   flows[T]
	rounds  *rounds
	expiry  heap[byExpiry[T]] // entries that expire at all
	pushes  uint64

	// Of one Dispatch.
	costs   []int64
	blocked []*lane[T]
}

// New makes a queue of a valid configuration.
func New[T any](cfg Config) *Queue[T] {
	if len(cfg.Classes) == 0 {
		cfg.Classes = []ClassConfig{DefaultClass()}
	}
	q := &Queue[T]{
		cfg:    cfg,
		byName: map[string]Class{},
		costs:  make([]int64, len(cfg.Classes)),
		flows:  flows[T]{most: cfg.Fairness.Flows, halfLife: cfg.Fairness.HalfLife, byName: map[string]*flow[T]{}},
	}
	quantum := make([]int64, len(cfg.Classes))
	for i, c := range cfg.Classes {
		q.classes = append(q.classes, &class[T]{number: Class(i), cfg: c, rank: policyOf(c.Policy), lanes: map[uint64]*lane[T]{}})
		q.byName[c.Name] = Class(i)
		quantum[i] = int64(c.Quantum)
	}
	q.rounds = newRounds(quantum)
	return q
}

// ClassOf is the class of a request: the one of that name if there is one, else that of the first bucket that its
// uncached tokens fit in, else the first class.
func (q *Queue[T]) ClassOf(name string, uncachedTokens int) Class {
	if c, ok := q.byName[name]; ok {
		return c
	}
	for _, b := range q.cfg.Buckets {
		if b.UpTo == 0 || uncachedTokens <= b.UpTo {
			return q.byName[b.Class]
		}
	}
	return 0
}

// Name is the name of a class.
func (q *Queue[T]) Name(c Class) string { return q.classes[c].cfg.Name }

// Len is how many requests wait.
func (q *Queue[T]) Len() int { return q.used.requests }

// Depth is what waits in a class, against its limits.
func (q *Queue[T]) Depth(c Class) (requests int, promptTokens, bodyBytes int64) {
	u := q.classes[c].used
	return u.requests, u.tokens, u.bytes
}

// Waiting is what waits in all classes.
func (q *Queue[T]) Waiting() (requests int, promptTokens, bodyBytes int64) {
	return q.used.requests, q.used.tokens, q.used.bytes
}

// Elsewhere says what waits in the queues of other gateways: together with what waits here it counts against Config.Limits, not
// against those of classes.
func (q *Queue[T]) Elsewhere(requests int, promptTokens, bodyBytes int64) {
	q.others = usage{requests, promptTokens, bodyBytes}
}

// Backlog is how many requests wait in a lane of a class. While there are any, a new one must be pushed behind them even
// if there happens to be room for it.
func (q *Queue[T]) Backlog(c Class, key uint64) int {
	if l := q.classes[c].lanes[key]; l != nil {
		return l.length
	}
	return 0
}

// Push lets a request wait. It returns its entry, and those that it took the place of, which happens with Config.Evict
// only; or, if a limit forbids it, why.
func (q *Queue[T]) Push(now time.Duration, r Request, value T) (*Entry[T], []Drop[T], *Rejection) {
	c := q.classes[r.Class]
	q.rate.advance(now, q.used.requests > 0)
	c.rate.advance(now, c.used.requests > 0)
	evicted, no := q.room(c, &r)
	if no != nil {
		no.Class = c.cfg.Name
		if no.RetryAfter = c.rate.retryAfter(c.used.requests); no.Total {
			no.RetryAfter = q.rate.retryAfter(q.used.requests)
		}
		return nil, nil, no
	}
	q.pushes++
	e := &Entry[T]{Value: value, Request: r, Arrival: now, number: q.pushes}
	e.rank = c.rank(&c.cfg, &e.Request, bounded(r.Priority, q.cfg.MaxPriority), now.Seconds())
	if wait := c.maxWait(q.cfg.Limits.MaxWait); wait > 0 {
		e.expires = now + wait
	}
	if r.Deadline > 0 && (e.expires == 0 || r.Deadline < e.expires) {
		e.expires = r.Deadline
	}
	if e.expires > 0 {
		q.expiry.push(byExpiry[T]{e})
	}
	q.account(e)
	c.insert(e, &q.flows)
	return e, evicted, nil
}

// Remove takes an entry out, as when its client leaves, and reports whether it was still waiting.
func (q *Queue[T]) Remove(e *Entry[T]) bool {
	if !e.Waiting() {
		return false
	}
	q.unaccount(e)
	q.detach(e)
	return true
}

// Expire drops all that have waited as long as they may, the longest overdue first, and appends them to drops.
func (q *Queue[T]) Expire(now time.Duration, drops []Drop[T]) []Drop[T] {
	for len(q.expiry) > 0 && q.expiry[0].expires <= now {
		e := q.expiry[0].Entry
		q.Remove(e)
		drops = append(drops, Drop[T]{e, RejectedTTLExpired})
	}
	return drops
}

// NextExpiry is when Expire will have something to do; false if never.
func (q *Queue[T]) NextExpiry() (time.Duration, bool) {
	if len(q.expiry) == 0 {
		return 0, false
	}
	return q.expiry[0].expires, true
}

// Each shows everything that waits, in any order. f must not call the queue.
func (q *Queue[T]) Each(f func(*Entry[T])) {
	for _, c := range q.classes {
		for _, l := range c.lanes {
			for _, waiting := range l.lines {
				for _, e := range waiting.entries {
					f(e)
				}
			}
		}
	}
}

// Drain drops everything, in the order of arrival, for the reason given.
func (q *Queue[T]) Drain(reason Reason) []Drop[T] {
	var drops []Drop[T]
	q.Each(func(e *Entry[T]) { drops = append(drops, Drop[T]{e, reason}) })
	slices.SortFunc(drops, func(a, b Drop[T]) int { return cmp.Compare(a.Entry.number, b.Entry.number) })
	for _, d := range drops {
		q.Remove(d.Entry)
	}
	return drops
}

// Served tells what a flow was given: its prompt when it is dispatched, its output once that is known, each token once.
// Classes that are fair serve the flow next that attained least. It does nothing when no class is.
func (q *Queue[T]) Served(now time.Duration, name string, inputTokens, outputTokens int) {
	if !slices.ContainsFunc(q.cfg.Classes, func(c ClassConfig) bool { return c.Fair }) {
		return
	}
	if q.flows.rebase(now) {
		q.sort()
	}
	q.flows.serve(q.flows.of(name), float64(max(0, inputTokens))+outputWeight*float64(max(0, outputTokens)), now)
}

// Attained is the service of every flow that is remembered, in input tokens as of now.
func (q *Queue[T]) Attained(now time.Duration) map[string]float64 {
	all := make(map[string]float64, len(q.flows.byName))
	for name, f := range q.flows.byName {
		all[name] = q.flows.attained(f, now)
	}
	return all
}

// account and unaccount keep what is counted of an entry, detach takes it out of the order.
func (q *Queue[T]) account(e *Entry[T]) {
	c := q.classes[e.Request.Class]
	q.used.add(&e.Request, 1)
	c.used.add(&e.Request, 1)
	if q.cfg.Evict {
		c.victims.push(byWorth[T]{e})
	}
}

func (q *Queue[T]) unaccount(e *Entry[T]) {
	c := q.classes[e.Request.Class]
	q.used.add(&e.Request, -1)
	c.used.add(&e.Request, -1)
	c.victims.remove(byWorth[T]{e})
}

func (q *Queue[T]) detach(e *Entry[T]) {
	c := q.classes[e.Request.Class]
	q.expiry.remove(byExpiry[T]{e})
	c.detach(e, &q.flows)
	if len(c.lanes) == 0 {
		q.rounds.empty(int(c.number))
	}
}

// sort restores the order of everything that is ordered by flow.
func (q *Queue[T]) sort() {
	for _, c := range q.classes {
		for _, l := range c.lanes {
			l.lines.rebuild()
		}
		c.ready.rebuild()
	}
}
