package router

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/netip"
	"sync"
	"time"

	"attache/indexer"
	"attache/indexer/events"
	"attache/internal/block"
	"attache/internal/replica"
	"attache/internal/slot"
	"attache/scoring"
)

// Sharer is told what this replica decides, and what becomes of it. It must return at once, and keep nothing of d.
type Sharer interface{ Share(d *replica.Delta) }

// Remote is what a pool knows of the requests that other replicas have sent to its workers. They count as load, as what workers
// hold and as what was learnt, like those of this replica. It implements replica.Source and replica.Target.
type Remote struct {
	router *Router
	pool   *pool

	mu    sync.Mutex // guards what follows
	peers map[string]*peerRequests
	left  []*remote // of replicas that have left, until they are taken for over
	round uint64    // counts snapshots
}

// peerRequests are the requests of one replica.
type peerRequests struct {
	byNumber map[uint64]*remote
	round    uint64 // of the snapshot that is being told; 0 none
}

// remote is a request that another replica has sent to a worker.
type remote struct {
	pool        *pool
	booking     scoring.Booking
	slot        slot.Slot
	worker      netip.AddrPort // that was chosen
	chain       []block.Hash   // nil: not known
	blockTokens int
	prompt      int // tokens
	blocks      int // of the prompt, as far as they are known here
	stream      bool
	flight      *flight
	mark        indexer.Mark
	session     uint64
	flow        string
	round       uint64    // of the last snapshot that it was in
	over        time.Time // when it ended, or is taken to have ended; zero: it runs
}

// Remote is what the pool of that name is told by other replicas; nil when there is no such pool.
func (r *Router) Remote(pool string) *Remote {
	if p := r.byName[pool]; p != nil {
		return p.remote
	}
	return nil
}

// Share has a pool's decisions told to the other replicas from now on. It must be called before the first request.
func (r *Router) Share(pool string, with Sharer) { r.byName[pool].sharer = with }

func newRemote(r *Router, p *pool) *Remote {
	return &Remote{router: r, pool: p, peers: map[string]*peerRequests{}}
}

// Apply implements replica.Target.
func (m *Remote) Apply(from string, d *replica.Delta) {
	of := cmp.Or(d.Of, from)
	if of == m.router.replica { // Envoy told another replica of a decision of ours
		m.router.report(d.Number, outcomeOf(d))
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	peer := m.peers[of]
	if peer == nil {
		if d.Of != "" {
			return // of a replica that is not heard
		}
		peer = &peerRequests{byNumber: map[uint64]*remote{}}
		m.peers[of] = peer
	}
	x := peer.byNumber[d.Number]
	switch {
	case d.Kind == replica.Bound:
		m.bind(d)
	case d.Kind == replica.Booked && x != nil:
		x.round = peer.round
	case d.Kind == replica.Booked:
		if x := m.book(d); x != nil {
			x.round = peer.round
			peer.byNumber[d.Number] = x
		}
	case x == nil: // of a worker that is not known here
	case d.Kind == replica.Prefilled:
		x.booking.Prefilled()
		m.pool.gate.poke()
	case d.Kind == replica.Moved:
		if to, ok := m.slotOf(d); ok {
			x.slot = to
			x.booking.Move(to)
		}
	case d.Kind == replica.Ended:
		m.end(x)
	case d.Kind == replica.Answered:
		m.end(x)
		m.learn(x, outcomeOf(d))
		delete(peer.byNumber, d.Number)
	}
}

// slotOf is the rank of a worker that a delta names; ok is false when it is not known here.
func (m *Remote) slotOf(d *replica.Delta) (s slot.Slot, ok bool) {
	w := m.router.workers.Set().ByAddr(d.Worker)
	if w == nil || w.Pool != m.pool.name || d.Rank >= len(w.Slots()) {
		return slot.None, false
	}
	return w.Slots()[d.Rank], true
}

// book takes in a request; nil when it is at a worker that is not known here.
func (m *Remote) book(d *replica.Delta) *remote {
	p := m.pool
	s, ok := m.slotOf(d)
	if !ok {
		m.router.metrics.unplaced(p.name)
		return nil
	}
	x := &remote{pool: p, slot: s, worker: d.Worker, prompt: d.PromptTokens, blockTokens: d.BlockTokens, stream: d.Stream, session: d.Session, flow: d.Flow}
	if d.BlockTokens == p.keyer.BlockTokens() {
		x.chain, x.blocks = d.Chain, len(d.Chain)
	}
	told := d.Named && p.modeOf(s) == events.Exact
	p.scorer.Mirror(&x.booking, &scoring.Demand{
		PromptTokens: d.PromptTokens, BlockTokens: d.BlockTokens, OutputTokens: d.OutputTokens, Chain: x.chain,
	}, s, d.CachedTokens, told)
	x.mark = p.index.Remember(s, x.chain)
	if d.Named && p.ledger.Follows(s) {
		x.flight = p.flights.add(s, x.chain)
		p.flights.follow(x.flight, x)
	}
	m.bind(d)
	p.gate.served(d.Flow, d.PromptTokens, 0)
	return x
}

// bind takes in what a request did to its session.
func (m *Remote) bind(d *replica.Delta) {
	s, known := m.slotOf(d)
	switch {
	case d.Session == 0:
	case d.SessionOver:
		m.pool.sessions.drop(d.Session)
	case known:
		w := m.router.workers.Set().BySlot(s)
		if w == nil {
			return
		}
		m.pool.sessions.bind(session{key: d.Session, slot: s, addr: w.Addr, kept: d.SessionKept}, m.router.now(), d.SessionTTL)
	}
}

// stored takes in that the events of the worker's engine show so many leading blocks of the prompt.
func (x *remote) stored(blocks int, all bool) {
	if all {
		x.booking.Prefilled()
		x.pool.gate.poke()
	} else if blocks > 0 {
		x.booking.Progress(x.prompt - blocks*x.blockTokens)
		x.pool.gate.poke()
	}
}

// end releases what a request has booked; only the first call does anything.
func (m *Remote) end(x *remote) {
	if !x.over.IsZero() {
		return
	}
	x.over = m.router.now()
	x.booking.End()
	m.pool.flights.end(x.flight, x.over, m.pool.ledger.Emptied(x.slot))
	m.pool.index.Touch(x.slot, x.chain)
	m.pool.gate.poke()
	x.chain = nil
}

// learn takes in what became of a request, as Router.report does of this replica's.
func (m *Remote) learn(x *remote, o Outcome) {
	p, elsewhere := m.pool, o.Served.IsValid() && o.Served != x.worker
	if o.Status == 200 {
		seen := scoring.Outcome{OutputTokens: o.CompletedTokens}
		if x.stream && o.Attempts == 1 {
			seen.EngineTTFT = o.EngineTTFT
		}
		p.scorer.Observe(&x.booking, seen)
	}
	if !elsewhere && o.Status == 200 && !o.Broken && o.CachedKnown && o.PromptTokens > 0 && x.prompt > 0 && x.blocks > 0 {
		p.index.Correct(x.mark, int(float64(o.CachedTokens)*float64(x.prompt)/float64(o.PromptTokens))/x.blockTokens)
	}
	if o.Failed() || elsewhere {
		p.sessions.unbind(x.session, x.slot)
	}
	p.gate.served(x.flow, 0, o.CompletedTokens)
}

// answered tells the other replicas what became of a decision of this one.
func (rec *record) answered(o *Outcome) {
	if s := rec.pool.sharer; s != nil {
		d := deltaOf(rec.number, o)
		s.Share(&d)
	}
}

// passOn tells the replica that has decided, and all others, what became of a request; false: that replica is not heard. What it has
// decided may not have been heard yet: then only it can make something of the news.
func (r *Router) passOn(of string, number uint64, o *Outcome) bool {
	var by *pool
	for _, p := range r.pools {
		if p.sharer == nil {
			continue
		}
		switch heard, knows := p.remote.knows(of, number); {
		case knows:
			by = p
		case heard && by == nil:
			by = p
		}
	}
	if by == nil {
		return false
	}
	d := deltaOf(number, o)
	d.Of = of
	by.sharer.Share(&d)
	by.remote.Apply(of, &d)
	return true
}

// knows reports whether another replica is heard, and whether this request of it is under way, or waits to be answered.
func (m *Remote) knows(of string, number uint64) (heard, knows bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	peer := m.peers[of]
	return peer != nil, peer != nil && peer.byNumber[number] != nil
}

func deltaOf(number uint64, o *Outcome) replica.Delta {
	return replica.Delta{Kind: replica.Answered, Number: number, Worker: o.Served, Outcome: replica.Outcome{
		Status: o.Status, Attempts: o.Attempts, TTFT: o.TTFT, EngineTTFT: o.EngineTTFT, Duration: o.Duration, Aborted: o.Aborted,
		Broken: o.Broken, Unreached: o.Unreached, Usage: o.Usage, CachedKnown: o.CachedKnown, PromptTokens: o.PromptTokens,
		AnswerTokens: o.CompletedTokens, Cached: o.CachedTokens,
	}}
}

func outcomeOf(d *replica.Delta) Outcome {
	o := &d.Outcome
	return Outcome{
		Status: o.Status, Served: d.Worker, Attempts: o.Attempts, TTFT: o.TTFT, EngineTTFT: o.EngineTTFT, Duration: o.Duration, Aborted: o.Aborted,
		Broken: o.Broken, Unreached: o.Unreached, Usage: o.Usage, CachedKnown: o.CachedKnown, PromptTokens: o.PromptTokens,
		CompletedTokens: o.AnswerTokens, CachedTokens: o.Cached,
	}
}

// Begin implements replica.Target.
func (m *Remote) Begin(from string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.round++
	if m.peers[from] == nil {
		m.peers[from] = &peerRequests{byNumber: map[uint64]*remote{}}
	}
	m.peers[from].round = m.round
}

// Finish implements replica.Target.
func (m *Remote) Finish(from string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	peer := m.peers[from]
	if peer == nil || peer.round == 0 {
		return
	}
	for _, x := range peer.byNumber {
		if x.round < peer.round {
			m.end(x)
		}
	}
	peer.round = 0
}

// Gone implements replica.Target.
func (m *Remote) Gone(from string, kept time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	peer := m.peers[from]
	if peer == nil {
		return
	}
	delete(m.peers, from)
	for _, x := range peer.byNumber {
		if !x.over.IsZero() {
			continue
		}
		if kept == 0 {
			m.end(x)
			continue
		}
		x.over = m.router.now().Add(kept)
		m.left = append(m.left, x)
	}
}

// Elsewhere implements replica.Target.
func (m *Remote) Elsewhere(w replica.Waiting) { m.pool.gate.elsewhere(w) }

// Learn implements replica.Target.
func (m *Remote) Learn(_ string, learnt []byte) {
	l, err := scoring.ReadLearnt(bytes.NewReader(learnt))
	if err == nil {
		err = m.pool.scorer.Restore(l, ranksOf(m.router.workers.Set().Pool(m.pool.name)))
	}
	if err != nil {
		m.router.log.Warn("what another replica has learnt of the workers' speed cannot be used", "pool", m.pool.name, "error", err)
		return
	}
	m.pool.learnt.CompareAndSwap(nil, &l)
}

// upkeep ends what replicas have left running, and forgets what nobody will report of any more.
func (m *Remote) upkeep(now time.Time, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var still []*remote
	for _, x := range m.left {
		if now.Before(x.over) {
			still = append(still, x)
			continue
		}
		x.over = time.Time{}
		m.end(x)
	}
	m.left = still
	for _, peer := range m.peers {
		for n, x := range peer.byNumber {
			if !x.over.IsZero() && now.Sub(x.over) > ttl {
				delete(peer.byNumber, n)
			} else if x.over.IsZero() && x.chain != nil {
				m.pool.index.Touch(x.slot, x.chain)
			}
		}
	}
}

// InFlight is how many requests of other replicas are under way.
func (m *Remote) InFlight() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n = len(m.left)
	for _, peer := range m.peers {
		for _, x := range peer.byNumber {
			if x.over.IsZero() {
				n++
			}
		}
	}
	return n
}

// Open implements replica.Source.
func (m *Remote) Open(tell func(*replica.Delta)) {
	var d replica.Delta
	m.router.table.each(func(rec *record) {
		if rec.pool != m.pool {
			return
		}
		rec.mu.Lock()
		defer rec.mu.Unlock()
		if rec.ended.IsZero() {
			rec.booked(&d, rec.chain)
			tell(&d)
		}
	})
	now, set := m.router.now(), m.router.workers.Set()
	for _, s := range m.pool.sessions.own(now) {
		if w := set.BySlot(s.slot); w != nil && w.Addr == s.addr {
			tell(&replica.Delta{Kind: replica.Bound, Worker: s.addr, Rank: w.Rank(s.slot), Session: s.key, SessionTTL: s.expires.Sub(now), SessionKept: s.kept})
		}
	}
}

// Waiting implements replica.Source.
func (m *Remote) Waiting() replica.Waiting { return m.pool.gate.waiting() }

// Learnt implements replica.Source.
func (m *Remote) Learnt() []byte {
	text, err := json.Marshal(m.pool.scorer.Learnt(namesOf(m.router.workers.Set().Pool(m.pool.name))))
	if err != nil {
		return nil // figures that are no numbers; the next ones may be
	}
	return text
}

// booked fills in what other replicas are told of a decision. The record's lock must be held once others know the record.
func (rec *record) booked(d *replica.Delta, chain []block.Hash) {
	w := rec.named[rec.on]
	rank := 0
	if rec.on == 0 {
		rank = w.Rank(rec.slot)
	}
	*d = replica.Delta{
		Kind: replica.Booked, Number: rec.number, Worker: w.Addr, Rank: rank, PromptTokens: rec.promptTokens, CachedTokens: rec.captured,
		BlockTokens: rec.blockTokens, OutputTokens: rec.outputTokens, Chain: chain, Named: rec.flies, Stream: rec.stream, Flow: rec.flow,
		Session: rec.session, SessionTTL: rec.sessionTTL, SessionKept: rec.sessionKept, SessionOver: rec.sessionOver,
	}
}

// spread tells the other replicas of a change of a decision.
func (rec *record) spread(kind replica.Kind) {
	if s := rec.pool.sharer; s != nil {
		s.Share(&replica.Delta{Kind: kind, Number: rec.number})
	}
}
