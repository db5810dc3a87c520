package app

import (
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
	fx.Provide(worker.NewConfigured),
	fx.Invoke(func(lc fx.Lifecycle, shutdown fx.Shutdowner, cfg *config.Config, registry *worker.Registry, sources *worker.Configured, log *slog.Logger) error {
		commit, err := sources.Prepare(sourcesOf(cfg))
		if err != nil {
			return err
		}
		commit()
		running(lc, shutdown, log, "workers", registry.Run)
		running(lc, shutdown, log, "workers files", sources.Run)
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

// sourcesOf are where the workers of every pool come from.
func sourcesOf(cfg *config.Config) []worker.ConfiguredPool {
	all := make([]worker.ConfiguredPool, len(cfg.Pools))
	for i, p := range cfg.Pools {
		all[i] = worker.ConfiguredPool{Pool: p.Name, Engine: p.Engine, Addresses: p.Workers, File: p.WorkersFile}
	}
	return all
}
