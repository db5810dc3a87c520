package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"attache/indexer/runs"
	"attache/indexer/yardstick"
	"attache/internal/block"
)

// warmUp is how many queries are asked before those that are measured.
const warmUp = 500

// figures are one run of an input. Rates are of the whole phase: blocks told by all stores, events of all removes, and
// queries with the clock that measures each of them.
type figures struct {
	FindP50        float64 `json:"find_p50_us"`
	FindP99        float64 `json:"find_p99_us"`
	Queries        float64 `json:"queries_per_s"`
	Store          float64 `json:"store_mblocks_per_s"`
	Remove         float64 `json:"remove_events_per_s"`
	ChecksumStore  uint64  `json:"checksum_store"`
	ChecksumRemove uint64  `json:"checksum_remove"`
	// Heap is the index alone after the stores, in 10^6 bytes, and PerBlock the bytes of it per held block: one that two
	// workers hold counts twice.
	Heap     float64 `json:"heap_mb"`
	PerBlock float64 `json:"bytes_per_held_block"`
	Held     int     `json:"held_blocks"`
	Input    string  `json:"input"`
	Rounds   int     `json:"rounds"`
}

// yardstick runs an input several times, each time from an empty index. Every figure is the best, or the median, of its
// rounds by itself.
func (o options) yardstick() (any, error) {
	in, room, err := o.read()
	if err != nil {
		return nil, err
	}
	stores, removes := eventsOf(in.Stores, o.hash), eventsOf(in.Removes, o.hash)
	if !o.hash {
		in.Locals = nil
	}
	var all []figures
	for range o.rounds {
		f, failed := o.once(in, stores, removes, room)
		all = append(all, f)
		err = errors.Join(err, failed)
		if err != nil {
			break
		}
	}
	f := all[len(all)-1]
	pick := func(of func(*figures) float64, lower bool) float64 {
		values := make([]float64, len(all))
		for i := range all {
			values[i] = of(&all[i])
		}
		switch {
		case o.of == "median":
			return median(values)
		case lower:
			return slices.Min(values)
		}
		return slices.Max(values)
	}
	f.FindP50 = round(pick(func(f *figures) float64 { return f.FindP50 }, true), 2)
	f.FindP99 = round(pick(func(f *figures) float64 { return f.FindP99 }, true), 2)
	f.Queries = round(pick(func(f *figures) float64 { return f.Queries }, false), 0)
	f.Store = round(pick(func(f *figures) float64 { return f.Store }, false), 2)
	f.Remove = round(pick(func(f *figures) float64 { return f.Remove }, false), 0)
	f.Heap = round(pick(func(f *figures) float64 { return f.Heap }, true), 1)
	f.PerBlock = round(pick(func(f *figures) float64 { return f.PerBlock }, true), 1)
	f.Input, f.Rounds = o.name(), len(all)
	return f, err
}

// name says which input was measured how.
func (o options) name() string {
	name := o.input
	if o.growing {
		name += " growing"
	} else {
		name += " presized"
	}
	if o.hash {
		name += " local hashes"
	}
	return name
}

// read makes the input, and says how many blocks each worker shall be said to have room for. With local hashes each engine
// has hashes of its own, as engines that do not know ours have.
func (o options) read() (in *yardstick.Input, room int, err error) {
	switch o.input {
	case "synthetic":
		in, room = yardstick.Synthetic(o.hash), 1<<16
	case "trace8":
		in, err = yardstick.Trace(2000, 8)
		room = 1 << 16
	case "trace32":
		in, err = yardstick.Trace(2000, 32)
		room = 1 << 18
	case "long":
		in, room = yardstick.Long(), 320_000
	default:
		err = fmt.Errorf("-input %s: must be synthetic, trace8, trace32 or long", o.input)
	}
	if o.growing {
		room = 0
	}
	return in, room, err
}

func (o options) once(in *yardstick.Input, stores, removes []event, room int) (f figures, err error) {
	before := heap()
	x := newIndex(in.Workers, room)
	f.Store = float64(yardstick.Blocks(in.Stores)) / apply(x, stores).Seconds() / 1e6
	size := heap() - before
	f.Held = x.Stats().Held
	f.Heap, f.PerBlock = size/1e6, size/float64(f.Held)
	a := o.ask(x, in.Queries, in.Locals)
	f.FindP50, f.FindP99, f.Queries, f.ChecksumStore = a.p50, a.p99, a.perSecond, a.sum
	err = check("after the stores", a.sum, in.AfterStores)
	if len(removes) > 0 {
		f.Remove = float64(len(removes)) / apply(x, removes).Seconds()
		f.ChecksumRemove = o.ask(x, in.Again(), in.Locals).sum
		err = errors.Join(err, check("after the removes", f.ChecksumRemove, in.AfterRemoves))
	}
	return f, err
}

// answers are what a phase of queries showed; times in microseconds.
type answers struct {
	p50, p99, perSecond float64
	sum                 uint64
}

// ask asks all queries, by their chains or by local hashes that have to be chained.
func (o options) ask(x *runs.Index, queries [][]block.Hash, locals [][]uint64) (a answers) {
	var over runs.Overlap
	for _, q := range queries[:min(warmUp, len(queries))] {
		x.Overlap(q, &over)
	}
	var chain []block.Hash
	took := make([]time.Duration, len(queries))
	start := time.Now()
	for i, q := range queries {
		from := time.Now()
		if o.hash {
			chain = yardstick.AppendChain(chain[:0], locals[i])
			q = chain
		}
		x.Overlap(q, &over)
		took[i] = time.Since(from)
		a.sum += sumOf(&over)
	}
	a.perSecond = float64(len(queries)) / time.Since(start).Seconds()
	slices.Sort(took)
	a.p50, a.p99 = us(took[len(took)/2]), us(took[len(took)*99/100])
	return a
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// heap is what is alive, in bytes.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
