package router

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"attache/indexer/events"
	"attache/internal/block"
	"attache/internal/slot"
)

// pathOf is a chain that shares as many blocks with others as their paths do.
func pathOf(path []byte) []block.Hash {
	var chain []block.Hash
	for i, step := range path {
		parent := block.Hash(0)
		if i > 0 {
			parent = chain[i-1]
		}
		chain = append(chain, block.Next(parent, uint64(step)+1, i == 0))
	}
	return chain
}

func emptyLedger(t interface{ Fatal(...any) }) *events.Ledger {
	l, err := events.New(events.Params{Config: events.DefaultConfig(), Pool: "p", BlockTokens: 16, Now: time.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestFlights compares with looking at every flight block by block.
func TestFlights(t *testing.T) {
	l := emptyLedger(t)
	rapid.Check(t, func(t *rapid.T) {
		var f flights
		type dumb struct {
			*flight

			path []byte
		}
		var all []dumb
		now := time.Unix(1000, 0)
		emptied := map[slot.Slot]uint64{}
		times := func(s slot.Slot) uint64 { return emptied[s] }
		standing := pathOf([]byte{0, 0, 0, 0, 0, 0}) // a prompt that waits, and catches up
		var flying []int32
		var added uint64
		anyPath := rapid.SliceOfN(rapid.ByteRange(0, 1), 0, 6)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				path := anyPath.Draw(t, "path")
				if x := f.add(slot.Slot(rapid.IntRange(0, 2).Draw(t, "slot")), pathOf(path)); x != nil {
					all = append(all, dumb{x, path})
				}
			},
			"end": func(t *rapid.T) {
				if len(all) > 0 {
					if x := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")].flight; x.ended.IsZero() {
						f.end(x, now, emptied[x.slot])
					}
				}
			},
			"catch up": func(t *rapid.T) {
				flying, added = f.overlap(standing, times, added, flying)
				whole, _ := f.overlap(standing, times, 0, nil)
				for s := range slot.Slot(3) { // what it saw on its way may have ended meanwhile
					if at(flying, s) < at(whole, s) {
						t.Fatalf("%d blocks on their way to slot %d after catching up, there are %d", at(flying, s), s, at(whole, s))
					}
				}
			},
			"empty": func(t *rapid.T) { emptied[slot.Slot(rapid.IntRange(0, 2).Draw(t, "emptied"))]++ },
			"sweep": func(t *rapid.T) {
				now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "later"))
				f.sweep(l, now, time.Second)
				all = slices.DeleteFunc(all, func(d dumb) bool { return !d.ended.IsZero() && now.Sub(d.ended) >= time.Second })
			},
			"": func(t *rapid.T) {
				asked := anyPath.Draw(t, "asked")
				got, _ := f.overlap(pathOf(asked), times, 0, nil)
				for s := range slot.Slot(3) {
					want := 0
					for _, d := range all {
						n := 0
						for n < min(len(d.path), len(asked)) && d.path[n] == asked[n] {
							n++
						}
						if d.slot == s && (d.ended.IsZero() || d.life == emptied[s]) {
							want = max(want, n)
						}
					}
					if at(got, s) != want {
						t.Fatalf("%d blocks of %v on their way to slot %d, want %d", at(got, s), asked, s, want)
					}
				}
				if f.count() != len(all) {
					t.Fatalf("%d flights counted, there are %d", f.count(), len(all))
				}
			},
		})
	})
}

func TestFlightsOfOneBeginningAreBounded(t *testing.T) {
	var f flights
	for i := range maxFlights + 10 {
		f.add(slot.Slot(i%2), pathOf([]byte{0, byte(i)}))
	}
	if f.count() != maxFlights {
		t.Errorf("%d flights, want %d", f.count(), maxFlights)
	}
	if got, _ := f.overlap(pathOf([]byte{0, byte((maxFlights + 9) % 256)}), func(slot.Slot) uint64 { return 0 }, 0, nil); at(got, slot.Slot((maxFlights+9)%2)) != 2 {
		t.Error("the newest flight is not looked at")
	}
}
