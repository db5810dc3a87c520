// Package gateway is attache's routing in the simulator's virtual time: the index, the scoring and the bookings of production,
// told what a gateway is told. What production reads from bodies, sockets and access logs the simulated cluster says directly.
//
// Sessions are bound to the worker that served them last, for policies that ask. What the engines' metrics say is what is true at
// the moment; in production it is up to a scrape interval old.
//
// What a gateway knows is an option, from all there is to know to the little that an access log tells: see Options.
package gateway

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/indexer/runs"
	"attache/internal/block"
	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
	"attache/internal/slot"
	"attache/scoring"
	"attache/scoring/queue"
)

// Options say how a gateway decides and what it knows.
type Options struct {
	Scoring scoring.Config
	// FirstTokens is how it learns that a prompt is computed; Live if empty.
	FirstTokens Signal
	// TrueCaches lets it see the engines' caches for what a prompt would evict, instead of its own mirrors of them.
	TrueCaches bool
	// Limits say when a worker is saturated, and Queue in which order requests wait that find all of them so. Without limits, or
	// without a queue, every request is sent at once.
	Limits scoring.Limits
	Queue  queue.Config
	// Seed decides between equals.
	Seed uint64
}

// Signal is how a gateway learns that a prompt is computed.
type Signal string

// The signals, from the best to none.
const (
	Live   Signal = "live"   // with the first token
	Events Signal = "events" // by the KV event of the prompt's last block, which comes when its pass begins
	Clock  Signal = "clock"  // not at all: by predicted work; time to first token when the request ends
)

// Gateway routes the requests of one run of a cluster. It is a virtual.Router.
type Gateway struct {
	options  Options
	cluster  *virtual.Cluster
	scorer   *scoring.Scorer
	index    *runs.Index
	workload *trace.Workload
	hashes   []block.Hash // by id
	now      time.Duration

	bookings []*scoring.Booking       // by request
	heard    map[int]*scoring.Booking // of other replicas, by request
	asked    []time.Duration          // by request: when it came, plus 1; 0 it has not
	waited   []time.Duration          // by request: from then until it was sent
	up       []bool                   // by worker
	answers  []int                    // blocks of answers in its cache, as told, by worker
	gone     []uint64
	sessions map[int]int // worker + 1 that answered last, by session

	queue   *queue.Queue[*trace.Request]   // nil: none
	entries []*queue.Entry[*trace.Request] // by request
	placed  []int32                        // by request, the worker that it was given plus 1, until the cluster knows
	looked  time.Duration                  // when the queue was last gone through
	stirred bool                           // something has happened since, which may have made room

	overlap    runs.Overlap
	candidates []scoring.Candidate
	ranked     []scoring.Ranked
	demand     scoring.Demand
	best       int // cached tokens that any candidate offers the request that was picked for last
	reuse      Reuse
}

// Reuse is what was to be had of caches and what was had, in prompt tokens.
type Reuse struct {
	// Available is what the best worker offered, Captured what the chosen one did, by the gateway's own knowledge.
	Prompt, Available, Captured int
}

// New makes a gateway for a cluster that plays a workload.
func New(o Options, c *virtual.Cluster, w *trace.Workload) (*Gateway, error) {
	g := &Gateway{
		options: o, cluster: c, workload: w, index: runs.New(runs.Config{MaxBytes: 8 << 30, MaxOrphans: 1 << 16, MaxSlots: c.Workers() + 1}),
		hashes: make([]block.Hash, w.IDs), bookings: make([]*scoring.Booking, len(w.All)),
		asked: make([]time.Duration, len(w.All)), waited: make([]time.Duration, len(w.All)),
		heard: map[int]*scoring.Booking{}, sessions: map[int]int{}, up: make([]bool, c.Workers()), answers: make([]int, c.Workers()),
	}
	switch o.FirstTokens {
	case "":
		g.options.FirstTokens = Live
	case Live, Events, Clock:
	default:
		return nil, fmt.Errorf("first tokens by %q: must be %s, %s or %s", o.FirstTokens, Live, Events, Clock)
	}
	if o.Queue.Enabled() && o.Limits != (scoring.Limits{}) {
		if err := o.Queue.Validate(); err != nil {
			return nil, err
		}
		g.queue = queue.New[*trace.Request](o.Queue)
		g.entries, g.placed = make([]*queue.Entry[*trace.Request], len(w.All)), make([]int32, len(w.All))
	}
	for _, r := range w.All {
		for i, id := range r.IDs {
			g.hashes[id] = r.Chain[i]
		}
	}
	epoch := time.Unix(0, 0)
	var err error
	g.scorer, err = scoring.New(o.Scoring, func() time.Time { return epoch.Add(g.now) }, rand.New(rand.NewPCG(o.Seed, 1)), prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	if o.TrueCaches {
		g.scorer.SetEvictions(g.lost)
	}
	for i := range c.Workers() {
		g.index.Configure(slot.Slot(i), runs.Settings{Sets: true})
	}
	return g, nil
}

// Reuse is what was to be had of caches so far.
func (g *Gateway) Reuse() Reuse { return g.reuse }

// Route chooses a worker as production does.
func (g *Gateway) Route(now time.Duration, r *trace.Request) (worker int, ok bool) {
	g.now = now
	if g.asked[r.Index] == 0 {
		g.asked[r.Index] = now + 1
	}
	if g.queue == nil {
		return g.pick(r)
	}
	if g.entries[r.Index] == nil {
		if g.queue.Len() == 0 {
			if worker, ok = g.pick(r); ok {
				return worker, true
			}
		}
		return 0, g.wait(r)
	}
	if g.looked != now || g.stirred {
		g.looked, g.stirred = now, false
		g.queue.Dispatch(now, func(e *queue.Entry[*trace.Request]) queue.Placement {
			w, ok := g.pick(e.Value)
			if !ok {
				return queue.Blocked
			}
			g.placed[e.Value.Index] = int32(w) + 1
			return queue.Placed
		})
	}
	if worker = int(g.placed[r.Index]) - 1; worker < 0 {
		return 0, false
	}
	g.entries[r.Index], g.placed[r.Index] = nil, 0
	return worker, true
}

// wait puts a request into the queue. The simulation has no clients that give up, so that there must be room for all.
func (g *Gateway) wait(r *trace.Request) bool {
	e, _, no := g.queue.Push(g.now, queue.Request{PromptTokens: r.Prompt, UncachedTokens: max(1, r.Prompt-g.best)}, r)
	if no != nil {
		panic("the queue of a simulation is full: " + no.String())
	}
	g.entries[r.Index] = e
	return false
}

// pick books the request on a worker; false: all are saturated.
func (g *Gateway) pick(r *trace.Request) (worker int, ok bool) {
	size := g.workload.BlockTokens
	most := (r.Prompt - 1) / size * size // the last token is computed, whatever is held
	g.candidates = g.candidates[:0]
	for w, up := range g.up {
		if up {
			running, waiting := g.cluster.Requests(w)
			g.candidates = append(g.candidates, scoring.Candidate{
				EngineRunning: running, EngineWaiting: waiting, EngineKVUse: float64(g.cluster.InUse(w)) / float64(g.cluster.Capacity(w)),
				Bound: r.Session >= 0 && g.sessions[r.Session] == w+1,
				Slot:  slot.Slot(w), KVCapacityTokens: g.cluster.Capacity(w) * size, Live: g.options.FirstTokens != Clock,
				KVHeldTokens: (g.index.SlotStats(slot.Slot(w)).Held[slot.Device] + g.answers[w]) * size,
			})
		}
	}
	g.index.Overlap(r.Chain, &g.overlap)
	g.best = 0
	for i := range g.candidates {
		c := &g.candidates[i]
		for _, hit := range g.overlap.Hits {
			if hit.Slot == c.Slot {
				c.CachedTokens = min(int(hit.Blocks[slot.Device])*size, most)
				g.best = max(g.best, c.CachedTokens)
			}
		}
	}
	g.demand = scoring.Demand{PromptTokens: r.Prompt, BlockTokens: size, Chain: r.Chain, Key: uint64(r.Session + 1)}
	if g.queue != nil {
		g.demand.Limits = &g.options.Limits
	}
	b := new(scoring.Booking)
	g.ranked = g.scorer.Pick(&g.demand, g.candidates, g.ranked[:0], b)
	if len(g.ranked) == 0 {
		return 0, false
	}
	g.bookings[r.Index], g.waited[r.Index] = b, g.now-g.asked[r.Index]+1
	if r.Session >= 0 {
		g.sessions[r.Session] = int(g.ranked[0].Slot) + 1
	}
	g.reuse.Prompt += r.Prompt
	g.reuse.Available += g.best
	g.reuse.Captured += g.ranked[0].CachedTokens
	return int(g.ranked[0].Slot), true
}

// FirstToken is believed only where it is to be seen.
func (g *Gateway) FirstToken(now time.Duration, r *trace.Request) {
	if g.now, g.stirred = now, true; g.options.FirstTokens == Live {
		g.bookings[r.Index].Prefilled()
	}
}

// End releases what is booked, and lets the scoring learn.
func (g *Gateway) End(now time.Duration, r *trace.Request, o virtual.Outcome) {
	g.now, g.stirred = now, true
	g.over(g.bookings[r.Index], g.waited[r.Index], o)
	g.bookings[r.Index] = nil
}

// over ends a booking and learns from it.
func (g *Gateway) over(b *scoring.Booking, waited time.Duration, o virtual.Outcome) {
	b.End()
	if o.Status == virtual.Answered {
		g.scorer.Observe(b, scoring.Outcome{EngineTTFT: o.TTFT - waited, OutputTokens: o.Output})
	}
}

// Stored brings what an engine says into the index, and follows the prefill with it.
func (g *Gateway) Stored(now time.Duration, worker int, r *trace.Request, from, to int) {
	g.now, g.stirred = now, true
	told := runs.Stored{Root: from == 0, Engine: r.Chain[from:to], Hashes: r.Chain[from:to], Chained: true}
	if from > 0 {
		told.Parent = r.Chain[from-1]
	}
	g.index.Store(runs.Holder{Slot: slot.Slot(worker)}, told)
	if g.options.FirstTokens == Events {
		for _, b := range [...]*scoring.Booking{g.bookings[r.Index], g.heard[r.Index]} {
			switch {
			case b == nil:
			case to == len(r.Chain):
				b.Prefilled()
			default:
				b.Progress(r.Prompt - to*g.workload.BlockTokens)
			}
		}
	}
}

// Removed takes blocks out of the index.
func (g *Gateway) Removed(now time.Duration, worker int, ids []int32) {
	g.now = now
	g.gone = g.gone[:0]
	for _, id := range ids {
		g.gone = append(g.gone, g.hashes[id])
	}
	g.index.Remove(runs.Holder{Slot: slot.Slot(worker)}, g.gone)
}

// Outputs counts what answers take of the caches.
func (g *Gateway) Outputs(_ time.Duration, worker, stored, evicted int) {
	g.answers[worker] += stored - evicted
}

// Up makes a worker a candidate.
func (g *Gateway) Up(now time.Duration, worker int) {
	g.now, g.stirred, g.up[worker] = now, true, true
}

// Down forgets a worker.
func (g *Gateway) Down(now time.Duration, worker int) {
	g.now, g.stirred, g.up[worker], g.answers[worker] = now, true, false, 0
	g.index.RemoveSlot(slot.Slot(worker))
	for g.index.Tidy(1 << 20) {
	}
	g.index.Configure(slot.Slot(worker), runs.Settings{Sets: true})
	g.scorer.Forget(slot.Slot(worker))
	maps.DeleteFunc(g.sessions, func(_, bound int) bool { return bound == worker+1 })
	for i, at := range g.placed { // to be sent there, and not asked for since: they come anew
		if int(at) == worker+1 {
			g.bookings[i].End()
			g.bookings[i], g.entries[i], g.placed[i] = nil, nil, 0
		}
	}
}

// lost is a scoring.Evictions that looks into the engine.
func (g *Gateway) lost(s slot.Slot, fresh int, again func(age float64) float64) (blocks float64) {
	out := fresh - g.cluster.Free(int(s))
	if out <= 0 {
		return 0
	}
	const step = 32 // blocks of about the same age
	chance, n := 0.0, 0
	for b := range g.cluster.IdleBlocks(int(s)) {
		if n%step == 0 {
			chance = again((g.now - b.Released).Seconds())
		}
		blocks += chance
		if n++; n == out {
			break
		}
	}
	return blocks
}
