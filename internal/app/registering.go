package app

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"attache/internal/admin"
	"attache/internal/config"
	"attache/internal/router"
	"attache/internal/state"
	"attache/internal/worker"
	"attache/internal/worker/register"
)

// registrationModule is who takes in workers that register themselves: nobody, unless that is configured.
var registrationModule = fx.Module("registration",
	fx.Provide(
		func(cfg *config.Config, store state.Store) register.Store {
			if cfg.Redis.Enabled() {
				return leases{store}
			}
			return register.NewLocal()
		},
		func(cfg *config.Config, store register.Store, registry *worker.Registry, r *router.Router, log *slog.Logger,
			reg prometheus.Registerer) (*register.Registrations, error) {
			var pools []register.Pool
			for _, p := range cfg.Pools {
				pools = append(pools, register.Pool{Name: p.Name, Models: p.Models})
			}
			return register.New(register.Params{
				Config: cfg.Workers.Registration, Pools: pools, Store: store, Registry: registry, Log: log.With("component", "registration"),
				Metrics: reg, InFlight: func(addr netip.AddrPort) int { return inFlight(registry, r, addr) },
			})
		},
	),
	fx.Invoke(func(lc fx.Lifecycle, shutdown fx.Shutdowner, log *slog.Logger, r *register.Registrations) {
		running(lc, shutdown, log, "registration", r.Run)
	}),
)

func inFlight(registry *worker.Registry, r *router.Router, addr netip.AddrPort) (n int) {
	w := registry.Set().ByAddr(addr)
	if w == nil {
		return 0
	}
	for _, s := range w.Slots() {
		n += r.Worker(w.Pool, w.Name, s).InFlight
	}
	return n
}

// lease shows how long a worker that registered itself stays; nil for others.
func lease(held map[netip.AddrPort]register.Held, w *worker.Worker, now time.Time) *admin.Lease {
	h, registered := held[w.Addr]
	if !registered || w.Source != register.Source {
		return nil
	}
	return &admin.Lease{
		RegisteredAt: h.Since, TTLS: admin.Seconds(h.TTL), LeftS: admin.Seconds(h.Left), HeartbeatAgeS: admin.Seconds(now.Sub(h.Beat)),
		Draining: h.Draining, Models: append([]string{}, h.Models...), Capacity: h.Capacity, Load: h.Load,
	}
}

// departed are the workers that left, as operators see them for a while.
func departed(registry *worker.Registry) (gone []admin.Worker) {
	for _, d := range registry.Departed() {
		gone = append(gone, admin.Worker{
			Name: d.Name, Pool: d.Pool, Address: d.Addr.String(), Engine: string(d.Engine), State: string(worker.Gone), Cause: d.Cause, Since: d.At,
			Source: d.Source,
		})
	}
	return gone
}
