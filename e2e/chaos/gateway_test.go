package chaos

import (
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
	cfg.SnapshotDir, cfg.SnapshotInterval = g.dir, haste*time.Second
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
	g.current.Store(l)
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
	g.stop = func() {
		stop()
		<-ended
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
	path := filepath.Join(g.dir, "pool.index")
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
