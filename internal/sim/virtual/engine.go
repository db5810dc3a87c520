package virtual

import (
	"time"

	"attache/internal/sim/trace"
)

// engine is one worker without its clock: it queues requests, forms passes and keeps a pool.
type engine interface {
	// submit puts a request at the end of the queue.
	submit(x *run)
	// pass forms the next pass at the instant now and returns how long it takes; 0 when there is nothing to compute.
	pass(now time.Duration) time.Duration
	// end is the end of that pass, or follows at once when it took 0. refused are requests that can never run; emitted are
	// those that got their first token (run.generated is 1), their last, or both, in order. Valid until the next pass.
	end(now time.Duration) (refused, emitted []*run)
	// inFlight appends all requests that are not through.
	inFlight(to []*run) []*run
	// requests counts those that run and those that wait.
	requests() (running, waiting int)
	memory() *pool
}

// run is a request on its way.
type run struct {
	Record

	own      int32 // the first of the names of its output's blocks
	ended    bool
	order    int // of routing, for those that a worker lost
	blocks   []int32
	known    int // tokens that there are: prompt and answer so far
	computed int // of these
	quiet    int // up to how many computed tokens no block begins or ends
	sealed   int // output blocks that were named
	gen      int // tokens of the answer
	chunk    int // prompt tokens in this pass
	reserved int // blocks for the rest of prompt and answer
}

// id names the block at a place in prompt and answer.
func (x *run) id(place, prompt int) int32 {
	if place < prompt {
		return x.Request.IDs[place]
	}
	return x.own + int32(place-prompt)
}

// ownBlocks bounds how many blocks a request fills that its IDs do not name.
func ownBlocks(r *trace.Request, blockTokens int) int {
	return (r.Prompt+r.Output)/blockTokens + 1 - len(r.IDs)
}

// queue is a list of requests, first come first served; what was preempted goes to its front.
type queue struct {
	list []*run
	head int
}

func (q *queue) len() int    { return len(q.list) - q.head }
func (q *queue) first() *run { return q.list[q.head] }
func (q *queue) all() []*run { return q.list[q.head:] }
func (q *queue) push(x *run) { q.list = append(q.list, x) }
func (q *queue) unshift(x *run) {
	if q.head == 0 {
		q.list = append(q.list, nil)
		copy(q.list[1:], q.list)
		q.list[0] = x
		return
	}
	q.head--
	q.list[q.head] = x
}

func (q *queue) pop() {
	q.list[q.head] = nil
	if q.head++; q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	} else if q.head >= 64 && q.head*2 > len(q.list) {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
}

// limits are what both engines have.
type limits struct {
	blockTokens, maxTokens, maxSeqs int
	private                         bool    // nothing is reused
	shared                          *shared // nil: each worker reuses what is its own
}

// load are the figures of one worker.
type load struct {
	asked, reused int // prompt tokens at first admission, and those found in the cache
	prefilled     int // prompt tokens computed
	passes        int
	preemptions   int
	busy          time.Duration
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
