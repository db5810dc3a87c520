package replica

import (
	"net/netip"
	"time"

	"attache/internal/block"
)

// Kind is what a Delta tells.
type Kind uint8

// The kinds. The first is told once per decision, the others of a decision that was told before, in this order if at all.
const (
	Booked    Kind = 1 + iota // a request was sent to a worker
	Prefilled                 // the worker has computed the prompt
	Moved                     // another worker has taken over: Worker, Rank
	Ended                     // the request is over
	Answered                  // what became of it is known: Outcome
	Bound                     // of no decision: a session is bound to a worker
	Drained                   // of no decision: an operator has drained a worker, or given it back
	kinds
)

// String is the kind as metrics call it.
func (k Kind) String() string {
	if k >= kinds {
		return "unknown"
	}
	return [kinds]string{"", "booked", "prefilled", "moved", "ended", "answered", "bound", "drained"}[k]
}

// Delta is one change of what a replica has under way. Number names the decision; what the others mean depends on the Kind.
type Delta struct {
	Kind   Kind
	Number uint64

	Worker netip.AddrPort // of Booked, Moved, Bound and Drained; of Answered who served, invalid: nobody
	Rank   int            // data-parallel rank, from 0

	// Of Booked.
	PromptTokens int
	CachedTokens int // of them, those that the worker is believed to hold
	BlockTokens  int // tokens per block of Chain
	OutputTokens int // expected, as the client said; 0 it did not
	// Chain are the hashes of the prompt's blocks; nil when they are not known here. Valid until Apply returns.
	Chain []block.Hash
	// Named says that engines have all blocks of the chain in common with us: it was made of their tokens.
	Named  bool
	Stream bool   // the first byte of its answer is its first token
	Flow   string // whose share it takes
	// Session is what the request belongs to, 0 nothing; it is bound to the worker for SessionTTL, or over when SessionOver. Of
	// Bound, too.
	Session     uint64
	SessionTTL  time.Duration
	SessionKept bool // a request asked for it
	SessionOver bool

	// Of Drained: Drain or not, and when that was said.
	Drain bool
	At    time.Time

	// Of Answered. Envoy tells any replica what became of a request, not always the one that has decided: Of is that one's name,
	// "" the sender's.
	Of      string
	Outcome Outcome
}

// Outcome is what became of a request, as Envoy tells. Zero values mean "not known".
type Outcome struct {
	Status, Attempts                   int
	TTFT, EngineTTFT, Duration         time.Duration
	Aborted, Broken, Unreached         bool
	Usage, CachedKnown                 bool
	PromptTokens, AnswerTokens, Cached int // as the engine counts them
}

// Waiting is how much waits in a replica's queue.
type Waiting struct {
	Requests     int
	PromptTokens int64
	BodyBytes    int64
}

func (w *Waiting) add(o Waiting) {
	w.Requests += o.Requests
	w.PromptTokens += o.PromptTokens
	w.BodyBytes += o.BodyBytes
}

// Source is what a replica has to tell of itself. Its methods are called by one goroutine, beside requests.
type Source interface {
	// Open calls tell for everything that is under way: Booked, and Prefilled where that is so; and Bound for the sessions that this
	// replica has bound, and Drained for what it knows of operators' words. The delta is valid during the call.
	Open(tell func(*Delta))
	// Waiting is what waits now.
	Waiting() Waiting
	// Learnt is what the replica has learnt of its workers, in a form that Target.Learn takes; nil: nothing.
	Learnt() []byte
}

// Target takes in what other replicas tell. Its methods are called by one goroutine.
type Target interface {
	// Apply takes in a change at the replica of that name. Deltas of decisions that it does not know do nothing; Booked of one
	// that it knows does nothing either.
	Apply(from string, d *Delta)
	// Begin and Finish are around a snapshot: what is not Booked between them is not under way any more.
	Begin(from string)
	Finish(from string)
	// Gone says that the replica is no more. Its requests run on if kept is above 0, for as long as that at most: it has left them.
	Gone(from string, kept time.Duration)
	// Elsewhere is what waits at all other replicas together.
	Elsewhere(w Waiting)
	// Learn takes in what a replica has learnt, if this one has learnt less.
	Learn(from string, learnt []byte)
}
