package scoring

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"attache/internal/block"
)

// pile is the dumb second implementation of idle: one entry per block, oldest first.
type pile []float64

func (p *pile) add(now float64, blocks int) {
	for range blocks {
		*p = append(*p, now)
	}
}

func (p *pile) take(at float64, blocks int) {
	for ; blocks > 0; blocks-- {
		i, _ := slices.BinarySearch(*p, at+1e-9) // behind the last one that is not younger
		if i == 0 {
			return
		}
		*p = slices.Delete(*p, i-1, i)
	}
}

func (p *pile) fit(most int) { *p = (*p)[max(0, len(*p)-max(most, 0)):] }

func (p *pile) loss(n int, now float64, r *reuse) (blocks float64) {
	for _, at := range (*p)[:min(max(n, 0), len(*p))] {
		blocks += r.again(now - at)
	}
	return blocks
}

// TestIdle compares with the pile, at whole seconds, so that every instant is a layer.
func TestIdle(t *testing.T) {
	r := new(reuse)
	for i := range r.chance {
		r.chance[i] = 1 / float64(i+2)
	}
	rapid.Check(t, func(t *rapid.T) {
		var d idle
		var dumb pile
		now := 0.0
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) { now += float64(rapid.IntRange(1, 100).Draw(t, "seconds")) },
			"add": func(t *rapid.T) {
				n := rapid.IntRange(-2, 20).Draw(t, "blocks")
				d.add(now, n)
				dumb.add(now, n)
			},
			"add many": func(*rapid.T) { // as many layers as make room for others at the beginning
				for range 80 {
					now++
					d.add(now, 1)
					dumb.add(now, 1)
				}
			},
			"take": func(t *rapid.T) {
				at, n := now-float64(rapid.IntRange(-3, 200).Draw(t, "age")), rapid.IntRange(0, 30).Draw(t, "blocks")
				d.take(at, n)
				dumb.take(at, n)
			},
			"fit": func(t *rapid.T) {
				most := rapid.IntRange(-3, 200).Draw(t, "most")
				d.fit(most)
				dumb.fit(most)
			},
			"": func(t *rapid.T) {
				n := rapid.IntRange(-1, 200).Draw(t, "oldest")
				if got, want := d.loss(n, now, r), dumb.loss(n, now, r); d.blocks != len(dumb) || !near(got, want, 1e-9) {
					t.Fatalf("%d blocks lie idle, want %d; the loss of %d is %v, want %v", d.blocks, len(dumb), n, got, want)
				}
			},
		})
	})
}

// TestIdleGrain: what is released within a second of a layer's beginning is the same layer.
func TestIdleGrain(t *testing.T) {
	var d idle
	for _, now := range []float64{10, 10.5, 10.99, 11, 11.5, 12.5} {
		d.add(now, 1)
	}
	if want := []layer{{10, 3}, {11, 2}, {12.5, 1}}; !slices.Equal(d.layers, want) {
		t.Errorf("layers %v, want %v", d.layers, want)
	}
	d.take(10.7, 1)
	d.take(12.2, 1) // nothing was released then: from the layer before
	if want := []layer{{10, 2}, {11, 1}, {12.5, 1}}; !slices.Equal(d.layers, want) {
		t.Errorf("layers %v, want %v", d.layers, want)
	}
}

// TestIdleFindsWhatReuseRemembers releases blocks at instants that are no round figures: each is found in its own layer by the
// time that reuse remembers, which has fewer digits.
func TestIdleFindsWhatReuseRemembers(t *testing.T) {
	var d idle
	r := new(reuse)
	chain := sampledChain(1000)
	for i := range chain {
		now := 1 + 3.1*float64(i)
		r.ask(chain[i:i+1], r.sample(chain[i:i+1]), now)
		r.release(chain[i:i+1], now)
		d.add(now, 10)
	}
	for i := range chain {
		if at, ok := r.released(chain[i]); ok {
			d.take(at, 1)
		}
		if d.layers[i].blocks != 9 {
			t.Fatalf("the block released in layer %d, at %v s, is taken out of another", i, 1+3.1*float64(i))
		}
	}
}

// TestIdleIsBounded: where nobody makes it fit, because the size of the cache is not known, memory does not grow for ever.
func TestIdleIsBounded(t *testing.T) {
	var d idle
	const seconds = 10 * mostLayers
	for i := range seconds {
		d.add(float64(i), 2)
	}
	if d.blocks != 2*seconds || cap(d.layers) > 4*mostLayers {
		t.Errorf("%d blocks in room for %d layers, want %d in at most %d", d.blocks, cap(d.layers), 2*seconds, 4*mostLayers)
	}
	if youngest := d.layers[len(d.layers)-1]; youngest != (layer{seconds - 1, 2}) {
		t.Errorf("the youngest layer is %v", youngest)
	}
	d.fit(7)
	if d.blocks != 7 || d.layers[d.first].at != seconds-4 {
		t.Errorf("made to fit, %d blocks are left, the oldest of %v s", d.blocks, d.layers[d.first].at)
	}
}

// TestReclaim: what a request finds in the cache no longer lies idle while it runs, unless another one holds it anyway, and what
// it does not find stays. One block in 32 is looked at, and stands for all.
func TestReclaim(t *testing.T) {
	s, c := newScorer(t, DefaultConfig())
	d := ask(16 * 800)
	d.OutputTokens = 16 * 5
	for i := range block.Hash(800) {
		d.Chain = append(d.Chain, (i+1)<<32|i)
	}
	idle := func() int { return s.loads[0].idle.blocks }
	run := func(cached int) *Booking {
		one := candidates(1)
		one[0].CachedTokens = 16 * cached
		_, b := pick(s, d, one)
		c.wait(10)
		return b
	}
	run(0).End()
	if idle() != 805 {
		t.Errorf("after the first request %d blocks lie idle, want its prompt's 800 and its answer's 5", idle())
	}
	again := run(13 * sampling)
	if idle() != 389 {
		t.Errorf("416 of them are used again, %d lie idle, want 389", idle())
	}
	beside := run(800)
	if idle() != 389 {
		t.Errorf("a request beside it that shares all of its prompt changes what lies idle to %d, want 389", idle())
	}
	again.End()
	beside.End()
	if idle() != 389+800+2*5 {
		t.Errorf("when all are over %d blocks lie idle, want %d", idle(), 389+800+2*5)
	}
}
