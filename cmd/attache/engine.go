package main

import (
	"context"
	"os"
	"strings"
	"time"

	"attache/internal/app"
	"attache/internal/config"
	"attache/internal/sim"
)

type engineCmd struct {
	Listen    string        `default:"127.0.0.1:8000" help:"host:port; port 0 is any free one."`
	Name      string        `default:"engine" help:"Comes back in the header x-sim-engine."`
	Model     string        `default:"sim-model" help:"The model it serves."`
	ModelDir  string        `type:"path" help:"A real model's folder, whose tokenizer and chat template make the tokens." placeholder:"DIR"`
	Profile   string        `help:"Model and machine whose speed it has." placeholder:"NAME"`
	Speed     float64       `default:"1" help:"How many times as fast as the profile."`
	MinStep   time.Duration `help:"What a step takes at least; a large value makes tokens trickle."`
	KVBlocks  int           `name:"kv-blocks" help:"Size of the KV cache in blocks. Default: as the profile."`
	MaxTokens int           `default:"8192" help:"Tokens computed per step at most."`
	MaxSeqs   int           `default:"256" help:"Requests that run at a time."`
	Seed      uint64        `help:"Varies the words of answers."`
}

func (c *engineCmd) Run(ctx context.Context) error {
	cfg := sim.DefaultConfig()
	cfg.Listen, cfg.Name, cfg.Model, cfg.Speed, cfg.MinStep = c.Listen, c.Name, c.Model, c.Speed, c.MinStep
	cfg.KVBlocks, cfg.MaxTokens, cfg.MaxSeqs, cfg.Seed = c.KVBlocks, max(c.MaxTokens, c.MaxSeqs), c.MaxSeqs, c.Seed
	cfg.ModelDir = c.ModelDir
	if c.Profile != "" {
		cfg.Profile = strings.ToLower(c.Profile)
	}
	log := app.NewLogger(config.Log{Level: "info", Format: "text"}, os.Stderr)
	e, err := sim.New(cfg, log)
	if err != nil {
		return err
	}
	log.Info("simulated engine serves", "url", "http://"+e.Addr().String(), "model", cfg.Model, "profile", cfg.Profile, "speed", cfg.Speed)
	return e.Run(ctx)
}
