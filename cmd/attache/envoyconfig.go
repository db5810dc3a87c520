package main

import (
	"fmt"
	"io"
	"net/netip"

	"attache/envoy"
	"attache/internal/worker"
	"attache/xds"
)

type envoyConfigCmd struct {
	source

	Mode         string `enum:"ads,attach,static" default:"attach" help:"ads: Envoy takes everything from attache. attach: your own listener, endpoints from attache. static: no xDS."`
	EnvoyVersion string `help:"The oldest Envoy it must suit: 1.38, 1.39 or 1.40." placeholder:"VERSION"`
}

func (c *envoyConfigCmd) Run(out io.Writer) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	override(&cfg.XDS.Gateway.EnvoyVersion, c.EnvoyVersion)
	if err := cfg.Validate(); err != nil {
		return err
	}
	var pools []envoy.Pool
	for _, p := range cfg.Pools {
		pool := envoy.Pool{Name: p.Name}
		if c.Mode == string(envoy.ModeStatic) {
			if pool.Workers, err = addresses(p.Name, p.Engine, p.Workers, p.WorkersFile); err != nil {
				return fmt.Errorf("pool %s: %w", p.Name, err)
			}
			if len(pool.Workers) == 0 {
				return fmt.Errorf("pool %s has no workers; mode static lists them: give --workers host:port,… or pools[].workers", p.Name)
			}
		}
		pools = append(pools, pool)
	}
	params, err := xds.GatewayParams(cfg.XDS.Gateway, xds.Reach{ExtProc: []string{cfg.ExtProc.Listen}, XDS: []string{cfg.XDS.Listen},
		AnswerHeaders: cfg.ExtProc.ResponseHeaders.Any(), AnswerBodies: cfg.Warm.SpeculativePrefill}, pools)
	if err != nil {
		return err
	}
	text, err := envoy.Render(envoy.Mode(c.Mode), params)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, text)
	return err
}

// addresses are the pool's workers as they are known now.
func addresses(pool string, engine worker.Engine, static []string, file string) ([]netip.AddrPort, error) {
	specs, err := worker.Static(pool, engine, static)
	if err != nil {
		return nil, err
	}
	if file != "" {
		more, err := worker.ReadFile(file, pool, engine)
		if err != nil {
			return nil, err
		}
		specs = append(specs, more...)
	}
	var addrs []netip.AddrPort
	for _, s := range specs {
		addrs = append(addrs, s.Addr)
	}
	return addrs, nil
}
