package chaos

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/indexer/events"
)

// gateway is the process that follows the engines of a pool, as far as its ledger goes; it can be restarted.
type gateway struct {
	world *world
	pool  int    // tokens of a block
	dir   string // of snapshots
	now   func() time.Time
	log   *slog.Logger

	turn    sync.Mutex // held while the ledger is changed
	current atomic.Pointer[events.Ledger]
	stop    func() // and wait; guarded by turn
}

func (g *gateway) ledger() *events.Ledger { return g.current.Load() }

// make begins with a ledger that knows nothing and follows nobody yet.
func (g *gateway) make() {
	cfg := events.DefaultConfig()
	cfg.ReplayTimeout, cfg.VerifyInterval, cfg.Grace = 500*time.Millisecond, 4*time.Second, 2*time.Second
	cfg.Socket.Timeout, cfg.Socket.HeartbeatInterval, cfg.Socket.HeartbeatTimeout = time.Second, 200*time.Millisecond, 500*time.Millisecond
	cfg.Socket.MinPause, cfg.Socket.MaxPause = 10*time.Millisecond, 100*time.Millisecond
	l, err := events.New(events.Params{
		Config: cfg, Source: events.PoolConfig{Pull: true}, Pool: "pool", BlockTokens: g.pool, Log: g.log, Now: g.now,
		Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		g.world.t.Error(err)
		return
	}
	g.restore(l)
	g.current.Store(l)
}

func (g *gateway) path() string { return filepath.Join(g.dir, "pool.index") }

// restore begins with the snapshot that was kept last.
func (g *gateway) restore(l *events.Ledger) {
	saved, err := os.ReadFile(g.path())
	if err != nil {
		return
	}
	if err := l.Restore(bytes.NewReader(saved)); err != nil {
		g.log.Warn("the snapshot of the index cannot be used", "error", err)
		return
	}
	g.log.Info("the index was read from a snapshot", "blocks", l.Stats().Held)
}

// keep saves what is known, unless that is less than what was.
func (g *gateway) keep(l *events.Ledger) {
	if l.Waiting() {
		return
	}
	var b bytes.Buffer
	if _, err := l.Freeze().WriteTo(&b); err != nil {
		g.world.t.Error(err)
	}
	if err := os.WriteFile(g.path(), b.Bytes(), 0o600); err != nil {
		g.world.t.Error(err)
	}
}

// run follows the workers of the pool until stop is called.
func (g *gateway) run() {
	l := g.ledger()
	g.world.telling.Lock()
	l.Observe(g.world.set(g))
	g.world.telling.Unlock()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = l.Run(ctx)
	}()
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		for tick := time.NewTicker(haste * time.Second); ; {
			select {
			case <-tick.C:
				g.keep(l)
			case <-ended:
				g.keep(l)
				return
			}
		}
	}()
	g.stop = func() {
		stop()
		<-ended
		<-kept
	}
}

// restart ends the ledger and begins another one, from the snapshot just made, from an older one as after a crash, or from one that
// was damaged.
func (g *gateway) restart(ctx context.Context, rng *rand.Rand) {
	g.turn.Lock()
	defer g.turn.Unlock()
	for _, n := range g.world.nodes {
		if n.gateway != g {
			continue
		}
		g.world.collect(n)
		if n.pulled() || n.ring > 0 || !n.replay {
			n.stain() // what it told the one before is lost for the next
		}
	}
	path := g.path()
	before, _ := os.ReadFile(path)
	g.stop()
	switch rng.IntN(4) {
	case 0, 1:
	case 2:
		_ = os.WriteFile(path, before, 0o600)
	default:
		if saved, err := os.ReadFile(path); err == nil && len(saved) > 20 {
			saved[10+rng.IntN(len(saved)-10)] ^= 1 << rng.IntN(8)
			_ = os.WriteFile(path, saved, 0o600)
		}
	}
	pause(ctx, between(rng, 0, 500))
	g.make()
	g.run()
}
