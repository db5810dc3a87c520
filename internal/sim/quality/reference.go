package quality

import (
	"slices"
	"time"

	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
)

// reference is the router of SharedCache: the least predicted work before the request's own, then the fewest requests in
// flight, then the lowest number. It sees the engines' own speeds and the shared cache.
type reference struct {
	virtual.Blind

	cluster *virtual.Cluster
	block   int
	workers []backlog
	of      []int // worker by request
}

// backlog are the prefills on one worker whose first token is still to come.
type backlog struct {
	up     bool
	flying int
	queue  []waiting
	since  time.Duration // when the head became the head
}

type waiting struct {
	request  *trace.Request
	estimate time.Duration
}

func newReference(c *virtual.Cluster, w *trace.Workload) *reference {
	return &reference{cluster: c, block: w.BlockTokens, workers: make([]backlog, c.Workers()), of: make([]int, len(w.All))}
}

// left is the work that is not done; a tenth of the head's is, as long as it has no first token.
func (b *backlog) left(now time.Duration) time.Duration {
	sum := time.Duration(0)
	for i, q := range b.queue {
		if i == 0 {
			sum -= min(now-b.since, q.estimate*9/10)
		}
		sum += q.estimate
	}
	return sum
}

func (r *reference) Route(now time.Duration, q *trace.Request) (worker int, ok bool) {
	var least time.Duration
	for i := range r.workers {
		b := &r.workers[i]
		if !b.up {
			continue
		}
		if left := b.left(now); !ok || left < least || left == least && b.flying < r.workers[worker].flying {
			worker, least, ok = i, left, true
		}
	}
	if !ok {
		return 0, false
	}
	b := &r.workers[worker]
	cached := min(r.cluster.Held(worker, q.IDs)*r.block, q.Prompt-1)
	if len(b.queue) == 0 {
		b.since = now
	}
	b.queue = append(b.queue, waiting{q, r.cluster.Alone(worker, q.Prompt-cached, cached)})
	b.flying++
	r.of[q.Index] = worker
	return worker, true
}

func (r *reference) FirstToken(now time.Duration, q *trace.Request) {
	b := &r.workers[r.of[q.Index]]
	i := slices.IndexFunc(b.queue, func(w waiting) bool { return w.request == q })
	if i == 0 {
		b.since = now
	}
	if i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
}

func (r *reference) End(now time.Duration, q *trace.Request, o virtual.Outcome) {
	r.FirstToken(now, q)
	r.workers[o.Worker].flying--
}

func (r *reference) Up(_ time.Duration, worker int)   { r.workers[worker].up = true }
func (r *reference) Down(_ time.Duration, worker int) { r.workers[worker].up = false }
