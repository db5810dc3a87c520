package yardstick

import (
	"testing"

	"attache/internal/block"
)

// held is who holds what, in the plainest way.
type held map[block.Hash]map[int]bool

func (h held) apply(events []Event) {
	for _, e := range events {
		for _, b := range e.Engine { // equal to the chain when not salted
			if h[b] == nil {
				h[b] = map[int]bool{}
			}
			if e.Remove {
				delete(h[b], e.Worker)
			} else {
				h[b][e.Worker] = true
			}
		}
	}
}

func (h held) sum(workers int, queries [][]block.Hash) (sum uint64) {
	for _, q := range queries {
		for w := range workers {
			n := 0
			for n < len(q) && h[q[n]][w] {
				n++
			}
			sum += Sum(w, n)
		}
	}
	return sum
}

func (in *Input) check(t *testing.T) {
	t.Helper()
	h := held{}
	h.apply(in.Stores)
	if got := h.sum(in.Workers, in.Queries); got != in.AfterStores {
		t.Errorf("checksum %d after the stores, want %d", got, in.AfterStores)
	}
	if h.apply(in.Removes); in.AfterRemoves == 0 {
		return
	}
	if got := h.sum(in.Workers, in.Again()); got != in.AfterRemoves {
		t.Errorf("checksum %d after the removes, want %d", got, in.AfterRemoves)
	}
}

func TestSynthetic(t *testing.T) {
	in := Synthetic(false)
	got := [5]int{len(in.Stores), Blocks(in.Stores), len(in.Removes), Blocks(in.Removes), len(in.Queries)}
	if got != [5]int{65632, 1050112, 8528, 136448, 20000} {
		t.Errorf("%v events, blocks and queries", got)
	}
	if testing.Short() {
		in.Queries, in.AfterStores, in.AfterRemoves = nil, 0, 0
	}
	in.check(t)
	changes := in.Changes()
	if got := Blocks(changes); got != 2*Blocks(in.Removes) {
		t.Errorf("changes of %d blocks", got)
	}
	h := held{}
	h.apply(in.Stores)
	before := h.sum(in.Workers, in.Queries[:min(100, len(in.Queries))])
	h.apply(changes)
	if after := h.sum(in.Workers, in.Queries[:min(100, len(in.Queries))]); after != before {
		t.Errorf("checksum %d after changes that cancel out, %d before", after, before)
	}
}

func TestTrace(t *testing.T) {
	in, err := Trace(2000, 8)
	if err != nil {
		t.Fatal(err)
	}
	if got := [2]int{len(in.Stores), Blocks(in.Stores)}; got != [2]int{1999, 398008} {
		t.Errorf("%v events and blocks", got)
	}
	in.check(t)
}

func TestLong(t *testing.T) {
	if testing.Short() {
		t.Skip("half a million blocks")
	}
	Long().check(t)
}

// TestReplay verifies that events make sense: what is removed was held, and what is stored was not.
func TestReplay(t *testing.T) {
	const room = 500
	r, err := NewReplay(300, 2, 4, room)
	if err != nil {
		t.Fatal(err)
	}
	h, size, sum := held{}, make([]int, r.Workers), uint64(0)
	for i, s := range r.Steps {
		sum += h.sum(r.Workers, [][]block.Hash{s.Chain})
		for _, b := range s.Gone {
			if !h[b][s.Worker] {
				t.Fatalf("step %d removes what worker %d does not hold", i, s.Worker)
			}
		}
		h.apply([]Event{{Worker: s.Worker, Remove: true, Engine: s.Gone}})
		for k, b := range s.Chain {
			if h[b][s.Worker] != (k < s.From) {
				t.Fatalf("step %d stores from block %d of %d on, and block %d is held: %v", i, s.From, len(s.Chain), k, k >= s.From)
			}
		}
		h.apply([]Event{{Worker: s.Worker, Engine: s.Chain[s.From:]}})
		if size[s.Worker] += s.Stored() - len(s.Gone); size[s.Worker] > room {
			t.Fatalf("step %d: worker %d holds %d blocks, and has room for %d", i, s.Worker, size[s.Worker], room)
		}
	}
	if sum != r.Sum || sum == 0 {
		t.Errorf("checksum %d, want %d", r.Sum, sum)
	}
}
