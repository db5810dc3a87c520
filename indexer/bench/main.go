// Bench measures the index of what engines hold: on the yardstick, beside a writer, by memory, and on an hour of a chat service.
//
// Each run prints one line of JSON and nothing else; what it measures is said by -measure:
//
//	yardstick  all stores, all queries, all removes of an input (the default; -input, -growing, -hash)
//	readers    queries beside a writer at its full rate, and alone
//	memory     bytes per held block, and what giving a worker up costs
//	replay     a recorded trace as requests and events of a fleet with bounded caches
//
// An operation counts as done when readers see what it did: stores and removes return then, there is no queue behind them.
// Answers are summed up and compared with what they must be; a wrong sum is exit code 1. What the answers must be is found
// without any index: see package yardstick.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"attache/indexer/runs"
	"attache/indexer/yardstick"
	"attache/internal/field"
	"attache/internal/slot"
)

// options are the flags.
type options struct {
	measure, input, of string
	rounds, gc         int
	growing, hash      bool
}

func main() {
	var o options
	flag.StringVar(&o.measure, "measure", "yardstick", "yardstick, readers, memory or replay")
	flag.StringVar(&o.input, "input", "synthetic", "of the yardstick: synthetic, trace8 or trace32 (2000 rows of the trace, 8 or 32 blocks for each of theirs), long")
	flag.BoolVar(&o.growing, "growing", false, "engine maps grow from nothing, instead of being told what the engines have room for")
	flag.BoolVar(&o.hash, "hash", false, "stores and queries come as local hashes and are chained in the measured time")
	flag.StringVar(&o.of, "of", "best", "which of the rounds' figures are printed: best or median")
	flag.IntVar(&o.rounds, "rounds", 15, "rounds of yardstick, memory and replay; valid pairs of windows of readers")
	flag.IntVar(&o.gc, "gc", 400, "the collector's percentage; 400 is what the product sets")
	flag.Parse()
	result, err := o.run()
	if result != nil {
		line, encoding := json.Marshal(result)
		err = errors.Join(err, encoding)
		fmt.Println(string(line))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (o options) run() (result any, err error) {
	if o.of != "best" && o.of != "median" || o.rounds < 1 || flag.NArg() > 0 {
		return nil, errors.New(`-of must be "best" or "median", -rounds at least 1, and there are no other arguments`)
	}
	debug.SetGCPercent(o.gc)
	switch o.measure {
	case "yardstick":
		return o.yardstick()
	case "readers":
		return o.readers()
	case "memory":
		return o.memory()
	case "replay":
		return o.replay()
	}
	return nil, fmt.Errorf("-measure %s: must be yardstick, readers, memory or replay", o.measure)
}

// roomy is a configuration that nothing here fills.
func roomy() runs.Config {
	return runs.Config{MaxBytes: 16 * field.GiB, MaxOrphans: 1 << 20, MaxSlots: 1 << 12}
}

// newIndex makes an index whose workers are said to have room for a number of blocks; 0: nothing is said.
func newIndex(workers, room int) *runs.Index {
	x := runs.New(roomy())
	for s := range workers {
		x.Configure(slot.Slot(s), settings(room))
	}
	return x
}

// settings say that an engine's device has room for a number of blocks.
func settings(room int) (s runs.Settings) {
	s.Blocks[slot.Device] = room
	return s
}

// event is an event of an input as the index takes it.
type event struct {
	runs.Stored

	holder runs.Holder
	remove bool
}

// eventsOf are the events of an input. hash says that they carry local hashes, not sequence hashes.
func eventsOf(from []yardstick.Event, hash bool) []event {
	events := make([]event, len(from))
	for i, e := range from {
		hashes := e.Chain
		if hash {
			hashes = e.Local
		}
		events[i] = event{holder: runs.Holder{Slot: slot.Slot(e.Worker)}, remove: e.Remove, Stored: runs.Stored{
			Root: e.Root, Parent: e.Parent, Engine: e.Engine, Hashes: hashes, Chained: !hash,
		}}
	}
	return events
}

func apply(x *runs.Index, events []event) time.Duration {
	start := time.Now()
	for i := range events {
		if e := &events[i]; e.remove {
			x.Remove(e.holder, e.Engine)
		} else {
			x.Store(e.holder, e.Stored)
		}
	}
	return time.Since(start)
}

// sumOf is what the answer to a query adds to the checksum.
func sumOf(o *runs.Overlap) (sum uint64) {
	for i := range o.Hits {
		sum += yardstick.Sum(int(o.Hits[i].Slot), o.Hits[i].Upto(slot.Remote))
	}
	return sum
}

// check compares a checksum with what is expected, unless that is not known.
func check(when string, got, want uint64) error {
	if got != want && want != 0 {
		return fmt.Errorf("checksum %d %s, expected is %d", got, when, want)
	}
	return nil
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

// round keeps a figure readable.
func round(v float64, digits int) float64 {
	scale := 1.0
	for range digits {
		scale *= 10
	}
	return float64(int64(v*scale+.5)) / scale
}
