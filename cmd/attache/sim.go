package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"attache/internal/sim/quality"
	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
)

type simCmd struct {
	Policy []string `sep:"none" help:"What to compare, with ',' or ';' between, or repeated: time, dynamo:prefill_scale=16, 'time:evict=0,first_tokens=clock', shared-cache, … Default: ${sim_policies}; with --suite: beside the suite's." placeholder:"SPEC"`
	Seeds  int      `help:"How many seeds each runs with, from 1 on. Default: 3; with --suite: as the suite." placeholder:"N"`

	Trace          string        `default:"conversation" help:"A recording: ${sim_traces}, or a file of Mooncake's format, plain or gzip." placeholder:"NAME|FILE"`
	Rows           int           `help:"Only so many first rows. Default: 0, all."`
	Speedup        float64       `default:"1" help:"Requests arrive so many times as fast."`
	Jitter         time.Duration `help:"Each arrival moves by up to so much: 3s for conversation, whose clock ticks so. Default: 0."`
	TraceBlockSize int           `default:"512" help:"Tokens that one of the recording's hash_ids stands for."`
	AgenticRate    float64       `help:"Instead of a recording: sessions of coding agents, so many begin per second." placeholder:"RATE"`
	B2BQPS         float64       `name:"b2b-qps" help:"Instead of a recording: customers with long prompts of their own, so many requests per second." placeholder:"RATE"`
	AgentsRate     float64       `help:"Instead of a recording: programs of several agents, so many begin per second." placeholder:"RATE"`
	Horizon        time.Duration `help:"How long those begin. Default: 25m of sessions, 5m of customers, 10m of programs."`

	Engine          string        `default:"${sim_engine}" help:"What the workers are: ${sim_engines}." placeholder:"NAME"`
	Workers         int           `default:"8" help:"How many."`
	BlockSize       int           `default:"64" help:"Tokens in a block of their KV caches."`
	BlocksPerWorker int           `help:"Size of each KV cache in blocks. Default: 0, as the engine."`
	KV              float64       `name:"kv" default:"1" help:"Times the KV cache: 4 stands for a host tier of three times its size."`
	Lag             time.Duration `help:"KV events come so late. Default: 0."`
	Speeds          []float64     `help:"How fast each worker is, such as 1,1,0.5. Default: 1 each." placeholder:"FACTOR"`
	Fail            []string      `help:"Workers that fail, such as 3@20m, counted from 0." placeholder:"WORKER@TIME"`
	Join            []string      `help:"Workers that come, or come back: 8@30m." placeholder:"WORKER@TIME"`
	Warmup          float64       `help:"Share of the workload at its beginning that latencies are not taken of. Default: 0."`

	Suite    []string `help:"Run suites instead: ${sim_suites}, or all but the last: all." placeholder:"NAME"`
	Only     string   `help:"Of the suites, only scenarios with this in their name; targets are left out then." placeholder:"TEXT"`
	Check    bool     `help:"Exit with 1 if a target of a suite is missed."`
	Markdown string   `type:"path" help:"Write the suites' tables to this file, for a document." placeholder:"FILE"`
	HTML     string   `name:"html" type:"path" help:"Write a report to this file, to be looked at in a browser." placeholder:"FILE"`

	JSON     string `name:"json" type:"path" help:"Write all rows to this file; with --suite also the targets." placeholder:"FILE"`
	Parallel int    `help:"Simulations at a time. Default: 0, as many as there are cores."`
}

// simVars are what the flags of simCmd refer to.
func simVars() kong.Vars {
	var suites []string
	for _, s := range quality.Suites() {
		suites = append(suites, s.Name)
	}
	return kong.Vars{
		"sim_traces": strings.Join(trace.Names(), ", "), "sim_engines": strings.Join(virtual.Profiles(), ", "), "sim_engine": virtual.DynamoMocker,
		"sim_policies": strings.Join(simPolicies, ";"), "sim_suites": strings.Join(suites, ", "),
	}
}

// simPolicies are compared if nobody says what.
var simPolicies = []string{"round-robin", "dynamo", "dynamo:prefill_scale=16", "time"}

func (c *simCmd) Run(ctx context.Context, out io.Writer) error {
	if c.Seeds < 0 || c.Seeds > 1000 {
		return fmt.Errorf("--seeds %d: between 1 and 1000 expected", c.Seeds)
	}
	specs, err := quality.ParseSpecs(c.Policy...)
	if err != nil {
		return err
	}
	switch {
	case len(c.Suite) > 0:
		return c.suites(ctx, out, specs)
	case c.Only != "" || c.Check || c.Markdown != "" || c.HTML != "":
		return errors.New("--only, --check, --markdown and --html are for suites: --suite is missing")
	}
	return c.single(ctx, out, specs)
}

// suites runs suites with their own scenarios.
func (c *simCmd) suites(ctx context.Context, out io.Writer, more []quality.Spec) error {
	if err := c.alone(); err != nil {
		return err
	}
	suites, err := quality.Pick(c.Suite...)
	if err != nil {
		return err
	}
	var outcomes []*quality.Outcome
	missed := 0
	for i := range suites {
		o, err := suites[i].Run(ctx, quality.Options{More: more, Seeds: c.Seeds, Only: c.Only, Parallel: c.Parallel, Progress: progress("suite " + suites[i].Name + ": ")})
		if err != nil {
			return err
		}
		if err := o.WriteText(out); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "suite %s took %v\n", o.Name, o.Took.Round(100*time.Millisecond))
		missed += len(o.Failed())
		outcomes = append(outcomes, o)
	}
	if err := c.write(outcomes); err != nil {
		return err
	}
	if c.Check && missed > 0 {
		return fmt.Errorf("%d targets were missed", missed)
	}
	return nil
}

// alone checks that no flag is given that a suite would not heed.
func (c *simCmd) alone() error {
	var given []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"--trace", c.Trace != "conversation"}, {"--rows", c.Rows != 0}, {"--speedup", c.Speedup != 1}, {"--jitter", c.Jitter != 0},
		{"--trace-block-size", c.TraceBlockSize != 512}, {"--agentic-rate", c.AgenticRate != 0}, {"--b2b-qps", c.B2BQPS != 0},
		{"--agents-rate", c.AgentsRate != 0}, {"--horizon", c.Horizon != 0}, {"--engine", c.Engine != virtual.DynamoMocker},
		{"--workers", c.Workers != 8}, {"--block-size", c.BlockSize != 64}, {"--blocks-per-worker", c.BlocksPerWorker != 0}, {"--kv", c.KV != 1},
		{"--lag", c.Lag != 0}, {"--speeds", len(c.Speeds) > 0}, {"--fail", len(c.Fail) > 0}, {"--join", len(c.Join) > 0}, {"--warmup", c.Warmup != 0},
	} {
		if f.set {
			given = append(given, f.name)
		}
	}
	if len(given) > 0 {
		return fmt.Errorf("--suite has its own workloads and clusters: %s mean nothing with it", strings.Join(given, ", "))
	}
	return nil
}

// write writes the files that were asked for.
func (c *simCmd) write(outcomes []*quality.Outcome) error {
	for _, f := range []struct {
		name  string
		write func(io.Writer, []*quality.Outcome) error
	}{{c.JSON, quality.WriteJSON}, {c.Markdown, quality.WriteMarkdown}, {c.HTML, quality.WriteHTML}} {
		if f.name == "" {
			continue
		}
		var b bytes.Buffer
		if err := f.write(&b, outcomes); err != nil {
			return err
		}
		if err := os.WriteFile(f.name, b.Bytes(), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// single runs what the flags describe.
func (c *simCmd) single(ctx context.Context, out io.Writer, specs []quality.Spec) error {
	if len(specs) == 0 {
		var err error
		if specs, err = quality.ParseSpecs(simPolicies...); err != nil {
			return err
		}
	}
	s, err := c.scenario()
	if err != nil {
		return err
	}
	plan := quality.Plan{Scenarios: []quality.Scenario{s}, Policies: specs, Seeds: cmp.Or(c.Seeds, 3), Parallel: c.Parallel, Progress: progress("")}
	rows, err := plan.Run(ctx)
	if err != nil {
		return err
	}
	if c.JSON != "" {
		text, err := json.MarshalIndent(rows, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.JSON, append(text, '\n'), 0o600); err != nil {
			return err
		}
	}
	return quality.NewResults(&plan, rows).WriteRuns(out)
}

// scenario is what the flags describe.
func (c *simCmd) scenario() (quality.Scenario, error) {
	s := quality.Scenario{Warmup: c.Warmup, Cluster: virtual.Config{
		Workers: c.Workers, Profile: c.Engine, KVTokens: c.BlocksPerWorker * c.BlockSize, KV: c.KV, Lag: c.Lag, Speeds: c.Speeds,
	}}
	if !(c.Warmup >= 0 && c.Warmup < 1) {
		return s, fmt.Errorf("--warmup %v: a share from 0, below 1 expected", c.Warmup)
	}
	given := 0
	for _, rate := range []float64{c.AgenticRate, c.B2BQPS, c.AgentsRate} {
		if rate != 0 {
			given++
		}
		if rate < 0 || math.IsNaN(rate) {
			return s, fmt.Errorf("a rate of %v per second: must not be negative", rate)
		}
	}
	horizon := func(otherwise float64) float64 {
		if c.Horizon > 0 {
			return c.Horizon.Seconds()
		}
		return otherwise
	}
	var what string
	switch {
	case given > 1:
		return s, errors.New("--agentic-rate, --b2b-qps, --agents-rate: one workload at a time")
	case c.AgenticRate > 0:
		what = fmt.Sprintf("sessions of coding agents, %v/s", c.AgenticRate)
		s.Workload = quality.Sessions(trace.SessionOptions{BlockTokens: c.BlockSize, Rate: c.AgenticRate, Horizon: horizon(1500)})
	case c.B2BQPS > 0:
		what = fmt.Sprintf("customers, %v requests/s", c.B2BQPS)
		o := trace.DefaultB2B()
		o.BlockTokens, o.Rate, o.Horizon = c.BlockSize, c.B2BQPS, horizon(o.Horizon)
		s.Workload = quality.Customers(o, 0)
	case c.AgentsRate > 0:
		what = fmt.Sprintf("programs of several agents, %v/s", c.AgentsRate)
		o := trace.DefaultAgents()
		o.BlockTokens, o.Rate, o.Horizon = c.BlockSize, c.AgentsRate, horizon(o.Horizon)
		s.Workload = quality.Programs(o)
	default:
		what = c.Trace + " x" + strconv.FormatFloat(c.Speedup, 'g', -1, 64)
		if c.Rows > 0 {
			what += fmt.Sprintf(", first %d rows", c.Rows)
		}
		s.Workload = quality.Recorded(c.Trace, trace.Options{
			BlockTokens: c.BlockSize, TraceBlock: c.TraceBlockSize, Rows: c.Rows, Speedup: c.Speedup, Jitter: c.Jitter,
		})
	}
	s.Name = fmt.Sprintf("%s, %d x %s", what, c.Workers, c.Engine)
	var err error
	s.Cluster.Changes, err = changes(c.Fail, c.Join)
	return s, err
}

// changes reads WORKER@TIME.
func changes(fail, join []string) ([]virtual.Change, error) {
	var list []virtual.Change
	for i, text := range append(append([]string{}, fail...), join...) {
		flag, up := "--fail", i >= len(fail)
		if up {
			flag = "--join"
		}
		who, when, ok := strings.Cut(text, "@")
		worker, errWho := strconv.Atoi(who)
		at, errWhen := time.ParseDuration(when)
		if !ok || errWho != nil || errWhen != nil {
			return nil, fmt.Errorf("%s %s: a worker's number, @ and a time expected, such as 3@20m", flag, text)
		}
		list = append(list, virtual.Change{At: at, Worker: worker, Up: up})
	}
	return list, nil
}

// progress tells on standard error how far a run is that takes long.
func progress(what string) func(done, all int) {
	begin := time.Now()
	last := begin
	return func(done, all int) {
		if now := time.Now(); now.Sub(last) >= 5*time.Second && done < all {
			last = now
			left := time.Duration(float64(now.Sub(begin)) / float64(done) * float64(all-done)).Round(time.Second)
			fmt.Fprintf(os.Stderr, "%s%d of %d simulations, about %v left\n", what, done, all, left)
		}
	}
}
