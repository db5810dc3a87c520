package scoring

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"attache/internal/block"
)

// sampledChain are so many blocks that are all looked at, each with a place of its own.
func sampledChain(n int) []block.Hash {
	chain := make([]block.Hash, n)
	for i := range chain {
		chain[i] = block.Hash(i+1)<<32 | block.Hash(i)*sampling
	}
	return chain
}

// diary is the dumb second implementation of reuse: it remembers every use of every block, and counts anew for each question.
type diary struct {
	asked map[block.Hash]float64
	uses  []float64    // when
	gaps  [][2]float64 // when, how long
}

func (d *diary) ask(chain []block.Hash, now float64) {
	for _, h := range chain {
		d.uses = append(d.uses, now)
		if before, ok := d.asked[h]; ok {
			d.gaps = append(d.gaps, [2]float64{now, now - before})
		}
		d.asked[h] = now
	}
}

// again counts as of now, which must be the last time that somebody asked.
func (d *diary) again(age, now float64) float64 {
	beyond := 0.0 // the upper end of the half octave that age is in
	for i := 0; beyond <= age; i++ {
		beyond = math.Sqrt(math.Pow(2, float64(i)))
	}
	if age >= 4096 { // they are all one
		beyond = math.Inf(1)
	}
	var uses, upto, longer float64
	weight := func(at float64) float64 { return math.Exp((at - now) / fading) }
	for _, at := range d.uses {
		uses += weight(at)
	}
	for _, g := range d.gaps {
		if g[1] < beyond-1e-9 {
			upto += weight(g[0])
		} else {
			longer += weight(g[0])
		}
	}
	if uses-upto < leastUses/sampling {
		return 0
	}
	return min(1, longer/(uses-upto))
}

// TestReuse compares h(age) with the diary, where every block is looked at. Times are whole seconds, at which both fade alike.
func TestReuse(t *testing.T) {
	chain := sampledChain(160)
	rapid.Check(t, func(t *rapid.T) {
		r, dumb, now := new(reuse), &diary{asked: map[block.Hash]float64{}}, 1.0
		for range rapid.IntRange(1, 20).Draw(t, "prompts") {
			now += float64(rapid.SampledFrom([]int{0, 1, 2, 5, 30, 200, 4000}).Draw(t, "pause"))
			prompt := chain[rapid.IntRange(0, 80).Draw(t, "from"):][:rapid.IntRange(1, 80).Draw(t, "blocks")]
			r.ask(prompt, r.sample(prompt), now)
			dumb.ask(prompt, now)
			for _, age := range []float64{0, .5, 1.2, 3, 9, 50, 250, 5000, 1e9} {
				got, want := r.again(age), dumb.again(age, now)
				if !near(got, want, 1e-6) && !edge(r, age) {
					t.Fatalf("h(%v s) = %v, want %v", age, got, want)
				}
			}
		}
	})
}

// edge reports whether it is a matter of rounding if enough is known of an age.
func edge(r *reuse, age float64) bool {
	left := r.uses
	for i := range gapBin(age) + 1 {
		left -= r.gaps[i]
	}
	return near(left, leastUses, 1e-6)
}

func TestGapBin(t *testing.T) {
	for _, c := range []struct {
		seconds float64
		want    int
	}{
		{-1, 0}, {0, 0}, {.999, 0}, {1, 1}, {1.41, 1}, {1.42, 2}, {1.99, 2}, {2, 3}, {2.82, 3}, {2.83, 4}, {4, 5}, {64, 13}, {4095, 24}, {4096, 25},
		{1e9, 25}, {math.Inf(1), 25},
	} {
		if got := gapBin(c.seconds); got != c.want {
			t.Errorf("%v s are in half octave %d, want %d", c.seconds, got, c.want)
		}
	}
}

// TestReuseSampled: looking at an eighth of the blocks finds nearly what looking at all of them finds. Of 6000 prompts, one a
// quarter second, three in ten are asked for again a minute later.
func TestReuseSampled(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	r, all := new(reuse), &diary{asked: map[block.Hash]float64{}}
	prompts := make([][]block.Hash, 6000)
	now := 0.0
	for i := range prompts {
		now = 1 + float64(i)/4
		if before := i - 240; before >= 0 && rnd.Float64() < .3 {
			prompts[i] = prompts[before]
		} else {
			prompts[i] = make([]block.Hash, 64)
			for j := range prompts[i] {
				prompts[i][j] = rnd.Uint64()
			}
		}
		r.ask(prompts[i], r.sample(prompts[i]), now)
		all.ask(prompts[i], now)
	}
	for _, age := range []float64{1, 10, 40, 70, 300} {
		if got, want := r.again(age), all.again(age, now); !near(got, want, .02) {
			t.Errorf("h(%v s) = %.3f, with all blocks looked at %.3f", age, got, want)
		}
	}
	if before, after := r.again(10), r.again(100); before < .2 || after > .01 {
		t.Errorf("h is %v before the minute and %v after it, want about 0.3 and none", before, after)
	}
}

// TestReuseKnowsNothing at first, and says so; a place that another block has taken is not mistaken for one's own.
func TestReuseKnowsNothing(t *testing.T) {
	r := new(reuse)
	chain := sampledChain(10)
	if _, ok := r.released(chain[3]); ok || r.again(0) != 0 {
		t.Error("something is known before anything happened")
	}
	r.release(chain, 5) // never asked for: not remembered
	if _, ok := r.released(chain[3]); ok {
		t.Error("a block that nobody asked for was released")
	}
	r.ask(chain, r.sample(chain), 6)
	r.release(chain, 7)
	if at, ok := r.released(chain[3]); !ok || at != 7 {
		t.Errorf("released at %v, %v, want 7", at, ok)
	}
	other := chain[3] ^ 1<<63
	r.ask([]block.Hash{other}, r.sample([]block.Hash{other}), 8)
	if _, ok := r.released(chain[3]); ok {
		t.Error("what another block overwrote is still known")
	}
	if _, ok := r.released(other); ok {
		t.Error("a block has inherited the time of another one")
	}
}
