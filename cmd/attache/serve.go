package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"attache/internal/app"
	"attache/internal/config"
)

// source is how the subcommands get their configuration: a file, flags, or both; flags win.
type source struct {
	Config  string   `short:"c" type:"path" help:"YAML configuration; see docs/configuration.md."`
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
	cfg := config.Default()
	if s.Config != "" {
		loaded, err := config.Load(s.Config)
		if err != nil {
			return nil, err
		}
		cfg = *loaded
	}
	if len(s.Workers) > 0 {
		cfg.Pools[0].Workers = s.Workers
	}
	if s.Model != "" {
		cfg.Pools[0].Models = []string{s.Model}
	}
	override(&cfg.Pools[0].Prompt.ModelDir, s.ModelDir)
	override(&cfg.ExtProc.Listen, s.ListenExtproc)
	override(&cfg.XDS.Listen, s.ListenXDS)
	override(&cfg.Admin.Listen, s.ListenAdmin)
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return &cfg, nil
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
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if c.LogLevel != "" {
		cfg.Log.Level = c.LogLevel
		if err := cfg.Validate(); err != nil {
			return err
		}
	}
	log := app.NewLogger(cfg.Log, os.Stderr)
	slog.SetDefault(log)
	return app.Run(ctx, cfg, app.Options{Version: version, Log: log})
}
