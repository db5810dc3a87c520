// Package reload brings a changed configuration file into effect while the process runs.
//
// A file that changes is read, judged and merged: what a running process takes of it (config.Live) goes over into the components, all
// or nothing; what it does not take waits for a restart, and is said. A file that is bad changes nothing.
package reload

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/config"
	"attache/internal/watch"
)

// Reloader holds the configuration in effect. Its methods are safe for concurrent use.
type Reloader struct {
	p       Params
	watched *watch.File // nil: there is no file
	state   atomic.Pointer[State]
	metrics *metrics
	apply   func(*config.Config) (commit func(), err error)
}

// Params are the collaborators of a Reloader.
type Params struct {
	// Config is what the process was started with; it must not be changed any more.
	Config *config.Config
	// File is where it came from; nil: from flags alone, and nothing is ever read again.
	File    *File
	Now     func() time.Time
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// File is a configuration file.
type File struct {
	Path string
	// Text is what was read of it at the start.
	Text []byte
	// Parse turns text into a valid configuration, with what the command line says on top.
	Parse func(text []byte) (*config.Config, error)
	// Again has the file read again whenever something comes, changed or not; nil: only when it has changed.
	Again <-chan struct{}
}

// State is what is in effect, and what is not. It does not change.
type State struct {
	Config *config.Config
	// Waiting are the changes of the file that need a restart.
	Waiting []config.Change
	// Mistake is why the file as it is now is not in effect; nil: it is, as far as it can be.
	Mistake error
}

// maxFile bounds a configuration file, in bytes.
const maxFile = 4 << 20

// New makes a reloader, and begins to watch the file if there is one. Nothing is applied before Run.
func New(p Params) (*Reloader, error) {
	r := &Reloader{p: p}
	r.state.Store(&State{Config: p.Config})
	r.metrics = newMetrics(p.Metrics)
	r.metrics.applied(p.Now(), nil)
	if p.File == nil {
		return r, nil
	}
	text := p.File.Text
	if text == nil {
		text = []byte{}
	}
	var err error
	r.watched, err = watch.Open(watch.Params{Path: p.File.Path, Most: maxFile, Text: text, Take: r.take, Told: r.told, Log: p.Log})
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return r, nil
}

// Config is the configuration in effect. It must not be changed.
func (r *Reloader) Config() *config.Config { return r.State().Config }

// State is what is in effect, and what is not.
func (r *Reloader) State() *State { return r.state.Load() }

// File is the path of the configuration file; "" when there is none.
func (r *Reloader) File() string {
	if r.p.File == nil {
		return ""
	}
	return r.p.File.Path
}

// OnChange says who brings a configuration into effect. prepare does all that can fail, and changes nothing; commit changes everything,
// at once. It must be called before Run.
func (r *Reloader) OnChange(prepare func(*config.Config) (commit func(), err error)) {
	r.apply = prepare
}

// Run follows the file until ctx ends.
func (r *Reloader) Run(ctx context.Context) error {
	if r.watched == nil {
		<-ctx.Done()
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- r.watched.Run(ctx) }()
	for {
		select {
		case <-r.p.File.Again:
			r.watched.Again()
		case err := <-ended:
			return err
		}
	}
}

// take brings a text into effect. The error says why nothing has changed.
func (r *Reloader) take(text []byte) error {
	if len(text) > maxFile {
		return fmt.Errorf("%s: must be at most %d MiB", r.p.File.Path, maxFile>>20)
	}
	next, err := r.p.File.Parse(text)
	if err != nil {
		return err
	}
	running := r.Config()
	merged, err := config.Merge(running, next)
	if err != nil {
		return fmt.Errorf("%s: %w", r.p.File.Path, err)
	}
	commit, err := r.apply(merged)
	if err != nil {
		return fmt.Errorf("%s: %w", r.p.File.Path, err)
	}
	commit()
	waiting := config.Changes(merged, next)
	r.state.Store(&State{Config: merged, Waiting: waiting})
	r.metrics.applied(r.p.Now(), waiting)
	var changed []string
	for _, c := range config.Changes(running, merged) {
		changed = append(changed, c.String())
	}
	r.p.Log.Info("the configuration file is in effect", "file", r.p.File.Path, "changed", strings.Join(changed, "; "))
	if len(waiting) > 0 {
		r.p.Log.Warn("what was changed in the configuration file needs a restart", "file", r.p.File.Path,
			"settings", strings.Join(config.Restarts(waiting), ", "))
	}
	return nil
}

// told takes in that the file is bad, or that it is good again: then it says what is in effect already.
func (r *Reloader) told(err error) {
	state := *r.State()
	if state.Mistake = err; err != nil {
		r.p.Log.Error("the configuration file is bad; what ran before goes on", "file", r.p.File.Path, "error", err)
	}
	r.state.Store(&state)
	r.metrics.told(err)
}

// metrics are the reloader's figures, named as Prometheus names its own.
type metrics struct {
	reloads *prometheus.CounterVec // by result
	good    prometheus.Gauge
	at      prometheus.Gauge
	restart prometheus.Gauge
}

// Results of a reload.
const (
	resultApplied = "applied"
	resultRefused = "refused"
)

func newMetrics(reg prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "attache_config_" + name, Help: help})
	}
	m := &metrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_config_reloads_total",
			Help: "Configuration files taken in, the first one included, and files refused as bad, by result."}, []string{"result"}),
		good:    gauge("last_reload_successful", "1 while the configuration file is in effect, 0 while it is bad and what ran before goes on."),
		at:      gauge("last_reload_success_timestamp_seconds", "When a configuration file was taken in last."),
		restart: gauge("restart_needed", "1 while something in the configuration file waits for a restart."),
	}
	m.reloads.WithLabelValues(resultRefused)
	reg.MustRegister(m.reloads, m.good, m.at, m.restart)
	return m
}

func (m *metrics) applied(now time.Time, waiting []config.Change) {
	m.reloads.WithLabelValues(resultApplied).Inc()
	m.at.Set(float64(now.UnixMilli()) / 1000)
	m.good.Set(1)
	m.restart.Set(0)
	if len(waiting) > 0 {
		m.restart.Set(1)
	}
}

func (m *metrics) told(err error) {
	if err == nil {
		m.good.Set(1)
		return
	}
	m.reloads.WithLabelValues(resultRefused).Inc()
	m.good.Set(0)
}
