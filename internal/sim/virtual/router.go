package virtual

import (
	"math/rand/v2"
	"time"

	"attache/internal/sim/trace"
)

// Router is what chooses workers, and what it is told meanwhile. All calls come from Cluster.Run, one after the other, now
// never falling; it must not change the requests or keep the slices. Embed Blind for what is not wanted.
type Router interface {
	// Route chooses the worker, one that is up, for a request that arrives or waits. If ok is false it is held, and offered
	// again, oldest first, at every later instant at which anything happens in the cluster. A request that is placed is in
	// flight there until End.
	Route(now time.Duration, r *trace.Request) (worker int, ok bool)
	// FirstToken comes as soon as it leaves the engine.
	FirstToken(now time.Duration, r *trace.Request)
	// End comes once for each placement.
	End(now time.Duration, r *trace.Request, o Outcome)
	// Stored says that blocks [from, to) of the request's chain can be reused on the worker; some may have been there before.
	// Stored, Removed and Outputs come Config.Lag late, in order; those on their way when a worker goes down never come.
	Stored(now time.Duration, worker int, r *trace.Request, from, to int)
	// Removed names prompt blocks, as in trace.Request.IDs, of which the last copy was evicted.
	Removed(now time.Duration, worker int, ids []int32)
	// Outputs counts blocks of answers that were put into the cache and evicted from it.
	Outputs(now time.Duration, worker, stored, evicted int)
	// Up and Down say who may be chosen. At the start Up comes for each worker that is there. A worker that goes down loses
	// its cache; then End comes for each of its requests, and these are offered again.
	Up(now time.Duration, worker int)
	Down(now time.Duration, worker int)
}

// Status is how a placement ended.
type Status uint8

const (
	Answered Status = iota // with its last token
	Refused                // what it needs is larger than the memory of the worker
	Lost                   // the worker went down; the request is offered again
)

func (s Status) String() string {
	return [...]string{Answered: "answered", Refused: "refused", Lost: "lost"}[s]
}

// Outcome is what a gateway learns of a request.
type Outcome struct {
	Worker int
	Status Status
	// TTFT is the time from arrival to first token, 0 without one; Cached are the prompt tokens found in the cache, Output
	// the tokens of the answer.
	TTFT           time.Duration
	Cached, Output int
}

// Blind is a Router's ears, deaf.
type Blind struct{}

// Blind does nothing on any of these.
func (Blind) FirstToken(time.Duration, *trace.Request)            {}
func (Blind) End(time.Duration, *trace.Request, Outcome)          {}
func (Blind) Stored(time.Duration, int, *trace.Request, int, int) {}
func (Blind) Removed(time.Duration, int, []int32)                 {}
func (Blind) Outputs(time.Duration, int, int, int)                {}
func (Blind) Up(time.Duration, int)                               {}
func (Blind) Down(time.Duration, int)                             {}

// fleet knows who is up.
type fleet struct {
	Blind

	up []int // workers, in order of coming up
}

func (f *fleet) Up(_ time.Duration, worker int) { f.up = append(f.up, worker) }

func (f *fleet) Down(_ time.Duration, worker int) {
	for i, w := range f.up {
		if w == worker {
			f.up = append(f.up[:i], f.up[i+1:]...)
			return
		}
	}
}

// RoundRobin takes the workers that are up in turn.
func RoundRobin() Router { return &roundRobin{} }

type roundRobin struct {
	fleet

	next int
}

func (r *roundRobin) Route(time.Duration, *trace.Request) (worker int, ok bool) {
	if len(r.up) == 0 {
		return 0, false
	}
	worker = r.up[r.next%len(r.up)]
	r.next++
	return worker, true
}

// Random takes any worker that is up.
func Random(seed uint64) Router { return &random{rand: rand.New(rand.NewPCG(seed, 0))} }

type random struct {
	fleet

	rand *rand.Rand
}

func (r *random) Route(time.Duration, *trace.Request) (worker int, ok bool) {
	if len(r.up) == 0 {
		return 0, false
	}
	return r.up[r.rand.IntN(len(r.up))], true
}

// LeastRequests takes the worker with the fewest requests in flight, any of those that are equal.
func LeastRequests(seed uint64) Router {
	return &leastRequests{rand: rand.New(rand.NewPCG(seed, 0)), flying: map[int]int{}}
}

type leastRequests struct {
	fleet

	rand   *rand.Rand
	flying map[int]int // by worker
}

func (r *leastRequests) Route(time.Duration, *trace.Request) (worker int, ok bool) {
	equal := 0
	for _, w := range r.up {
		switch n := r.flying[w]; {
		case equal == 0 || n < r.flying[worker]:
			worker, equal = w, 1
		case n == r.flying[worker]:
			if equal++; r.rand.IntN(equal) == 0 {
				worker = w
			}
		}
	}
	if equal > 0 {
		r.flying[worker]++
	}
	return worker, equal > 0
}

func (r *leastRequests) End(_ time.Duration, _ *trace.Request, o Outcome) { r.flying[o.Worker]-- }
