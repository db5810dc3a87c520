package gateway

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"attache/indexer/runs"
	"attache/internal/block"
	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
	"attache/internal/slot"
	"attache/scoring"
	"attache/scoring/queue"
)

// drawWorkload draws a few requests with common beginnings, some of which follow others.
func drawWorkload(t *rapid.T, blockTokens int) *trace.Workload {
	w := &trace.Workload{BlockTokens: blockTokens}
	children := map[[2]int32]int32{}
	for i := range rapid.IntRange(1, 30).Draw(t, "requests") {
		r := &trace.Request{
			Index: i, Prompt: rapid.IntRange(1, 14*blockTokens).Draw(t, "prompt"), Output: rapid.IntRange(1, 5*blockTokens).Draw(t, "output"),
			Arrival: time.Duration(rapid.IntRange(0, 30).Draw(t, "arrival")) * 20 * time.Millisecond,
			Session: rapid.IntRange(-1, 3).Draw(t, "session"),
		}
		parent := int32(-1)
		for range r.Prompt / blockTokens {
			branch := [2]int32{parent, int32(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "branch"))}
			id, known := children[branch]
			if !known {
				id = int32(len(children))
				children[branch] = id
			}
			r.IDs = append(r.IDs, id)
			r.Chain = append(r.Chain, hashOf(id))
			parent = id
		}
		if i > 0 && rapid.IntRange(0, 2).Draw(t, "follows") == 0 {
			before := w.All[rapid.IntRange(0, i-1).Draw(t, "before")]
			before.Next = append(before.Next, r)
			r.After++
			r.Think = time.Duration(rapid.IntRange(0, 3).Draw(t, "think")) * 50 * time.Millisecond
		}
		if w.All = append(w.All, r); r.After == 0 {
			w.Heads = append(w.Heads, r)
		}
	}
	slices.SortStableFunc(w.Heads, func(a, b *trace.Request) int { return int(a.Arrival - b.Arrival) })
	w.IDs = len(children)
	return w
}

func hashOf(id int32) block.Hash { return block.Next(0, uint64(id)+1, true) }

// drawCluster draws a small cluster in which at least the last worker stays.
func drawCluster(t *rapid.T, blockTokens int) virtual.Config {
	cfg := virtual.Config{
		Workers: rapid.IntRange(1, 3).Draw(t, "workers"), Profile: rapid.SampledFrom(virtual.Profiles()[:2]).Draw(t, "profile"),
		KVTokens: blockTokens * rapid.IntRange(4, 40).Draw(t, "blocks"), MaxSeqs: rapid.IntRange(1, 5).Draw(t, "seqs"),
		Lag: rapid.SampledFrom([]time.Duration{0, 0, 30 * time.Millisecond, time.Second}).Draw(t, "lag"),
	}
	cfg.MaxTokens = cfg.MaxSeqs + rapid.IntRange(1, 40).Draw(t, "tokens")
	for w := range cfg.Workers - 1 {
		up, at := rapid.Bool().Draw(t, "joins"), time.Duration(0)
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			at += time.Duration(rapid.IntRange(1, 300).Draw(t, "later")) * time.Millisecond
			cfg.Changes = append(cfg.Changes, virtual.Change{At: at, Worker: w, Up: up})
			up = !up
		}
	}
	return cfg
}

// drawOptions draws a gateway; with a queue if held is set.
func drawOptions(t *rapid.T, held bool) Options {
	o := Options{
		Scoring: scoring.DefaultConfig(), TrueCaches: rapid.Bool().Draw(t, "true caches"), Seed: uint64(rapid.IntRange(0, 9).Draw(t, "seed")),
		FirstTokens: rapid.SampledFrom([]Signal{"", Live, Events, Clock}).Draw(t, "first tokens"),
	}
	o.Scoring.Policy = rapid.SampledFrom([]string{"time", "time", "dynamo", "session", "random"}).Draw(t, "policy")
	if !held {
		return o
	}
	o.Limits = scoring.Limits{
		InFlight: rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "in flight"), PrefillTokens: rapid.SampledFrom([]int{0, 10, 100}).Draw(t, "prefill tokens"),
		KVShare: rapid.SampledFrom([]float64{0, .1, .9}).Draw(t, "kv share"),
		TTFT:    rapid.SampledFrom([]time.Duration{0, time.Millisecond, 100 * time.Millisecond}).Draw(t, "ttft"),
	}
	class := queue.DefaultClass()
	class.Policy = rapid.SampledFrom([]string{"fcfs", "lcfs", "wspt", "edf"}).Draw(t, "order")
	class.Ageing = rapid.SampledFrom([]time.Duration{0, 50 * time.Millisecond, 10 * time.Second}).Draw(t, "ageing")
	o.Queue = queue.DefaultConfig()
	o.Queue.Limits.Requests, o.Queue.Classes = 1000, []queue.ClassConfig{class}
	return o
}

// auditor stands between a cluster and a gateway, and holds what the gateway does and believes against plain copies of what was told.
type auditor struct {
	*Gateway

	t      *rapid.T
	lag    time.Duration
	told   []map[block.Hash]bool // by worker: what was said to be there
	flying map[int]flying        // by request
	since  map[int][2]float64    // by request, its rank: those that the gateway holds
	ends   map[int]int           // by request: how often it was answered or refused
	came   map[int]time.Duration // by request
}

type flying struct {
	worker, uncached int
	sent             time.Duration
	first            bool // its first token has left
	forgotten        bool // its worker went down
}

func newAuditor(t *rapid.T, o Options, cfg virtual.Config, w *trace.Workload) (*auditor, *virtual.Cluster) {
	c, err := virtual.New(cfg, w)
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(o, c, w)
	if err != nil {
		t.Fatal(err)
	}
	a := &auditor{Gateway: g, t: t, lag: cfg.Lag, flying: map[int]flying{}, since: map[int][2]float64{}, ends: map[int]int{}, came: map[int]time.Duration{}}
	for range c.Workers() {
		a.told = append(a.told, map[block.Hash]bool{})
	}
	return a, c
}

// believed is how many leading blocks of a prompt the gateway takes to be on a worker.
func (a *auditor) believed(worker int, r *trace.Request) int {
	var o runs.Overlap
	a.index.Overlap(r.Chain, &o)
	return int(o.Of(slot.Slot(worker)).Blocks[slot.Device])
}

func (a *auditor) checkCaches(r *trace.Request) {
	for w := range a.told {
		n := 0
		for n < len(r.Chain) && a.told[w][r.Chain[n]] {
			n++
		}
		if got := a.believed(w, r); got != n {
			a.t.Fatalf("worker %d is believed to hold %d blocks of request %d, told were %d", w, got, r.Index, n)
		}
		if held := a.cluster.Held(w, r.IDs); a.lag == 0 && n != held {
			a.t.Fatalf("worker %d is believed to hold %d blocks of request %d, it holds %d", w, n, r.Index, held)
		}
	}
}

// checkLoads compares what is booked with what is in flight.
func (a *auditor) checkLoads() {
	for w := range a.told {
		requests, tokens := 0, 0
		for _, f := range a.flying {
			if f.worker == w && !f.forgotten {
				requests++
				if !f.first {
					tokens += f.uncached
				}
			}
		}
		l := a.scorer.Load(slot.Slot(w))
		if l.InFlight != requests {
			a.t.Fatalf("%d requests are booked on worker %d, %d are there", l.InFlight, w, requests)
		}
		byClock := a.options.Scoring.Policy == "time" // what it has not worked off may be told to be computed
		if a.options.FirstTokens == Live && (l.PrefillTokens > tokens || l.PrefillTokens < tokens && !byClock) {
			a.t.Fatalf("%d tokens are booked on worker %d, %d are to be computed", l.PrefillTokens, w, tokens)
		}
		if requests == 0 && (l.PrefillTokens != 0 || l.QueueSeconds > 1e-9 || l.ActiveBlocks != 0 || l.OutputTokens != 0 || l.ContextTokens != 0) {
			a.t.Fatalf("worker %d has nothing to do, booked is %+v", w, l)
		}
	}
}

// rankOf is where a request stands in the order that the class says: low values first.
func (a *auditor) rankOf(at time.Duration, uncached int) [2]float64 {
	class, second := &a.options.Queue.Classes[0], at.Seconds()
	switch ageing := class.Ageing.Seconds(); class.Policy {
	case "wspt":
		key := math.Log2(float64(uncached))
		if ageing > 0 {
			key += second / ageing
		}
		return [2]float64{0, key}
	case "lcfs":
		if ageing > 0 {
			return [2]float64{math.Floor(second / ageing), -second}
		}
		return [2]float64{0, -second}
	default: // edf with one deadline for all is fcfs
		return [2]float64{0, second}
	}
}

func (a *auditor) Route(now time.Duration, r *trace.Request) (worker int, ok bool) {
	a.checkCaches(r)
	a.checkLoads()
	if _, twice := a.flying[r.Index]; twice && !a.given(r.Index) || a.ends[r.Index] > 0 {
		a.t.Fatalf("request %d is offered again", r.Index)
	}
	if _, again := a.came[r.Index]; !again {
		a.came[r.Index] = now
	}
	_, held := a.since[r.Index]
	held = held || a.given(r.Index)
	others := len(a.since) > 0
	worker, ok = a.Gateway.Route(now, r)
	switch {
	case !ok && a.queue == nil && slices.Contains(a.up, true):
		a.t.Fatalf("request %d is held, and there is no queue", r.Index)
	case ok && !held && others:
		a.t.Fatalf("request %d is sent while %d wait", r.Index, len(a.since))
	case ok && !a.up[worker]:
		a.t.Fatalf("request %d is sent to worker %d, which is down", r.Index, worker)
	case ok:
		if _, flies := a.flying[r.Index]; !flies {
			a.fly(r, worker)
		}
	case !held && a.queue != nil:
		e := a.entries[r.Index]
		a.since[r.Index] = a.rankOf(e.Arrival, e.Request.UncachedTokens)
	}
	if a.queue != nil {
		a.checkOrder()
	}
	return worker, ok
}

// given says whether a request has left the queue, and the cluster has not asked for it since.
func (a *auditor) given(request int) bool { return a.queue != nil && a.placed[request] > 0 }

func (a *auditor) fly(r *trace.Request, worker int) {
	size := a.workload.BlockTokens
	cached := min(a.believed(worker, r)*size, (r.Prompt-1)/size*size)
	a.flying[r.Index] = flying{worker: worker, uncached: r.Prompt - cached, sent: a.now}
}

// checkOrder takes in whom the last look at the queue found room for: nobody who waits on comes before any of them.
func (a *auditor) checkOrder() {
	last := [2]float64{math.Inf(-1), 0}
	for i, rank := range a.since {
		_, flies := a.flying[i]
		if !flies && !a.given(i) {
			continue
		}
		if !flies {
			a.fly(a.workload.All[i], int(a.placed[i])-1)
		}
		if slices.Compare(rank[:], last[:]) > 0 {
			last = rank
		}
		delete(a.since, i)
	}
	for i, rank := range a.since {
		if slices.Compare(rank[:], last[:]) < 0 {
			a.t.Fatalf("request %d, at %v, waits on while one at %v is sent", i, rank, last)
		}
	}
	if a.queue.Len() != len(a.since) {
		a.t.Fatalf("%d requests are in the queue, %d wait", a.queue.Len(), len(a.since))
	}
}

func (a *auditor) FirstToken(now time.Duration, r *trace.Request) {
	a.Gateway.FirstToken(now, r)
	f := a.flying[r.Index]
	f.first = true
	a.flying[r.Index] = f
	a.checkLoads()
}

func (a *auditor) End(now time.Duration, r *trace.Request, o virtual.Outcome) {
	if f, flies := a.flying[r.Index]; !flies || f.worker != o.Worker {
		a.t.Fatalf("request %d ends on worker %d, it is on %d: %v", r.Index, o.Worker, f.worker, flies)
	}
	if got, want := a.waited[r.Index], a.flying[r.Index].sent-a.came[r.Index]; got != want {
		a.t.Fatalf("request %d waited for %v, want %v", r.Index, got, want)
	}
	a.Gateway.End(now, r, o)
	delete(a.flying, r.Index)
	if o.Status != virtual.Lost {
		a.ends[r.Index]++
	}
}

func (a *auditor) Stored(now time.Duration, worker int, r *trace.Request, from, to int) {
	a.Gateway.Stored(now, worker, r, from, to)
	for _, h := range r.Chain[from:to] {
		a.told[worker][h] = true
	}
	if _, flies := a.flying[r.Index]; flies && a.lag == 0 && a.options.FirstTokens == Events && to == len(r.Chain) {
		f := a.flying[r.Index]
		f.first = true
		a.flying[r.Index] = f
	}
}

func (a *auditor) Removed(now time.Duration, worker int, ids []int32) {
	a.Gateway.Removed(now, worker, ids)
	for _, id := range ids {
		delete(a.told[worker], hashOf(id))
	}
}

func (a *auditor) Down(now time.Duration, worker int) {
	for i, f := range a.flying {
		if f.worker == worker && a.given(i) { // the cluster does not know: it comes anew
			delete(a.flying, i)
		}
	}
	a.Gateway.Down(now, worker)
	a.told[worker] = map[block.Hash]bool{}
	for _, r := range a.workload.All {
		if n := a.believed(worker, r); n > 0 {
			a.t.Fatalf("worker %d went down, and is believed to hold %d blocks", worker, n)
		}
	}
	if l := a.scorer.Load(slot.Slot(worker)); l.InFlight > 0 || l.LastTurn > 0 {
		a.t.Fatalf("worker %d went down, and its load is %+v", worker, l)
	}
	for session, at := range a.sessions {
		if at == worker+1 {
			a.t.Fatalf("session %d is bound to worker %d, which went down", session, worker)
		}
	}
	for i, f := range a.flying {
		if f.worker == worker {
			f.forgotten = true
			a.flying[i] = f
		}
	}
}

// play plays a workload to its end, by which every request was served once and nothing is booked.
func (a *auditor) play(c *virtual.Cluster) *virtual.Result {
	result, err := c.Run(a)
	if err != nil {
		a.t.Fatal(err)
	}
	for _, r := range a.workload.All {
		if a.ends[r.Index] != 1 || a.bookings[r.Index] != nil {
			a.t.Fatalf("request %d ended %d times, and is booked: %v", r.Index, a.ends[r.Index], a.bookings[r.Index] != nil)
		}
	}
	if len(result.Records) != len(a.workload.All) || len(a.flying) > 0 || len(a.since) > 0 {
		a.t.Fatalf("%d of %d requests are over, %d fly, %d wait", len(result.Records), len(a.workload.All), len(a.flying), len(a.since))
	}
	a.checkLoads()
	return result
}

// TestWhatAGatewayBelieves: at every moment the index is what was told of the caches, without lag what they are; what is booked is
// what is in flight, and what went down is forgotten.
func TestWhatAGatewayBelieves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 8
		w, cfg := drawWorkload(t, size), drawCluster(t, size)
		a, c := newAuditor(t, drawOptions(t, false), cfg, w)
		a.play(c)
	})
}

// TestHoldingBack: whatever the limits and the order are, every request is served once, in that order, also while workers come and
// go.
func TestHoldingBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 8
		w, cfg := drawWorkload(t, size), drawCluster(t, size)
		a, c := newAuditor(t, drawOptions(t, true), cfg, w)
		a.play(c)
	})
}

// TestASeedDecides: the same seed, the same course of events.
func TestASeedDecides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 8
		w, cfg, o := drawWorkload(t, size), drawCluster(t, size), drawOptions(t, rapid.Bool().Draw(t, "held"))
		var first []virtual.Record
		for i := range 2 {
			a, c := newAuditor(t, o, cfg, w)
			records := a.play(c).Records
			if i == 0 {
				first = records
			} else if !slices.Equal(first, records) {
				t.Fatal("the second time another course")
			}
		}
	})
}

// TestFirstTokens: how a prefill is known to be over. An only request on an only worker is looked at when its first token has left,
// and before it ends.
func TestFirstTokens(t *testing.T) {
	for _, c := range []struct {
		signal Signal
		left   bool // something is booked after the first token
	}{{Live, false}, {Events, false}, {Clock, true}} {
		r := &trace.Request{Prompt: 65, Output: 2, Session: -1}
		for id := range int32(8) {
			r.IDs, r.Chain = append(r.IDs, id), append(r.Chain, hashOf(id))
		}
		w := &trace.Workload{All: []*trace.Request{r}, Heads: []*trace.Request{r}, BlockTokens: 8, IDs: 8}
		cluster, err := virtual.New(virtual.Config{Workers: 1}, w)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Scoring: scoring.DefaultConfig(), FirstTokens: c.signal}
		o.Scoring.Speed.Error = 1e3 // so slow that the clock of predicted work is never done in time
		g, err := New(o, cluster, w)
		if err != nil {
			t.Fatal(err)
		}
		p := &peeker{Gateway: g}
		if _, err := cluster.Run(p); err != nil {
			t.Fatal(err)
		}
		if (p.after > 0) != c.left || p.routed != 65 {
			t.Errorf("%s: %d tokens booked at first, want 65; %d after the first token, want some: %v", c.signal, p.routed, p.after, c.left)
		}
	}
}

// peeker looks at what is booked on the first worker, after a request is sent and after its first token.
type peeker struct {
	*Gateway

	routed, after int
}

func (p *peeker) Route(now time.Duration, r *trace.Request) (worker int, ok bool) {
	worker, ok = p.Gateway.Route(now, r)
	p.routed = p.scorer.Load(0).PrefillTokens
	return worker, ok
}

func (p *peeker) FirstToken(now time.Duration, r *trace.Request) {
	p.Gateway.FirstToken(now, r)
	p.after = p.scorer.Load(0).PrefillTokens
}

func TestOptionsThatAreNone(t *testing.T) {
	w := &trace.Workload{BlockTokens: 8}
	c, err := virtual.New(virtual.Config{Workers: 1}, w)
	if err != nil {
		t.Fatal(err)
	}
	class := queue.DefaultClass()
	class.Policy = "fastest"
	bad := queue.DefaultConfig()
	bad.Limits.Requests, bad.Classes = 1, []queue.ClassConfig{class}
	for _, o := range []Options{
		{Scoring: scoring.DefaultConfig(), FirstTokens: "guess"},
		{Scoring: scoring.DefaultConfig(), Limits: scoring.Limits{InFlight: 1}, Queue: bad},
		{},
	} {
		if _, err := New(o, c, w); err == nil {
			t.Errorf("no error for %+v", o)
		}
	}
}
