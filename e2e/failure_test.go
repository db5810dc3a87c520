package e2e

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// load runs clients until stop is closed and counts what they saw.
type load struct {
	ok, errors, broken atomic.Int64
	mu                 sync.Mutex
	first              []string // the first few failures
	wg                 sync.WaitGroup
	stop               chan struct{}
}

func (r *rig) load(clients int, c chatRequest) *load {
	l := &load{stop: make(chan struct{})}
	for i := range clients {
		l.wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					return
				default:
				}
				c := c
				c.prompt = words(fmt.Sprintf("client-%d", i), 3000) + words(fmt.Sprintf("turn-%d", n), 200)
				a, err := r.chat(context.Background(), c)
				switch {
				case err == nil && a.status == 200:
					l.ok.Add(1)
				case a.status == 200: // it had begun
					l.broken.Add(1)
				default:
					l.errors.Add(1)
					l.note(fmt.Sprintf("status %d, %v: %.200s", a.status, err, a.text))
				}
			}
		})
	}
	return l
}

func (l *load) note(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.first) < 5 {
		l.first = append(l.first, s)
	}
}

func (l *load) end() {
	close(l.stop)
	l.wg.Wait()
}

// TestAttacheKilledUnderLoad: with BUFFERED bodies and fail-open no client sees an error when attache is killed, and
// steering is back soon after it returns.
func TestAttacheKilledUnderLoad(t *testing.T) {
	r := start(t, setup{mode: "ads", engines: 3})
	l := r.load(16, chatRequest{tokens: 6, stream: true})
	time.Sleep(1500 * time.Millisecond)
	r.attache.Kill()
	time.Sleep(1500 * time.Millisecond)
	before := l.ok.Load()
	restarted := time.Now()
	r.startAttache()
	r.eventually("steering is back", func() bool {
		return r.metric(`attache_router_decisions_total{pool="default"}`) > 0
	})
	back := time.Since(restarted)
	time.Sleep(time.Second)
	l.end()
	t.Logf("%d ok, %d errors, %d broken; steering back %s after the restart; %d requests failed open", l.ok.Load(),
		l.errors.Load(), l.broken.Load(), back.Round(10*time.Millisecond),
		r.envoy.Stat(t.Context(), "http.llm.ext_proc.failure_mode_allowed"))
	if l.errors.Load() != 0 || l.broken.Load() != 0 {
		t.Errorf("clients saw %d errors and %d broken streams: %s", l.errors.Load(), l.broken.Load(), strings.Join(l.first, "; "))
	}
	if before == 0 || l.ok.Load() == before {
		t.Errorf("no requests were served: %d before, %d after the restart", before, l.ok.Load())
	}
	if back > time.Second {
		t.Errorf("steering came back after %s", back)
	}
}

// TestAttacheKilledInFullDuplex: that mode cannot fail open; clients get clear 503s, and service comes back.
func TestAttacheKilledInFullDuplex(t *testing.T) {
	r := start(t, setup{mode: "ads", body: "FULL_DUPLEX_STREAMED", engines: 2})
	r.attache.Kill()
	saw := map[int]int{}
	for range 10 {
		a, err := r.chat(t.Context(), chatRequest{prompt: words("x", 2000)})
		if err != nil {
			t.Fatalf("want a clear answer, got %v", err)
		}
		saw[a.status]++
	}
	if saw[503] == 0 || saw[503]+saw[200] != 10 {
		t.Errorf("statuses while attache is away: %v, want 503", saw)
	}
	r.startAttache()
	r.eventually("requests are served again", func() bool {
		a, err := r.chat(t.Context(), chatRequest{prompt: "hello"})
		return err == nil && a.status == 200
	})
}

// TestEngineKilledUnderLoad: requests that had not begun are repeated on the second choice; only streams that had
// started on the dead worker break.
func TestEngineKilledUnderLoad(t *testing.T) {
	for _, mode := range []string{"ads", "attach", "static"} {
		t.Run(mode, func(t *testing.T) {
			r := start(t, setup{mode: mode, engines: 3})
			l := r.load(16, chatRequest{tokens: 6, stream: true})
			time.Sleep(time.Second)
			r.engines[1].Kill()
			time.Sleep(2 * time.Second)
			l.end()
			t.Logf("%d ok, %d errors, %d streams broken on the dead worker", l.ok.Load(), l.errors.Load(), l.broken.Load())
			if l.errors.Load() != 0 {
				t.Errorf("clients saw %d errors: %s", l.errors.Load(), strings.Join(l.first, "; "))
			}
			if l.broken.Load() > 16 {
				t.Errorf("%d broken streams, at most one per client can have been on the dead worker", l.broken.Load())
			}
			r.eventually("the dead worker is out", func() bool {
				return strings.Join(r.workers("ready"), ",") == "engine-0,engine-2"
			})
			r.startEngine(r.engines[1])
			r.eventually("it is back", func() bool { return len(r.workers("ready")) == 3 })
		})
	}
}

// TestEngineFaults: a worker that answers 503 or resets costs no client an error; its own 500 is passed on.
func TestEngineFaults(t *testing.T) {
	for _, c := range []struct {
		fault  string
		status int
	}{{"503", 200}, {"reset", 200}, {"refuse", 200}, {"500", 500}} {
		t.Run(c.fault, func(t *testing.T) {
			r := start(t, setup{mode: "ads", engines: 2})
			home := r.engine(r.must(chatRequest{prompt: words("mine", 8000)}).engine)
			resp, err := client.Post("http://"+home.address()+"/sim/fault", "application/json", strings.NewReader(`{"mode":"`+c.fault+`","for":"3s"}`))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			a, err := r.chat(t.Context(), chatRequest{prompt: words("mine", 8000) + "more"})
			if err != nil || a.status != c.status {
				t.Errorf("status %d, %v; want %d", a.status, err, c.status)
			}
			if c.status == 200 && a.engine == home.name {
				t.Errorf("served by %s, which fails", home.name)
			}
		})
	}
}

// TestDrain: on SIGTERM attache says that it is going, Envoy routes on without it, and running streams finish.
func TestDrain(t *testing.T) {
	r := start(t, setup{mode: "ads", engines: 2, engineArgs: []string{"--min-step", "50ms"}})
	l := r.load(8, chatRequest{tokens: 20, stream: true})
	time.Sleep(time.Second)
	r.attache.Stop(wait)
	if err := r.attache.Err(); err != nil {
		t.Errorf("attache ended with %v", err)
	}
	time.Sleep(time.Second)
	l.end()
	if l.errors.Load() != 0 || l.broken.Load() != 0 || l.ok.Load() == 0 {
		t.Errorf("%d ok, %d errors, %d broken streams while attache drained: %s", l.ok.Load(), l.errors.Load(), l.broken.Load(),
			strings.Join(l.first, "; "))
	}
}

// TestManyStreams: 2,000 answers trickle at once; nobody is turned away, nobody is cut.
func TestManyStreams(t *testing.T) {
	const streams = 2000
	r := start(t, setup{mode: "ads", engines: 4, engineArgs: []string{"--min-step", "500ms", "--max-seqs", "1024", "--kv-blocks", "100000"}})
	var wg sync.WaitGroup
	var ok, failed atomic.Int64
	var first atomic.Value
	for i := range streams {
		wg.Go(func() {
			a, err := r.chat(t.Context(), chatRequest{prompt: fmt.Sprintf("stream %d", i), tokens: 50, stream: true})
			if err != nil || a.status != 200 {
				failed.Add(1)
				first.CompareAndSwap(nil, fmt.Sprintf("status %d, %v, %.200s", a.status, err, a.text))
				return
			}
			ok.Add(1)
		})
		if i%50 == 49 {
			time.Sleep(40 * time.Millisecond)
		}
	}
	peak := 0.0
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		peak = max(peak, r.metric("attache_extproc_open_streams"))
		select {
		case <-done:
			running = false
		case <-time.After(300 * time.Millisecond):
		}
	}
	t.Logf("%d streams finished, %d failed, at most %.0f were open at once", ok.Load(), failed.Load(), peak)
	if failed.Load() != 0 {
		t.Errorf("%d of %d streams failed, the first: %v", failed.Load(), streams, first.Load())
	}
	if peak < 1500 {
		t.Errorf("only %.0f streams were open at once; the test does not show what it should", peak)
	}
	r.eventually("every booking is freed", func() bool { return r.metric("attache_extproc_open_streams") == 0 })
}

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

func read(r io.Reader) string {
	text, _ := io.ReadAll(r)
	return string(text)
}
