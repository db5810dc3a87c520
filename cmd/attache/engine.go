package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"attache/internal/app"
	"attache/internal/config"
	"attache/internal/sim"
)

type engineCmd struct {
	Listen      string        `default:"127.0.0.1:8000" help:"host:port of HTTP; port 0 is any free one." placeholder:"ADDRESS"`
	Name        string        `default:"engine" help:"Comes back in the header x-sim-engine."`
	Model       string        `default:"sim-model" help:"The model it serves."`
	ModelDir    string        `type:"path" help:"A real model's folder, whose tokenizer and chat template make the tokens. Default: every 4 bytes are a token." placeholder:"DIR"`
	Lora        []string      `help:"Adapters that it serves beside the model, under their own names." placeholder:"NAME"`
	Profile     string        `help:"Model and machine whose speed it has: ${engine_profiles}. Default: the first." placeholder:"NAME"`
	Speed       float64       `default:"1" help:"How many times as fast as the profile."`
	MinStep     time.Duration `help:"What a step takes at least, such as 20ms; a large value makes tokens trickle. Default: 0, no bound."`
	BlockTokens int           `default:"16" help:"Tokens in a block, or page."`
	KVBlocks    int           `name:"kv-blocks" help:"Size of the KV cache of each rank in blocks. Default: as the profile."`
	HostBlocks  int           `help:"Blocks of main memory that take what the KV cache evicts. Default: 0, none."`
	DiskBlocks  int           `help:"Blocks of disk that take what the main memory evicts, or the KV cache without one. Default: 0, none."`
	MaxTokens   int           `default:"8192" help:"Tokens computed per step at most."`
	MaxSeqs     int           `default:"256" help:"Requests that run at a time."`
	Ranks       int           `default:"1" help:"Data-parallel ranks behind the one port, each with a queue and a KV cache."`
	Seed        uint64        `help:"Varies the words of answers. Default: 0."`

	Dialect        string `default:"vllm-map" help:"The engine it plays: ${engine_dialects}."`
	Events         string `help:"Where rank 0 publishes the events of its cache, such as tcp://127.0.0.1:5557; rank n has the port n above; port 0 is any free one, see GET /sim/state. Default: nowhere. Not for trtllm, whose events are pulled." placeholder:"ENDPOINT"`
	Replay         string `help:"Where rank 0 replays batches of events that were missed, such as tcp://127.0.0.1:5657; ranks likewise. Default: nowhere." placeholder:"ENDPOINT"`
	Topic          string `help:"What the events are published under, such as kv@pod@model. Default: empty."`
	BufferSteps    int    `default:"10000" help:"Batches that each rank keeps for replays, or events that trtllm keeps to be pulled."`
	DecodeInterval int    `default:"40" help:"Steps without prompts after which sglang publishes; others do after each."`
	HashSeed       uint64 `help:"What the names of blocks depend on. Default: 0, another one with each start."`
}

// engineVars are what the help of engineCmd refers to.
func engineVars() kong.Vars {
	return kong.Vars{"engine_profiles": strings.Join(sim.Profiles(), ", "), "engine_dialects": strings.Join(sim.Dialects(), ", ")}
}

func (c *engineCmd) Run(ctx context.Context) error {
	cfg := sim.DefaultConfig()
	cfg.Listen, cfg.Name, cfg.Model, cfg.Speed, cfg.MinStep = c.Listen, c.Name, c.Model, c.Speed, c.MinStep
	cfg.KVBlocks, cfg.MaxTokens, cfg.MaxSeqs, cfg.Seed = c.KVBlocks, max(c.MaxTokens, c.MaxSeqs), c.MaxSeqs, c.Seed
	cfg.BlockTokens, cfg.HostBlocks, cfg.DiskBlocks, cfg.Ranks = c.BlockTokens, c.HostBlocks, c.DiskBlocks, c.Ranks
	cfg.Dialect, cfg.Events, cfg.Replay, cfg.Topic = c.Dialect, c.Events, c.Replay, c.Topic
	cfg.BufferSteps, cfg.DecodeInterval, cfg.HashSeed = c.BufferSteps, c.DecodeInterval, c.HashSeed
	cfg.ModelDir, cfg.LoRAs = c.ModelDir, c.Lora
	if c.Profile != "" {
		cfg.Profile = strings.ToLower(c.Profile)
	}
	log, _ := app.NewLogger(config.Log{Level: "info", Format: "text"}, os.Stderr)
	e, err := sim.New(cfg, log)
	if err != nil {
		return err
	}
	log.Info("simulated engine serves", "url", "http://"+e.Addr().String(), "model", cfg.Model, "profile", cfg.Profile, "speed", cfg.Speed)
	for rank := range cfg.Ranks {
		if events, replay := e.Endpoints(rank); events != "" {
			log.Info("simulated engine publishes", "rank", rank, "events", events, "replay", replay, "dialect", cfg.Dialect)
		}
	}
	return e.Run(ctx)
}
