package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"attache/internal/app"
	"attache/internal/config"
	"attache/internal/join"
	"attache/internal/worker"
)

type joinCmd struct {
	Engine    string   `required:"" help:"The engine, such as http://127.0.0.1:8000." placeholder:"URL"`
	Gateway   []string `required:"" help:"Where an attache's admin API listens, such as http://gateway:9902; again for each further one." placeholder:"URL"`
	TokenFile string   `required:"" type:"path" help:"File with the token that is in the gateways' workers.registration.token_file." placeholder:"FILE"`

	Name        string            `help:"A name that no other worker has. Default: this machine's, and the engine's port." placeholder:"NAME"`
	Pool        string            `help:"The pool to serve in. Default: the only one, or the one that has the engine's models." placeholder:"NAME"`
	Address     string            `help:"Where gateways and Envoys reach the engine. Default: as in --engine, or for a loopback address the one by which this machine reaches the first gateway." placeholder:"HOST:PORT"`
	Kind        string            `enum:"auto,vllm,sglang,trtllm" default:"auto" help:"What the engine is: vllm, sglang or trtllm. Default: told by its metrics."`
	Role        string            `help:"prefill or decode. Default: both." placeholder:"ROLE"`
	Label       map[string]string `help:"A mark that requests can ask for; again for each further one." placeholder:"NAME=VALUE" mapsep:","`
	Topology    map[string]string `help:"Where it stands, such as zone=a; again for each further one." placeholder:"NAME=VALUE" mapsep:","`
	MaxInFlight int               `help:"Requests that it may have in flight before it counts as saturated. Default: no limit of its own." placeholder:"N"`
	Events      string            `help:"Where the engine publishes its KV events, such as tcp://*:5557; * is the host of --address. Default: as the engine tells, if it does." placeholder:"ENDPOINT"`
	Replay      string            `help:"Where it replays them, likewise." placeholder:"ENDPOINT"`
	Topic       string            `help:"The beginning of the topics of --events. Default: any." placeholder:"TOPIC"`

	Wait         time.Duration `help:"How long the engine may take to become healthy. Default: 0, as long as it takes."`
	DrainTimeout time.Duration `default:"2m" help:"How long requests may take to end, after SIGTERM, before the engine leaves; a second signal ends it at once."`
	LogFormat    string        `enum:"text,json" default:"text" help:"text or json."`
}

func (c *joinCmd) Run(ctx context.Context) error {
	log, _ := app.NewLogger(config.Log{Level: "info", Format: c.LogFormat}, os.Stderr)
	j, err := join.New(join.Config{
		Engine: c.Engine, Gateways: c.Gateway, TokenFile: c.TokenFile, Name: c.Name, Pool: c.Pool, Address: c.Address, Kind: worker.Engine(c.Kind),
		Role: c.Role, Labels: c.Label, Topology: c.Topology, MaxInFlight: c.MaxInFlight, Events: c.Events, Replay: c.Replay, Topic: c.Topic,
		Wait: c.Wait, DrainTimeout: c.DrainTimeout,
	}, log)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt, syscall.SIGTERM) }) // the next one ends the process
	defer stop()
	return j.Run(ctx)
}
