package runs

import (
	"testing"

	"attache/indexer/yardstick"
	"attache/internal/block"
	"attache/internal/field"
	"attache/internal/slot"
)

// What tests use of the yardstick, by short names.

func mix(z uint64) uint64                 { return yardstick.Mix(z) }
func chainOf(local []uint64) []block.Hash { return yardstick.Chain(local) }

func engineOf(chain []block.Hash, salt uint64) []uint64 { return yardstick.Engine(chain, salt) }

// event is one store, or a removal when remove.
type event struct {
	Stored

	holder Holder
	remove bool
}

func (e *event) apply(x *Index) {
	if e.remove {
		x.Remove(e.holder, e.Engine)
	} else {
		x.Store(e.holder, e.Stored)
	}
}

// eventsOf are the events of the yardstick; chained says which of our hashes they carry.
func eventsOf(from []yardstick.Event, chained bool) []event {
	events := make([]event, len(from))
	for i, e := range from {
		hashes := e.Local
		if chained {
			hashes = e.Chain
		}
		events[i] = event{holder: Holder{Slot: slot.Slot(e.Worker)}, remove: e.Remove, Stored: Stored{
			Root: e.Root, Parent: e.Parent, Engine: e.Engine, Hashes: hashes, Chained: chained,
		}}
	}
	return events
}

type input struct {
	*yardstick.Input

	stores, removes []event
	queries         [][]block.Hash
}

func inputOf(in *yardstick.Input, chained bool) *input {
	return &input{in, eventsOf(in.Stores, chained), eventsOf(in.Removes, chained), in.Queries}
}

func synthetic(chained, salted bool) *input { return inputOf(yardstick.Synthetic(salted), chained) }

func (o *Overlap) checksum() (sum uint64) {
	for i := range o.Hits {
		sum += yardstick.Sum(int(o.Hits[i].Slot), o.Hits[i].Upto(slot.Remote))
	}
	return sum
}

func checksum(x *Index, queries [][]block.Hash) (sum uint64) {
	var o Overlap
	for _, q := range queries {
		x.Overlap(q, &o)
		sum += o.checksum()
	}
	return sum
}

func apply(x *Index, events []event) {
	for i := range events {
		events[i].apply(x)
	}
}

// roomy is a configuration that nothing here fills.
func roomy() Config { return Config{MaxBytes: 8 * field.GiB, MaxOrphans: 1 << 20, MaxSlots: 1 << 12} }

func TestYardstick(t *testing.T) {
	for _, chained := range []bool{true, false} {
		y := synthetic(chained, !chained)
		x := New(roomy())
		apply(x, y.stores)
		if got := checksum(x, y.queries); got != y.AfterStores {
			t.Errorf("chained %v: checksum %d after the stores, want %d", chained, got, y.AfterStores)
		}
		apply(x, y.removes)
		if got := checksum(x, y.Again()); got != y.AfterRemoves {
			t.Errorf("chained %v: checksum %d after the removes, want %d", chained, got, y.AfterRemoves)
		}
		check(t, x)
	}
}

func TestTrace(t *testing.T) {
	for _, expand := range []int{8, 32} {
		if expand > 8 && testing.Short() {
			continue
		}
		in, err := yardstick.Trace(2000, expand)
		if err != nil {
			t.Fatal(err)
		}
		y := inputOf(in, true)
		x := New(roomy())
		apply(x, y.stores)
		if got := checksum(x, y.queries); got != y.AfterStores {
			t.Errorf("%d blocks per hash: checksum %d, want %d", expand, got, y.AfterStores)
		}
		check(t, x)
	}
}
