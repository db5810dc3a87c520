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
	if _, err := x.Freeze().WriteTo(&b); err != nil {
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
	f := x.Freeze()
	apply(x, y.removes) // not in the snapshot
	var b bytes.Buffer
	if _, err := f.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	size := b.Len()
	loaded, err := Load(&b, roomy(), nil)
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

func TestDamagedSnapshots(t *testing.T) {
	good := snapshotOf(t, smallIndex())
	if _, err := Load(bytes.NewReader(good), roomy(), nil); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		if _, err := Load(bytes.NewReader(good[:i]), roomy(), nil); !errors.Is(err, ErrSnapshot) {
			t.Errorf("cut at %d: %v", i, err)
		}
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		if _, err := Load(bytes.NewReader(bad), roomy(), nil); err == nil {
			t.Errorf("changed at %d: no error", i)
		}
	}
	if _, err := Load(iotestErr{}, roomy(), nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v, want the reader's own error", err)
	}
	x := New(roomy())
	apply(x, synthetic(true, false).stores)
	if _, err := Load(bytes.NewReader(snapshotOf(t, x)), Config{MaxBytes: field.MiB, MaxSlots: 16}, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v, want too large", err)
	}
	if _, err := x.Freeze().WriteTo(iotestErr{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v, want the writer's own error", err)
	}
}

// iotestErr fails.
type iotestErr struct{}

func (iotestErr) Read([]byte) (int, error)  { return 0, io.ErrClosedPipe }
func (iotestErr) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// FuzzLoad loads anything, with a checksum that is right: no input may break the index.
func TestSlotsAreRenamed(t *testing.T) {
	x := New(roomy())
	chain := []uint64{11, 12, 13}
	for s := range slot.Slot(4) {
		x.Store(Holder{Slot: s}, Stored{Root: true, Engine: chain[:s], Hashes: chain[:s], Chained: true})
	}
	loaded, err := Load(bytes.NewReader(snapshotOf(t, x)), roomy(), func(was slot.Slot) (slot.Slot, bool) {
		to, known := map[slot.Slot]slot.Slot{1: 2, 3: 0}[was] // 2 is forgotten
		return to, known
	})
	if err != nil {
		t.Fatal(err)
	}
	var o Overlap
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

func FuzzLoad(f *testing.F) {
	good := snapshotOf(f, smallIndex())
	f.Add(good[:len(good)-8])
	f.Fuzz(func(t *testing.T, b []byte) {
		b = binary.LittleEndian.AppendUint64(bytes.Clone(b), xxh3.Hash(b))
		x, err := Load(bytes.NewReader(b), Config{MaxBytes: 8 * field.MiB, MaxSlots: 64}, nil)
		if err != nil {
			return
		}
		check(t, x)
		apply(x, []event{{holder: Holder{Slot: 1}, Stored: Stored{Root: true, Engine: ascending(9), Hashes: ascending(9)}}})
		check(t, x)
	})
}
