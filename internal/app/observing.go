package app

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"attache/internal/config"
	"attache/internal/router"
	"attache/internal/tracing"
)

// tracingModule is who is told of requests that are over: nobody, unless a collector is configured. It stops after the others, so that
// the last requests are told of, too.
var tracingModule = fx.Module("tracing",
	fx.Provide(func(lc fx.Lifecycle, shutdown fx.Shutdowner, cfg *config.Config, opts Options, log *slog.Logger,
		reg prometheus.Registerer) (*tracing.Tracer, error) {
		if !cfg.Tracing.Enabled() {
			return nil, nil //nolint:nilnil // nobody is one of the answers
		}
		t, err := tracing.New(tracing.Params{
			Config: cfg.Tracing, Replica: cfg.Replica, Version: opts.Version, Log: log.With("component", "tracing"), Metrics: reg,
		})
		if err != nil {
			return nil, err
		}
		running(lc, shutdown, log, "tracing", t.Run)
		return t, nil
	}),
	fx.Provide(func(t *tracing.Tracer) router.Observer {
		if t == nil {
			return nil
		}
		return t
	}),
)
