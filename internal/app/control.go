package app

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"attache/internal/config"
	"attache/internal/worker"
	"attache/xds"
)

// controlModule is what Envoy knows.
var controlModule = fx.Module("xds",
	fx.Provide(func(cfg *config.Config, registry *worker.Registry, log *slog.Logger, reg prometheus.Registerer, now func() time.Time) (*xds.Server, error) {
		var pools []string
		for _, p := range cfg.Pools {
			pools = append(pools, p.Name)
		}
		return xds.New(xds.Params{Config: cfg.XDS, Pools: pools, Registry: registry, Log: log.With("component", "xds"), Metrics: reg, Now: now,
			AnswerHeaders: cfg.ExtProc.ResponseHeaders.Any(), AnswerBodies: cfg.Warm.SpeculativePrefill})
	}),
	fx.Invoke(func(lc fx.Lifecycle, shutdown fx.Shutdowner, log *slog.Logger, s *xds.Server) {
		running(lc, shutdown, log, "xds", s.Run)
	}),
)
