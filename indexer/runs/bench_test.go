package runs

import (
	"fmt"
	"testing"
	"time"

	"attache/internal/block"
	"attache/internal/slot"
)

func BenchmarkOverlap(b *testing.B) {
	for name, y := range map[string]*yardstick{"512": synthetic(true, false), "6250": long()} {
		b.Run(name, func(b *testing.B) {
			x := New(roomy())
			apply(x, y.stores)
			var o Overlap
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				x.Overlap(y.queries[i], &o)
				if i++; i == len(y.queries) {
					i = 0
				}
			}
		})
	}
}

// BenchmarkReaderBesideWriter compares one reader alone with one beside a writer at its full rate.
func BenchmarkReaderBesideWriter(b *testing.B) {
	y := synthetic(true, false)
	taken := map[Holder]map[uint64]bool{}
	for i := range y.removes {
		e := &y.removes[i]
		if taken[e.holder] == nil {
			taken[e.holder] = map[uint64]bool{}
		}
		taken[e.holder][e.Engine[0]] = true
	}
	changes := y.removes
	for i := range y.stores {
		if e := &y.stores[i]; taken[e.holder][e.Engine[len(e.Engine)-1]] {
			changes = append(changes, *e)
		}
	}
	for _, writing := range []bool{false, true} {
		b.Run(fmt.Sprintf("writing=%v", writing), func(b *testing.B) {
			x := presized(16, 65536)
			apply(x, y.stores)
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				start, blocks := time.Now(), 0
				for i := 0; writing; i = (i + 1) % len(changes) {
					select {
					case <-stop:
						b.ReportMetric(float64(blocks)/time.Since(start).Seconds()/1e6, "Mblocks-written/s")
						return
					default:
					}
					changes[i].apply(x)
					blocks += len(changes[i].Engine)
				}
			}()
			var o Overlap
			i := 0
			for b.Loop() {
				x.Overlap(y.queries[i], &o)
				if i++; i == len(y.queries) {
					i = 0
				}
			}
			close(stop)
			<-done
		})
	}
}

// BenchmarkStore stores events of several sizes into engine maps that grow.
func BenchmarkStore(b *testing.B) {
	chains := make([][]block.Hash, 400)
	for c := range chains {
		local := make([]uint64, 512)
		for i := range local {
			local[i] = mix(uint64(c*512 + i))
		}
		chains[c] = chainOf(local)
	}
	for _, size := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("%d blocks an event", size), func(b *testing.B) {
			for b.Loop() {
				x := New(roomy())
				for c, chain := range chains {
					for i := 0; i < len(chain); i += size {
						put(x, Holder{Slot: slot.Slot(c % 8)}, chain, i, min(i+size, len(chain)))
					}
				}
			}
			n := float64(b.N) * float64(len(chains)*512)
			b.ReportMetric(n/b.Elapsed().Seconds()/1e6, "Mblocks/s")
			b.ReportMetric(n/float64(size)/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}

// BenchmarkRemoveSlot fills an index, and gives up a slot with a million blocks, half of them held by another, in runs of two lengths.
func BenchmarkRemoveSlot(b *testing.B) {
	for _, length := range []int{512, 8} {
		b.Run(fmt.Sprintf("runs of %d", length), func(b *testing.B) {
			var remove, longest, tidy time.Duration
			var before, after, held float64
			for b.Loop() {
				x := New(roomy())
				empty := heap()
				local := make([]uint64, length)
				for s := range 1_000_000 / length {
					for i := range local {
						local[i] = mix(uint64(s*length + i))
					}
					chain := chainOf(local)
					put(x, Holder{Slot: 0}, chain, 0, length)
					if s%2 == 0 {
						put(x, Holder{Slot: 1}, chain, 0, length)
					}
				}
				before, held = heap()-empty, float64(x.Stats().Held)
				start := time.Now()
				x.RemoveSlot(0)
				remove = time.Since(start)
				longest, tidy = 0, 0
				for more := true; more; {
					start := time.Now()
					more = x.Tidy(1000)
					took := time.Since(start)
					longest, tidy = max(longest, took), tidy+took
				}
				after = heap() - empty
				x.RemoveSlot(1)
			}
			ms := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
			b.ReportMetric(ms(remove), "ms-remove")
			b.ReportMetric(ms(longest), "ms-longest-tidy")
			b.ReportMetric(ms(tidy), "ms-tidy")
			b.ReportMetric(before/held, "B/held")
			b.ReportMetric(before/1e6, "MB-before")
			b.ReportMetric(after/1e6, "MB-after")
		})
	}
}

// BenchmarkAtTheBound stores new prompts into an index that is full.
func BenchmarkAtTheBound(b *testing.B) {
	cfg := roomy()
	cfg.MaxBytes = 64 << 20
	x := New(cfg)
	var longest time.Duration
	local := make([]uint64, 256)
	n := uint64(0)
	fill := func() {
		for i := range local {
			local[i] = mix(n<<10 | uint64(i))
		}
		chain := chainOf(local)
		h := Holder{Slot: slot.Slot(n % 16)}
		n++
		for i := 0; i < len(chain); i += 16 {
			start := time.Now()
			put(x, h, chain, i, i+16)
			longest = max(longest, time.Since(start))
		}
	}
	for x.Stats().EvictedBlocks == 0 {
		fill()
	}
	longest = 0
	for b.Loop() {
		fill()
	}
	st := x.Stats()
	b.ReportMetric(float64(b.N)*256/b.Elapsed().Seconds()/1e6, "Mblocks/s")
	b.ReportMetric(float64(st.Bytes)/float64(st.Held), "B/held")
	b.ReportMetric(float64(longest.Microseconds()), "us-longest")
}
