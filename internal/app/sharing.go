package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"attache/internal/admin"
	"attache/internal/config"
	"attache/internal/replica"
	"attache/internal/replica/direct"
	"attache/internal/router"
	"attache/internal/state"
	"attache/internal/worker"
)

// stateModule is the store that replicas share; without Redis one of this process alone.
var stateModule = fx.Module("state",
	fx.Provide(func(lc fx.Lifecycle, cfg *config.Config, log *slog.Logger, reg prometheus.Registerer) (state.Store, error) {
		store, err := state.New(state.Params{Config: cfg.Redis, Log: log.With("component", "redis"), Metrics: reg})
		if err != nil {
			return nil, err
		}
		lc.Append(fx.Hook{OnStop: func(context.Context) error { return store.Close() }})
		return store, nil
	}),
	fx.Invoke(func(lc fx.Lifecycle, shutdown fx.Shutdowner, log *slog.Logger, store state.Store) {
		running(lc, shutdown, log, "state", store.Run)
	}),
)

// sharing is what this replica has in common with the others, by pool; empty without others.
type sharing struct{ pools map[string]*replica.Pool }

// sharingModule tells the other replicas what this one decides. It stops before the router and after ext_proc: what has ended by then
// was told.
var sharingModule = fx.Module("sharing",
	fx.Provide(func(lc fx.Lifecycle, shutdown fx.Shutdowner, cfg *config.Config, r *router.Router, registry *worker.Registry, store state.Store, now func() time.Time,
		log *slog.Logger, reg prometheus.Registerer) (*sharing, error) {
		s := &sharing{pools: map[string]*replica.Pool{}}
		link, err := linkOf(lc, shutdown, cfg, store, log, reg)
		if link == nil || err != nil {
			return s, err
		}
		for _, pool := range cfg.Pools {
			of := told{r.Remote(pool.Name), registry, pool.Name}
			p, err := replica.New(replica.Params{
				Config: cfg.Replicas.Config, Name: cfg.Replica, Link: link(pool.Name), Source: of, Target: of, Now: now,
				Log: log.With("component", "replicas", "pool", pool.Name), Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"pool": pool.Name}, reg),
			})
			if err != nil {
				return nil, err
			}
			s.pools[pool.Name] = p
			r.Share(pool.Name, p)
			running(lc, shutdown, log, "replicas of pool "+pool.Name, p.Run)
		}
		registry.TellDrains(func(d worker.Drain) {
			if p := s.pools[d.Pool]; p != nil {
				p.Share(deltaOf(d))
			}
		})
		return s, nil
	}),
	fx.Invoke(func(*sharing) {}),
)

// told is what replicas tell each other of a pool: its router's decisions, and operators' words on its workers.
type told struct {
	*router.Remote

	registry *worker.Registry
	pool     string
}

// Open implements replica.Source.
func (t told) Open(tell func(*replica.Delta)) {
	t.Remote.Open(tell)
	for _, d := range t.registry.Drains(t.pool) {
		tell(deltaOf(d))
	}
}

// Apply implements replica.Target.
func (t told) Apply(from string, d *replica.Delta) {
	if d.Kind == replica.Drained {
		t.registry.HearDrain(worker.Drain{Worker: d.Worker, Pool: t.pool, On: d.Drain, At: d.At})
		return
	}
	t.Remote.Apply(from, d)
}

func deltaOf(d worker.Drain) *replica.Delta {
	return &replica.Delta{Kind: replica.Drained, Worker: d.Worker, Drain: d.On, At: d.At}
}

// linkOf is how this replica reaches the others, by pool; nil: there are none. What the link needs runs as long as any pool tells
// something, the last word included.
func linkOf(lc fx.Lifecycle, shutdown fx.Shutdowner, cfg *config.Config, store state.Store, log *slog.Logger,
	reg prometheus.Registerer) (func(pool string) replica.Link, error) {
	switch {
	case cfg.Redis.Enabled():
		return func(pool string) replica.Link {
			return replica.LogLink{Log: state.Stream{Log: store, Name: "replicas/" + pool}, Gather: cfg.Replicas.Batch / 2}
		}, nil
	case cfg.Replicas.Direct.Enabled():
		node, err := direct.New(direct.Params{Config: cfg.Replicas.Direct, Name: cfg.Replica, Log: log.With("component", "replicas"), Metrics: reg})
		if err != nil {
			return nil, fmt.Errorf("replicas.direct: %w", err)
		}
		running(lc, shutdown, log, "replicas", node.Run)
		return func(pool string) replica.Link { return node.Link(pool) }, nil
	}
	return nil, nil
}

// checks say whether the other replicas can be reached; nothing where there are none to be. Routing goes on either way.
func (s *sharing) checks() []admin.Check {
	if len(s.pools) == 0 {
		return nil
	}
	c := admin.Check{Name: "replicas", State: admin.OK}
	var heard []string
	for _, name := range slices.Sorted(maps.Keys(s.pools)) {
		p := s.pools[name]
		if err := p.Down(); err != nil {
			return []admin.Check{{Name: "replicas", State: admin.Degraded,
				Detail: fmt.Sprintf("pool %s: this replica decides by what it knows itself: %v", name, err)}}
		}
		for _, peer := range p.Peers() {
			switch {
			case !peer.Whole:
				c.State = admin.Degraded
				c.Detail = fmt.Sprintf("pool %s: not all is known yet of what %s has under way", name, peer.Name)
			case !slices.Contains(heard, peer.Name):
				heard = append(heard, peer.Name)
			}
		}
	}
	if c.Detail == "" {
		c.Detail = fmt.Sprintf("%d other replicas are heard", len(heard))
		if len(heard) > 0 {
			c.Detail += ": " + strings.Join(heard, ", ")
		}
	}
	return []admin.Check{c}
}

// warnings are what an operator should know of the other replicas.
func (s *sharing) warnings() (all []string) {
	for _, c := range s.checks() {
		if c.State != admin.OK {
			all = append(all, c.Name+": "+c.Detail)
		}
	}
	return all
}

// replicas are the others that are heard in any pool; of several pools the worst counts.
func (s *sharing) replicas(now time.Time) (all []admin.Replica) {
	byName := map[string]admin.Replica{}
	for _, p := range s.pools {
		for _, peer := range p.Peers() {
			r := admin.Replica{Name: peer.Name, HeardAgeS: admin.Seconds(now.Sub(peer.Heard)), Whole: peer.Whole}
			if before, known := byName[peer.Name]; known {
				r.Whole = r.Whole && before.Whole
			}
			byName[peer.Name] = r
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, byName[name])
	}
	return all
}
