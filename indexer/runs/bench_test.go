package runs

import (
	"fmt"
	"testing"
	"time"

	"attache/indexer/yardstick"
	"attache/internal/block"
	"attache/internal/slot"
)

func BenchmarkOverlap(b *testing.B) {
	for name, y := range map[string]*input{"512": synthetic(true, false), "6250": inputOf(yardstick.Long(), true)} {
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
