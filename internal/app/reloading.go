package app

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"attache/extproc"
	"attache/internal/config"
	"attache/internal/reload"
	"attache/internal/router"
	"attache/internal/tracing"
	"attache/internal/worker"
)

// reloadModule is the configuration in effect, and what follows when its file changes.
var reloadModule = fx.Module("configuration",
	fx.Provide(func(cfg *config.Config, opts Options, now func() time.Time, log *slog.Logger, reg prometheus.Registerer) (*reload.Reloader, error) {
		return reload.New(reload.Params{Config: cfg, File: opts.File, Now: now, Log: log.With("component", "configuration"), Metrics: reg})
	}),
	fx.Invoke(func(lc fx.Lifecycle, shutdown fx.Shutdowner, log *slog.Logger, opts Options, r *reload.Reloader, to configured) {
		r.OnChange(func(cfg *config.Config) (commit func(), err error) { return to.prepare(cfg, opts.Level) })
		running(lc, shutdown, log, "configuration", r.Run)
	}),
)

// configured are the components that take another configuration while they run.
type configured struct {
	fx.In

	Sources  *worker.Configured
	Registry *worker.Registry
	Router   *router.Router
	ExtProc  *extproc.Server
	Tracer   *tracing.Tracer // nil: nothing is traced
}

// prepare does all that can fail: looking workers up. What commit does was validated with the configuration. The log keeps its level if that
// is nil.
func (c configured) prepare(cfg *config.Config, level *slog.LevelVar) (commit func(), err error) {
	workers, err := c.Sources.Prepare(sourcesOf(cfg))
	if err != nil {
		return nil, err
	}
	return func() {
		if level != nil {
			level.Set(cfg.Log.SlogLevel())
		}
		must(c.Registry.Reconfigure(cfg.Workers))
		workers()
		must(c.Router.Reconfigure(cfg.Router, cfg.PoolConfigs()))
		c.ExtProc.Reconfigure(cfg.ExtProc)
		if c.Tracer != nil {
			c.Tracer.Reconfigure(cfg.Tracing)
		}
	}, nil
}

// must is for what cannot fail.
func must(err error) {
	if err != nil {
		panic("a configuration that was validated is refused: " + err.Error())
	}
}
