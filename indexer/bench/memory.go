package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"attache/indexer/runs"
	"attache/indexer/yardstick"
	"attache/internal/block"
	"attache/internal/slot"
)

// memory are bytes per held block, and what giving up a worker with a million blocks costs. Held are pairs of worker and block.
type memory struct {
	SteadyPresized float64 `json:"steady_presized_bytes_per_held_block"`
	SteadyGrowing  float64 `json:"steady_growing_bytes_per_held_block"`
	SteadyRuns     int     `json:"steady_runs"`
	SteadyHeld     int     `json:"steady_held_blocks"`
	ChurnBlocks    float64 `json:"churn_mblocks_per_s"`
	OnePresized    float64 `json:"one_block_prompts_presized_bytes_per_held_block"`
	OneGrowing     float64 `json:"one_block_prompts_growing_bytes_per_held_block"`
	Drops          []drop  `json:"drops"`
	Rounds         int     `json:"rounds"`
}

// drop is giving up a worker. Gone is from the call until a query shows nothing of it; Step the longest time for which the
// writer is held by one call of Tidy, and All the sum of the calls. Medians of the rounds, and the longest of all.
type drop struct {
	Blocks  int     `json:"blocks_per_prompt"`
	Gone    float64 `json:"gone_ms"`
	Step    float64 `json:"tidy_step_ms"`
	Longest float64 `json:"tidy_longest_ms"`
	All     float64 `json:"tidy_all_ms"`
	Steps   int     `json:"tidy_steps"`
	Before  float64 `json:"heap_before_mb"`
	After   float64 `json:"heap_after_mb"`
}

func (o options) memory() (any, error) {
	m := memory{Rounds: o.rounds}
	presized, growing := churn(steadyRoom), churn(0)
	m.SteadyPresized, m.SteadyGrowing = presized.perBlock, growing.perBlock
	m.SteadyRuns, m.SteadyHeld, m.ChurnBlocks = presized.runs, presized.held, presized.rate
	m.OnePresized, m.OneGrowing = onePerPrompt(steadyRoom), onePerPrompt(0)
	for _, length := range []int{512, 8} {
		d, err := o.drop(length)
		if err != nil {
			return nil, err
		}
		m.Drops = append(m.Drops, d)
	}
	return m, nil
}

// The steady state: workers are full, and for each prompt that comes one that was used longest ago goes.
const (
	steadyWorkers  = 16
	steadyRoom     = 1 << 15 // blocks of a worker
	steadyPrompts  = 4 * steadyRoom / (steadyLength - steadyShared)
	steadyLength   = 512
	steadyShared   = 128 // leading blocks that all prompts of a group share
	steadyGroups   = 8
	steadyPerEvent = 16
)

type steady struct {
	perBlock, rate float64
	held, runs     int
}

// churn turns every worker's cache over four times. Prompts of a group share their first blocks, which stay; the rest of a prompt
// goes from its end. One in four is held by two workers, as when load was spread.
func churn(room int) (s steady) {
	before := heap()
	x := newIndex(steadyWorkers, room)
	kept := steadyRoom/(steadyLength-steadyShared) - steadyGroups/2 // prompts that a worker has room for
	blocks, took := 0, time.Duration(0)
	for n := range steadyPrompts {
		for w := range steadyWorkers {
			h := runs.Holder{Slot: slot.Slot(w)}
			chain := steadyChain(w, n)
			old := []block.Hash(nil)
			if n >= kept {
				old = slices.Clone(steadyChain(w, n-kept)[steadyShared:])
				slices.Reverse(old)
			}
			from := steadyShared
			if n < steadyGroups {
				from = 0
			}
			start := time.Now()
			for i := 0; i < len(old); i += steadyPerEvent {
				x.Remove(h, old[i:i+steadyPerEvent])
			}
			for i := from; i < len(chain); i += steadyPerEvent {
				e := runs.Stored{Root: i == 0, Engine: chain[i : i+steadyPerEvent], Hashes: chain[i : i+steadyPerEvent], Chained: true}
				if i > 0 {
					e.Parent = chain[i-1]
				}
				x.Store(h, e)
			}
			took += time.Since(start)
			blocks += len(chain) - from + len(old)
		}
	}
	size := heap() - before
	st := x.Stats()
	s = steady{round(size/float64(st.Held), 1), round(float64(blocks)/took.Seconds()/1e6, 1), st.Held, st.Runs}
	runtime.KeepAlive(x)
	return s
}

// steadyChain is the n-th prompt of a worker.
func steadyChain(w, n int) []block.Hash {
	group, id := uint64(n%steadyGroups), uint64(w)<<32|uint64(n)
	if n%4 == 0 {
		id = uint64(w/2)<<32 | uint64(n) // the neighbour has it, too
	}
	local := make([]uint64, steadyLength)
	for i := range local {
		if i < steadyShared {
			local[i] = yardstick.Mix(group<<16 | uint64(i))
		} else {
			local[i] = yardstick.Mix(id<<16 | uint64(i))
		}
	}
	return yardstick.Chain(local)
}

// onePerPrompt fills the workers with prompts of one block each, which nobody shares: the worst case.
func onePerPrompt(room int) float64 {
	before := heap()
	x := newIndex(steadyWorkers, room)
	for n := range uint64(steadyWorkers * steadyRoom) {
		chain := [1]block.Hash{yardstick.Mix(n) | 1}
		x.Store(runs.Holder{Slot: slot.Slot(n % steadyWorkers)}, runs.Stored{Root: true, Engine: chain[:], Hashes: chain[:], Chained: true})
	}
	size := heap() - before
	perBlock := round(size/float64(x.Stats().Held), 1)
	runtime.KeepAlive(x)
	return perBlock
}

// tidyRuns is how many runs the product has looked at in one go, between batches of events.
const tidyRuns = 2000

// drop fills an index with prompts of one length, a million blocks on one worker and half of them on another as well, and gives
// the first worker up.
func (o options) drop(length int) (d drop, err error) {
	d.Blocks = length
	var gone, steps, all []float64
	for range o.rounds {
		empty := heap()
		x := newIndex(2, 1_000_000)
		local := make([]uint64, length)
		var chain []block.Hash
		for p := range 1_000_000 / length {
			for i := range local {
				local[i] = yardstick.Mix(uint64(p*length + i))
			}
			chain = yardstick.AppendChain(chain[:0], local)
			s := runs.Stored{Root: true, Engine: chain, Hashes: chain, Chained: true}
			x.Store(runs.Holder{Slot: 0}, s)
			if p%2 == 0 {
				x.Store(runs.Holder{Slot: 1}, s)
			}
		}
		d.Before = round((heap()-empty)/1e6, 1)
		var over runs.Overlap
		if x.Overlap(chain, &over); over.Of(0).Upto(slot.Device) != length {
			return d, fmt.Errorf("the worker holds %d blocks of a prompt of %d", over.Of(0).Upto(slot.Device), length)
		}
		start := time.Now()
		x.RemoveSlot(0)
		x.Overlap(chain, &over)
		took := time.Since(start)
		if over.Of(0).Upto(slot.Device) != 0 {
			return d, fmt.Errorf("a worker that was given up is found with %d blocks", over.Of(0).Upto(slot.Device))
		}
		longest, sum, count := time.Duration(0), time.Duration(0), 0
		for more := true; more; count++ {
			start := time.Now()
			more = x.Tidy(tidyRuns)
			step := time.Since(start)
			longest, sum = max(longest, step), sum+step
		}
		gone, steps, all = append(gone, ms(took)), append(steps, ms(longest)), append(all, ms(sum))
		d.Steps = count
		d.After = round((heap()-empty)/1e6, 1)
		runtime.KeepAlive(x)
	}
	d.Gone, d.Step, d.All = round(median(gone), 3), round(median(steps), 2), round(median(all), 2)
	d.Longest = round(slices.Max(steps), 2)
	return d, nil
}
