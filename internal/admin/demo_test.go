package admin

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestDemo serves the dashboard over made-up load until it is interrupted, to look at it while working on the page:
//
//	ATTACHE_ADMIN_DEMO=127.0.0.1:9902 go test -run TestDemo -timeout 0 ./internal/admin
//
// ATTACHE_ADMIN_DEMO_FLEET=none shows the empty page, =large one of 120 workers.
func TestDemo(t *testing.T) {
	listen := os.Getenv("ATTACHE_ADMIN_DEMO")
	if listen == "" {
		t.Skip("ATTACHE_ADMIN_DEMO is not set")
	}
	src := newFake()
	switch os.Getenv("ATTACHE_ADMIN_DEMO_FLEET") {
	case "none":
		*src = fake{status: Status{Version: "0.1.0", Mode: "attach", StartedAt: time.Now()},
			checks: []Check{{"workers", Failed, "no worker is ready: none is known"}}}
	case "large":
		for i := range 112 {
			w := src.workers[i%8]
			w.Name, w.Address = fmt.Sprintf("%s-%03d", w.Name, i), fmt.Sprintf("10.0.4.%d:8000", i)
			src.workers = append(src.workers, w)
		}
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	if len(src.pools) > 0 {
		go src.play(ctx.Done())
	}
	cfg := DefaultConfig()
	cfg.Listen = listen
	s, err := New(cfg, src, slog.New(slog.NewTextHandler(os.Stderr, nil)), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// play moves the fake: five minutes of past at once, then one second per second.
func (f *fake) play(done <-chan struct{}) {
	rnd := rand.New(rand.NewPCG(1, 2))
	shift := time.Since(noon)
	f.status.StartedAt = f.status.StartedAt.Add(shift)
	for i := range f.workers {
		w := &f.workers[i]
		w.Since = w.Since.Add(shift)
		if w.Overlap.Feeds > 0 {
			w.Overlap.Since = w.Overlap.Since.Add(shift)
		}
	}
	script := f.made
	now := time.Now().Add(-301 * time.Second)
	window := NewWindow(300, func() time.Time { return now })
	step := func(i int) {
		wave := 1 + 0.35*math.Sin(float64(i)/40) + 0.1*rnd.NormFloat64()
		slow := 1.0
		if i%170 > 120 {
			slow = 2.2
		}
		for range int(40 * max(wave, 0.1)) {
			prompt := 500 + rnd.IntN(8000)
			available := 0.71 + 0.05*math.Sin(float64(i)/25) + 0.06*rnd.NormFloat64()
			window.Decided(prompt, int(available*float64(prompt)), int((available-0.05)*float64(prompt)))
			window.Delivered(prompt, int((available-0.08)*float64(prompt)))
			window.FirstToken(time.Duration(slow * 180e6 * math.Exp(0.8*rnd.NormFloat64())))
			if rnd.IntN(900) == 0 {
				window.Failed()
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		sum := window.Summary(time.Minute)
		st := &f.status
		st.RequestsPerS, st.ErrorsPerS, st.Reuse = sum.RequestsPerS, sum.ErrorsPerS, sum.Reuse
		st.TTFTP50S, st.TTFTP99S = sum.TTFTP50S, sum.TTFTP99S
		st.RequestsTotal += 41
		for i := range f.workers {
			if w := &f.workers[i]; w.State == "ready" {
				w.InFlight = max(0, w.InFlight+rnd.IntN(5)-2)
				q, _ := w.QueueS.Get()
				w.QueueS = Known(max(0, q+0.1*rnd.NormFloat64()))
			}
		}
		d := script[[]int{1, 0, 1, 2, 0, 1, 3, 1}[i%8]]
		d.ID, d.Time = fmt.Sprintf("attache-0/%x", 40000+i), now
		f.made = append([]Decision{d}, f.made[:min(len(f.made), 99)]...)
		f.series = window.Series()
	}
	f.made = nil
	for i := range 300 {
		step(i)
		now = now.Add(time.Second)
	}
	for i := 300; ; i++ {
		select {
		case <-done:
			return
		case <-time.After(time.Second):
			now = time.Now()
			step(i)
		}
	}
}
