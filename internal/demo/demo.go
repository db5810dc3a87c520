// Package demo shows the main job live: simulated engines, attache and a real Envoy on this machine, and the same seeded
// load first by round robin and then by attache.
//
// Both policies go through the same Envoy and the same workers, each by a listener of its own: the baseline's routes to a
// round-robin cluster without ext_proc. The phases follow one another, with the engines' caches emptied in between, so
// that neither profits from the other.
package demo

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"attache/envoy"
	"attache/internal/app"
	"attache/internal/config"
	"attache/internal/proc"
	"attache/internal/sim"
	"attache/xds"
)

// Options are what a user may choose.
type Options struct {
	Duration time.Duration // of each phase
	Engines  int
	JSON     string // file for the results; "" writes none
	Keep     bool   // stay up after the load until ctx ends
	Seed     uint64
	Version  string
	Out      io.Writer
	Terminal bool // Out repaints lines
}

// Result is one policy's figures, as they are written to the JSON file.
type Result struct {
	Policy       string  `json:"policy"`
	Requests     int     `json:"requests"`
	Errors       int     `json:"errors"`
	TTFTMeanS    float64 `json:"ttft_mean_s"`
	TTFTP50S     float64 `json:"ttft_p50_s"`
	TTFTP99S     float64 `json:"ttft_p99_s"`
	CachedShare  float64 `json:"cached_share"`
	RequestsPerS float64 `json:"requests_per_s"`
}

// stage is what runs while the demo does.
type stage struct {
	opts    Options
	dir     string
	engines []*sim.Engine
	app     *app.App
	envoy   *proc.Envoy
	llm     string // addresses of Envoy's listeners
	plain   string
}

// Run plays the demo until it is done or ctx ends. Nothing it started is left behind.
func Run(ctx context.Context, opts Options) error {
	binary, err := proc.FindEnvoy()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "attache-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s := &stage{opts: opts, dir: dir}
	ctx, cancel := context.WithCancel(ctx)
	var engines sync.WaitGroup
	defer engines.Wait()
	defer cancel()

	if err := os.CopyFS(s.dir, model); err != nil {
		return err
	}
	if err := s.startEngines(ctx, &engines); err != nil {
		return err
	}
	if err := s.startAttache(ctx); err != nil {
		return err
	}
	defer func() { _ = s.app.Stop() }()
	bootstrap, err := s.bootstrap()
	if err != nil {
		return err
	}
	if s.envoy, err = proc.StartEnvoy(ctx, binary, dir, bootstrap); err != nil {
		return err
	}
	defer s.envoy.Stop(2 * time.Second)
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.introduce(binary)
	results, err := s.compare(ctx)
	if err != nil {
		return err
	}
	s.printTable(results)
	if err := s.writeJSON(results); err != nil {
		return err
	}
	if opts.Keep {
		s.sayf("\nStill running, because of --keep. Ask it something, then Ctrl-C:\n  curl http://%s/v1/chat/completions -H 'content-type: application/json' \\\n    -d '{\"model\":%q,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}'\n", s.llm, modelName)
		<-ctx.Done()
	}
	return nil
}

const modelName = "demo-model"

// model is a small vocabulary with a chat template: engines and attache make the same tokens with it, as they do with a
// real model's.
//
//go:embed model/tokenizer.json model/tokenizer_config.json model/chat_template.jinja
var model embed.FS

// modelDir is where model is unpacked.
func (s *stage) modelDir() string { return filepath.Join(s.dir, "model") }

func (s *stage) sayf(format string, args ...any) { fmt.Fprintf(s.opts.Out, format, args...) }

func (s *stage) startEngines(ctx context.Context, running *sync.WaitGroup) error {
	quiet := slog.New(slog.DiscardHandler)
	for i := range s.opts.Engines {
		cfg := sim.DemoEngine()
		cfg.Listen, cfg.Name, cfg.Model, cfg.Seed = "127.0.0.1:0", fmt.Sprintf("engine-%d", i+1), modelName, s.opts.Seed+uint64(i)
		cfg.ModelDir, cfg.Events, cfg.Replay = s.modelDir(), "tcp://127.0.0.1:0", "tcp://127.0.0.1:0"
		e, err := sim.New(cfg, quiet)
		if err != nil {
			return err
		}
		s.engines = append(s.engines, e)
		running.Go(func() { _ = e.Run(ctx) })
	}
	return nil
}

// startAttache runs attache in this process, on free ports.
func (s *stage) startAttache(ctx context.Context) error {
	cfg := config.Default()
	cfg.Replica = "demo"
	cfg.ExtProc.Listen, cfg.XDS.Listen, cfg.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.ExtProc.DrainWait, cfg.ExtProc.DrainTimeout = 0, time.Second
	cfg.ExtProc.IncludeUsage = true
	cfg.XDS.Gateway.Listen, cfg.XDS.Gateway.Baseline = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Pools[0].Models = []string{modelName}
	cfg.Pools[0].Prompt.ModelDir = s.modelDir()
	var workers bytes.Buffer
	workers.WriteString("workers:\n")
	for i, e := range s.engines {
		events, replay := e.Endpoints(0)
		fmt.Fprintf(&workers, "- {name: engine-%d, address: %q, events: {endpoint: %q, replay: %q}}\n", i+1, e.Addr(), events, replay)
	}
	cfg.Pools[0].WorkersFile = filepath.Join(s.dir, "workers.yaml")
	if err := os.WriteFile(cfg.Pools[0].WorkersFile, workers.Bytes(), 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.dir, "attache.log"))
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = log.Close() })
	logger, _ := app.NewLogger(config.Log{Level: "warn", Format: "text"}, log)
	if s.app, err = app.New(&cfg, app.Options{Version: s.opts.Version, Log: logger}); err != nil {
		return err
	}
	return s.app.Start(ctx)
}

// bootstrap is what `attache envoy-config --mode ads` prints, for the ports of this run.
func (s *stage) bootstrap() (string, error) {
	a := s.app.Addrs()
	gateway := config.Default().XDS.Gateway
	gateway.Admin = "127.0.0.1:0"
	params, err := xds.GatewayParams(gateway, xds.Reach{ExtProc: []string{a.ExtProc.String()}, XDS: []string{a.XDS.String()}}, nil)
	if err != nil {
		return "", err
	}
	return envoy.Render(envoy.ModeADS, params)
}

// ready waits until both listeners answer.
func (s *stage) ready(ctx context.Context) error {
	var err error
	if s.llm, err = s.envoy.Listener(ctx, envoy.ListenerName); err != nil {
		return err
	}
	if s.plain, err = s.envoy.Listener(ctx, envoy.BaselineListenerName); err != nil {
		return err
	}
	for _, address := range []string{s.plain, s.llm} {
		if err := sim.Await(ctx, "http://"+address, modelName); err != nil {
			return fmt.Errorf("envoy at %s does not serve: %w", address, err)
		}
	}
	return nil
}

func (s *stage) introduce(binary string) {
	s.sayf("attache demo: %d simulated vLLM workers, one real Envoy (%s), attache in between\n", len(s.engines), filepath.Base(filepath.Dir(binary)))
	s.sayf("  gateway    http://%s   (round robin for comparison: http://%s)\n", s.llm, s.plain)
	s.sayf("  dashboard  http://%s\n\n", s.app.Addrs().Admin)
	s.sayf("The same agent-like load twice, %s each: conversations that share long system prompts and grow turn by turn.\n", s.opts.Duration)
}

// conversationsPerEngine keeps the load in proportion to the engines.
const conversationsPerEngine = 12

// compare runs the two phases.
func (s *stage) compare(ctx context.Context) ([]Result, error) {
	var results []Result
	for _, phase := range []struct{ policy, address string }{{"round-robin", s.plain}, {"attache", s.llm}} {
		for _, e := range s.engines {
			e.Reset()
		}
		load := sim.DemoLoad()
		load.Conversations = conversationsPerEngine * len(s.engines)
		load.URL, load.Model, load.Seed, load.Duration = "http://"+phase.address, modelName, s.opts.Seed, s.opts.Duration
		load.Progress = func(p sim.Report) { s.progress(phase.policy, p) }
		report, err := sim.RunLoad(ctx, load)
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, errors.New("interrupted before both policies were measured")
		}
		s.endProgress(phase.policy, report)
		results = append(results, Result{
			Policy: phase.policy, Requests: report.Requests, Errors: report.Errors, TTFTMeanS: report.TTFTMeanS,
			TTFTP50S: report.TTFTP50S, TTFTP99S: report.TTFTP99S, CachedShare: report.CachedShare, RequestsPerS: report.RequestsPerS,
		})
	}
	return results, nil
}

func (s *stage) progress(policy string, p sim.Report) {
	line := progressLine(policy, p)
	if s.opts.Terminal {
		s.sayf("\r\x1b[K%s", line)
		return
	}
	s.sayf("%s\n", line)
}

func (s *stage) endProgress(policy string, p sim.Report) {
	if s.opts.Terminal {
		s.sayf("\r\x1b[K%s\n", progressLine(policy, p))
	}
}

func progressLine(policy string, p sim.Report) string {
	return fmt.Sprintf("  %-12s %5d requests  %5.1f/s  mean TTFT %6.0f ms  cached %3.0f %%  errors %d", policy, p.Requests, p.RequestsPerS,
		p.TTFTMeanS*1000, p.CachedShare*100, p.Errors)
}

func (s *stage) printTable(results []Result) {
	s.sayf("\n%-12s %9s %7s %10s %10s %10s %8s %8s\n", "policy", "requests", "errors", "TTFT mean", "TTFT p50", "TTFT p99", "cached", "req/s")
	for _, r := range results {
		s.sayf("%-12s %9d %7d %7.0f ms %7.0f ms %7.0f ms %6.0f %% %8.1f\n", r.Policy, r.Requests, r.Errors, r.TTFTMeanS*1000, r.TTFTP50S*1000,
			r.TTFTP99S*1000, r.CachedShare*100, r.RequestsPerS)
	}
	if base, ours := results[0], results[1]; base.CachedShare > 0 && base.TTFTMeanS > 0 {
		s.sayf("\nattache reused %.1f times as many prompt tokens; its mean TTFT is %.2f of round robin's.\n", ours.CachedShare/base.CachedShare,
			ours.TTFTMeanS/base.TTFTMeanS)
	}
}

func (s *stage) writeJSON(results []Result) error {
	if s.opts.JSON == "" {
		return nil
	}
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(s.opts.JSON, append(text, '\n'), 0o644) //nolint:gosec // results are for everybody
}
