package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"attache/indexer/events"
	"attache/internal/sim"
	"attache/internal/slot"
	"attache/internal/worker"
)

// kind is what a node is.
type kind struct {
	dialect    string
	pool       int // tokens of a block of the pool
	page       int // tokens of a block of the engine
	ranks      int
	replay     bool
	host, disk int // tokens
	ring       int // batches that the engine keeps; 0: as by default
}

var kinds = []kind{
	{dialect: sim.DialectVLLMMap, pool: 16, page: 16, ranks: 1, replay: true},
	{dialect: sim.DialectVLLMArray, pool: 16, page: 16, ranks: 2, replay: true, host: 480},
	{dialect: sim.DialectVLLMMap, pool: 16, page: 16, ranks: 2, host: 480},
	{dialect: sim.DialectVLLMMap, pool: 16, page: 32, ranks: 1, replay: true, host: 640, ring: 30},
	{dialect: sim.DialectSGLang, pool: 16, page: 16, ranks: 1, replay: true, host: 480, disk: 320},
	{dialect: sim.DialectSGLang, pool: 16, page: 1, ranks: 2, replay: true},
	{dialect: sim.DialectSGLang, pool: 16, page: 4, ranks: 1, host: 480},
	{dialect: sim.DialectTensorRT, pool: 16, page: 16, ranks: 1, host: 480},
	{dialect: sim.DialectTensorRT, pool: 16, page: 16, ranks: 2},
	{dialect: sim.DialectVLLMArray, pool: 64, page: 16, ranks: 2, replay: true, host: 480},
	{dialect: sim.DialectSGLang, pool: 64, page: 4, ranks: 1, replay: true},
}

func (k kind) pulled() bool { return k.dialect == sim.DialectTensorRT }

func (k kind) name(number int) string {
	text := fmt.Sprintf("%d-%s-%d-in-%d-x%d", number, k.dialect, k.page, k.pool, k.ranks)
	if k.host > 0 {
		text += "-host"
	}
	if !k.replay && !k.pulled() {
		text += "-deaf"
	}
	return text
}

// deviceTokens is the size of every engine's cache: some three of the longest prompts.
const deviceTokens = 1280

// node is a worker: an engine that may be replaced, and the proxies before it.
type node struct {
	kind

	name    string
	number  int
	gateway *gateway
	slots   []slot.Slot // of all ranks that it may ever have
	http    *proxy      // before the port that is pulled
	log     *slog.Logger

	now   func() time.Time
	quiet atomic.Int32 // nobody asks it anything while it is above 0

	turn sync.Mutex // held while the engine, its place or its ports are changed

	mu      sync.Mutex // guards the fields below
	pub     []*proxy   // before the publisher of each rank
	router  []*proxy   // before its replay socket
	engine  *sim.Engine
	stop    func()    // and wait
	shown   int       // ranks that the registry knows
	present bool      // in the registry
	epoch   uint64    // as the registry counts
	hidden  int       // faults that no listener can notice are at work
	lies    uint64    // the engine's epoch up to which such a fault told lies
	stained bool      // the engine has to be restarted before its history can be known again
	begun   time.Time // of the engine's life, by the ledgers' clock
}

// start begins an engine with so many ranks, and leads the proxies to it.
func (n *node) start(t *testing.T, ranks int) {
	cfg := sim.DefaultConfig()
	cfg.Name, cfg.Listen, cfg.Speed, cfg.Dialect, cfg.Ranks = n.name, "127.0.0.1:0", 1000, n.dialect, ranks
	cfg.BlockTokens, cfg.KVBlocks, cfg.MaxSeqs, cfg.MaxTokens = n.page, deviceTokens/n.page, 8, 512
	cfg.HostBlocks, cfg.DiskBlocks, cfg.DecodeInterval = n.host/n.page, n.disk/n.page, 5
	if n.ring > 0 {
		cfg.BufferSteps = n.ring
	}
	if !n.pulled() {
		cfg.Events = "tcp://127.0.0.1:0"
		if n.replay {
			cfg.Replay = "tcp://127.0.0.1:0"
		}
	}
	e, err := sim.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Error(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Run(ctx)
	}()
	n.mu.Lock()
	n.engine, n.lies, n.stained, n.begun = e, 0, false, n.now()
	n.stop = func() {
		stop()
		<-ended
	}
	n.mu.Unlock()
	n.lead(0, 1)
}

// lead points the proxies of two ranks at the engine's ranks first and second.
func (n *node) lead(first, second int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.engine
	n.http.point(e.Addr().String())
	for i, rank := range []int{first, second} {
		at, replay := e.Endpoints(rank)
		if i < len(n.pub) {
			n.pub[i].point(strings.TrimPrefix(at, "tcp://"))
			n.router[i].point(strings.TrimPrefix(replay, "tcp://"))
		}
	}
}

// running is the engine, and whether what it says may be judged.
func (n *node) running() (e *sim.Engine, judged bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine, n.hidden == 0 && n.engine.Contents(0).Epoch > n.lies
}

// hide notes that lies are told from now on, until the function returned is called and the engine restarted.
func (n *node) hide() (over func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hidden++
	n.stained = true
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.hidden--
		n.lies = n.engine.Contents(0).Epoch
	}
}

func (n *node) stain() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stained = true
}

// restart restarts the engine in place. The caller has its turn.
func (n *node) restart() {
	n.mu.Lock()
	e := n.engine
	n.stained = n.hidden > 0
	n.mu.Unlock()
	e.SetEventFault(sim.EventFault{Mode: sim.EventLose, For: time.Nanosecond}) // what was not lost yet is not of the new life's
	n.begin(n.now().Add(time.Hour))                                            // no answer is of the new life yet
	_ = e.Restart(context.Background())
	n.http.cut() // an answer of the old life that is still on its way
	n.begin(n.now().Add(haste * 100 * time.Millisecond))
}

// begin notes when the engine's life began.
func (n *node) begin(at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.begun = at
}

// heard says whether a feed that pulls has had an answer of the engine's present life. Others show it by digests.
func (n *node) heard(s events.Status) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return s.Heard.After(n.begun)
}

func (n *node) proxies() []*proxy {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := append(append([]*proxy{}, n.pub...), n.router...)
	return append(all, n.http)
}

func (n *node) cut() {
	for _, p := range n.proxies() {
		p.cut()
	}
}

// seen is the worker as the registry shows it; nil when it does not.
func (n *node) seen() *worker.Worker {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.present {
		return nil
	}
	at := n.http.addr().AddrPort()
	spec := worker.Spec{Name: n.name, Pool: "pool", Address: at.String(), Addr: netip.AddrPortFrom(at.Addr().Unmap(), at.Port())}
	if !n.pulled() {
		spec.Events.Endpoint = "tcp://" + n.pub[0].addr().String()
		if n.replay {
			spec.Events.Replay = "tcp://" + n.router[0].addr().String()
		}
	}
	w := worker.NewWorker(spec, n.slots[0], worker.Ready, n.slots[1:n.shown]...)
	w.Epoch = n.epoch
	return w
}

// world is all of it.
type world struct {
	t        *testing.T
	corpus   []*prompt
	nodes    []*node
	gateways map[int]*gateway // by the tokens of a block
	tally    *tally
	journal  *journal
	failed   context.CancelCauseFunc

	telling sync.Mutex // held while a Set is made and shown, so that they come in order
}

// haste is how much faster the ledgers' clock runs: what takes them a minute of good conduct takes some seconds here.
const haste = 8

func newWorld(t *testing.T, rng *rand.Rand) *world {
	t.Helper()
	w := &world{t: t, gateways: map[int]*gateway{}, tally: newTally()}
	w.journal = &journal{tally: w.tally}
	w.corpus = newCorpus(t, rng, []int{1, 4, 16, 32, 64})
	begun := time.Now()
	now := func() time.Time { return begun.Add(haste * time.Since(begun)) }
	logs := slog.New(slog.NewTextHandler(w.journal, nil))
	for number, k := range kinds {
		g := w.gateways[k.pool]
		if g == nil {
			g = &gateway{world: w, pool: k.pool, dir: t.TempDir(), now: now, log: logs}
			w.gateways[k.pool] = g
			g.make()
		}
		n := &node{kind: k, name: k.name(number), number: number, gateway: g, now: now, shown: k.ranks, present: true, log: logs.With("worker", k.name(number))}
		n.slots = []slot.Slot{slot.Slot(2 * number), slot.Slot(2*number + 1)}
		if n.pulled() {
			n.slots, n.shown = n.slots[:1], 1 // one feed is told of all ranks, and takes in the first
		} else {
			n.pub, n.router = consecutive(t, 2), consecutive(t, 2)
		}
		var err error
		if n.http, err = newProxy("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		n.start(t, k.ranks)
		w.nodes = append(w.nodes, n)
	}
	for _, g := range w.gateways {
		g.run()
	}
	return w
}

// tell shows the ledgers who serves.
func (w *world) tell() {
	w.telling.Lock()
	defer w.telling.Unlock()
	for _, g := range w.gateways {
		g.ledger().Observe(w.set(g))
	}
}

// set is who serves in a gateway's pool.
func (w *world) set(g *gateway) *worker.Set {
	var all []*worker.Worker
	for _, n := range w.nodes {
		if n.gateway == g {
			if seen := n.seen(); seen != nil {
				all = append(all, seen)
			}
		}
	}
	return worker.NewSet(all...)
}

func (w *world) close() {
	for _, g := range w.gateways {
		g.stop()
	}
	for _, n := range w.nodes {
		n.stop()
		for _, p := range n.proxies() {
			p.close()
		}
	}
}

// feeds are what the ledger says of a node, by rank.
func (n *node) feeds() map[int]events.Status {
	all := map[int]events.Status{}
	for _, s := range n.gateway.ledger().Status() {
		if s.Worker == n.name {
			all[s.Rank] = s
		}
	}
	return all
}
