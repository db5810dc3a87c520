// Package app wires attache together, and is the only place that knows the wiring framework. It decides nothing: every
// component has an ordinary constructor and a Run, and works without this package.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/dig"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"attache/internal/config"
	"attache/internal/reload"
)

// Options are what a process tells its components besides the configuration.
type Options struct {
	Version string
	Log     *slog.Logger
	// Level is that of Log, which follows the configuration; nil: it stays as it is.
	Level *slog.LevelVar
	// File is where the configuration came from, which is followed; nil: from nowhere.
	File *reload.File
}

// Addrs are where the listeners are bound; port 0 in the configuration becomes a port here.
type Addrs struct {
	ExtProc, XDS, Admin net.Addr
}

// App is one attache process in the making.
type App struct {
	fx     *fx.App
	addrs  Addrs
	config *reload.Reloader
}

// modules in the order in which they start; they stop in reverse, so that running requests finish while everything
// they need is still there.
func modules() fx.Option {
	return fx.Options(
		stateModule,        // what replicas share
		workersModule,      // who serves, in what state
		tracingModule,      // who is told of requests that are over
		warmModule,         // who keeps prompts for their next request
		routerModule,       // who should answer
		registrationModule, // who serves by their own word
		sharingModule,      // what the other replicas know
		controlModule,      // what Envoy knows
		adminModule,        // what operators see
		reloadModule,       // what is configured
		extprocModule,      // what Envoy asks
	)
}

// New builds every component and opens the listeners. The configuration must be valid.
func New(cfg *config.Config, opts Options) (*App, error) {
	a := &App{}
	a.fx = fx.New(a.options(cfg, opts))
	return a, dig.RootCause(a.fx.Err()) // what the component said; the way it was wired there helps nobody
}

func (a *App) options(cfg *config.Config, opts Options) fx.Option {
	if cfg.Replica == "" {
		cfg.Replica = replicaName()
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(opts.Version))
	return fx.Options(
		fx.Supply(cfg, opts, opts.Log, fx.Annotate(reg, fx.As(new(prometheus.Registerer)), fx.As(new(prometheus.Gatherer)))),
		fx.Provide(func() func() time.Time { return time.Now }),
		fx.WithLogger(func() fxevent.Logger {
			l := &fxevent.SlogLogger{Logger: opts.Log}
			l.UseLogLevel(slog.LevelDebug)
			l.UseErrorLevel(slog.LevelDebug) // whoever started the process reports the error, once
			return l
		}),
		fx.Invoke(func() { tuneRuntime(cfg.Runtime, opts.Log) }),
		modules(),
		fx.Populate(&a.addrs, &a.config),
	)
}

// Start starts every component.
func (a *App) Start(ctx context.Context) error { return a.fx.Start(ctx) }

// others is how long all that comes after the drain may take.
const others = 15 * time.Second

// Stop drains and stops every component, in reverse order, within the drain's wait and timeout and 15 s more.
func (a *App) Stop() error {
	drain := a.config.Config().ExtProc
	ctx, cancel := context.WithTimeout(context.Background(), drain.DrainWait+drain.DrainTimeout+others)
	defer cancel()
	return a.fx.Stop(ctx)
}

// Failed delivers once when a component has ended by itself.
func (a *App) Failed() <-chan fx.ShutdownSignal { return a.fx.Wait() }

// Addrs are where the listeners are bound.
func (a *App) Addrs() Addrs { return a.addrs }

// Run runs attache until ctx ends or a component fails.
func Run(ctx context.Context, cfg *config.Config, opts Options) error {
	a, err := New(cfg, opts)
	if err != nil {
		return err
	}
	failed := a.Failed()
	if err := a.Start(ctx); err != nil {
		return err
	}
	opts.Log.Info("attache serves", "version", opts.Version, "replica", cfg.Replica, "extproc", a.addrs.ExtProc.String(),
		"xds", a.addrs.XDS.String(), "dashboard", "http://"+a.addrs.Admin.String())
	var cause error
	select {
	case <-ctx.Done():
		opts.Log.Info("attache drains", "wait", a.config.Config().ExtProc.DrainWait.String(), "at_most", a.config.Config().ExtProc.DrainTimeout.String())
	case signal := <-failed:
		if signal.ExitCode != 0 {
			cause = errComponent
		}
	}
	if err := a.Stop(); err != nil {
		return err
	}
	opts.Log.Info("attache has stopped")
	return cause
}

var errComponent = errors.New("a component failed; the log says which")

// running turns a component's Run into lifecycle hooks. A component that ends by itself ends the process.
func running(lc fx.Lifecycle, shutdown fx.Shutdowner, log *slog.Logger, name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	lc.Append(fx.Hook{
		OnStart: func(context.Context) error {
			go func() {
				defer close(done)
				if err := run(ctx); err != nil && ctx.Err() == nil {
					log.Error("a component failed", "component", name, "error", err)
					_ = shutdown.Shutdown(fx.ExitCode(1))
				}
			}()
			return nil
		},
		OnStop: func(stop context.Context) error {
			cancel()
			select {
			case <-done:
				log.Debug("a component has stopped", "component", name)
				return nil
			case <-stop.Done():
				return fmt.Errorf("%s did not stop in time", name)
			}
		},
	})
}

// NewLogger makes the process's logger, and what changes its level.
func NewLogger(cfg config.Log, to io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(cfg.SlogLevel())
	options := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(to, options)), level
	}
	return slog.New(slog.NewTextHandler(to, options)), level
}

// replicaName is the host's name without dots; they separate the parts of a decision's id.
func replicaName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		return "attache"
	}
	for i, c := range host {
		if c == '.' {
			return host[:i]
		}
	}
	return host
}

func buildInfo(version string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "attache_build_info", Help: "1, labelled with the version.",
		ConstLabels: prometheus.Labels{"version": version}})
	g.Set(1)
	return g
}
