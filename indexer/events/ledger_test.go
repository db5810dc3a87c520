package events

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"attache/indexer/events/wire"
	"attache/indexer/events/zmtp"
	"attache/indexer/runs"
	"attache/internal/slot"
	"attache/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sockets serve a publisher on loopback until the test ends.
type sockets struct {
	*publisher

	pub            *zmtp.Pub
	events, replay string
	mu             sync.Mutex // guards the publisher
}

func serve(t *testing.T, p *publisher) *sockets {
	t.Helper()
	s := &sockets{publisher: p}
	var err error
	if s.pub, err = zmtp.NewPub(zmtp.PubParams{Endpoint: "tcp://127.0.0.1:0", Config: zmtp.DefaultConfig()}); err != nil {
		t.Fatal(err)
	}
	router, err := zmtp.NewRouter(zmtp.RouterParams{Endpoint: "tcp://127.0.0.1:0", Config: zmtp.DefaultConfig(), Receive: s.answer})
	if err != nil {
		t.Fatal(err)
	}
	s.events, s.replay = s.pub.Endpoint(), router.Endpoint()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.pub.Run(ctx) })
	running.Go(func() { _ = router.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

func (s *sockets) answer(c *zmtp.Caller, m zmtp.Message) {
	from, err := wire.ParseReplayRequest(m)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := 0
	if s.ring > 0 {
		first = max(0, len(s.batches)-s.ring)
	}
	for i := max(first, int(from)); i < len(s.batches); i++ {
		_ = c.Send(wire.ReplayFrames(wire.Message{Seq: uint64(i), Payload: s.batches[i].payload}, true)...)
	}
	_ = c.Send(wire.ReplayEnd(true)...)
}

// say stores a prompt and publishes that.
func (s *sockets) say(prompt, blocks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publish(s.store(prompt, blocks))
	last := len(s.batches) - 1
	s.pub.Send(wire.LiveFrames(wire.Message{Seq: uint64(last), Payload: s.batches[last].payload})...)
}

// following is a ledger that runs until it is stopped.
type following struct {
	*Ledger

	stop  func()
	block int
}

// follow begins with the snapshot, if it is not nil and can be used.
func follow(t *testing.T, snapshot []byte, workers ...*worker.Worker) *following {
	t.Helper()
	return followIn(t, pageTokens, snapshot, workers...)
}

// followIn is follow with blocks of another size.
func followIn(t *testing.T, block int, snapshot []byte, workers ...*worker.Worker) *following {
	t.Helper()
	cfg := DefaultConfig()
	l, err := New(Params{Config: cfg, Pool: "p", BlockTokens: block, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if snapshot != nil {
		_ = l.Restore(bytes.NewReader(snapshot))
	}
	l.Observe(worker.NewSet(workers...))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = l.Run(ctx) })
	f := &following{l, sync.OnceFunc(func() { cancel(); running.Wait() }), block}
	t.Cleanup(f.stop)
	return f
}

func workerAt(name string, s slot.Slot, at *sockets) *worker.Worker {
	addr := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(s)+1)
	return worker.NewWorker(worker.Spec{Name: name, Pool: "p", Addr: addr,
		Events: worker.EventSource{Endpoint: at.events, Replay: at.replay}}, s, worker.Ready)
}

func (f *following) holds(prompt int, s slot.Slot) int {
	var o runs.Overlap
	f.Overlap(chainOf(prompt, f.block), &o)
	return o.Of(s).Upto(slot.Remote)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestALedgerFollowsWorkers(t *testing.T) {
	a := serve(t, &publisher{block: pageTokens, process: 1, tree: map[uint64]bool{}})
	b := serve(t, &publisher{block: pageTokens, process: 2, tree: map[uint64]bool{}})
	a.say(0, 3)
	w := workerAt("a", 4, a)
	l := follow(t, nil, w)
	eventually(t, "a is caught up with", func() bool { return l.Evidence(4).Mode == Exact && l.holds(0, 4) == 3 && l.Pending() == 0 })
	l.Observe(worker.NewSet(w, workerAt("b", 5, b)))
	eventually(t, "b is followed", func() bool { return l.Evidence(5).Mode == Exact })
	b.say(2, 5)
	a.say(0, 4)
	eventually(t, "both tell", func() bool { return l.holds(2, 5) == 5 && l.holds(0, 4) == 4 })
	if s := l.Status(); len(s) != 2 || s[0].Worker != "a" || s[0].Held[slot.Device] != 4 || s[1].State != Live {
		t.Errorf("status %+v", s)
	}
	l.Observe(worker.NewSet(workerAt("b", 5, b)))
	eventually(t, "a is forgotten", func() bool {
		return l.holds(0, 4) == 0 && l.Evidence(4).Mode == Approximate && len(l.Status()) == 1
	})
}

// TestEnginesThatDial: three workers at one socket, told apart by their names, by their addresses and by nothing but where they
// dial from; and one that nobody knows.
func TestEnginesThatDial(t *testing.T) {
	endpoint := "ipc://" + filepath.Join(t.TempDir(), "events")
	cfg := DefaultConfig()
	l, err := New(Params{Config: cfg, Source: PoolConfig{Bind: endpoint}, Pool: "p", BlockTokens: pageTokens, Now: time.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	at := func(name, address string, s slot.Slot, ranks ...slot.Slot) *worker.Worker {
		addr := netip.MustParseAddrPort(address)
		return worker.NewWorker(worker.Spec{Name: name, Pool: "p", Address: address, Addr: addr}, s, worker.Ready, ranks...)
	}
	l.Observe(worker.NewSet(at("gpu-a", "10.0.0.1:8000", 0), at("gpu-b", "10.0.0.2:8000", 1, 2)))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = l.Run(ctx) })
	eventually(t, "both are looked at", func() bool { return len(l.Status()) == 3 })
	type speaker struct {
		topic string
		rank  uint32
	}
	for i, s := range []speaker{{"kv@gpu-a@m", 0}, {"kv@10.0.0.2@m", 0}, {"kv@10.0.0.2:8000@m", 1}, {"kv@gpu-c@m", 0}, {"", 0}} {
		pub, err := zmtp.NewPub(zmtp.PubParams{Endpoint: endpoint, Connect: true, Config: cfg.Socket})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { _ = pub.Run(ctx) })
		eventually(t, "subscribed", func() bool { return pub.Subscribers() == 1 })
		p := &publisher{block: pageTokens, process: i + 1, tree: map[uint64]bool{}}
		payload := wire.Encoder{Dialect: wire.VLLMMap}.Append(nil, wire.Draft{Time: 1, Rank: s.rank, Events: []wire.DraftEvent{p.store(0, i+1)}})
		pub.Send(wire.LiveFrames(wire.Message{Topic: []byte(s.topic), Payload: payload})...)
	}
	f := &following{Ledger: l, block: pageTokens}
	eventually(t, "each has told, and two were nobody", func() bool {
		return f.holds(0, 0) == 1 && f.holds(0, 1) == 2 && f.holds(0, 2) == 3 && l.bound.unknown.Load() == 2
	})
	for s := range slot.Slot(3) {
		if e := l.Evidence(s); e.Mode != Exact {
			t.Errorf("slot %d is %s, want exact", s, e.Mode)
		}
	}
}

func TestSpeakers(t *testing.T) {
	l, err := New(Params{Config: DefaultConfig(), Pool: "p", BlockTokens: 16, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	at := func(name, address string) *worker.Worker {
		return &worker.Worker{Spec: worker.Spec{Name: name, Address: address, Addr: netip.MustParseAddrPort(address)}, Endpoint: address}
	}
	workers := []*worker.Worker{at("a", "10.0.0.1:8000"), at("b", "10.0.0.2:8000"), at("c", "10.0.0.2:8001"), at("d", "[fd00::1]:8000")}
	l.bound.workers.Store(&workers)
	for _, c := range []struct{ topic, from, want string }{
		{"kv@a@m", "10.0.0.9:5", "a"},
		{"kv@10.0.0.2:8001@m", "", "c"},
		{"kv@10.0.0.1@m@with@more", "", "a"},
		{"kv@10.0.0.2@m", "", ""}, // b or c
		{"kv@nobody@m", "10.0.0.1:5", ""},
		{"", "10.0.0.1:5", "a"},
		{"", "10.0.0.2:5", ""},
		{"other", "[fd00::1]:7", "d"},
		{"", "", ""},
	} {
		got := ""
		if w := l.bound.speaker(zmtp.Peer{Address: c.from}, []byte(c.topic)); w != nil {
			got = w.Name
		}
		if got != c.want {
			t.Errorf("topic %q from %q: %q, want %q", c.topic, c.from, got, c.want)
		}
	}
}
