// Package join makes an engine known to gateways: it asks the engine what it is, registers it, renews its leases, and lets it leave in
// order.
//
// In the common case it runs beside an engine, as a process or a sidecar. It waits until the engine is healthy, asks for its models, its
// kind and its cache, and registers it at every gateway that it was given; from then on each gets a heartbeat when its lease wants one,
// with the engine's load. A gateway that is away is tried again, and one that has forgotten the worker is told anew; the others do not
// notice. When it is told to end, the gateways send nothing new, what runs finishes, and the worker is taken off their lists.
//
// It does not judge the engine's health after the start: gateways check that themselves, and a worker that fails for a while keeps what
// they have learnt of it.
package join

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"attache/internal/worker"
	"attache/internal/worker/register"
)

// pace is how often things are looked at.
type pace struct {
	ask    time.Duration // between two looks at an engine that is not healthy yet
	look   time.Duration // between two looks at one that is
	remind time.Duration // between two words about waiting for it
	retry  time.Duration // the first pause before a gateway is tried again; it doubles
	longer time.Duration // the longest
	drain  time.Duration // between two looks at what still runs
	settle time.Duration // how long nothing must run before the engine leaves: gateways tell each other, and Envoys, within that time
}

var usual = pace{
	ask: time.Second, look: 2 * time.Second, remind: 30 * time.Second, retry: time.Second, longer: 10 * time.Second,
	drain: 500 * time.Millisecond, settle: 3 * time.Second,
}

// Joiner keeps one engine registered. Make one with New, and Run it once.
type Joiner struct {
	cfg     Config
	log     *slog.Logger
	pace    pace
	engine  *engine
	members []*member
	taken   atomic.Bool // by any gateway, ever

	mu   sync.Mutex // guards what follows
	said *register.Registration
	load register.Load
}

// member is the engine's place at one gateway. Only its own goroutine changes it, until Run leaves.
type member struct {
	gateway *gateway
	told    *register.Registration // what it was registered with; nil: it is not
	unsure  bool                   // whether it is: the answer was not waited for
	lease   *register.Lease        // the last; nil: there was none
	failure string                 // that was logged; "" none
	failed  int                    // times in a row
}

// New checks a configuration.
func New(cfg Config, log *slog.Logger) (*Joiner, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	j := &Joiner{cfg: cfg, log: log, pace: usual, engine: newEngine(cfg.Engine, cfg.Kind)}
	for _, base := range cfg.Gateways {
		j.members = append(j.members, &member{gateway: newGateway(base, cfg.TokenFile)})
	}
	return j, nil
}

// Run keeps the engine registered until ctx ends, and then lets it leave. It returns nil when the engine left in order or was never
// there; else the error says what the person who started it should know.
func (j *Joiner) Run(ctx context.Context) error {
	defer func() {
		j.engine.client.CloseIdleConnections()
		for _, m := range j.members {
			m.gateway.client.CloseIdleConnections()
		}
	}()
	if err := j.await(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	refused := make(chan error, len(j.members))
	var running sync.WaitGroup
	running.Go(func() { j.watch(serving) })
	for _, m := range j.members {
		running.Go(func() { j.belong(serving, m, refused) })
	}
	var refusals []error
	for ctx.Err() == nil && len(refusals) < len(j.members) {
		select {
		case err := <-refused:
			if refusals = append(refusals, err); j.taken.Load() {
				refusals = refusals[1:] // somebody took it in meanwhile
			}
		case <-ctx.Done():
		}
	}
	stop()
	running.Wait()
	if ctx.Err() == nil {
		return fmt.Errorf("no gateway takes it in:\n%w", errors.Join(refusals...))
	}
	return j.leave(context.WithoutCancel(ctx))
}

// await waits for a healthy engine, and learns what it is.
func (j *Joiner) await(ctx context.Context) error {
	begin := time.Now()
	var reminded time.Time
	for ctx.Err() == nil {
		err := j.engine.healthy(ctx)
		var f *facts
		if err == nil {
			f, err = j.engine.look(ctx)
		}
		if err == nil {
			return j.learn(f)
		}
		switch {
		case ctx.Err() != nil: // the loop ends
		case j.cfg.Wait > 0 && time.Since(begin) >= j.cfg.Wait:
			return fmt.Errorf("the engine at %s is not healthy after %s: %w", j.cfg.Engine, j.cfg.Wait, err)
		case time.Since(reminded) >= j.pace.remind:
			j.log.Info("waiting for the engine", "engine", j.cfg.Engine, "because", err)
			reminded = time.Now()
		}
		pause(ctx, j.pace.ask)
	}
	return nil
}

// learn takes over what the engine told.
func (j *Joiner) learn(f *facts) error {
	said, err := j.cfg.registration(f)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.said == nil:
		j.log.Info("the engine is healthy", "engine", j.cfg.Engine, "kind", said.Engine, "models", said.Models, "name", said.Name, "address", said.Address,
			"kv_blocks", said.Capacity.Blocks, "block_tokens", said.Capacity.BlockTokens, "events", said.Events.Endpoint)
	case same(j.said, said):
		return nil
	default:
		j.log.Info("the engine has changed", "models", said.Models, "kv_blocks", said.Capacity.Blocks, "block_tokens", said.Capacity.BlockTokens)
	}
	j.said = said
	j.load = loadOf(&f.stats)
	return nil
}

// watch reads the engine's load, and learns anew what it is when it was away.
func (j *Joiner) watch(ctx context.Context) {
	var process float64
	away := false
	for pause(ctx, j.pace.look); ctx.Err() == nil; pause(ctx, j.pace.look) {
		if err := j.engine.healthy(ctx); err != nil {
			if !away && ctx.Err() == nil {
				j.log.Warn("the engine does not answer; its leases are kept, because gateways see its health themselves", "because", err)
			}
			away = true
			continue
		}
		stats, err := j.engine.stats(ctx)
		if err == nil {
			j.mu.Lock()
			j.load = loadOf(&stats)
			j.mu.Unlock()
		}
		again := process != 0 && stats.ProcessStart != 0 && stats.ProcessStart != process
		if !away && !again {
			process = max(process, stats.ProcessStart)
			continue
		}
		f, err := j.engine.look(ctx)
		if err == nil {
			err = j.learn(f)
		}
		if err != nil {
			continue
		}
		if away {
			j.log.Info("the engine answers again")
		}
		away, process = false, stats.ProcessStart
	}
}

func loadOf(s *worker.Stats) register.Load {
	return register.Load{Running: s.Running, Waiting: s.Waiting, KVUsage: min(1, s.KVUsage)}
}

// belong keeps the engine registered at one gateway until ctx ends. A refusal that asking again will not change is told once, if the
// gateway never took the engine in.
func (j *Joiner) belong(ctx context.Context, m *member, refused chan<- error) {
	told := false
	for ctx.Err() == nil {
		err := j.renew(ctx, m)
		if ctx.Err() != nil {
			return
		}
		j.report(m, err)
		if r := (*refusal)(nil); errors.As(err, &r) && r.final() && m.lease == nil && !told {
			told = true
			refused <- fmt.Errorf("%s: %w", m.gateway.base, err)
		}
		switch {
		case err == nil:
			pause(ctx, seconds(m.lease.Heartbeat))
		case m.lease != nil:
			pause(ctx, min(j.backOff(m), seconds(m.lease.Heartbeat)))
		default:
			pause(ctx, j.backOff(m))
		}
	}
}

// renew registers the engine where it is not known, or not as it is now; else it sends a heartbeat.
func (j *Joiner) renew(ctx context.Context, m *member) error {
	j.mu.Lock()
	said, load := j.said, j.load
	j.mu.Unlock()
	if m.told == said {
		lease, err := m.gateway.heartbeat(ctx, said.Name, &register.Heartbeat{Load: load})
		if !forgotten(err) {
			if err == nil {
				m.lease = lease
			}
			return err
		}
		j.log.Info("the gateway has forgotten the worker; it is registered again", "gateway", m.gateway.base)
		m.told = nil
	}
	lease, err := m.gateway.register(ctx, said)
	if err != nil {
		m.unsure = ctx.Err() != nil
		return err
	}
	m.told, m.lease = said, lease
	j.taken.Store(true)
	j.log.Info("registered", "gateway", m.gateway.base, "worker", lease.Worker, "pool", lease.Pool, "lease", seconds(lease.TTL).String(),
		"heartbeat", seconds(lease.Heartbeat).Round(time.Millisecond).String())
	return nil
}

// report logs what goes wrong at a gateway once, and when it is over.
func (j *Joiner) report(m *member, err error) {
	if err == nil {
		if m.failure != "" {
			j.log.Info("the gateway answers again", "gateway", m.gateway.base)
		}
		m.failure, m.failed = "", 0
		return
	}
	m.failed++
	if text := err.Error(); text != m.failure {
		m.failure = text
		j.log.Warn("the gateway does not take it; trying again", "gateway", m.gateway.base, "because", err)
	}
}

func (j *Joiner) backOff(m *member) time.Duration {
	d := j.pace.retry
	for range m.failed - 1 {
		if d *= 2; d >= j.pace.longer {
			return j.pace.longer
		}
	}
	return d
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
