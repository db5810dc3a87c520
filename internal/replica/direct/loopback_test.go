package direct

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/replica"
	"attache/internal/replica/replicatest"
)

// sockets are ports of loopback, all of which are the peers of those who serve them.
func sockets(t testing.TB, n int) (cfg Config, listeners []net.Listener) {
	t.Helper()
	cfg = DefaultConfig()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners, cfg.Peers = append(listeners, l), append(cfg.Peers, l.Addr().String())
	}
	return cfg, listeners
}

func serve(t testing.TB, cfg Config, l net.Listener) *machine {
	t.Helper()
	log := &journal{}
	n, err := newNode(Params{Config: cfg, Name: l.Addr().String(), Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: prometheus.NewRegistry()},
		l, (&net.Dialer{}).DialContext)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, n, log)
}

// TestSockets: four replicas agree over real sockets, also when one dies and comes back at its address, and when others send garbage.
func TestSockets(t *testing.T) {
	cfg, listeners := sockets(t, 4)
	var all []*office
	open := func(l net.Listener) {
		m := serve(t, cfg, l)
		all = append(all, &office{m, replicatest.Start(t, m.Link("llama"), "replica-"+strconv.Itoa(len(all)))})
	}
	for _, l := range listeners {
		open(l)
	}
	agreed := func(when string) {
		t.Helper()
		defer func() {
			if t.Failed() {
				replicatest.Agree(t, when, desks(all)...)
			}
		}()
		await(t, "agreement "+when, func() bool { return len(replicatest.Differences(desks(all)...)) == 0 })
	}
	var chains [4]replicatest.Chains
	round := uint64(0) // no two hashes are the same by chance
	work := func() {
		var working sync.WaitGroup
		round++
		for i, o := range all {
			working.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), round))
				for range 300 {
					o.desk.Work(rnd, &chains[i])
				}
			})
		}
		working.Wait()
	}
	work()
	agreed("after work")
	address := all[3].Addr().String()
	all[3].kill()
	all = all[:3]
	work()
	for _, garbage := range []string{"GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\x16\x03\x01\x00"} {
		conn, err := net.Dial("tcp", all[0].Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, garbage)
		conn.Close()
	}
	var again net.Listener
	await(t, "a port", func() bool {
		var err error
		again, err = net.Listen("tcp", address)
		return err == nil
	})
	open(again)
	work()
	agreed("when it is there again")
	for _, o := range all {
		o.close()
	}
}

// BenchmarkFourReplicas is what the processor does for one record of 2 KB that one of four replicas publishes and three receive, at
// 5,000 records a second, all processes together.
func BenchmarkFourReplicas(b *testing.B) {
	for _, batch := range []int{1, 10} {
		b.Run("batch="+strconv.Itoa(batch), func(b *testing.B) { benchmark(b, batch) })
	}
}

func benchmark(b *testing.B, batch int) {
	const nodes, perSecond, size = 4, 5000, 2048
	cfg, listeners := sockets(b, nodes)
	var all []*machine
	var stops []func()
	var received atomic.Int64
	for _, l := range listeners {
		m := serve(b, cfg, l)
		all = append(all, m)
		stops = append(stops, follow(m.Link("llama"), replica.Events{Joined: func() {}, Lost: func(error) {}, Delivered: func([]byte) { received.Add(1) }}))
	}
	for _, m := range all {
		await(b, "all subscribers", func() bool { return m.Link("llama").hub.count() == nodes-1 })
	}
	records := make([][]byte, batch)
	for i := range records {
		records[i] = make([]byte, size)
	}
	before, begun := processor(b), time.Now()
	b.ResetTimer()
	sent := 0
	for i := 0; sent < b.N; i++ {
		if wait := time.Duration(sent)*time.Second/perSecond - time.Since(begun); wait > 0 {
			time.Sleep(wait)
		}
		if err := all[i%nodes].Link("llama").Publish(b.Context(), records...); err != nil {
			b.Fatal(err)
		}
		sent += batch
	}
	await(b, "all records", func() bool { return received.Load() == int64(sent*(nodes-1)) })
	b.StopTimer()
	b.ReportMetric(float64((processor(b)-before).Nanoseconds())/float64(sent)/1000, "cpu-us/record")
	b.ReportMetric(float64(sent)/time.Since(begun).Seconds(), "records/s")
	for i, m := range all {
		stops[i]()
		m.stop()
	}
}

// processor is the time that this process has used of all processors.
func processor(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
