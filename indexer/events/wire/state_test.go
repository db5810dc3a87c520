package wire

import "testing"

// counts is what an index believes of one rank: how many copies of a hash each group holds.
type counts map[[2]uint64]int

func (c counts) apply(e *Event, reannounced bool) {
	switch e.Kind {
	case Stored:
		for _, h := range e.Hashes {
			key := [2]uint64{uint64(e.Group), h}
			if !reannounced || c[key] == 0 {
				c[key]++
			}
		}
	case Removed:
		for _, h := range e.Hashes {
			key := [2]uint64{uint64(e.Group), h}
			c[key]--
		}
	case Cleared:
		clear(c)
	default:
	}
}

// of are the hashes of a group with copies left, and the number of copies.
func (c counts) of(group uint64) (hashes, sum int) {
	for key, n := range c {
		if key[0] == group && n > 0 {
			hashes++
			sum += n
		}
	}
	return hashes, sum
}

// TestEndStates applies the live messages of running servers and compares what is believed with what is known to be true (hashes
// and copies, at the last AllBlocksCleared and at the end).
func TestEndStates(t *testing.T) {
	cases := []struct {
		name  string
		rank  int32
		group uint64
		// again are events by sequence number and position that announce again what was stored: full reports.
		again                        map[[2]uint64]bool
		clear, clearSum, end, endSum int
	}{
		{"vllm-0.32.0-sha256-int-bs32", 0, 0, nil, 24, 24, 5, 7},
		{"vllm-0.32.0-sha256-int-bs32", 0, 0, map[[2]uint64]bool{{9, 0}: true}, 22, 22, 5, 7},
		{"vllm-0.23.0-sha256-int-bs32", 0, 0, nil, 20, 20, 5, 7},
		{"vllm-0.32.0-cbor-bytes-lora", 0, 0, nil, 38, 38, 3, 3},
		{"vllm-0.32.0-hybrid-sliding", 0, 1, map[[2]uint64]bool{{3, 0}: true, {3, 1}: true}, 42, 42, 7, 7},
		{"vllm-0.32.0-hybrid-sliding", 0, 0, map[[2]uint64]bool{{3, 0}: true, {3, 1}: true}, 15, 15, 2, 2},
		{"vllm-0.32.0-dp2-xxhash", 0, 0, nil, 9, 9, 3, 3},
		{"vllm-0.32.0-dp2-xxhash", 1, 0, nil, 9, 9, 3, 3},
	}
	for _, c := range cases {
		state := counts{}
		var b Batch
		var hashes, sum int
		for _, r := range read(t, c.name) {
			if r.kind != 'P' {
				continue
			}
			m, _ := r.message(t)
			if err := b.Decode(m.Payload); err != nil {
				t.Fatal(err)
			}
			if b.Rank != c.rank {
				continue
			}
			for i := range b.Events {
				if b.Events[i].Kind == Cleared {
					hashes, sum = state.of(c.group)
				}
				state.apply(&b.Events[i], c.again[[2]uint64{m.Seq, uint64(i)}])
			}
			for key, n := range state {
				if n < 0 {
					t.Fatalf("%s: message %d: %d copies of %v", c.name, m.Seq, n, key)
				}
			}
		}
		if hashes != c.clear || sum != c.clearSum {
			t.Errorf("%s, rank %d: %d hashes, %d copies at the clear, want %d, %d", c.name, c.rank, hashes, sum, c.clear, c.clearSum)
		}
		if hashes, sum = state.of(c.group); hashes != c.end || sum != c.endSum {
			t.Errorf("%s, rank %d: %d hashes, %d copies at the end, want %d, %d", c.name, c.rank, hashes, sum, c.end, c.endSum)
		}
	}
}
