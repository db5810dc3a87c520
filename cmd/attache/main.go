// Command attache is the brain of an LLM gateway: it sends every request to the worker that will answer it soonest.
// Each subcommand has a file of its own; what they start is wired in internal/app.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// version is set at build time (-ldflags "-X main.version=…").
var version = "unknown"

type cli struct {
	Serve       serveCmd       `cmd:"" help:"Run attache: ext_proc, xDS and the admin API."`
	Demo        demoCmd        `cmd:"" help:"Watch real requests go through a real Envoy to simulated engines, next to round robin."`
	Check       checkCmd       `cmd:"" help:"Check a configuration file and say what it means."`
	EnvoyConfig envoyConfigCmd `cmd:"" help:"Print the Envoy configuration that attaches to attache."`
	Engine      engineCmd      `cmd:"" help:"Run a simulated vLLM worker."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
}

func main() {
	var c cli
	parser := kong.Must(&c, kong.Name("attache"), kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Description("Sends each LLM request to the GPU worker that will answer it soonest: the one that holds the\n"+
			"prompt's KV cache and is not too busy. Attaches to Envoy by ext_proc and xDS.\n\n"+
			"Start here: attache serve --workers 10.0.0.1:8000,10.0.0.2:8000"))
	parsed, err := parser.Parse(os.Args[1:])
	parser.FatalIfErrorf(err)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	parsed.BindTo(ctx, (*context.Context)(nil))
	if err := parsed.Run(); err != nil {
		stop()
		fmt.Fprintf(os.Stderr, "attache: %v\n", err)
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

type versionCmd struct{}

func (versionCmd) Run() error {
	_, err := fmt.Println("attache", version)
	return err
}
