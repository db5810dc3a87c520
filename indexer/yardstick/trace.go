package yardstick

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"

	"attache/internal/block"
	"attache/internal/sim/trace/data"
)

// traceWorkers serve the trace in turn.
const traceWorkers = 8

// Trace is the input made of the first rows of the conversation trace: each block of 512 tokens that a row names becomes expand
// blocks, row n is stored on worker n%8, in one event with what the worker lacks of it, and all rows are asked for then.
func Trace(rows, expand int) (*Input, error) {
	in := &Input{Workers: traceWorkers}
	switch {
	case rows == 2000 && expand == 8:
		in.AfterStores = 3732608
	case rows == 2000 && expand == 32:
		in.AfterStores = 14930432
	}
	have := [traceWorkers]map[uint64]bool{}
	for i := range have {
		have[i] = map[uint64]bool{}
	}
	err := eachRow(rows, expand, func(n int, own []uint64) {
		chain := Chain(own)
		in.Queries, in.Locals = append(in.Queries, chain), append(in.Locals, own)
		worker := n % traceWorkers
		mine, from := have[worker], 0
		for from < len(chain) && mine[chain[from]] {
			from++
		}
		if from == len(chain) {
			return
		}
		for _, h := range chain[from:] {
			mine[h] = true
		}
		e := Event{Worker: worker, Root: from == 0, Engine: chain[from:], Local: own[from:], Chain: chain[from:]}
		if from > 0 {
			e.Parent = chain[from-1]
		}
		in.Stores = append(in.Stores, e)
	})
	return in, err
}

// eachRow calls f with the local hashes of the first rows.
func eachRow(rows, expand int, f func(n int, local []uint64)) error {
	file, err := data.Open(data.Conversation)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(unzipped)
	lines.Buffer(nil, 1<<20)
	for n := 0; n < rows && lines.Scan(); n++ {
		var row struct {
			IDs []uint64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return fmt.Errorf("row %d of the trace: %w", n, err)
		}
		own := make([]block.Hash, 0, len(row.IDs)*expand)
		for _, id := range row.IDs {
			for j := range expand {
				own = append(own, Mix(id*64+uint64(j)))
			}
		}
		f(n, own)
	}
	return lines.Err()
}
