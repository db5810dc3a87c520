// Package virtual is a cluster of simulated engines on a virtual clock: what a router does to latencies is known within a
// second for an hour of traffic.
//
// In the common case New makes a cluster for a workload, Run plays the workload through a Router, and Result says how long
// everybody waited. At each instant events have an order: notes of caches arrive, workers come and go, passes end, held
// requests are offered again, requests arrive, idle workers form passes. Equal input gives equal output.
//
//	cluster.go     the loop                          router.go   who chooses, and some who choose blindly
//	engine.go      what an engine is                 pool.go     its KV memory
//	mocker.go      the engines of Dynamo's replay    reserving.go  those of the hardware profiles
//	tell.go        what routers hear of caches       peek.go     what is true of them
//	result.go      records and their summary         shared.go   one cache for all, a bound
//
// Nothing here has a goroutine or a lock: a Cluster belongs to one caller, a Workload may be shared by many.
package virtual

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"attache/internal/sim"
	"attache/internal/sim/trace"
)

// never is the end of no pass.
const never = time.Duration(math.MaxInt64)

// Cluster is one simulation.
type Cluster struct {
	cfg      Config
	workload *trace.Workload
	router   Router
	notes    notes

	now     time.Duration
	nodes   []node
	shared  *shared         // nil without Config.SharedCache
	ends    []time.Duration // of the passes, by worker; never when idle
	orders  []int           // in which they began
	passes  int
	runs    []run
	left    []int // answers that each request still waits for
	head    int   // of workload.Heads, the next to arrive
	arrived followers
	held    []*run
	change  int // of cfg.Changes, the next
	placed  int
	lost    []*run
	again   bool // something ended after the held requests were offered
	ran     bool
}

// node is one worker.
type node struct {
	engine engine // nil: down
	tell   teller
	load   load
	speed  float64
	idle   bool // without a pass, though something may be there to compute
}

// New makes a cluster that is about to play a workload.
func New(cfg Config, w *trace.Workload) (*Cluster, error) {
	cfg, err := cfg.filled(w)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		cfg: cfg, workload: w, nodes: make([]node, cfg.Workers), ends: slices.Repeat([]time.Duration{never}, cfg.Workers),
		orders: make([]int, cfg.Workers), runs: make([]run, len(w.All)), left: make([]int, len(w.All)),
	}
	names := w.IDs
	for i, r := range w.All {
		c.runs[i] = run{Record: Record{Request: r}, own: int32(names)}
		c.left[i] = r.After
		names += ownBlocks(r, w.BlockTokens)
	}
	if names > math.MaxInt32 {
		return nil, fmt.Errorf("the workload has %d blocks: at most %d expected", names, math.MaxInt32)
	}
	if cfg.SharedCache {
		c.shared = newShared(int(float64(cfg.KVTokens)*cfg.KV)/w.BlockTokens*cfg.Workers, w.IDs)
	}
	absent := map[int]bool{}
	for _, ch := range slices.Backward(cfg.Changes) {
		absent[ch.Worker] = ch.Up // the earliest change decides
	}
	for i := range c.nodes {
		n := &c.nodes[i]
		n.speed, n.tell = cfg.Speeds[i], teller{&c.notes, i, 0}
		if !absent[i] {
			c.start(i)
		}
	}
	return c, nil
}

// start gives a worker an engine with an empty cache.
func (c *Cluster) start(worker int) {
	n := &c.nodes[worker]
	names := c.workload.IDs
	if k := len(c.runs); k > 0 {
		last := &c.runs[k-1]
		names = int(last.own) + ownBlocks(last.Request, c.workload.BlockTokens)
	}
	p := newPool(int(float64(c.cfg.KVTokens)*c.cfg.KV)/c.workload.BlockTokens, names, c.workload.IDs)
	l := limits{c.workload.BlockTokens, c.cfg.MaxTokens, c.cfg.MaxSeqs, c.cfg.NoReuse, c.shared}
	if model, _, hardware := sim.ModelOf(c.cfg.Profile); hardware {
		n.engine = &reserving{limits: l, pool: p, tell: &n.tell, load: &n.load, model: model}
	} else {
		n.engine = &mocker{limits: l, pool: p, tell: &n.tell, load: &n.load, device: float64(c.cfg.KVTokens / c.workload.BlockTokens)}
	}
	n.idle = true
}

// Run plays the workload to its end. A Cluster runs once. It fails when the router does what it must not.
func (c *Cluster) Run(router Router) (*Result, error) {
	if c.ran {
		return nil, errors.New("the cluster has run")
	}
	c.ran = true
	c.router = router
	c.notes.router, c.notes.lag = router, c.cfg.Lag
	for i := range c.nodes {
		if c.nodes[i].engine != nil {
			router.Up(0, i)
		}
	}
	for {
		next, due := c.next()
		if !due {
			break
		}
		c.now = next
		if err := c.instant(); err != nil {
			return nil, fmt.Errorf("at %v: %w", c.now, err)
		}
	}
	if n := len(c.held); n > 0 {
		return nil, fmt.Errorf("the router holds %d requests, the first of %v, and nothing happens any more", n, c.held[0].Arrive)
	}
	return c.result(), nil
}

// next is the time of the next event.
func (c *Cluster) next() (at time.Duration, due bool) {
	if c.again {
		return c.now, true
	}
	at = c.firstEnd()
	if c.head < len(c.workload.Heads) {
		at = min(at, c.workload.Heads[c.head].Arrival)
	}
	if len(c.arrived) > 0 {
		at = min(at, c.arrived[0].at)
	}
	if len(c.notes.list) > 0 {
		at = min(at, c.notes.list[0].at)
	}
	// Workers come and go only while there is somebody to notice.
	if c.change < len(c.cfg.Changes) && (at < never || len(c.held) > 0) {
		at = min(at, c.cfg.Changes[c.change].At)
	}
	return max(at, c.now), at < never
}

// instant is all that happens at one time.
func (c *Cluster) instant() error {
	c.again = false
	c.notes.due(c.now)
	for ; c.change < len(c.cfg.Changes) && c.cfg.Changes[c.change].At <= c.now; c.change++ {
		if ch := c.cfg.Changes[c.change]; ch.Up {
			c.start(ch.Worker)
			c.router.Up(c.now, ch.Worker)
		} else {
			c.fail(ch.Worker)
		}
	}
	for {
		worker, due := c.ended()
		if !due {
			break
		}
		c.ends[worker] = never
		c.nodes[worker].idle = true
		c.end(worker)
	}
	if err := c.offer(); err != nil {
		return err
	}
	if err := c.arrive(); err != nil {
		return err
	}
	for i := range c.nodes {
		if n := &c.nodes[i]; n.idle && n.engine != nil {
			c.begin(i, n)
		}
	}
	return nil
}

// firstEnd is when the first pass ends.
func (c *Cluster) firstEnd() time.Duration { return slices.Min(c.ends) }

// ended finds a pass that has ended, the one that began first.
func (c *Cluster) ended() (worker int, due bool) {
	worker = -1
	for i, at := range c.ends {
		if at <= c.now && (worker < 0 || c.orders[i] < c.orders[worker]) {
			worker = i
		}
	}
	return worker, worker >= 0
}

// begin forms a pass.
func (c *Cluster) begin(worker int, n *node) {
	n.idle = false
	took := n.engine.pass(c.now)
	if took == 0 {
		c.again = c.end(worker) || c.again
		return
	}
	took = max(1, time.Duration(float64(took)/n.speed))
	n.load.passes++
	n.load.busy += took
	c.passes++
	c.ends[worker], c.orders[worker] = c.now+took, c.passes
}

// end is the end of a pass; it says whether that meant anything to anybody.
func (c *Cluster) end(worker int) bool {
	refused, emitted := c.nodes[worker].engine.end(c.now)
	for _, x := range refused {
		x.Status = Refused
		c.over(x)
	}
	for _, x := range emitted {
		if x.gen == 1 {
			x.First = c.now
			c.router.FirstToken(c.now, x.Request)
		}
		if x.gen == x.Request.Output {
			x.Status = Answered
			c.over(x)
		}
	}
	return len(refused)+len(emitted) > 0
}

// over ends a request for good.
func (c *Cluster) over(x *run) {
	x.End, x.ended = c.now, true
	c.router.End(c.now, x.Request, x.outcome())
	for _, f := range x.Request.Next {
		if c.left[f.Index]--; c.left[f.Index] > 0 {
			continue
		}
		if at := c.now + f.Think; c.workload.Horizon == 0 || at < c.workload.Horizon {
			heap.Push(&c.arrived, follower{at, c.now, &c.runs[f.Index]})
		}
	}
}

func (x *run) outcome() Outcome {
	o := Outcome{Worker: x.Worker, Status: x.Status, Cached: x.Reused, Output: x.gen}
	if x.First > 0 {
		o.TTFT = x.First - x.Arrive
	}
	return o
}

// arrive brings in those whose time has come: those that follow nobody first.
func (c *Cluster) arrive() error {
	for heads := c.workload.Heads; c.head < len(heads) && heads[c.head].Arrival <= c.now; c.head++ {
		x := &c.runs[heads[c.head].Index]
		x.Arrive = heads[c.head].Arrival
		if err := c.route(x); err != nil {
			return err
		}
	}
	for len(c.arrived) > 0 && c.arrived[0].at <= c.now {
		f := heap.Pop(&c.arrived).(follower) //nolint:forcetypeassert // nothing else is pushed
		f.run.Arrive = f.at
		if err := c.route(f.run); err != nil {
			return err
		}
	}
	return nil
}

// offer offers the held requests again.
func (c *Cluster) offer() error {
	held := c.held
	c.held = c.held[:0] // route appends behind what was read
	for _, x := range held {
		if err := c.route(x); err != nil {
			return err
		}
	}
	return nil
}

// route asks where a request goes, and brings it there.
func (c *Cluster) route(x *run) error {
	worker, ok := c.router.Route(c.now, x.Request)
	if !ok {
		c.held = append(c.held, x)
		return nil
	}
	if worker < 0 || worker >= len(c.nodes) || c.nodes[worker].engine == nil {
		return fmt.Errorf("request %d: the router chose worker %d: one of %d that is up expected", x.Request.Index, worker, len(c.nodes))
	}
	x.Worker = worker
	x.Attempts++
	c.placed++
	x.order = c.placed
	n := &c.nodes[worker]
	n.engine.submit(x)
	n.idle = c.ends[worker] == never
	return nil
}

// fail takes a worker down. Its requests begin again elsewhere, from nothing.
func (c *Cluster) fail(worker int) {
	n := &c.nodes[worker]
	lost := n.engine.inFlight(c.lost[:0])
	slices.SortFunc(lost, func(a, b *run) int { return cmp.Compare(a.order, b.order) })
	if c.ends[worker] != never {
		n.load.busy -= c.ends[worker] - c.now
		c.ends[worker] = never
	}
	n.engine = nil
	c.notes.lose(worker)
	n.tell.output = 0
	c.router.Down(c.now, worker)
	for _, x := range lost {
		x.Status = Lost
		c.router.End(c.now, x.Request, x.outcome())
		*x = run{Record: Record{Request: x.Request, Arrive: x.Arrive, Attempts: x.Attempts}, own: x.own}
	}
	c.held = append(slices.Clone(lost), c.held...)
	slices.SortStableFunc(c.held, func(a, b *run) int { return cmp.Compare(a.Arrive, b.Arrive) })
	c.lost = lost
}

// follower is a request whose predecessors are answered.
type follower struct {
	at, since time.Duration
	run       *run
}

// followers is a heap by time of arrival; of one instant, who was freed first.
type followers []follower

func (f followers) Len() int      { return len(f) }
func (f followers) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f followers) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(f[i].at, f[j].at), cmp.Compare(f[i].since, f[j].since), cmp.Compare(f[i].run.Request.Index, f[j].run.Request.Index)) < 0
}
func (f *followers) Push(x any) { *f = append(*f, x.(follower)) } //nolint:forcetypeassert // nothing else is pushed
func (f *followers) Pop() any {
	old := *f
	x := old[len(old)-1]
	*f = old[:len(old)-1]
	return x
}
