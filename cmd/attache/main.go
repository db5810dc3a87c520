// Command attache is the brain of an LLM gateway: it sends every request to the worker that will answer it soonest.
// Each subcommand has a file of its own; what they start is wired in internal/app.
package main

import (
	"context"
	"fmt"
	"io"
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
	Join        joinCmd        `cmd:"" help:"Register an engine at running gateways, and let it leave in order."`
	Engine      engineCmd      `cmd:"" help:"Run a simulated worker: vLLM, SGLang or TensorRT-LLM."`
	Sim         simCmd         `cmd:"" help:"Compare policies on simulated clusters, in virtual time."`
	Tokens      tokensCmd      `cmd:"" help:"Show the prompt, the tokens and the blocks that a request becomes."`
	Dump        dumpCmd        `cmd:"" help:"Show what a running attache knows: workers, feeds of KV events, memory, prefixes."`
	Explain     explainCmd     `cmd:"" help:"Ask a running attache who would serve a request, and why."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		ended := <-signals
		fmt.Fprintf(os.Stderr, "attache: %v a second time: ended at once\n", ended)
		os.Exit(endedAtOnce)
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// endedAtOnce is the exit status after a second signal.
const endedAtOnce = 130

// run is main without the process: it returns the exit status, 0, 1 when the command failed, or 2 for a misuse.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	var c cli
	ended := -1 // by --help
	parser := kong.Must(&c, kong.Name("attache"), kong.Writers(out, errs), kong.Exit(func(status int) { ended = status }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.BindTo(ctx, (*context.Context)(nil)), kong.BindTo(out, (*io.Writer)(nil)), engineVars(), dumpVars(), simVars(),
		kong.Description("Sends each LLM request to the GPU worker that will answer it soonest: the one that holds the\n"+
			"prompt's KV cache and is not too busy. Attaches to Envoy by ext_proc and xDS.\n\n"+
			"Start here: attache serve --workers 10.0.0.1:8000,10.0.0.2:8000"))
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	switch {
	case ended >= 0:
		return ended
	case err != nil:
		fmt.Fprintf(errs, "attache: %v; see attache --help\n", err)
		return 2
	}
	if err := parsed.Run(); err != nil {
		fmt.Fprintf(errs, "attache: %v\n", err)
		return 1
	}
	return 0
}

type versionCmd struct{}

func (versionCmd) Run(out io.Writer) error {
	_, err := fmt.Fprintln(out, "attache", version)
	return err
}
