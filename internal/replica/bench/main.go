// Bench measures what it costs that replicas tell each other what they decide, through one real Redis on loopback.
//
// Several routers run in one process, each with its own index, scoring and connection. Requests come at an even rate to one after the
// other: the next turn of one of many conversations is routed, ends and is reported. It prints
//
//	cost     CPU of the process per request with and without sharing, by turns; the difference is telling it once and hearing it
//	         in all other replicas
//	delay    from a decision until another replica counts it
//	latency  of decisions while Redis answers, and while it stands still, by turns
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/openai"
	"attache/internal/proc"
	"attache/internal/replica"
	"attache/internal/router"
	"attache/internal/slot"
	"attache/internal/state"
	"attache/internal/worker"
)

func main() {
	replicas := flag.Int("replicas", 8, "routers")
	rate := flag.Int("rate", 2000, "requests per second, over all")
	rounds := flag.Int("rounds", 5, "turns of each kind")
	turn := flag.Duration("turn", 2*time.Second, "how long one is")
	flag.Parse()
	if err := run(*replicas, *rate, *rounds, *turn); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(replicas, rate, rounds int, turn time.Duration) error {
	dir, err := os.MkdirTemp("", "replicas")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, address, err := startRedis(dir)
	if err != nil {
		return err
	}
	defer server.Kill()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	delays := &delays{at: map[decision]time.Time{}}
	var shared, alone []*router.Router
	for i := range replicas {
		for _, with := range []bool{true, false} {
			r, err := newRouter(i)
			if err != nil {
				return err
			}
			if !with {
				alone = append(alone, r)
				continue
			}
			p, store, err := join(r, i, address, delays)
			if err != nil {
				return err
			}
			defer func() { _ = store.Close() }()
			running.Go(func() { _ = p.Run(ctx) })
			shared = append(shared, r)
		}
	}
	time.Sleep(time.Second) // they find each other

	load := newLoad(rate)
	costs := map[string][]float64{}
	for range rounds {
		for name, routers := range map[string][]*router.Router{"alone": alone, "shared": shared} {
			before := cpu()
			_, n := load.play(routers, turn)
			costs[name] = append(costs[name], float64(cpu()-before)/float64(n))
		}
	}
	heard := delays.take()
	latencies := map[string][]time.Duration{}
	for range rounds {
		took, _ := load.play(shared, turn)
		latencies["Redis answers"] = append(latencies["Redis answers"], took...)
		if err := server.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		took, _ = load.play(shared, turn)
		latencies["Redis stands still"] = append(latencies["Redis stands still"], took...)
		if err := server.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		time.Sleep(turn)
	}
	with, without := median(costs["shared"])/1000, median(costs["alone"])/1000
	fmt.Printf("%d replicas, %d requests/s over all, prompts of 16 KB\n\n", replicas, rate)
	fmt.Printf("CPU per request: %.1f us alone, %.1f us shared: %.1f us for telling it, %.1f us in each of %d replicas\n", without, with, with-without,
		(with-without)/float64(replicas), replicas)
	fmt.Printf("from a decision until another replica counts it: p50 %v, p99 %v (%d)\n", at(heard, .5), at(heard, .99), len(heard))
	for _, name := range []string{"Redis answers", "Redis stands still"} {
		l := latencies[name]
		slices.Sort(l)
		fmt.Printf("a decision while %s: p50 %v, p99 %v, p99.9 %v (%d)\n", name, at(l, .5), at(l, .99), at(l, .999), len(l))
	}
	return nil
}

// startRedis starts a server on a free port of loopback.
func startRedis(dir string) (*proc.Process, string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	address := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(address)
	server, err := proc.Start(context.Background(), os.Stderr, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", dir, "--loglevel", "warning")
	if err != nil {
		return nil, "", err
	}
	for range 200 {
		c, err := net.Dial("tcp", address)
		if err == nil {
			return server, address, c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	server.Kill()
	return nil, "", fmt.Errorf("redis-server on %s does not answer", address)
}

// fleet is a registry of workers that do not change.
type fleet struct{ set *worker.Set }

func (f fleet) Set() *worker.Set               { return f.set }
func (fleet) Report(slot.Slot, worker.Outcome) {}

const workers = 16

func newRouter(replica int) (*router.Router, error) {
	var all []*worker.Worker
	for i := range workers {
		addr := netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:8000", i+1))
		all = append(all, worker.NewWorker(worker.Spec{Name: addr.String(), Pool: "default", Address: addr.String(), Addr: addr}, slot.Slot(i), worker.Ready))
	}
	return router.New(router.Params{Config: router.DefaultConfig(), Pools: []router.PoolConfig{{Name: "default"}}, Replica: name(replica),
		Workers: fleet{worker.NewSet(all...)}, Now: time.Now, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
}

func name(replica int) string { return fmt.Sprintf("replica-%d", replica) }

// join joins a router with the others.
func join(r *router.Router, i int, address string, delays *delays) (*replica.Pool, state.Store, error) {
	cfg := state.DefaultConfig()
	cfg.Addresses = []string{address}
	log, metrics := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	store, err := state.New(state.Params{Config: cfg, Log: log, Metrics: metrics})
	if err != nil {
		return nil, nil, err
	}
	of := r.Remote("default")
	p, err := replica.New(replica.Params{Config: replica.DefaultConfig(), Name: name(i), Link: replica.LogLink{Log: state.Stream{Log: store, Name: "bench"}, Gather: replica.DefaultConfig().Batch / 2}, Source: of,
		Target: hearing{of, delays}, Now: time.Now, Log: log, Metrics: metrics})
	if err != nil {
		return nil, nil, err
	}
	r.Share("default", telling{p, name(i), delays})
	return p, store, nil
}

// delays are the times from decisions until others know.
type delays struct {
	mu    sync.Mutex
	at    map[decision]time.Time
	heard []time.Duration
}

type decision struct {
	by     string
	number uint64
}

// take returns what was measured, in order.
func (d *delays) take() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.heard)
	return slices.Clone(d.heard)
}

// every is how many decisions there are for one that is timed.
const every = 16

// telling notes when a decision was told.
type telling struct {
	*replica.Pool

	name   string
	delays *delays
}

func (t telling) Share(d *replica.Delta) {
	if d.Kind == replica.Booked && d.Number%every == 0 {
		t.delays.mu.Lock()
		t.delays.at[decision{t.name, d.Number}] = time.Now()
		t.delays.mu.Unlock()
	}
	t.Pool.Share(d)
}

// hearing notes when one was heard.
type hearing struct {
	replica.Target

	delays *delays
}

func (h hearing) Apply(from string, d *replica.Delta) {
	h.Target.Apply(from, d)
	if d.Kind == replica.Booked && d.Number%every == 0 {
		h.delays.mu.Lock()
		h.delays.heard = append(h.delays.heard, time.Since(h.delays.at[decision{from, d.Number}]))
		h.delays.mu.Unlock()
	}
}

// load is requests at an even rate.
type load struct {
	gap    time.Duration
	bodies []*router.Request
	n      int
}

const conversations = 64

func newLoad(rate int) *load {
	l := &load{gap: time.Second / time.Duration(rate)}
	for i := range conversations {
		text := strings.Repeat(fmt.Sprintf("conversation %d goes on and on. ", i), 16<<10/30)
		body := fmt.Appendf(nil, `{"model":"m","stream":true,"messages":[{"role":"user","content":%q}]}`, text)
		scan := new(openai.Request)
		if err := openai.Scan(scan, openai.Chat, body); err != nil {
			panic(err)
		}
		l.bodies = append(l.bodies, &router.Request{Kind: openai.Chat, Body: body, Scan: scan, Path: "/v1/chat/completions"})
	}
	return l
}

// play sends requests for a while; each ends 50 ms after it was sent. It returns how long decisions took, and how many there were.
func (l *load) play(routers []*router.Router, last time.Duration) (took []time.Duration, n int) {
	type open struct {
		at time.Time
		d  *router.Decision
		r  *router.Router
	}
	var under []open
	begin := time.Now()
	end := func(before time.Time) {
		for len(under) > 0 && under[0].at.Before(before) {
			o := under[0]
			under = under[1:]
			o.d.Done.End()
			first, _, _ := strings.Cut(o.d.Destinations, ",")
			o.r.Report(o.d.ID, router.Outcome{Status: 200, Served: netip.MustParseAddrPort(first), Attempts: 1, TTFT: time.Second / 20,
				EngineTTFT: time.Second / 20, Usage: true, PromptTokens: 4096, CompletedTokens: 100, CachedTokens: 4000, CachedKnown: true})
		}
	}
	for time.Since(begin) < last {
		for due := int(time.Since(begin) / l.gap); n < due; n++ {
			l.n++
			r := routers[l.n%len(routers)]
			at := time.Now()
			d, err := r.Route(context.Background(), l.bodies[l.n*7%len(l.bodies)])
			if err != nil {
				panic(err)
			}
			took = append(took, time.Since(at))
			under = append(under, open{at, d, r})
		}
		end(time.Now().Add(-50 * time.Millisecond))
		time.Sleep(200 * time.Microsecond)
	}
	end(time.Now())
	time.Sleep(50 * time.Millisecond) // the others hear the last
	return took, n
}

// cpu is the time that the process has computed, in nanoseconds.
func cpu() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// at is a quantile of sorted times.
func at(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))].Round(100 * time.Nanosecond)
}
