package replica

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"attache/internal/block"
)

// inbox applies what other replicas tell. Safe for concurrent use.
type inbox struct {
	name    string
	life    uint64
	lease   time.Duration
	now     func() time.Time
	target  Target
	hello   func()       // asks all replicas to tell all; returns at once
	told    func()       // somebody has asked; returns at once
	log     *slog.Logger // with the pool's name
	metrics *metrics

	mu      sync.Mutex // guards what follows, and that records are applied one after another
	byName  map[string]*peer
	asked   time.Time // when all were asked to tell all
	twins   time.Time // when a second process of our name was complained of
	refused time.Time // when a record that cannot be read was
	delta   Delta
	tail    []block.Hash
}

// again is how long an answer to a hello may take before it is said again.
const again = time.Second

// peer is another replica, as far as it was heard.
type peer struct {
	name    string
	life    uint64
	number  uint64 // of its last record
	whole   bool   // all that it has under way is known: it told everything, and no record since was missed
	heard   time.Time
	waiting Waiting
	chains  received
	open    bool // in a snapshot
}

// deliver takes in a record.
func (x *inbox) deliver(record []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := reader{rest: record}
	h := r.header()
	if r.err != nil {
		x.refuse(&h, r.err)
		return
	}
	if h.name == x.name {
		x.own(&h)
		return
	}
	x.metrics.received.Add(float64(len(record)))
	p := x.peerOf(&h)
	if p == nil {
		return
	}
	x.follow(p, &h)
	if h.marks&markHello != 0 {
		x.told()
	}
	if h.marks&markBegin != 0 {
		x.begin(p, &h)
	}
	for len(r.rest) > 0 {
		var unknown bool
		x.tail, unknown = r.delta(&x.delta, &p.chains, x.tail)
		if r.err != nil {
			x.refuse(&h, r.err)
			x.miss(p)
			return
		}
		if unknown {
			x.metrics.unknown.Inc()
		}
		x.metrics.applied[x.delta.Kind].Inc()
		x.target.Apply(h.name, &x.delta)
	}
	if h.marks&markFinish != 0 && p.open {
		p.open, p.whole = false, true
		x.target.Finish(h.name)
	}
	if h.marks&markLeave != 0 {
		x.log.Info("a replica has left", "replica", h.name)
		x.forget(p, h.kept)
	}
	x.elsewhere()
}

// refuse counts a record that cannot be read; the log says so once a minute.
func (x *inbox) refuse(h *header, err error) {
	x.metrics.refused.Inc()
	if now := x.now(); now.Sub(x.refused) > time.Minute {
		x.refused = now
		x.log.Warn("a replica's record cannot be read", "from", h.name, "error", err)
	}
}

// own is a record that came back, or one of a process that is called as this one.
func (x *inbox) own(h *header) {
	if h.life > x.life && x.now().Sub(x.twins) > time.Minute {
		x.twins = x.now()
		x.log.Error("another replica has this one's name: each needs its own, or they take each other's reports for theirs", "replica", x.name)
	}
}

// peerOf is who sent a record; nil when the record is of a process that has gone.
func (x *inbox) peerOf(h *header) *peer {
	p := x.byName[h.name]
	switch {
	case p != nil && h.life < p.life:
		return nil
	case p != nil && h.life > p.life:
		x.log.Info("a replica has started again", "replica", h.name)
		x.forget(p, 0)
		p = nil
	}
	if p == nil {
		p = &peer{name: h.name, life: h.life, chains: received{known: generations[[]block.Hash]{most: 2 * mostCheckpoints}}}
		x.byName[h.name] = p
		x.log.Info("a replica was found", "replica", h.name)
	}
	return p
}

// follow notes that a record has come, and finds out whether one before it has not.
func (x *inbox) follow(p *peer, h *header) {
	first := p.number == 0
	missed := !first && h.number != p.number+1
	p.number, p.heard, p.waiting = h.number, x.now(), h.waiting
	switch {
	case missed:
		x.metrics.gaps.Inc()
		x.log.Warn("records of a replica are missing; it is asked to tell everything again", "replica", h.name)
		x.miss(p)
	case first && h.marks&markBegin == 0 && h.number > 1:
		x.miss(p)
	}
}

// miss notes that something of a replica is not known, and asks for it.
func (x *inbox) miss(p *peer) {
	p.whole, p.open = false, false
	x.ask()
}

// ask asks all replicas to tell all, if they were not asked just now; look asks again.
func (x *inbox) ask() {
	if now := x.now(); now.Sub(x.asked) >= again {
		x.asked = now
		x.hello()
	}
}

func (x *inbox) begin(p *peer, h *header) {
	p.open = true
	x.target.Begin(h.name)
	if len(h.learnt) > 0 {
		x.target.Learn(h.name, h.learnt)
	}
}

// forget drops a replica.
func (x *inbox) forget(p *peer, kept time.Duration) {
	delete(x.byName, p.name)
	x.target.Gone(p.name, kept)
}

// elsewhere tells what waits at all replicas that are heard.
func (x *inbox) elsewhere() {
	var sum Waiting
	for _, p := range x.byName {
		sum.add(p.waiting)
	}
	x.target.Elsewhere(sum)
}

// joined notes that records may have been missed, of anybody.
func (x *inbox) joined() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.byName {
		p.whole, p.open = false, false
	}
	x.asked = x.now()
	x.hello()
}

// look drops replicas that were not heard for a lease, and asks again where an answer has not come.
func (x *inbox) look() {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.now()
	for _, name := range slices.Sorted(maps.Keys(x.byName)) {
		if p := x.byName[name]; now.Sub(p.heard) > x.lease {
			x.metrics.expired.Inc()
			x.log.Warn("a replica is not heard any more: what it had under way does not count", "replica", name,
				"lease", x.lease.String())
			x.forget(p, 0)
			x.elsewhere()
		} else if !p.whole {
			x.ask()
		}
	}
}

// Peer is another replica, as this one sees it.
type Peer struct {
	Name  string
	Heard time.Time // when it was heard last
	Whole bool      // all that it has under way is known
}

// peers lists them by name.
func (x *inbox) peers() []Peer {
	x.mu.Lock()
	defer x.mu.Unlock()
	var all []Peer
	for _, p := range x.byName {
		all = append(all, Peer{Name: p.name, Heard: p.heard, Whole: p.whole})
	}
	slices.SortFunc(all, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return all
}
