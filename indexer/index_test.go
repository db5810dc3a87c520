package indexer

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/field"
	"attache/internal/slot"
)

// clock is a time that only moves when told to.
type clock struct{ time.Time }

func newIndex(tb testing.TB, cfg Config) (*Index, *clock) {
	tb.Helper()
	c := &clock{time.Unix(1_000_000, 0)}
	x, err := New(cfg, func() time.Time { return c.Time }, prometheus.NewRegistry())
	if err != nil {
		tb.Fatal(err)
	}
	return x, c
}

// chainOf makes a chain of n blocks that shares nothing with one of another seed.
func chainOf(seed uint64, n int) []uint64 {
	r := rand.New(rand.NewPCG(seed, 1))
	chain := make([]uint64, n)
	for i := range chain {
		chain[i] = r.Uint64()
	}
	return chain
}

func TestIndex(t *testing.T) {
	x, c := newIndex(t, Config{TTL: time.Minute, DefaultCapacity: 10_000, MaxBlocks: 100_000})
	long := chainOf(1, 3*step+7) // in several steps
	x.Remember(3, long)
	x.Remember(1, long[:5])
	if got, want := x.Overlap(long, []int32{9, 9, 9}), []int32{0, 5, 0, int32(len(long))}; !slices.Equal(got, want) {
		t.Errorf("overlap %v, want %v", got, want)
	}
	if got := x.Held(3); got != len(long) {
		t.Errorf("slot 3 holds %d blocks, want %d", got, len(long))
	}
	x.SetCapacity(3, step+1)
	if got := x.Overlap(long, nil)[3]; got != step+1 {
		t.Errorf("after the capacity shrank slot 3 holds %d leading blocks, want %d", got, step+1)
	}
	x.SetCapacity(3, 0)
	x.Remember(3, long)
	if got := x.Overlap(long, nil)[3]; got != int32(len(long)) {
		t.Errorf("with the default capacity slot 3 holds %d leading blocks, want all %d", got, len(long))
	}
	c.Time = c.Add(time.Minute)
	if got := x.Overlap(long, nil)[1]; got != 5 {
		t.Errorf("when the time to live ends slot 1 holds %d blocks, want 5", got)
	}
	c.Time = c.Add(time.Second)
	if got := x.Overlap(long, nil)[1]; got != 0 {
		t.Errorf("after the time to live slot 1 holds %d blocks, want none", got)
	}
	x.Clear(3)
	x.Clear(3)
	x.Clear(77)
	want := Stats{Held: 5, Prefixes: 5, EvictedByCapacity: 2*step + 6, EvictedByClear: 3*step + 7}
	if got := x.Stats(); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	if x.Held(3) != 0 || x.Held(77) != 0 {
		t.Errorf("a cleared slot holds %d blocks, an unknown one %d", x.Held(3), x.Held(77))
	}
}

func TestNothingToRemember(t *testing.T) {
	x, _ := newIndex(t, DefaultConfig())
	x.Remember(0, nil)
	x.Remember(slot.None, []uint64{1})
	x.SetCapacity(slot.None, 5)
	x.Clear(slot.None)
	if got := x.Overlap([]uint64{1}, nil); len(got) != 0 {
		t.Errorf("overlap of an empty index: %v", got)
	}
	x.Remember(0, []uint64{1})
	if got := x.Overlap(nil, nil); !slices.Equal(got, []int32{0}) {
		t.Errorf("overlap of an empty chain: %v", got)
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	x, err := New(Config{DefaultCapacity: 4, MaxBlocks: 100}, time.Now, reg)
	if err != nil {
		t.Fatal(err)
	}
	x.Remember(0, chainOf(1, 6))
	x.Remember(1, chainOf(1, 3))
	x.Remember(1, chainOf(2, 3))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	want := map[string]float64{
		"attache_indexer_held_blocks": 8, "attache_indexer_prefixes": 7,
		"attache_indexer_evicted_blocks_total bound":    0,
		"attache_indexer_evicted_blocks_total capacity": 2,
		"attache_indexer_evicted_blocks_total cleared":  0,
		"attache_indexer_evicted_blocks_total feedback": 0,
		"attache_indexer_corrections_total over":        0,
		"attache_indexer_corrections_total under":       0,
		"attache_indexer_evicted_blocks_total ttl":      0,
	}
	if !maps.Equal(got, want) {
		t.Errorf("metrics %v, want %v", got, want)
	}
	if _, err := New(DefaultConfig(), time.Now, reg); err == nil {
		t.Error("a second index on one registry is not refused")
	}
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	got := make([]string, 0, 3)
	for _, e := range field.All(Config{TTL: time.Millisecond, MaxBlocks: 2 << 30}.Validate()) {
		got = append(got, e.Path)
	}
	if want := []string{"ttl", "default_capacity", "max_blocks"}; !slices.Equal(got, want) {
		t.Errorf("fields with errors: %v, want %v", got, want)
	}
}

// TestConcurrent lets everything happen at once, under the race detector when that is on; afterwards the lists are whole
// and no overlap is longer than its chain.
func TestConcurrent(t *testing.T) {
	x, err := New(Config{DefaultCapacity: 3000, MaxBlocks: 9000, TTL: time.Second}, time.Now, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	prompts := make([][]uint64, 20)
	for i := range prompts {
		prompts[i] = append(chainOf(uint64(i%4), 200), chainOf(uint64(100+i), 2000)...)
	}
	var all sync.WaitGroup
	for g := range 6 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 7))
			var dst []int32
			for range 150 {
				chain := prompts[r.IntN(len(prompts))]
				chain = chain[:1+r.IntN(len(chain))]
				dst = x.Overlap(chain, dst)
				for s, n := range dst {
					if int(n) > len(chain) {
						t.Errorf("slot %d: %d leading blocks of %d", s, n, len(chain))
					}
				}
				s := slot.Slot(r.IntN(8))
				switch r.IntN(20) {
				case 0:
					x.Clear(s)
				case 1:
					x.SetCapacity(s, r.IntN(4000))
				case 2:
					x.Stats()
				case 3, 4:
					x.Touch(s, chain)
				case 5:
					x.Top(s, 10)
				default:
					m := x.Remember(s, chain)
					m.at += settling // as if it had been sent later
					x.Correct(m, r.IntN(len(chain)+1))
				}
			}
		})
	}
	all.Wait()
	if broken := check(x.table, nil); broken != "" {
		t.Error(broken)
	}
	for s := range slot.Slot(8) {
		x.Clear(s)
	}
	if got := x.Stats(); got.Held != 0 || got.Prefixes != 0 {
		t.Errorf("after clearing all: %+v", got)
	}
}

// TestMemory measures what a held block takes, against what Config.MaxBlocks promises.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 100 MB")
	}
	for _, holders := range []int{1, 8} {
		per := bytesPerBlock(t, 1_000_000/holders, holders)
		t.Logf("%d holder(s) per block: %.1f bytes per held block", holders, per)
		if per > 80 {
			t.Errorf("%d holder(s) per block: %.1f bytes per held block; Config.MaxBlocks says 60 to 75", holders, per)
		}
	}
}

// bytesPerBlock fills an index with so many different blocks, each held by so many slots, in prompts of 500 blocks.
func bytesPerBlock(tb testing.TB, blocks, holders int) float64 {
	tb.Helper()
	x, _ := newIndex(tb, Config{DefaultCapacity: 10_000_000, MaxBlocks: 10_000_000})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range blocks / 500 {
		for s := range holders {
			x.Remember(slot.Slot(s), chainOf(uint64(i), 500))
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	return float64(after.HeapAlloc-before.HeapAlloc) / float64(x.Stats().Held)
}

// BenchmarkOverlap asks 16 slots for prompts of short, middle and agentic length, in an index of 400,000 held blocks.
// "level": all hold the same first half. "spread": every slot holds another part of it.
func BenchmarkOverlap(b *testing.B) {
	for _, n := range []int{128, 512, 6250} {
		for _, spread := range []bool{false, true} {
			name := fmt.Sprintf("blocks=%d/level", n)
			if spread {
				name = fmt.Sprintf("blocks=%d/spread", n)
			}
			b.Run(name, func(b *testing.B) {
				x, _ := newIndex(b, Config{DefaultCapacity: 30_000, MaxBlocks: 1 << 20})
				prompts := make([][]uint64, max(1, 25_000/n))
				for i := range prompts {
					prompts[i] = chainOf(uint64(i), n)
					for s := range 16 {
						part := n / 2
						if spread {
							part = n * (s + 1) / 17
						}
						x.Remember(slot.Slot(s), prompts[i][:part])
					}
				}
				var dst []int32
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					dst = x.Overlap(prompts[i%len(prompts)], dst)
				}
			})
		}
	}
	b.Run("unseen", func(b *testing.B) {
		x, _ := newIndex(b, Config{DefaultCapacity: 30_000, MaxBlocks: 1 << 20})
		for s := range 16 {
			x.Remember(slot.Slot(s), chainOf(uint64(s), 25_000))
		}
		unseen := chainOf(99, 6250)
		var dst []int32
		for b.Loop() {
			dst = x.Overlap(unseen, dst)
		}
	})
}

// BenchmarkRemember is what a decision notes. "held": the slot holds all of the prompt, which is one of many and not the
// freshest; "turn": all but 40 new blocks at its end; "unseen": none of it, and as much has to go.
func BenchmarkRemember(b *testing.B) {
	for _, n := range []int{128, 512, 6250} {
		const total = 300_000
		prompts := make([][]uint64, total/n)
		for i := range prompts {
			prompts[i] = chainOf(uint64(i), n)
		}
		b.Run(fmt.Sprintf("blocks=%d/held", n), func(b *testing.B) {
			x, _ := newIndex(b, Config{DefaultCapacity: total, MaxBlocks: 1 << 20})
			for _, chain := range prompts {
				x.Remember(0, chain)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				x.Remember(0, prompts[i*7%len(prompts)])
			}
		})
		b.Run(fmt.Sprintf("blocks=%d/turn", n), func(b *testing.B) {
			tail := chainOf(1234, 40)
			room := total + 2*len(tail)*len(prompts) // what is evicted are tails of former turns
			x, _ := newIndex(b, Config{DefaultCapacity: room, MaxBlocks: 1 << 20})
			for _, chain := range prompts {
				x.Remember(0, chain)
			}
			chain := make([]uint64, 0, n+40)
			for i := 0; b.Loop(); i++ {
				for j := range tail {
					tail[j]++
				}
				chain = append(append(chain[:0], prompts[i*7%len(prompts)]...), tail...)
				x.Remember(0, chain)
			}
		})
		b.Run(fmt.Sprintf("blocks=%d/unseen", n), func(b *testing.B) {
			x, _ := newIndex(b, Config{DefaultCapacity: total / 2, MaxBlocks: 1 << 20})
			for i := 0; b.Loop(); i++ {
				x.Remember(0, prompts[i%len(prompts)])
			}
		})
	}
}

// BenchmarkTouch is what the end of a request, or the beat for those in flight, costs. "stale": every prompt for the first
// time in its second; "again": for the second time; "siblings": 100 prompts with one beginning and 40 blocks of their own,
// one beat for all of them.
func BenchmarkTouch(b *testing.B) {
	for _, n := range []int{512, 6250} {
		x, c := newIndex(b, Config{DefaultCapacity: 400_000, MaxBlocks: 1 << 20})
		prompts := make([][]uint64, 300_000/n)
		for i := range prompts {
			prompts[i] = chainOf(uint64(i), n)
			x.Remember(0, prompts[i])
		}
		b.Run(fmt.Sprintf("blocks=%d/stale", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if i%len(prompts) == 0 {
					c.Time = c.Add(time.Second)
				}
				x.Touch(0, prompts[i*7%len(prompts)])
			}
		})
		b.Run(fmt.Sprintf("blocks=%d/again", n), func(b *testing.B) {
			for _, chain := range prompts {
				x.Touch(0, chain)
			}
			for i := 0; b.Loop(); i++ {
				x.Touch(0, prompts[i*7%len(prompts)])
			}
		})
		siblings := make([][]uint64, 100)
		for i := range siblings {
			siblings[i] = append(slices.Clone(prompts[0]), chainOf(uint64(1000+i), 40)...)
			x.Remember(0, siblings[i])
		}
		b.Run(fmt.Sprintf("blocks=%d/siblings", n), func(b *testing.B) {
			for b.Loop() {
				c.Time = c.Add(time.Second)
				for _, chain := range siblings {
					x.Touch(0, chain)
				}
			}
		})
	}
}

// BenchmarkMemory reports the bytes that a held block takes.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(bytesPerBlock(b, 1_000_000, 1), "B/held-alone")
		b.ReportMetric(bytesPerBlock(b, 125_000, 8), "B/held-by-8")
	}
}

// BenchmarkSnapshot saves and restores a million blocks that forty slots hold.
func BenchmarkSnapshot(b *testing.B) {
	const holders, prompts, blocks = 40, 50, 500
	cfg := Config{DefaultCapacity: 25_000, MaxBlocks: 2 << 20, TTL: time.Hour}
	x, c := newIndex(b, cfg)
	for p := range prompts {
		for s := range slot.Slot(holders) {
			shared := chainOf(uint64(s%5), blocks/10)
			x.Remember(s, append(shared, chainOf(uint64(p*holders)+uint64(s)+10, blocks-len(shared))...))
		}
		c.Time = c.Add(time.Second)
	}
	held := x.Stats().Held
	longest := func(during func(*Index), x *Index) (pause, took time.Duration) {
		stop, stopped := make(chan struct{}), make(chan time.Duration)
		go func() {
			longest := time.Duration(0)
			for {
				select {
				case <-stop:
					stopped <- longest
					return
				default:
					began := time.Now()
					x.change(func(*table) bool { return false })
					longest = max(longest, time.Since(began))
				}
			}
		}()
		began := time.Now()
		during(x)
		took = time.Since(began)
		close(stop)
		return <-stopped, took
	}
	var frozen [holders]*Frozen
	var out bytes.Buffer
	// Of the longest waits the shortest counts: others are longer because something else ran.
	pause, restorePause := time.Hour, time.Hour
	var freeze, write, restore time.Duration
	var copied uint64
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p, took := longest(func(x *Index) {
			for s := range frozen {
				frozen[s] = x.Freeze(slot.Slot(s))
			}
		}, x)
		pause, freeze = min(pause, p), freeze+took
		runtime.ReadMemStats(&after)
		copied = max(copied, after.TotalAlloc-before.TotalAlloc)
		began := time.Now()
		out.Reset()
		for _, f := range frozen {
			if _, err := f.WriteTo(&out); err != nil {
				b.Fatal(err)
			}
		}
		write += time.Since(began)
		in := bufio.NewReader(bytes.NewReader(out.Bytes()))
		again, _ := newIndex(b, cfg)
		p, took = longest(func(x *Index) {
			for s := range frozen {
				f, err := Load(in)
				if err != nil {
					b.Fatal(err)
				}
				x.Restore(slot.Slot(s), f, 0)
			}
		}, again)
		restorePause, restore = min(restorePause, p), restore+took
		if got := again.Stats().Held; got != held {
			b.Fatalf("%d blocks restored, want %d", got, held)
		}
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 / float64(b.N) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(held), "blocks")
	b.ReportMetric(ms(freeze), "freeze-ms")
	b.ReportMetric(pause.Seconds()*1e3, "pause-ms")
	b.ReportMetric(float64(copied)/1e6, "freeze-MB")
	b.ReportMetric(ms(write), "write-ms")
	b.ReportMetric(ms(restore), "restore-ms")
	b.ReportMetric(restorePause.Seconds()*1e3, "restore-pause-ms")
	b.ReportMetric(float64(out.Len())/float64(held), "B/block")
}
