package runs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/zeebo/xxh3"

	"attache/internal/field"
	"attache/internal/slot"
)

func snapshotOf(tb testing.TB, x *Index) []byte {
	tb.Helper()
	var b bytes.Buffer
	if _, err := x.Freeze(nil).WriteTo(&b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func smallIndex() *Index {
	x := New(roomy())
	chain := chainOf(ascending(20))
	x.Configure(1, Settings{Sets: true, Blocks: [tiers]int{100}})
	put(x, Holder{Slot: 1}, chain, 0, 20)
	put(x, Holder{Slot: 2, Tier: slot.Host}, chain, 0, 9)
	put(x, Holder{Slot: 2, Tier: slot.Host}, chain, 3, 5)
	x.Remove(Holder{Slot: 1}, chain[4:6])
	put(x, Holder{Slot: 3}, chain, 0, 12)
	put(x, Holder{Slot: 5}, chainOf([]uint64{77, 78}), 0, 2)
	x.RemoveSlot(3) // retired bits are left out, and with them what only they hold
	x.RemoveSlot(5)
	return x
}

func TestSnapshotGoesOn(t *testing.T) {
	y := synthetic(true, true)
	x := New(roomy())
	apply(x, y.stores)
	f := x.Freeze(nil)
	apply(x, y.removes) // not in the snapshot
	var b bytes.Buffer
	if _, err := f.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	size := b.Len()
	loaded, err := Load(&b, roomy())
	if err != nil {
		t.Fatal(err)
	}
	check(t, loaded)
	if got := checksum(loaded, y.queries); got != 384546497 {
		t.Errorf("checksum %d after loading", got)
	}
	apply(loaded, y.removes)
	if got := checksum(loaded, y.queries[:5000]); got != 92100370 {
		t.Errorf("checksum %d after loading and the removes", got)
	}
	check(t, loaded)
	t.Logf("%.1f bytes a held block", float64(size)/905472)
}

// TestSlotsLeftOut: slots that are not wanted leave nothing behind, not even the runs that only they hold.
func TestSlotsLeftOut(t *testing.T) {
	x := smallIndex()
	var b bytes.Buffer
	if _, err := x.Freeze(func(s slot.Slot) bool { return s == 2 }).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(&b, roomy())
	if err != nil {
		t.Fatal(err)
	}
	check(t, loaded)
	if got, want := loaded.Stats(), x.SlotStats(2).Held[slot.Host]; got.Held != want || got.Runs != 1 {
		t.Errorf("%d blocks in %d runs, want %d in 1", got.Held, got.Runs, want)
	}
}

func TestDamagedSnapshots(t *testing.T) {
	good := snapshotOf(t, smallIndex())
	if _, err := Load(bytes.NewReader(good), roomy()); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		if _, err := Load(bytes.NewReader(good[:i]), roomy()); !errors.Is(err, ErrSnapshot) {
			t.Errorf("cut at %d: %v", i, err)
		}
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		if _, err := Load(bytes.NewReader(bad), roomy()); err == nil {
			t.Errorf("changed at %d: no error", i)
		}
	}
	if _, err := Load(iotestErr{}, roomy()); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v, want the reader's own error", err)
	}
	x := New(roomy())
	apply(x, synthetic(true, false).stores)
	if _, err := Load(bytes.NewReader(snapshotOf(t, x)), Config{MaxBytes: field.MiB, MaxSlots: 16}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v, want too large", err)
	}
	if _, err := x.Freeze(nil).WriteTo(iotestErr{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v, want the writer's own error", err)
	}
}

// iotestErr fails.
type iotestErr struct{}

func (iotestErr) Read([]byte) (int, error)  { return 0, io.ErrClosedPipe }
func (iotestErr) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestSlotsAreRenamed: an index is parked, and its slots get other numbers.
func TestSlotsAreRenamed(t *testing.T) {
	x := New(roomy())
	chain := []uint64{11, 12, 13}
	for s := range slot.Slot(4) {
		x.Store(Holder{Slot: s}, Stored{Root: true, Engine: chain[:s], Hashes: chain[:s], Chained: true})
	}
	loaded, err := Load(bytes.NewReader(snapshotOf(t, x)), roomy())
	if err != nil {
		t.Fatal(err)
	}
	loaded.Park()
	check(t, loaded)
	var o Overlap
	if loaded.Overlap(chain, &o); len(o.Hits) > 0 {
		t.Errorf("%d slots show what is parked", len(o.Hits))
	}
	loaded.Configure(0, Settings{})
	loaded.Store(Holder{Slot: 5}, Stored{Root: true, Engine: chain, Hashes: chain, Chained: true})
	for _, c := range []struct {
		was, now slot.Slot
		want     bool
	}{{1, 2, true}, {1, 4, false}, {3, 5, false}, {3, 0, true}, {9, 1, false}, {slot.None, 1, false}} { // 2 is forgotten
		if got := loaded.Unpark(c.was, c.now); got != c.want {
			t.Errorf("%d becomes %d: %v, want %v", c.was, c.now, got, c.want)
		}
		check(t, loaded)
	}
	loaded.RemoveSlot(5)
	loaded.DropParked()
	loaded.Overlap(chain, &o)
	for s, want := range []int{3, 0, 1, 0, 0} {
		if got := o.Of(slot.Slot(s)).Upto(slot.Remote); got != want {
			t.Errorf("slot %d holds %d blocks, want %d", s, got, want)
		}
	}
	for loaded.Tidy(100) {
	}
	if got := loaded.Stats(); got.Held != 4 || got.Retired != 0 {
		t.Errorf("%d blocks held, %d holders retired; want 4 and 0", got.Held, got.Retired)
	}
}

// FuzzLoad loads anything, with a checksum that is right: no input may break the index.
func FuzzLoad(f *testing.F) {
	good := snapshotOf(f, smallIndex())
	f.Add(good[:len(good)-8])
	f.Fuzz(func(t *testing.T, b []byte) {
		b = binary.LittleEndian.AppendUint64(bytes.Clone(b), xxh3.Hash(b))
		x, err := Load(bytes.NewReader(b), Config{MaxBytes: 8 * field.MiB, MaxSlots: 64})
		if err != nil {
			return
		}
		check(t, x)
		apply(x, []event{{holder: Holder{Slot: 1}, Stored: Stored{Root: true, Engine: ascending(9), Hashes: ascending(9)}}})
		check(t, x)
	})
}
