package indexer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"attache/internal/slot"
)

// saved is a slot's snapshot, written and read again.
func saved(tb interface {
	Helper()
	Fatalf(format string, args ...any)
}, x *Index, s slot.Slot) *Frozen {
	tb.Helper()
	var b bytes.Buffer
	if n, err := x.Freeze(s).WriteTo(&b); err != nil || n != int64(b.Len()) {
		tb.Fatalf("%d bytes, said to be %d: %v", b.Len(), n, err)
	}
	f, err := Load(&b)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return f
}

// TestRestoredIsRemembered restores what drawn requests left behind, later and in other slots, and goes on with both: what they
// hold, in which order and since when, must be the same.
func TestRestoredIsRemembered(tt *testing.T) {
	rapid.Check(tt, func(t *rapid.T) {
		cfg := Config{DefaultCapacity: 40, MaxBlocks: 1 << 20, TTL: rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "ttl")}
		x, c := newIndex(tt, cfg)
		parents := map[uint64]uint64{}
		chains := rapid.Custom(func(t *rapid.T) []uint64 {
			return path(rapid.SliceOfN(rapid.ByteRange(0, 2), 1, 14).Draw(t, "symbols"), parents)
		})
		request := func(of ...*Index) {
			s, chain := slot.Slot(rapid.IntRange(0, slots-1).Draw(t, "slot")), chains.Draw(t, "chain")
			touches := rapid.Bool().Draw(t, "touches")
			for i, x := range of {
				if to := (s + slot.Slot(i)) % slots; touches {
					x.Touch(to, chain)
				} else {
					x.Remember(to, chain)
				}
			}
			c.Time = c.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "seconds")) * time.Second)
		}
		for range rapid.IntRange(0, 30).Draw(t, "requests") {
			request(x)
		}
		if rapid.Bool().Draw(t, "a figure") {
			x.SetCapacity(2, rapid.IntRange(1, 60).Draw(t, "capacity"))
		}
		var all [slots]*Frozen
		for s := range all {
			all[s] = saved(t, x, slot.Slot(s))
		}
		ago := time.Duration(rapid.IntRange(0, 50).Draw(t, "ago")) * time.Second
		c.Time = c.Add(ago)
		y, _ := newIndex(tt, cfg)
		y.now, y.start = x.now, c.Add(-past)
		for s := range all {
			y.Restore(slot.Slot(s+1)%slots, all[s], ago)
		}
		compare := func() {
			for s := range slot.Slot(slots) {
				want, got := x.ages(s), y.ages((s+1)%slots)
				if !slices.Equal(got, want) {
					t.Fatalf("slot %d holds %v, want %v", s, got, want)
				}
				a, _ := x.Capacity(s)
				if b, _ := y.Capacity((s + 1) % slots); a != b {
					t.Fatalf("slot %d has room for %d blocks, want %d", s, b, a)
				}
			}
			for _, x := range []*Index{x, y} {
				if broken := check(x.table, parents); broken != "" {
					t.Fatal(broken)
				}
			}
		}
		compare()
		for range rapid.IntRange(0, 20).Draw(t, "more requests") {
			request(x, y)
			compare()
		}
	})
}

// ages are the blocks that a slot is still believed to hold, the freshest first, with the seconds since their last use.
func (x *Index) ages(s slot.Slot) (all []held) {
	now := x.second()
	for _, b := range x.table.list(s) {
		if b.at >= x.table.oldest(now) {
			all = append(all, held{b.hash, now - b.at})
		}
	}
	return all
}

// TestRestoredBehindWhatIsKnown: what came since stays in front, and room is kept for it.
func TestRestoredBehindWhatIsKnown(t *testing.T) {
	cfg := Config{DefaultCapacity: 3*step + 10, MaxBlocks: 1 << 20, TTL: time.Hour}
	old, _ := newIndex(t, cfg)
	long, short := chainOf(1, 3*step), chainOf(2, 20)
	old.Remember(1, short)
	old.Remember(1, long)
	f := saved(t, old, 1)
	x, _ := newIndex(t, cfg)
	x.Remember(4, append(slices.Clone(long[:8]), chainOf(3, 4)...))
	x.Restore(4, f, time.Minute)
	if got := x.Overlap(long, nil)[4]; got != int32(len(long)) {
		t.Errorf("%d blocks of the prompt are held, want all", got)
	}
	if got := x.Overlap(short, nil)[4]; got != 6 {
		t.Errorf("%d blocks of the older prompt are held, want the 6 that there is room for", got)
	}
	if broken := check(x.table, nil); broken != "" {
		t.Error(broken)
	}
	x.Restore(slot.None, f, 0)
	x.Restore(5, f, 2*time.Hour)
	if n := x.Held(5); n != 0 {
		t.Errorf("%d blocks are held after their time", n)
	}
}

// TestLearntCapacityOverARestart: what reports taught stays, unless the engine tells another figure.
func TestLearntCapacityOverARestart(t *testing.T) {
	cfg := Config{DefaultCapacity: 100, MaxBlocks: 1 << 20}
	learnt := &Frozen{figure: 80, capacity: 60, learnt: true}
	for _, c := range []struct {
		name          string
		before, after int // the engine's figure; 0 none
		want          int
	}{
		{"the figure comes later", 0, 80, 60},
		{"it is known already", 80, 80, 60},
		{"another figure comes later", 0, 90, 90},
		{"another one is known already", 90, 90, 90},
	} {
		x, _ := newIndex(t, cfg)
		x.SetCapacity(0, c.before)
		x.Restore(0, learnt, 0)
		x.SetCapacity(0, c.after)
		if got, _ := x.Capacity(0); got != c.want {
			t.Errorf("%s: room for %d blocks, want %d", c.name, got, c.want)
		}
	}
}

func TestDamagedSnapshots(t *testing.T) {
	x, c := newIndex(t, DefaultConfig())
	for i := range 9 {
		x.Remember(0, append(chainOf(1, i), chainOf(uint64(i+2), 3)...))
		c.Time = c.Add(time.Minute)
	}
	var b bytes.Buffer
	if _, err := x.Freeze(0).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	good := b.Bytes()
	for i := range good {
		if _, err := Load(bytes.NewReader(good[:i])); !errors.Is(err, ErrSnapshot) {
			t.Errorf("cut at %d: %v", i, err)
		}
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		if _, err := Load(bytes.NewReader(bad)); err == nil {
			t.Errorf("changed at %d: no error", i)
		}
	}
}

// FuzzLoad restores anything, with a checksum that is right: no input may break the index.
func FuzzLoad(f *testing.F) {
	x, _ := newIndex(f, DefaultConfig())
	x.Remember(0, chainOf(1, 9))
	x.Remember(0, append(chainOf(1, 4), chainOf(2, 3)...))
	var b bytes.Buffer
	if _, err := x.Freeze(0).WriteTo(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes()[:b.Len()-8], uint16(3))
	f.Fuzz(func(t *testing.T, b []byte, ago uint16) {
		b = binary.LittleEndian.AppendUint64(bytes.Clone(b), xxh3.Hash(b))
		frozen, err := Load(bytes.NewReader(b))
		if err != nil {
			return
		}
		y, _ := newIndex(t, Config{DefaultCapacity: 50, MaxBlocks: 60, TTL: time.Hour})
		y.Remember(1, chainOf(1, 5))
		y.Restore(1, frozen, time.Duration(ago)*time.Second)
		if broken := check(y.table, nil); broken != "" {
			t.Fatal(broken)
		}
		y.Remember(1, chainOf(1, 40))
		if broken := check(y.table, nil); broken != "" {
			t.Fatal(broken)
		}
	})
}
