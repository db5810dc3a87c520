package pages

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"attache/internal/slot"
)

// load is what an engine announces for prompts of which many share a beginning, of 100 to 4000 tokens behind it.
type load struct {
	cfg    Config
	pages  int
	stores []Stored
	// removals are all pages, whole prompts at once in any order and from their ends, in events of up to 64.
	removals [][]uint64
}

func newLoad(page, blockTokens, tokens, event int) *load {
	r := rand.New(rand.NewPCG(7, uint64(event)))
	l := &load{cfg: Config{Page: page, Block: blockTokens, Limit: maxLimit, Waiting: 1 << 14}}
	var systems [][]uint64
	add := func(before []uint64, n int) []uint64 {
		keys := make([]uint64, n)
		for i := range keys {
			keys[i] = r.Uint64()
		}
		for i := 0; i < n; i += event {
			part := keys[i:min(i+event, n)]
			e := Stored{Root: i == 0 && len(before) == 0, Seed: plainSeed, Pages: part, Tokens: make([]uint32, len(part)*page)}
			for k := range e.Tokens {
				e.Tokens[k] = uint32(r.IntN(150_000))
			}
			if i > 0 {
				e.Parent = keys[i-1]
			} else if len(before) > 0 {
				e.Parent = before[len(before)-1]
			}
			l.stores = append(l.stores, e)
		}
		l.pages += n
		return keys
	}
	var groups [][][]uint64
	for range 20 {
		systems = append(systems, add(nil, (500+r.IntN(1500))/page))
	}
	for l.pages*page < tokens {
		s := systems[r.IntN(len(systems))]
		var events [][]uint64
		keys := slices.Clone(add(s[:len(s)-r.IntN(3)], (100+r.IntN(3900))/page))
		slices.Reverse(keys)
		for part := range slices.Chunk(keys, min(event, 64)) {
			events = append(events, part)
		}
		groups = append(groups, events)
	}
	r.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
	for _, keys := range systems {
		keys = slices.Clone(keys)
		slices.Reverse(keys)
		groups = append(groups, slices.Collect(slices.Chunk(keys, min(event, 64))))
	}
	l.removals = slices.Concat(groups...)
	return l
}

func (l *load) fill(j *Joiner, emit func(Blocks)) {
	for i := range l.stores {
		j.Store(l.stores[i], emit, nil)
	}
}

func (l *load) empty(j *Joiner, emit func(slot.Tier, []uint64)) {
	for _, keys := range l.removals {
		j.Remove(slot.Device, keys, nil, emit)
	}
}

var shapes = []struct{ page, block, event int }{{1, 16, 1}, {1, 16, 16}, {1, 16, 512}, {4, 32, 16}, {4, 32, 128}}

func each(b *testing.B, f func(b *testing.B, l *load)) {
	for _, s := range shapes {
		b.Run(fmt.Sprintf("p=%d N=%d event=%d", s.page, s.block, s.event), func(b *testing.B) {
			f(b, newLoad(s.page, s.block, 1_000_000, s.event))
		})
	}
}

func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkGrow fills an empty Joiner, and measures what it takes by the garbage collector's account and by its own.
func BenchmarkGrow(b *testing.B) {
	for _, expected := range []bool{false, true} {
		b.Run(fmt.Sprintf("expected=%v", expected), func(b *testing.B) { each(b, func(b *testing.B, l *load) { grow(b, l, expected) }) })
	}
}

func grow(b *testing.B, l *load, expected bool) {
	cfg := l.cfg
	if expected {
		cfg.Expect = l.pages
	}
	var j *Joiner
	before := heap()
	b.ReportAllocs()
	for b.Loop() {
		j, _ = New(cfg)
		l.fill(j, func(Blocks) {})
	}
	b.ReportMetric(float64(b.N*l.pages)/b.Elapsed().Seconds()/1e6, "Mpages/s")
	b.ReportMetric((heap()-before)/float64(l.pages), "heap-B/page")
	b.ReportMetric(float64(j.Stats().Bytes)/float64(l.pages), "B/page")
	runtime.KeepAlive(j)
}

// BenchmarkSteady removes everything and stores it again, in memory that is there. Nothing should be allocated.
func BenchmarkSteady(b *testing.B) {
	for _, what := range []string{"store", "remove"} {
		b.Run(what, func(b *testing.B) {
			each(b, func(b *testing.B, l *load) {
				j, _ := New(l.cfg)
				l.fill(j, func(Blocks) {})
				l.empty(j, func(slot.Tier, []uint64) {})
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					if what == "remove" {
						b.StopTimer()
					}
					l.fill(j, func(Blocks) {})
					if what == "remove" {
						b.StartTimer()
					} else {
						b.StopTimer()
					}
					l.empty(j, func(slot.Tier, []uint64) {})
					if what == "store" {
						b.StartTimer()
					}
				}
				b.StopTimer()
				b.ReportMetric(float64(b.N*l.pages)/b.Elapsed().Seconds()/1e6, "Mpages/s")
			})
		})
	}
}

// BenchmarkTiers brings everything to the device, copies it to the host, and removes it from the one and then from the other.
// Nothing should be allocated.
func BenchmarkTiers(b *testing.B) {
	each(b, func(b *testing.B, l *load) {
		j, _ := New(l.cfg)
		taken, given := func(slot.Tier, []uint64) {}, func(Blocks) {}
		round := func() {
			for _, t := range []slot.Tier{slot.Device, slot.Host} {
				for _, e := range l.stores {
					e.Tier = t
					j.Store(e, given, taken)
				}
			}
			for _, t := range []slot.Tier{slot.Device, slot.Host} {
				for _, keys := range l.removals {
					j.Remove(t, keys, given, taken)
				}
			}
		}
		round()
		b.ReportAllocs()
		for b.Loop() {
			round()
		}
		b.ReportMetric(float64(4*b.N*l.pages)/b.Elapsed().Seconds()/1e6, "Mpages/s")
	})
}
