package virtual

import (
	"slices"
	"time"

	"attache/internal/sim/trace"
)

// note is one thing that the router is to be told of a worker's cache.
type note struct {
	at              time.Duration
	worker          int
	request         *trace.Request // stored [from, to)
	from, to        int
	ids             []int32 // removed
	stored, evicted int     // outputs
}

// notes are on their way to the router, in order.
type notes struct {
	router Router
	lag    time.Duration
	list   []note
}

// send delivers a note at once or later. Its ids are the sender's.
func (n *notes) send(now time.Duration, o note) {
	if n.lag == 0 {
		n.deliver(now, &o)
		return
	}
	o.at = now + n.lag
	o.ids = slices.Clone(o.ids)
	n.list = append(n.list, o)
}

func (n *notes) deliver(now time.Duration, o *note) {
	switch {
	case o.request != nil:
		n.router.Stored(now, o.worker, o.request, o.from, o.to)
	case len(o.ids) > 0:
		n.router.Removed(now, o.worker, o.ids)
	default:
		n.router.Outputs(now, o.worker, o.stored, o.evicted)
	}
}

// due delivers what has arrived.
func (n *notes) due(now time.Duration) {
	i := 0
	for ; i < len(n.list) && n.list[i].at <= now; i++ {
		n.deliver(now, &n.list[i])
		n.list[i] = note{}
	}
	n.list = n.list[i:]
}

// lose drops what is on its way from a worker.
func (n *notes) lose(worker int) {
	n.list = slices.DeleteFunc(n.list, func(o note) bool { return o.worker == worker })
}

// teller tells of one worker's cache.
type teller struct {
	notes  *notes
	worker int
	output int // output blocks stored in this pass
}

// stored tells of blocks, and before of those that had to go, which may be the same.
func (t *teller) stored(now time.Duration, p *pool, r *trace.Request, from, to int) {
	t.removed(now, p)
	t.notes.send(now, note{worker: t.worker, request: r, from: from, to: to})
}

func (t *teller) removed(now time.Duration, p *pool) {
	if len(p.gone) > 0 {
		t.notes.send(now, note{worker: t.worker, ids: p.gone})
		p.gone = p.gone[:0]
	}
}

// pass tells what is left once a pass is formed.
func (t *teller) pass(now time.Duration, p *pool) {
	t.removed(now, p)
	if t.output+p.outputGone > 0 {
		t.notes.send(now, note{worker: t.worker, stored: t.output, evicted: p.outputGone})
		t.output, p.outputGone = 0, 0
	}
}
