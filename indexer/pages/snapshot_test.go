package pages

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"attache/internal/slot"
)

func snapshotOf(t tester, j *Joiner) []byte {
	t.Helper()
	var b bytes.Buffer
	if n, err := j.Freeze().WriteTo(&b); err != nil || n != int64(b.Len()) {
		t.Fatalf("%d bytes, said to be %d: %v", b.Len(), n, err)
	}
	return b.Bytes()
}

// restart goes on with a Joiner from a snapshot of the one at hand: nothing may be different.
func (s *script) restart() {
	s.t.Helper()
	in := bufio.NewReader(io.MultiReader(bytes.NewReader(snapshotOf(s.t, s.j)), bytes.NewReader([]byte("!"))))
	j, err := Load(in)
	if err != nil {
		s.t.Fatalf("load: %v", err)
	}
	if b, err := in.ReadByte(); b != '!' || err != nil {
		s.t.Fatalf("after the snapshot: %q, %v", b, err)
	}
	got, want := j.Stats(), s.j.Stats()
	if got.Pages != want.Pages || got.Waiting != want.Waiting || got.Blocks != want.Blocks || got.Lines != want.Lines {
		s.t.Errorf("after loading %+v, want %+v", got, want)
	}
	told := [tiers]map[uint64]implied{{}, {}, {}, {}}
	j.Tell(func(b Blocks) {
		root, parent := b.Root, b.Parent
		for i, key := range b.Keys {
			if _, twice := told[b.Tier][key]; twice {
				s.t.Errorf("block %x is told twice", key)
			}
			told[b.Tier][key] = implied{root, parent, b.Locals[i]}
			root, parent = false, key
		}
	})
	for t := range told {
		for key, want := range s.implied[t] {
			if got, is := told[t][key]; !is || got != want {
				s.t.Errorf("block %x on tier %d: %+v, want %+v, %v", key, t, got, want, is)
			}
		}
		if len(told[t]) != len(s.implied[t]) {
			s.t.Errorf("%d blocks told on tier %d, want %d", len(told[t]), t, len(s.implied[t]))
		}
	}
	s.j = j
}

func TestRestartsAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScript(t, rapid.SliceOfN(rapid.Byte(), 3, 300).Draw(t, "script"), rapid.Bool().Draw(t, "exact"))
		for len(s.b) > 0 {
			if s.step(); s.next()%4 == 0 {
				s.restart()
			}
			s.compare()
		}
		s.restart()
		s.run()
	})
}

func smallJoiner(t tester) *Joiner {
	s := newScript(t, randomScript(7, 160), true)
	for len(s.b) > 40 {
		s.step()
	}
	return s.j
}

func TestDamagedSnapshots(t *testing.T) {
	good := snapshotOf(t, smallJoiner(t))
	if len(good) < 100 {
		t.Fatalf("a snapshot of %d bytes says little", len(good))
	}
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

// FuzzLoad loads anything, with a checksum that is right: no input may break the Joiner.
func FuzzLoad(f *testing.F) {
	for seed := range uint64(8) {
		s := newScript(f, randomScript(seed, 200), true)
		for len(s.b) > 20 {
			s.step()
		}
		good := snapshotOf(f, s.j)
		f.Add(good[:len(good)-8])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = binary.LittleEndian.AppendUint64(bytes.Clone(b), xxh3.Hash(b))
		j, err := Load(bytes.NewReader(b))
		if err != nil {
			return
		}
		check(t, j)
		var parents []uint64
		j.Tell(func(b Blocks) { parents = append(parents, b.Keys...) })
		nothing := func(Blocks) {}
		gone := func(slot.Tier, []uint64) {}
		for _, p := range parents[:min(len(parents), 9)] {
			j.Store(Stored{Parent: p, Pages: []uint64{p + 1}, Tokens: make([]uint32, j.cfg.Page)}, nothing, gone)
			j.Remove(EveryTier, []uint64{p}, nothing, gone)
		}
		check(t, j)
	})
}
