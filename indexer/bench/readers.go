package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"attache/indexer/runs"
	"attache/indexer/yardstick"
	"attache/internal/block"
)

// beside are the figures of a number of threads that query, alone and beside a writer at its full rate. Each is the median
// of its windows; the ratios are medians of the ratios of neighbouring windows, which a noisy machine disturbs least.
type beside struct {
	Threads int `json:"threads"`

	Alone  window `json:"alone"`
	Beside window `json:"beside"`

	RatioP50     float64 `json:"ratio_p50"`
	RatioP99     float64 `json:"ratio_p99"`
	RatioQueries float64 `json:"ratio_queries"`

	Pairs     int `json:"pairs"`     // of windows that count
	Disturbed int `json:"disturbed"` // pairs left out: somebody else had the cores
}

// window is what one stretch of time showed. Queries are of all threads together.
type window struct {
	P50     float64 `json:"find_p50_us"`
	P99     float64 `json:"find_p99_us"`
	Queries float64 `json:"queries_per_s"`
	Written float64 `json:"written_mblocks_per_s"`

	undisturbed bool
}

type readersResult struct {
	Readers []beside `json:"readers"`
	Cores   int      `json:"cores"`
}

const (
	windowTime = 40 * time.Millisecond
	// ownShare is how much of the time that our threads could have run they must have run, or the window does not count: the
	// rest went to other processes.
	ownShare = .96
	// tries bounds the pairs of windows: half a minute.
	tries = 400
)

func (o options) readers() (any, error) {
	in := yardstick.Synthetic(false)
	in.Locals = nil
	r := readersResult{Cores: runtime.NumCPU()}
	var err error
	for _, threads := range []int{1, 2} {
		b := o.beside(in, threads)
		if b.Pairs < o.rounds {
			err = fmt.Errorf("other processes had the cores: only %d pairs of windows of %d count, measure on a quieter machine", b.Pairs, o.rounds)
		}
		r.Readers = append(r.Readers, b)
	}
	return r, err
}

// beside takes windows in turn, one alone and one beside the writer, until enough pairs count.
func (o options) beside(in *yardstick.Input, threads int) beside {
	room := 1 << 16
	if o.growing {
		room = 0
	}
	x := newIndex(in.Workers, room)
	apply(x, eventsOf(in.Stores, o.hash))
	changes := eventsOf(in.Changes(), o.hash)
	// Each thread has a core as far as there are enough; where there are not, the system shares them, not Go's scheduler, whose
	// turns are longer.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads + 1))
	b := beside{Threads: threads}
	var alone, with []window
	for try := 0; len(alone) < o.rounds && try < tries; try++ {
		a, w := watch(x, in.Queries, nil, threads), watch(x, in.Queries, changes, threads)
		if !a.undisturbed || !w.undisturbed {
			b.Disturbed++
			continue
		}
		alone, with = append(alone, a), append(with, w)
	}
	b.Pairs = len(alone)
	b.Alone, b.Beside = middle(alone), middle(with)
	ratio := func(of func(*window) float64) float64 {
		var values []float64
		for i := range alone {
			values = append(values, of(&with[i])/of(&alone[i]))
		}
		return round(median(values), 2)
	}
	b.RatioP50 = ratio(func(w *window) float64 { return w.P50 })
	b.RatioP99 = ratio(func(w *window) float64 { return w.P99 })
	b.RatioQueries = ratio(func(w *window) float64 { return w.Queries })
	return b
}

func middle(of []window) (w window) {
	var p50, p99, queries, written []float64
	for _, v := range of {
		p50, p99 = append(p50, v.P50), append(p99, v.P99)
		queries, written = append(queries, v.Queries), append(written, v.Written)
	}
	return window{
		P50: round(median(p50), 2), P99: round(median(p99), 2),
		Queries: round(median(queries), 0), Written: round(median(written), 1),
	}
}

// watch lets threads query for a while, beside a writer if there are changes, and says what they saw. Time that the collector
// takes is the process's own, and counts.
func watch(x *runs.Index, queries [][]block.Hash, changes []event, threads int) (w window) {
	var stop atomic.Bool
	var all sync.WaitGroup
	seen := make([]counts, threads)
	written := 0
	busy, start := cpu(), time.Now()
	for t := range threads {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			seen[t].ask(x, queries[t*len(queries)/threads:], &stop)
		})
	}
	running := threads
	if changes != nil {
		running++
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for i := 0; !stop.Load(); i = (i + 1) % len(changes) {
				apply(x, changes[i:i+1])
				written += len(changes[i].Engine)
			}
		})
	}
	time.Sleep(windowTime)
	stop.Store(true)
	all.Wait()
	took := time.Since(start)
	could := took * time.Duration(min(running, runtime.NumCPU()))
	w.undisturbed = float64(cpu()-busy) >= ownShare*float64(could)
	var sum counts
	for i := range seen {
		sum.add(&seen[i])
	}
	w.P50, w.P99 = sum.quantile(.5), sum.quantile(.99)
	w.Queries = float64(sum.n) / took.Seconds()
	w.Written = float64(written) / took.Seconds() / 1e6
	return w
}

// counts are how many queries took how long, in steps of 10 ns, the last for all that is longer.
type counts struct {
	by [10_000]uint32
	n  int
}

const countStep = 10 * time.Nanosecond

func (c *counts) ask(x *runs.Index, queries [][]block.Hash, stop *atomic.Bool) {
	var over runs.Overlap
	for i := 0; !stop.Load(); i = (i + 1) % len(queries) {
		start := time.Now()
		x.Overlap(queries[i], &over)
		c.by[min(int(time.Since(start)/countStep), len(c.by)-1)]++
		c.n++
	}
}

func (c *counts) add(other *counts) {
	c.n += other.n
	for i, n := range other.by {
		c.by[i] += n
	}
}

// quantile is in microseconds.
func (c *counts) quantile(q float64) float64 {
	left := int(q * float64(c.n))
	for i, n := range c.by {
		if left -= int(n); left < 0 {
			return us(time.Duration(i)*countStep + countStep/2)
		}
	}
	return us(time.Duration(len(c.by)) * countStep)
}

// cpu is the time for which this process ran on any core, in the kernel or not.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
