package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"attache/internal/slot"
)

// maxPage bounds a metrics page; vLLM's has 50 to 60 KB.
const maxPage = 4 << 20

// look is how often an idle worker's own count of requests is looked at; it costs no message.
const look = 250 * time.Millisecond

// readMetrics reads one engine's metrics until ctx ends: often while it has requests, seldom while it has none. A failed
// reading is shown and counted; it does not make a worker unhealthy, because not every engine has metrics.
func (r *Registry) readMetrics(ctx context.Context, spec Spec, s slot.Slot, live, told *atomic.Pointer[Stats],
	served *atomic.Pointer[Served]) {
	page := make([]byte, 0, 64<<10)
	var asked time.Time
	var started float64
	for ctx.Err() == nil {
		var stats Stats
		var err error
		if page, err = r.page(ctx, spec, page[:0]); err == nil {
			stats, err = ParseMetrics(page)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if before := live.Load(); before != nil {
				stats = *before
			}
			stats.believe(told.Load())
			stats.Err = err.Error()
		} else {
			stats.At = time.Now()
		}
		r.metrics.readings.WithLabelValues(result(err == nil)).Inc()
		if err == nil && (time.Since(asked) > modelsAge || stats.ProcessStart != started) {
			said, err := r.readServed(ctx, spec, cmp.Or(stats.Engine, spec.Engine))
			if err == nil || stats.ProcessStart != started { // what another process served says nothing of this one
				served.Store(said)
			}
			asked, started = time.Now(), stats.ProcessStart
		}
		live.Store(&stats)
		if stats.ProcessStart != 0 {
			r.change(spec.Addr, func(e *entry, _ time.Time) { e.restarted(stats.ProcessStart) })
		}
		r.rest(ctx, s, &stats)
	}
}

// toldAge is how long figures count that a worker told by itself; they come with its heartbeats.
const toldAge = 30 * time.Second

// Tell takes in figures that a worker told by itself. They count while its metrics cannot be read.
func (r *Registry) Tell(addr netip.AddrPort, stats Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[addr]; e != nil {
		stats.At = time.Now()
		e.told.Store(&stats)
	}
}

// believe puts what the worker told by itself in place of what could not be read. Nil: it told nothing.
func (s *Stats) believe(told *Stats) {
	if s.Told = told != nil && time.Since(told.At) < toldAge; !s.Told {
		return
	}
	s.At, s.Running, s.Waiting, s.KVUsage = told.At, told.Running, told.Waiting, told.KVUsage
	s.Blocks, s.BlockTokens = cmp.Or(told.Blocks, s.Blocks), cmp.Or(told.BlockTokens, s.BlockTokens)
}

// rest waits until the next reading is due.
func (r *Registry) rest(ctx context.Context, s slot.Slot, stats *Stats) {
	busy := func() bool {
		r.mu.Lock()
		count := r.inFlight
		r.mu.Unlock()
		return stats.Err == "" && (stats.Running+stats.Waiting > 0 || count != nil && count(s) > 0)
	}
	began := time.Now()
	for waited := time.Duration(0); ; {
		cfg := &r.cfg.Load().Metrics // which may change meanwhile
		if time.Since(began) >= cfg.Idle || waited >= cfg.Busy && busy() {
			return
		}
		step := min(look, cfg.Busy)
		waited += step
		select {
		case <-time.After(step):
		case <-ctx.Done():
			return
		}
	}
}

func (r *Registry) page(ctx context.Context, spec Spec, into []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Load().Metrics.Timeout)
	defer cancel()
	path := "/metrics"
	if spec.Engine == TRTLLM {
		path = "/prometheus/metrics" // its /metrics is JSON, and reading empties it
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+spec.Addr.String()+path, nil)
	if err != nil {
		return into, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return into, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return into, fmt.Errorf("status %d on GET %s", resp.StatusCode, path)
	}
	for {
		if len(into) == cap(into) {
			into = append(into, 0)[:len(into)]
		}
		n, err := resp.Body.Read(into[len(into):cap(into)])
		into = into[:len(into)+n]
		if len(into) > maxPage {
			return into, errors.New("the metrics page exceeds 4 MiB")
		}
		if errors.Is(err, io.EOF) {
			return into, nil
		}
		if err != nil {
			return into, err
		}
	}
}
