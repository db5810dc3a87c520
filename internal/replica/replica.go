package replica

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Pool is one pool's share in what the replicas tell each other. Safe for concurrent use.
type Pool struct {
	cfg    Config
	outbox outbox
	sender sender
	inbox  inbox
	link   Link
	log    *slog.Logger

	mu   sync.Mutex // guards what follows
	down error      // why the others cannot be reached; nil: they can
}

// Params are what a Pool needs.
type Params struct {
	Config  Config
	Name    string // of this replica; each has its own
	Link    Link
	Source  Source
	Target  Target
	Now     func() time.Time
	Log     *slog.Logger          // with the pool's name
	Metrics prometheus.Registerer // with the pool's label
}

// New makes a pool's share. The configuration must be valid.
func New(p Params) (*Pool, error) {
	o := &Pool{cfg: p.Config, link: p.Link, log: p.Log}
	m, err := newMetrics(p.Metrics, o)
	if err != nil {
		return nil, err
	}
	life := uint64(p.Now().UnixNano())
	o.outbox = outbox{name: p.Name, life: life, wake: make(chan struct{}, 1), sent: sent{known: generations[struct{}]{most: mostCheckpoints}}}
	o.sender = sender{outbox: &o.outbox, link: p.Link, source: p.Source, gather: p.Config.Batch, heartbeat: p.Config.Heartbeat, metrics: m}
	o.inbox = inbox{
		name: p.Name, life: life, lease: p.Config.Lease, now: p.Now, target: p.Target, log: p.Log, metrics: m, byName: map[string]*peer{},
		hello: func() { o.outbox.want(true, false) }, told: func() { o.outbox.want(false, true) },
	}
	return o, nil
}

// Share tells the other replicas of a change. It takes about a microsecond, never waits, and keeps nothing of d.
func (o *Pool) Share(d *Delta) { o.outbox.share(d) }

// Peers are the other replicas that are heard, by name.
func (o *Pool) Peers() []Peer { return o.inbox.peers() }

// Down is why the others cannot be reached; nil when they can.
func (o *Pool) Down() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.down
}

// Run tells and hears until ctx ends; then it tells the others that this replica has left.
func (o *Pool) Run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { o.sender.run(ctx) })
	running.Go(func() { o.follow(ctx) })
	look := time.NewTicker(min(o.cfg.Heartbeat, o.cfg.Lease/4))
	defer look.Stop()
	for {
		select {
		case <-look.C:
			o.inbox.look()
			continue
		case <-ctx.Done():
		}
		break
	}
	running.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := o.sender.leave(last, o.cfg.Handover); err != nil {
		o.log.Warn("the other replicas could not be told that this one leaves; they notice it by its silence", "error", err)
	}
	return nil
}

// follow hears the others until ctx ends.
func (o *Pool) follow(ctx context.Context) {
	o.link.Follow(ctx, Events{
		Joined:    func() { o.note(nil); o.inbox.joined() },
		Delivered: func(record []byte) { o.note(nil); o.inbox.deliver(record) },
		Lost:      o.note,
	})
}

// note keeps whether the others can be reached, and tells of a change.
func (o *Pool) note(err error) {
	o.mu.Lock()
	before := o.down
	o.down = err
	o.mu.Unlock()
	switch {
	case err != nil && before == nil:
		o.log.Error("the other replicas cannot be reached: this one decides by what it knows itself", "error", err)
	case err == nil && before != nil:
		o.log.Info("the other replicas can be reached again")
	}
	up := 1.0
	if err != nil {
		up = 0
	}
	o.sender.metrics.up.Set(up)
}
