package app

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"attache/internal/config"
	"attache/internal/worker"
)

// workersModule is the registry and what feeds it: the addresses in the configuration and the watched files.
var workersModule = fx.Module("workers",
	fx.Provide(func(cfg *config.Config, log *slog.Logger, reg prometheus.Registerer) (*worker.Registry, error) {
		return worker.New(cfg.Workers, log.With("component", "workers"), reg)
	}),
	fx.Provide(worker.NewSources),
	fx.Invoke(func(lc fx.Lifecycle, shutdown fx.Shutdowner, cfg *config.Config, registry *worker.Registry, sources *worker.Sources, log *slog.Logger) error {
		commit, err := sources.Prepare(sourcesOf(cfg))
		if err != nil {
			return err
		}
		commit()
		running(lc, shutdown, log, "workers", registry.Run)
		running(lc, shutdown, log, "workers files", sources.Run)
		return nil
	}),
)

// sourcesOf are where the workers of every pool come from.
func sourcesOf(cfg *config.Config) []worker.Source {
	all := make([]worker.Source, len(cfg.Pools))
	for i, p := range cfg.Pools {
		all[i] = worker.Source{Pool: p.Name, Engine: p.Engine, Addresses: p.Workers, File: p.WorkersFile}
	}
	return all
}
