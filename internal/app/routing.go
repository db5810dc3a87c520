package app

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"attache/internal/admin"
	"attache/internal/config"
	"attache/internal/router"
	"attache/internal/state"
	"attache/internal/worker"
)

// recentSeconds is how far back the dashboard's charts reach.
const recentSeconds = 300

// windows are the recent figures: of everything, and of each pool.
type windows struct {
	all   *admin.Window
	pools map[string]*admin.Window
}

// both tells two windows.
type both struct{ a, b *admin.Window }

func (w both) Decided(prompt, available, captured int) {
	w.a.Decided(prompt, available, captured)
	w.b.Decided(prompt, available, captured)
}
func (w both) Failed()                       { w.a.Failed(); w.b.Failed() }
func (w both) FirstToken(ttft time.Duration) { w.a.FirstToken(ttft); w.b.FirstToken(ttft) }
func (w both) Delivered(prompt, cached int) {
	w.a.Delivered(prompt, cached)
	w.b.Delivered(prompt, cached)
}

// routerModule is the use case.
var routerModule = fx.Module("router",
	fx.Provide(func(cfg *config.Config, now func() time.Time) *windows {
		w := &windows{all: admin.NewWindow(recentSeconds, now), pools: map[string]*admin.Window{}}
		for _, pool := range cfg.Pools {
			w.pools[pool.Name] = admin.NewWindow(recentSeconds, now)
		}
		return w
	}),
	fx.Provide(func(cfg *config.Config, registry *worker.Registry, w *windows, now func() time.Time, log *slog.Logger,
		reg prometheus.Registerer, observer router.Observer, keeper router.Keeper, store state.Store) (*router.Router, error) {
		var blobs router.Blobs // a store of this process alone is of no use after it
		if cfg.Redis.Enabled() {
			blobs = store
		}
		return router.New(router.Params{
			Config: cfg.Router, Pools: cfg.PoolConfigs(), Replica: cfg.Replica, Workers: registry, Now: now,
			Log: log.With("component", "router"), Metrics: reg,
			Observer: observer, Keeper: keeper, Keeps: router.Keeps{Prompts: cfg.Warm.Keepalive, Next: cfg.Warm.SpeculativePrefill},
			Blobs: blobs,
			Watch: func(pool string) router.Watcher { return both{w.all, w.pools[pool]} },
		})
	}),
	fx.Invoke(func(lc fx.Lifecycle, shutdown fx.Shutdowner, log *slog.Logger, registry *worker.Registry, r *router.Router) {
		registry.CountInFlight(r.InFlight)
		registry.Observe(r.Observe)
		running(lc, shutdown, log, "router", r.Run)
	}),
)
