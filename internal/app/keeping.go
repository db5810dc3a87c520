package app

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"attache/envoy"
	"attache/internal/config"
	"attache/internal/router"
	"attache/internal/warm"
	"attache/internal/worker"
)

// warmModule is who keeps prompts in the caches of engines: nobody, unless that is configured.
var warmModule = fx.Module("warm",
	fx.Provide(func(lc fx.Lifecycle, shutdown fx.Shutdowner, cfg *config.Config, registry *worker.Registry, now func() time.Time,
		log *slog.Logger, reg prometheus.Registerer) (router.Keeper, error) {
		if !cfg.Warm.Enabled() {
			return nil, nil //nolint:nilnil // nobody is one of the answers
		}
		k, err := warm.New(warm.Params{
			Config: cfg.Warm, Workers: registry, RankHeader: envoy.RankHeader, Now: now, Log: log.With("component", "warm"), Metrics: reg,
		})
		if err != nil {
			return nil, err
		}
		running(lc, shutdown, log, "warm", k.Run)
		return k, nil
	}),
)
