package runs

import (
	"slices"
	"strings"
	"testing"

	"attache/internal/block"
	"attache/internal/field"
	"attache/internal/slot"
)

func ascending(n int) []uint64 {
	local := make([]uint64, n)
	for i := range local {
		local[i] = uint64(i) + 1
	}
	return local
}

// put stores chain[from:to] under engine hashes that equal ours.
func put(x *Index, h Holder, chain []block.Hash, from, to int) Outcome {
	s := Stored{Root: from == 0, Engine: chain[from:to], Hashes: chain[from:to], Chained: true}
	if from > 0 {
		s.Parent = chain[from-1]
	}
	return x.Store(h, s)
}

func TestTiers(t *testing.T) {
	chain := chainOf(ascending(20))
	device, host, disk, remote := slot.Device, slot.Host, slot.Disk, slot.Remote
	type held struct {
		tier     slot.Tier
		from, to int
	}
	for _, tc := range []struct {
		name string
		held []held
		want [tiers]int32
	}{
		{"device only", []held{{device, 0, 7}}, [tiers]int32{7}},
		{"host goes on", []held{{device, 0, 7}, {host, 0, 12}}, [tiers]int32{7, 5}},
		{"host begins at the end of the device", []held{{host, 0, 12}, {device, 0, 7}}, [tiers]int32{7, 5}},
		{"a gap between", []held{{host, 0, 20}, {device, 0, 7}, {device, 9, 12}}, [tiers]int32{7, 13}},
		{"host alone", []held{{host, 0, 4}}, [tiers]int32{0, 4}},
		{"disk after device, no host", []held{{disk, 0, 9}, {device, 0, 2}}, [tiers]int32{2, 0, 7}},
		{"all", []held{{remote, 0, 20}, {disk, 0, 9}, {host, 0, 5}, {device, 0, 2}}, [tiers]int32{2, 3, 4, 11}},
		{"upper tier is longer", []held{{device, 0, 9}, {host, 0, 5}}, [tiers]int32{9}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := New(roomy())
			other := Holder{Slot: 9, Tier: device}
			put(x, other, chain, 0, 20)
			for _, h := range tc.held {
				put(x, other, chain, 0, 20)
				put(x, Holder{Slot: 4, Tier: h.tier}, chain, h.from, h.to)
			}
			var o Overlap
			for range 2 {
				x.Overlap(chain, &o)
				if got := o.Of(4).Blocks; got != tc.want {
					t.Errorf("%v, want %v", got, tc.want)
				}
				if got := o.Of(9).Blocks; got != [tiers]int32{20} {
					t.Errorf("the other slot: %v", got)
				}
			}
			check(t, x)
		})
	}
}

// TestManyHolders has more holders than one word of a set, and more than fit in a set itself.
func TestManyHolders(t *testing.T) {
	const slots = 700
	x := New(roomy())
	chain := chainOf(ascending(slots + 1))
	for s := range slots {
		put(x, Holder{Slot: slot.Slot(s)}, chain, 0, s+1)
		put(x, Holder{Slot: slot.Slot(s), Tier: slot.Host}, chain, 0, s+1)
		put(x, Holder{Slot: slot.Slot(s), Tier: slot.Host}, chain, s+1, s+2)
	}
	var o Overlap
	verify := func(missing int) {
		t.Helper()
		x.Overlap(chain, &o)
		if len(o.Hits) != slots-missing {
			t.Fatalf("%d hits, want %d", len(o.Hits), slots-missing)
		}
		for _, h := range o.Hits {
			if want := [tiers]int32{int32(h.Slot) + 1, 1}; h.Blocks != want {
				t.Errorf("slot %d: %v, want %v", h.Slot, h.Blocks, want)
			}
		}
		check(t, x)
	}
	verify(0)
	for s := range slots / 2 {
		x.RemoveSlot(slot.Slot(s))
	}
	verify(slots / 2)
	for x.Tidy(1) {
	}
	verify(slots / 2)
	for s := range slots / 2 { // bits are used again
		put(x, Holder{Slot: slot.Slot(s)}, chain, 0, s+1)
		put(x, Holder{Slot: slot.Slot(s), Tier: slot.Host}, chain, 0, s+2)
	}
	verify(0)
	if got := len(x.owners); got > 2*slots {
		t.Errorf("%d bits for %d holders", got, 2*slots)
	}
}

// TestBranchOutlivesItsTrunk shortens a run below a branch, and grows it again: the branch must not come to exist twice.
func TestBranchOutlivesItsTrunk(t *testing.T) {
	x := New(roomy())
	trunk := chainOf(ascending(10))
	branch := chainOf(append(ascending(5), 60, 70, 80))
	a, b := Holder{Slot: 1}, Holder{Slot: 2}
	put(x, a, trunk, 0, 10)
	put(x, a, branch, 0, 8)
	x.Remove(a, trunk[3:])
	x.Remove(a, trunk[3:5]) // these were announced twice
	put(x, b, branch, 0, 8)
	put(x, a, branch, 3, 5)
	var o Overlap
	x.Overlap(branch, &o)
	if o.Of(1).Blocks[0] != 8 || o.Of(2).Blocks[0] != 8 {
		t.Errorf("%+v, want 8 blocks on both slots", o.Hits)
	}
	check(t, x)
}

// TestMoved gives one engine hash to two prompts: the latter counts.
func TestMoved(t *testing.T) {
	x := New(roomy())
	a, b := chainOf(ascending(4)), chainOf([]uint64{9, 8, 7, 6})
	h := Holder{Slot: 1}
	engine := []uint64{1, 2, 3, 4}
	x.Store(h, Stored{Root: true, Engine: engine, Hashes: a, Chained: true})
	x.Store(h, Stored{Root: true, Engine: engine[:2], Hashes: b[:2], Chained: true})
	check(t, x)
	var o Overlap
	x.Overlap(b, &o)
	if got := o.Of(1).Blocks[0]; got != 2 {
		t.Errorf("%d blocks of the second prompt, want 2", got)
	}
	x.Overlap(a, &o)
	if len(o.Hits) != 0 || x.Stats().Moved != 2 {
		t.Errorf("%+v of the first prompt, want none; %d moved, want 2", o.Hits, x.Stats().Moved)
	}
	x.Store(h, Stored{Root: true, Engine: []uint64{7, 7, 7}, Hashes: a[:3], Chained: true}) // the last is named 3 already
	check(t, x)
	if got := x.Stats().Shared; got != 1 {
		t.Errorf("%d shared, want 1", got)
	}
	x.Remove(h, []uint64{7, 1, 2, 3, 4, 7})
	check(t, x)
	if st := x.Stats(); st.Held != 0 || st.Runs != 0 {
		t.Errorf("%+v, want nothing held", st)
	}
}

func TestRefused(t *testing.T) {
	x := New(Config{MaxBytes: field.MiB, MaxSlots: 4})
	for name, got := range map[string]Outcome{
		"slot out of range": x.Store(Holder{Slot: 4}, Stored{Root: true}),
		"no slot":           x.Store(Holder{Slot: slot.None}, Stored{Root: true}),
		"tier out of range": x.Store(Holder{Tier: 4}, Stored{Root: true}),
		"lengths differ":    x.Store(Holder{}, Stored{Root: true, Engine: []uint64{1}}),
	} {
		if got != Refused {
			t.Errorf("%s: outcome %d, want refused", name, got)
		}
	}
	if got := x.StoreKnown(Holder{Slot: 9}, []uint64{1, 2}); got != 2 {
		t.Errorf("%d unknown, want 2", got)
	}
	if got := x.Stats().Malformed; got != 5 {
		t.Errorf("%d malformed, want 5", got)
	}
	x.Store(Holder{}, Stored{Root: true, Engine: []uint64{1, 2, 3}, Hashes: []uint64{5, 0, 6}, Chained: true})
	if got := x.Stats().Held; got != 1 {
		t.Errorf("%d blocks before a sequence hash of 0, want 1", got)
	}
	x.Store(Holder{}, Stored{Root: true})
	x.Remove(Holder{Slot: 3}, []uint64{1})
	x.Remove(Holder{Tier: 9}, []uint64{1})
	x.Remove(Holder{Tier: 1}, []uint64{1, 9})
	x.Clear(Holder{Slot: 3})
	x.Clear(Holder{Tier: 9})
	x.RemoveSlot(3)
	x.Configure(slot.None, Settings{})
	if st := x.SlotStats(3); st != (SlotStats{}) {
		t.Errorf("an unknown slot: %+v", st)
	}
	if got := x.Stats().UnknownBlocks; got != 4 {
		t.Errorf("%d unknown blocks, want 4", got)
	}
	var o Overlap
	x.Overlap(nil, &o)
	x.Overlap([]block.Hash{0, 1}, &o)
	if len(o.Hits) != 0 {
		t.Errorf("%+v, want no hits", o.Hits)
	}
	check(t, x)
}

func TestAParentOnAnotherTier(t *testing.T) {
	x := New(roomy())
	engine := []uint64{11, 12, 13, 14}
	x.Store(Holder{Slot: 2, Tier: slot.Host}, Stored{Root: true, Engine: engine[:2], Hashes: ascending(2)})
	if got := x.Store(Holder{Slot: 2}, Stored{Parent: 12, Engine: engine[2:], Hashes: ascending(4)[2:]}); got != Applied {
		t.Errorf("outcome %d, want it applied", got)
	}
	want := SlotStats{Held: [tiers]int{slot.Device: 2, slot.Host: 2}, Announced: [tiers]int{slot.Device: 2, slot.Host: 2}}
	if got := x.SlotStats(2); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	check(t, x)
}

func TestNoAllocations(t *testing.T) {
	x := New(roomy())
	chain := chainOf(ascending(2000))
	for s := range slot.Slot(20) {
		put(x, Holder{Slot: s}, chain, 0, int(s)*100+1)
		put(x, Holder{Slot: s, Tier: slot.Host}, chain, 0, int(s)*100+2)
	}
	var o Overlap
	x.Overlap(chain, &o)
	if n := testing.AllocsPerRun(100, func() { x.Overlap(chain, &o) }); n != 0 {
		t.Errorf("a query allocates %v times", n)
	}
}

func TestDump(t *testing.T) {
	x := New(roomy())
	chain := chainOf(ascending(600))
	put(x, Holder{Slot: 3}, chain, 0, 600)
	put(x, Holder{Slot: 3, Tier: slot.Host}, chain, 0, 10)
	put(x, Holder{Slot: 12}, chain, 0, 5)
	put(x, Holder{Slot: 12}, chain, 0, 5)
	put(x, Holder{Slot: 12}, chain, 9, 12)
	var b strings.Builder
	if err := x.Dump(&b); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(b.String(), "\n")
	want := strings.Join([]string{
		"    slot tier          held  announced     runs  waiting",
		"       3 device         600        600        2        0",
		"       3 host            10         10        1        0",
		"      12 device           5         10        1        3",
		"",
	}, "\n")
	if table != want {
		t.Errorf("got\n%s\nwant\n%s", table, want)
	}
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	var got []string
	for _, e := range field.All(Config{MaxOrphans: -1}.Validate()) {
		got = append(got, e.Path)
	}
	if want := []string{"max_bytes", "max_orphans", "max_slots"}; !slices.Equal(got, want) {
		t.Errorf("fields with errors: %v, want %v", got, want)
	}
}
