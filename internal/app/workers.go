package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"attache/internal/config"
	"attache/internal/worker"
	"attache/internal/worker/discovery/dns"
	"attache/internal/worker/discovery/kubernetes"
)

// workersModule is the registry and what feeds it: the addresses in the configuration, the watched files, and discovery.
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
			source := registry.Source("file/" + pool.Name)
			file, err := worker.OpenFile(worker.FileParams{Path: pool.WorkersFile, Pool: pool.Name, Engine: pool.Engine, Log: log,
				Apply: source.Apply, Good: source.Confirm, Bad: func(err error) { registry.BadFile(err); source.Failed(err) }})
			if err != nil {
				return err
			}
			running(lc, shutdown, log, "workers file "+pool.WorkersFile, func(ctx context.Context) error { return file.Run(ctx) })
		}
		for _, pool := range cfg.Pools {
			for _, c := range pool.Discovery.DNS {
				name := dns.New(dns.Params{Config: c, Pool: pool.Name, Fallback: pool.Engine, Resolver: &net.Resolver{PreferGo: true},
					Source: registry.Source("dns/" + pool.Name + "/" + c.Source())})
				running(lc, shutdown, log, "discovery "+c.Source(), name.Run)
			}
			for _, c := range pool.Discovery.Kubernetes {
				cluster, err := kubernetes.New(kubernetes.Params{Config: c, Pool: pool.Name, Fallback: pool.Engine, EventsPort: pool.Events.Port,
					ReplayPort: pool.Events.ReplayPort, Source: registry.Source("kubernetes/" + pool.Name + "/" + c.Source())})
				if err != nil {
					return fmt.Errorf("pool %s: %w", pool.Name, err)
				}
				running(lc, shutdown, log, "discovery "+c.Source(), cluster.Run)
			}
		}
		return nil
	}),
)
