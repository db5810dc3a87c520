package app

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"
	"google.golang.org/grpc"

	"attache/extproc"
	"attache/extproc/accesslog"
	"attache/internal/admin"
	"attache/internal/config"
	"attache/internal/router"
	"attache/internal/worker"
	"attache/xds"
)

// extprocModule is what Envoy asks, and what Envoy tells afterwards, on one port.
var extprocModule = fx.Module("extproc",
	fx.Provide(func(cfg *config.Config, r *router.Router, log *slog.Logger, reg prometheus.Registerer, now func() time.Time,
		serving *atomic.Bool) (*extproc.Server, error) {
		if !cfg.Tracing.Enabled() && !cfg.ExtProc.ResponseHeaders.Timing() {
			now = nil // nobody looks
		}
		logs := accesslog.New(r, log.With("component", "accesslog"), reg)
		return extproc.New(extproc.Params{
			Config: cfg.ExtProc, Router: r, DefaultPool: cfg.Pools[0].Name,
			Gateway: extproc.Gateway{MessageTimeout: cfg.XDS.Gateway.MessageTimeout, MaxMessageTimeout: cfg.XDS.Gateway.MaxMessageTimeout},
			Log:     log.With("component", "extproc"), Metrics: reg, Now: now, Ready: serving.Store,
			Register: []func(grpc.ServiceRegistrar){logs.Register},
		})
	}),
	fx.Provide(func(e *extproc.Server, c *xds.Server, a *admin.Server) Addrs {
		return Addrs{ExtProc: e.Addr(), XDS: c.Addr(), Admin: a.Addr()}
	}),
	fx.Invoke(func(lc fx.Lifecycle, shutdown fx.Shutdowner, log *slog.Logger, s *extproc.Server, registry *worker.Registry) {
		running(lc, shutdown, log, "extproc", func(ctx context.Context) error {
			var looking sync.WaitGroup
			looking.Go(func() { becomeReady(ctx, registry, func() { s.SetReady(true) }) })
			defer looking.Wait()
			return s.Run(ctx)
		})
	}),
)

// firstLook is how long the first health checks may hold readiness back: a worker that never answers must not keep the
// others from being used.
const firstLook = 2 * time.Second

// becomeReady waits until every known worker was looked at once.
func becomeReady(ctx context.Context, registry *worker.Registry, ready func()) {
	deadline := time.After(firstLook)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		starting := false
		for _, w := range registry.Set().All() {
			starting = starting || w.State == worker.Starting
		}
		if !starting {
			ready()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-deadline:
			ready()
			return
		case <-tick.C:
		}
	}
}
