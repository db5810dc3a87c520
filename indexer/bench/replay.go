package main

import (
	"runtime"
	"slices"
	"time"

	"attache/indexer/runs"
	"attache/indexer/yardstick"
	"attache/internal/slot"
)

// The fleet that the trace is replayed on: each of its blocks of 512 tokens is 32 of 16.
const (
	fleetWorkers = 16
	fleetRoom    = 1 << 16 // blocks that a worker has room for: a million tokens
	fleetExpand  = 32
	traceRows    = 12_031
	storeBlocks  = 16 // of an event, at most
)

// replayed are the figures of the trace. One thread does what requests and engines cause, in the trace's order: it asks, removes
// what the chosen worker gives up, one event for each block, and stores what it lacks, in events of at most 16 blocks.
// Events per second are of the time that events took, and queries per second of the time that queries took.
type replayed struct {
	Requests int     `json:"requests"`
	Stored   int     `json:"stored_blocks"`
	Removed  int     `json:"removed_blocks"`
	Events   float64 `json:"events_per_s"`
	Changed  float64 `json:"mblocks_changed_per_s"` // stored or removed
	Queries  float64 `json:"queries_per_s"`
	FindP50  float64 `json:"find_p50_us"`
	FindP99  float64 `json:"find_p99_us"`
	Seconds  float64 `json:"seconds"` // of everything
	Heap     float64 `json:"heap_mb"`
	Held     int     `json:"held_blocks"`
	PerBlock float64 `json:"bytes_per_held_block"`
	Runs     int     `json:"runs"`
	Checksum uint64  `json:"checksum"`
	Input    string  `json:"input"`
	Rounds   int     `json:"rounds"`
}

func (o options) replay() (any, error) {
	r, err := yardstick.NewReplay(traceRows, fleetExpand, fleetWorkers, fleetRoom)
	if err != nil {
		return nil, err
	}
	o.input = "replay"
	var best replayed
	for n := range o.rounds {
		f := o.replayOnce(r)
		if err := check("of the replay", f.Checksum, r.Sum); err != nil {
			return f, err
		}
		if n == 0 {
			best = f
			continue
		}
		best.Events, best.Changed = max(best.Events, f.Events), max(best.Changed, f.Changed)
		best.Queries, best.Seconds = max(best.Queries, f.Queries), min(best.Seconds, f.Seconds)
		best.FindP50, best.FindP99 = min(best.FindP50, f.FindP50), min(best.FindP99, f.FindP99)
	}
	best.Rounds = o.rounds
	return best, nil
}

func (o options) replayOnce(r *yardstick.Replay) (f replayed) {
	room := fleetRoom
	if o.growing {
		room = 0
	}
	before := heap()
	x := newIndex(r.Workers, room)
	events := 0
	var asking, changing time.Duration
	took := make([]time.Duration, 0, len(r.Steps))
	var over runs.Overlap
	for i := range r.Steps {
		s := &r.Steps[i]
		start := time.Now()
		x.Overlap(s.Chain, &over)
		asked := time.Now()
		f.Checksum += sumOf(&over)
		h := runs.Holder{Slot: slot.Slot(s.Worker)}
		for k := range s.Gone {
			x.Remove(h, s.Gone[k:k+1])
		}
		for from := s.From; from < len(s.Chain); from += storeBlocks {
			to := min(from+storeBlocks, len(s.Chain))
			store := runs.Stored{Root: from == 0, Engine: s.Chain[from:to], Hashes: s.Chain[from:to], Chained: true}
			if from > 0 {
				store.Parent = s.Chain[from-1]
			}
			x.Store(h, store)
			events++
		}
		changing += time.Since(asked)
		took = append(took, asked.Sub(start))
		asking += asked.Sub(start)
		events += len(s.Gone)
		f.Stored += s.Stored()
		f.Removed += len(s.Gone)
	}
	size := heap() - before - float64(8*cap(took))
	slices.Sort(took)
	f.Requests = len(r.Steps)
	f.Events = round(float64(events)/changing.Seconds(), 0)
	f.Changed = round(float64(f.Stored+f.Removed)/changing.Seconds()/1e6, 2)
	f.Queries = round(float64(len(r.Steps))/asking.Seconds(), 0)
	f.FindP50, f.FindP99 = round(us(took[len(took)/2]), 2), round(us(took[len(took)*99/100]), 2)
	f.Seconds = round((asking + changing).Seconds(), 3)
	st := x.Stats()
	f.Held, f.Runs = st.Held, st.Runs
	f.Heap, f.PerBlock = round(size/1e6, 1), round(size/float64(st.Held), 1)
	f.Input = o.name()
	runtime.KeepAlive(x)
	return f
}
