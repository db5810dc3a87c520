package app

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"attache/internal/admin"
	"attache/internal/config"
	"attache/internal/reload"
	"attache/internal/router"
	"attache/internal/worker"
	"attache/internal/worker/register"
	"attache/xds"
)

// adminModule is the operator's side.
var adminModule = fx.Module("admin",
	fx.Provide(
		func() *atomic.Bool { return new(atomic.Bool) }, // whether ext_proc takes requests
		func(opts Options, configured *reload.Reloader, registry *worker.Registry, r *router.Router, control *xds.Server, w *windows,
			serving *atomic.Bool, shared *sharing, registrations *register.Registrations) *source {
			return &source{configured: configured, version: opts.Version, started: time.Now(), registry: registry, router: r, control: control,
				windows: w, serving: serving, sharing: shared, registrations: registrations}
		},
		func(cfg *config.Config, src *source, log *slog.Logger, gatherer prometheus.Gatherer) (*admin.Server, error) {
			return admin.New(cfg.Admin, src, log.With("component", "admin"), gatherer)
		},
	),
	fx.Invoke(func(lc fx.Lifecycle, shutdown fx.Shutdowner, log *slog.Logger, s *admin.Server) {
		running(lc, shutdown, log, "admin", s.Run)
	}),
)
