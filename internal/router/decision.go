package router

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"attache/indexer"
	"attache/internal/block"
	"attache/internal/hints"
	"attache/internal/prompt"
	"attache/internal/replica"
	"attache/internal/slot"
	"attache/internal/traceparent"
	"attache/internal/worker"
	"attache/scoring"
)

// Decision is where a request goes.
type Decision struct {
	// ID names the decision across replicas; it travels through Envoy and comes back with the access log.
	ID      string
	Replica string
	Pool    string
	// Model is the name to write into the body; "" leaves the body as it is.
	Model string
	// Destinations are the chosen worker and its alternatives, best first: "ip:port,ip:port". Envoy takes them in this
	// order, one per attempt.
	Destinations string
	// PredictedCached is how many prompt tokens the chosen worker is believed to hold.
	PredictedCached int
	// Rank is the data-parallel rank of the chosen worker that should answer, for the header of that purpose; "" when it has
	// only one.
	Rank string
	// Strict says that one of the workers runs an engine that refuses members which OpenAI's API does not have.
	Strict bool
	// Engine is what the chosen worker and all of its alternatives run; worker.Auto when that is not known or not the same.
	Engine worker.Engine
	// Worker is the name of the chosen worker.
	Worker string
	// Waited is how long the request was held back until a worker had room.
	Waited time.Duration
	// Keep says that the client will come back to the prompt: Done.Keep wants the body that the worker gets.
	Keep bool
	// Ahead says that the client wants the next turn's prompt computed ahead: Done.Answered wants what the worker answers.
	Ahead bool
	Done  Done
}

// Done is the way back of a decision. Every method is safe for concurrent use and works at most once; the zero Done does
// nothing.
type Done struct{ rec *record }

// Prefilled says that the worker has computed the prompt: its prefill load is released.
func (d Done) Prefilled() {
	if d.rec != nil {
		d.rec.booking.Prefilled()
		d.rec.spread(replica.Prefilled)
		d.rec.pool.gate.poke()
	}
}

// End says that the request is over or its client gone: everything booked is released. The decision then waits for its
// Report.
func (d Done) End() {
	if d.rec != nil {
		d.rec.end()
	}
}

const (
	keepChain = 128 // blocks remembered, once a request is over, for crediting a worker that served in the chosen one's place
)

// record is one decision from Route to Report.
type record struct {
	router  *Router
	pool    *pool
	number  uint64
	at      time.Time
	booking scoring.Booking

	requestID, path, model, tenant string
	flow                           string        // whose share it takes
	session                        uint64        // that it belongs to; 0 none
	sessionTTL                     time.Duration // for which it was bound
	sessionKept, sessionOver       bool
	waited                         time.Duration // at the gate
	promptTokens, blockTokens      int
	outputTokens                   int // expected, as the client said; 0 it did not
	rung                           prompt.Rung
	why                            prompt.Reason
	count                          int // prompt tokens that the engine should report if our model folder is right; 0: nothing is claimed
	stream                         bool
	fresh                          bool               // the worker that answers must store new blocks
	slot                           slot.Slot          // that was chosen
	flight                         *flight            // nil: its blocks are remembered, not told
	flies                          bool               // engines that tell of their caches can tell of its whole chain
	mark                           indexer.Mark       // what the slot was believed to hold
	blocks                         int                // of the prompt, full ones
	available, captured            int                // cached tokens: best any candidate offered, the chosen one's
	named                          []*worker.Worker   // as in Destinations
	ranked                         []scoring.Ranked   // best first, at most scoring.Best
	candidates, excluded           int                // how many could serve, and how many could not
	hints                          hints.Kinds        // that were said and believed
	policy                         string             // that decided
	parent                         traceparent.Parent // of whoever sent it
	began                          time.Time          // what phases count from
	clocked                        bool               // every phase is timed
	share                          *tenantTokens      // its tenant's; nil: not counted
	keeping                        *keeping           // nil: nobody wants the prompt back; its fields are guarded by mu
	// Room for named and ranked, so that a record is one piece of memory.
	namedSpace  [4]*worker.Worker
	rankedSpace [scoring.Best]scoring.Ranked

	mu    sync.Mutex // guards what follows
	chain []block.Hash
	room  *[]block.Hash // the chain's memory
	on    int           // index in named of the worker that carries the booking
	ended time.Time
	out   *Outcome

	phases Phases
}

// id is "replica.number", both as the access log brings them back.
func (rec *record) id() string {
	var space [64]byte
	return string(rec.appendID(space[:0]))
}

func (rec *record) appendID(b []byte) []byte {
	return strconv.AppendUint(append(append(b, rec.router.replica...), '.'), rec.number, 36)
}

// parseID takes an id apart; ok is false for what no replica wrote.
func parseID(id string) (replica string, number uint64, ok bool) {
	replica, digits, found := strings.Cut(id, ".")
	number, err := strconv.ParseUint(digits, 36, 64)
	return replica, number, found && err == nil
}

// stored takes in that the worker's engine holds so many leading blocks of the prompt: what it has computed of it is released.
func (rec *record) stored(blocks int, all bool) {
	rec.mu.Lock()
	moved := rec.on > 0
	rec.mu.Unlock()
	if moved { // it is another worker's prefill now
		return
	}
	rec.computed(blocks, all)
	if all {
		rec.booking.Prefilled()
		rec.pool.gate.poke()
	} else if blocks > 0 {
		rec.booking.Progress(rec.promptTokens - blocks*rec.blockTokens)
		rec.pool.gate.poke()
	}
}

// end releases what is booked; only the first call does anything.
func (rec *record) end() {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if !rec.ended.IsZero() {
		return
	}
	rec.ended = rec.router.now()
	mark(&rec.phases.Ended, rec.began, rec.ended)
	rec.booking.EndAt(rec.ended)
	rec.spread(replica.Ended)
	rec.pool.gate.poke()
	rec.pool.flights.end(rec.flight, rec.ended, rec.pool.ledger.Emptied(rec.slot))
	rec.touchLocked()
	whole := rec.room
	rec.remember(&rec.router.ended, rec.chain[:min(len(rec.chain), keepChain)]) // it may wait a minute for its report
	if rec.flight == nil {
		rec.router.chains.put(whole)
	}
}

// remember gives the record a chain of its own.
func (rec *record) remember(memory *chainPool, chain []block.Hash) {
	rec.room = memory.copy(chain)
	rec.chain = *rec.room
}

// hold keeps the blocks of a request that runs from being taken for evicted.
func (rec *record) hold() {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.ended.IsZero() {
		rec.touchLocked()
	}
}

// touchLocked notes that the worker's engine holds the blocks of the request now: as long as it runs it cannot lose them, and when
// it ends they are the ones used last.
func (rec *record) touchLocked() {
	s := rec.slot
	if rec.on > 0 {
		s = rec.named[rec.on].Slot
	}
	rec.pool.index.Touch(s, rec.chain)
}

// chainPool is memory for chains, which is used again. Safe for concurrent use.
type chainPool struct{ free sync.Pool } // of *[]block.Hash

// keepRoom is the length above which a chain's memory is not kept.
const keepRoom = 1 << 14

// copy copies a chain.
func (c *chainPool) copy(chain []block.Hash) *[]block.Hash {
	room, ok := c.free.Get().(*[]block.Hash)
	if !ok {
		room = new([]block.Hash)
	}
	*room = append((*room)[:0], chain...)
	return room
}

// put takes a chain back that nobody looks at any more.
func (c *chainPool) put(room *[]block.Hash) {
	if cap(*room) <= keepRoom {
		c.free.Put(room)
	}
}

// fallBack moves the booking to the first alternative that may still serve, when the worker that carries it is gone:
// Envoy's retry goes there with the same body.
func (rec *record) fallBack(set *worker.Set) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if !rec.ended.IsZero() {
		return
	}
	for i := rec.on + 1; i < len(rec.named); i++ {
		if w := set.BySlot(rec.named[i].Slot); w != nil && w.Eligible() {
			rec.on = i
			rec.booking.Move(w.Slot)
			if s := rec.pool.sharer; s != nil {
				s.Share(&replica.Delta{Kind: replica.Moved, Number: rec.number, Worker: w.Addr})
			}
			return
		}
	}
}

// carrier is the worker that carries the booking.
func (rec *record) carrier() *worker.Worker {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.named[rec.on]
}

// table finds the decisions that are under way or wait for their report. It is sharded so that requests on different
// cores seldom meet.
type table struct {
	shards [16]struct {
		mu   sync.Mutex
		recs map[uint64]*record
	}
}

func (t *table) init() {
	for i := range t.shards {
		t.shards[i].recs = map[uint64]*record{}
	}
}

func (t *table) put(rec *record) {
	s := &t.shards[rec.number%uint64(len(t.shards))]
	s.mu.Lock()
	s.recs[rec.number] = rec
	s.mu.Unlock()
}

// take removes and returns a decision; nil when it is unknown or was taken before.
func (t *table) take(number uint64) *record {
	s := &t.shards[number%uint64(len(t.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.recs[number]
	delete(s.recs, number)
	return rec
}

// each calls visit for every decision that is there; visit runs without the table's lock.
func (t *table) each(visit func(*record)) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		recs := make([]*record, 0, len(s.recs))
		for _, rec := range s.recs {
			recs = append(recs, rec)
		}
		s.mu.Unlock()
		for _, rec := range recs {
			visit(rec)
		}
	}
}

// forget drops decisions that ended before the deadline and got no report, shows them, and returns how many there were.
func (t *table) forget(deadline time.Time, show func(*record)) (dropped int) {
	t.each(func(rec *record) {
		rec.mu.Lock()
		old := !rec.ended.IsZero() && rec.ended.Before(deadline)
		rec.mu.Unlock()
		if old && t.take(rec.number) != nil {
			dropped++
			show(rec)
		}
	})
	return dropped
}

// recent is a ring of the last decisions, for explaining.
type recent struct {
	mu   sync.Mutex // guards ring and next
	ring []*record
	next int
}

func (r *recent) init(size int) { r.ring = make([]*record, size) }

func (r *recent) add(rec *record) {
	if len(r.ring) == 0 {
		return
	}
	r.mu.Lock()
	r.ring[r.next] = rec
	r.next = (r.next + 1) % len(r.ring)
	r.mu.Unlock()
}

// last returns up to limit decisions, newest first.
func (r *recent) last(limit int) []*record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var recs []*record
	for i := range r.ring {
		if len(recs) == limit {
			break
		}
		if rec := r.ring[(r.next-1-i+2*len(r.ring))%len(r.ring)]; rec != nil {
			recs = append(recs, rec)
		}
	}
	return recs
}
