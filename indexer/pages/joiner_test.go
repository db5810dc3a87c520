package pages

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"attache/internal/block"
	"attache/internal/slot"
)

func TestConfig(t *testing.T) {
	good := Config{Page: 1, Block: 16, Limit: 100}
	for _, c := range []struct {
		change func(*Config)
		says   string // "" for none
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Page, c.Block = 64, 4096 }, ""},
		{func(c *Config) { c.Page = 0 }, "at least 1"},
		{func(c *Config) { c.Page = 3 }, "multiple of the page"},
		{func(c *Config) { c.Block = 0 }, "multiple of the page"},
		{func(c *Config) { c.Block = 1 << 20 }, "at most 4096"},
		{func(c *Config) { c.Block = 128 }, "at most 64 pages"},
		{func(c *Config) { c.Limit = 0 }, "limit of 0"},
		{func(c *Config) { c.Limit = maxLimit + 1 }, "limit of"},
		{func(c *Config) { c.Expect = -1 }, "expected"},
		{func(c *Config) { c.Waiting = -1 }, "may wait"},
	} {
		cfg := good
		c.change(&cfg)
		j, err := New(cfg)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", cfg, err, c.says)
		}
		if (j == nil) != (err != nil) {
			t.Errorf("%+v: a Joiner and an error, or neither", cfg)
		}
	}
}

// TestNonsense applies events that no engine would send, where keys name whatever comes first.
func TestNonsense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { nonsense(t, rapid.SliceOfN(rapid.Byte(), 2, 400).Draw(t, "bytes")) })
	for seed := range uint64(40) {
		nonsense(t, randomScript(seed*7, 3000))
	}
}

func FuzzNonsense(f *testing.F) {
	for seed := range uint64(6) {
		f.Add(randomScript(seed, 200))
	}
	f.Fuzz(func(t *testing.T, b []byte) { nonsense(t, b) })
}

func nonsense(t tester, b []byte) {
	s := &script{t: t, b: b}
	mode := s.next()
	cfg := Config{Page: 1, Block: 1 + mode%5, Limit: 1 + s.next(), Waiting: s.next(), Sets: mode >= 128}
	j, err := New(cfg)
	if err != nil {
		t.Fatalf("%v", err)
	}
	s.j, s.w = j, &twin{cfg: cfg}
	s.clear()
	for len(s.b) > 0 {
		op := s.next()
		tier := slot.Tier(op >> 1 % 4)
		keys := make([]uint64, s.next()%9)
		for i := range keys {
			keys[i] = uint64(s.next() % 32)
		}
		if op%3 == 0 {
			if op%5 == 0 {
				tier = EveryTier
			}
			j.Remove(tier, keys, s.gained, s.lost)
		} else {
			j.Store(Stored{Tier: tier, Root: op%7 == 0, Parent: uint64(s.next() % 32), Pages: keys,
				Tokens: make([]uint32, len(keys)), Again: op%11 == 0}, s.gained, s.lost)
		}
		check(t, j)
		for tier, n := range j.Stats().Blocks {
			if n != len(s.implied[tier]) {
				t.Errorf("%d blocks on tier %d, %d were emitted", n, tier, len(s.implied[tier]))
			}
		}
	}
}

// numbered announces pages whose keys and tokens are from to to-1.
func numbered(from, to int) Stored {
	e := Stored{Root: from == 0, Parent: uint64(from - 1), Seed: plainSeed}
	for i := from; i < to; i++ {
		e.Pages = append(e.Pages, uint64(i))
		e.Tokens = append(e.Tokens, uint32(i))
	}
	return e
}

// TestStretches: blocks that follow each other come in one piece, whatever made them complete.
func TestStretches(t *testing.T) {
	j, _ := New(Config{Page: 1, Block: 4, Limit: 100, Waiting: 100})
	stretches(t, j)
	j, _ = New(Config{Page: 1, Block: 4, Limit: 100, Waiting: 100})
	j.table.secret = 1 // all keys below 1<<28 have one mark: only the keys themselves tell them apart
	stretches(t, j)
}

func stretches(t *testing.T, j *Joiner) {
	var got []Blocks
	emit := func(b Blocks) {
		b.Keys, b.Locals = slices.Clone(b.Keys), slices.Clone(b.Locals)
		got = append(got, b)
	}
	want := func(what string, stretches ...[]uint64) {
		t.Helper()
		if !slices.EqualFunc(got, stretches, func(b Blocks, keys []uint64) bool { return slices.Equal(b.Keys, keys) }) {
			t.Errorf("%s: %+v, want %d", what, got, stretches)
		}
		got = nil
	}
	j.Store(numbered(0, 3), emit, nil)
	want("a part of a block")
	j.Store(numbered(6, 90), emit, nil)
	want("no parent")
	j.Store(numbered(3, 6), emit, nil)
	all := []uint64{3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63, 67, 71, 75, 79, 83, 87}
	want("the parent comes", all)
	var gone []uint64
	j.Remove(EveryTier, numbered(10, 14).Pages, nil, func(_ slot.Tier, keys []uint64) { gone = append(gone, keys...) })
	if !slices.Equal(gone, []uint64{11, 15}) {
		t.Errorf("removed %d", gone)
	}
	j.Store(numbered(10, 14), emit, nil)
	want("two parts come back", all[2:4])
}

func TestSaturation(t *testing.T) {
	j, _ := New(Config{Page: 1, Block: 1, Limit: 2})
	blocks := 0
	for range 300 {
		j.Store(numbered(0, 1), func(b Blocks) { blocks += len(b.Keys) }, nil)
	}
	if st := j.Stats(); blocks != 1 || st.Saturated != 300-256 {
		t.Errorf("%d blocks, %+v", blocks, st)
	}
	for range 300 {
		j.Remove(slot.Device, []uint64{0}, nil, func(_ slot.Tier, keys []uint64) { blocks -= len(keys) })
	}
	if st := j.Stats(); blocks != 0 || st.Unknown != 300-256 || st.Pages != 0 {
		t.Errorf("%d blocks, %+v", blocks, st)
	}
}

// TestLimitIsKept: what waits gives way to what has its place, and what is held to nothing.
func TestLimitIsKept(t *testing.T) {
	j, _ := New(Config{Page: 1, Block: 4, Limit: 20, Waiting: 8})
	blocks := 0
	emit := func(b Blocks) { blocks += len(b.Keys) }
	j.Store(numbered(100, 106), emit, nil)
	j.Store(numbered(200, 206), emit, nil) // 100 to 105 go
	j.Store(numbered(300, 310), emit, nil) // so do 200 to 205; 308 and 309 find no room
	if st := j.Stats(); st.Waiting != 8 || st.Dropped != 12 || st.Refused != 2 {
		t.Errorf("waiting: %+v", st)
	}
	j.Store(numbered(0, 25), emit, nil)
	if st := j.Stats(); st.Waiting != 0 || st.Dropped != 20 || st.Refused != 2+5 || st.Pages != 20 || blocks != 5 {
		t.Errorf("placed, %d blocks: %+v", blocks, st)
	}
	j.Clear()
	if st := j.Stats(); st.Pages != 0 || st.Bytes != tableBytes+joinerBytes || st.Refused != 7 {
		t.Errorf("cleared: %+v", st)
	}
}

// TestTokensAreHashedAsTheyAre compares the local hash of blocks of several pages with that of their ids.
func TestTokensAreHashedAsTheyAre(t *testing.T) {
	j, _ := New(Config{Page: 4, Block: 32, Limit: 100})
	r := rand.New(rand.NewPCG(1, 1))
	e := Stored{Root: true, Seed: block.Seed("m", "s"), Pages: make([]uint64, 16), Tokens: make([]uint32, 64)}
	var bytes []byte
	for i := range e.Tokens {
		e.Pages[i/4], e.Tokens[i] = r.Uint64(), r.Uint32()
		bytes = binary.LittleEndian.AppendUint32(bytes, e.Tokens[i])
	}
	j.Store(e, func(b Blocks) {
		want := []uint64{block.Local(bytes[:128], e.Seed), block.Local(bytes[128:], block.Seed("", ""))}
		if !b.Root || !slices.Equal(b.Locals, want) || !slices.Equal(b.Keys, []uint64{e.Pages[7], e.Pages[15]}) {
			t.Errorf("%+v, want the locals %x", b, want)
		}
	}, nil)
}
