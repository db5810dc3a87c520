package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"attache/internal/app"
	"attache/internal/config"
	"attache/internal/reload"
)

// source is how the subcommands get their configuration: a file, flags, or both; flags win.
type source struct {
	flags

	Config string `short:"c" type:"path" help:"YAML configuration; see docs/configuration.md."`
}

// flags are the settings that have a flag.
type flags struct {
	Workers []string `help:"Engine addresses of the first pool, host:port, comma-separated." placeholder:"HOST:PORT"`
	Model   string   `help:"Model name that the first pool serves. Default: every name." placeholder:"NAME"`
	// ModelDir is a flag for the most useful setting of a pool.
	ModelDir string `type:"path" help:"Folder of the first pool's model, whose tokenizer and chat template make exact tokens." placeholder:"DIR"`

	ListenExtproc string `help:"Where Envoy asks for decisions: host:port or unix:///path." placeholder:"ADDR"`
	ListenXDS     string `name:"listen-xds" help:"Where Envoy fetches its configuration: host:port or unix:///path." placeholder:"ADDR"`
	ListenAdmin   string `help:"Metrics, API and dashboard: host:port." placeholder:"ADDR"`
}

// load reads the file over the defaults and the flags over both.
func (s *source) load() (*config.Config, error) {
	text, err := s.text()
	if err != nil {
		return nil, err
	}
	return s.parse(text)
}

// text is what the file holds; nothing when there is none.
func (s *source) text() ([]byte, error) {
	if s.Config == "" {
		return nil, nil
	}
	text, err := os.ReadFile(s.Config)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return text, nil
}

// parse is load for what was read.
func (s *source) parse(text []byte) (*config.Config, error) {
	cfg, err := config.Parse(s.Config, text)
	if err != nil {
		return nil, err
	}
	s.over(cfg)
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return cfg, nil
}

// over puts the flags over a configuration.
func (f *flags) over(cfg *config.Config) {
	if len(f.Workers) > 0 {
		cfg.Pools[0].Workers = f.Workers
	}
	if f.Model != "" {
		cfg.Pools[0].Models = []string{f.Model}
	}
	override(&cfg.Pools[0].Prompt.ModelDir, f.ModelDir)
	override(&cfg.ExtProc.Listen, f.ListenExtproc)
	override(&cfg.XDS.Listen, f.ListenXDS)
	override(&cfg.Admin.Listen, f.ListenAdmin)
}

func override(setting *string, flag string) {
	if flag != "" {
		*setting = flag
	}
}

type serveCmd struct {
	source

	LogLevel string `help:"debug, info, warn or error; overrides the file." placeholder:"LEVEL"`
}

func (c *serveCmd) Run(ctx context.Context) error {
	text, err := c.text()
	if err != nil {
		return err
	}
	cfg, err := c.parse(text)
	if err != nil {
		return err
	}
	log, level := app.NewLogger(cfg.Log, os.Stderr)
	slog.SetDefault(log)
	opts := app.Options{Version: version, Log: log, Level: level}
	if c.Config != "" {
		again, stop := hangups()
		defer stop()
		opts.File = &reload.File{Path: c.Config, Text: text, Parse: c.parse, Again: again}
	}
	return app.Run(ctx, cfg, opts)
}

// parse is that of the source, with the level on top.
func (c *serveCmd) parse(text []byte) (*config.Config, error) {
	cfg, err := c.source.parse(text)
	if err != nil || c.LogLevel == "" {
		return cfg, err
	}
	cfg.Log.Level = c.LogLevel
	return cfg, cfg.Validate()
}

// hangups tells of every SIGHUP, which does not end the process then.
func hangups() (again <-chan struct{}, stop func()) {
	signals, told, over := make(chan os.Signal, 1), make(chan struct{}, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-signals:
				select {
				case told <- struct{}{}:
				default: // one is enough
				}
			case <-over:
				return
			}
		}
	}()
	return told, func() { signal.Stop(signals); close(over) }
}
