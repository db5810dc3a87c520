package app

import (
	"context"
	"fmt"
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
	fx.Invoke(func(lc fx.Lifecycle, shutdown fx.Shutdowner, cfg *config.Config, registry *worker.Registry, log *slog.Logger) error {
		for _, pool := range cfg.Pools {
			if len(pool.Workers) == 0 {
				continue
			}
			specs, err := worker.Static(pool.Name, pool.Engine, pool.Workers)
			if err != nil {
				return fmt.Errorf("pool %s: %w", pool.Name, err)
			}
			registry.Apply("static/"+pool.Name, specs)
		}
		running(lc, shutdown, log, "workers", registry.Run)
		for _, pool := range cfg.Pools {
			if pool.WorkersFile == "" {
				continue
			}
			file, err := worker.OpenFile(worker.FileParams{Path: pool.WorkersFile, Pool: pool.Name, Engine: pool.Engine, Log: log, Bad: registry.BadFile,
				Apply: func(specs []worker.Spec) { registry.Apply("file/"+pool.Name, specs) }})
			if err != nil {
				return err
			}
			running(lc, shutdown, log, "workers file "+pool.WorkersFile, func(ctx context.Context) error { return file.Run(ctx) })
		}
		return nil
	}),
)
