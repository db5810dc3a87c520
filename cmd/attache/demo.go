package main

import (
	"context"
	"io"
	"os"
	"time"

	"attache/internal/demo"
)

type demoCmd struct {
	Duration time.Duration `default:"20s" help:"How long each policy runs."`
	Engines  int           `default:"4" help:"Simulated workers, 2 to 16."`
	JSON     string        `name:"json" type:"path" help:"Write the figures to this file." placeholder:"FILE"`
	Keep     bool          `help:"Stay up afterwards, until Ctrl-C."`
	Seed     uint64        `default:"1" help:"Seed of the load."`
}

func (c *demoCmd) Run(ctx context.Context, out io.Writer) error {
	terminal := false
	if file, ok := out.(*os.File); ok {
		info, err := file.Stat()
		terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return demo.Run(ctx, demo.Options{
		Duration: c.Duration, Engines: min(max(c.Engines, 2), 16), JSON: c.JSON, Keep: c.Keep, Seed: c.Seed, Version: version,
		Out: out, Terminal: terminal,
	})
}
