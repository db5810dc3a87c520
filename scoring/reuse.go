package scoring

import (
	"math"

	"attache/internal/block"
)

// reuse learns how probable it is that a block that nobody has asked for since some time is asked for again.
//
// It looks at one block of sampling, chosen by hash, so that what it learns is no less true and costs little. gaps counts the
// times between two requests for a block, uses all requests for one; both fade with half a lifetime of fading seconds:
//
//	h(age) = gaps longer than age / (uses - gaps up to age)
//
// The uses that were followed by another one within the age are out of the question for a block that has waited so long; of
// the others, so many were followed by one later. Until enough is known h is 0. Not safe for concurrent use.
type reuse struct {
	uses   float64
	gaps   [gapBins]float64
	at     float64          // seconds, when all was faded last
	chance [gapBins]float64 // h by half octave, as of when it was asked for last
	stale  bool             // more was learnt since
	places []int32          // of sample
	seen   [memory]use
}

// use is when a block was asked for last and when a request with it ended last.
type use struct {
	tag             uint32 // the hash's upper half
	asked, released float32
}

const (
	sampling  = 32      // a power of two
	memory    = 1 << 16 // sampled blocks remembered: 0.75 MiB
	gapBins   = 26      // half octaves of seconds: below 1 s, 1 to 1.4 s, ..., beyond 1.1 h
	fading    = 600.0   // seconds
	leastUses = 1000.0  // blocks, before h says anything
)

// sampled reports whether a block is one of those looked at.
func sampled(h block.Hash) bool { return h%sampling == 0 }

// of is the place of a sampled block; it is that of another one if its tag differs.
func (r *reuse) of(h block.Hash) *use { return &r.seen[h/sampling%memory] }

// sample returns where in a chain the sampled blocks are. The result is valid until the next call.
func (r *reuse) sample(chain []block.Hash) []int32 {
	r.places = r.places[:0]
	for i, h := range chain {
		if sampled(h) {
			r.places = append(r.places, int32(i))
		}
	}
	return r.places
}

// ask takes in that a prompt was asked for, whose sampled blocks are at these places.
func (r *reuse) ask(chain []block.Hash, places []int32, now float64) {
	r.fade(now)
	for _, i := range places {
		h := chain[i]
		r.uses += sampling
		u := r.of(h)
		if tag := uint32(h >> 32); u.tag != tag {
			*u = use{tag: tag}
		} else {
			r.gaps[gapBin(now-float64(u.asked))] += sampling
		}
		u.asked = float32(now)
	}
	r.stale = true
}

// weigh works h out.
func (r *reuse) weigh() {
	upto, all := 0.0, 0.0
	for _, n := range r.gaps {
		all += n
	}
	for i, n := range r.gaps {
		upto += n
		r.chance[i] = 0
		if r.uses-upto >= leastUses {
			r.chance[i] = min(1, (all-upto)/(r.uses-upto))
		}
	}
}

// released is when a request with this block ended last, ok is false when it is not known.
func (r *reuse) released(h block.Hash) (at float64, ok bool) {
	u := r.of(h)
	if u.tag != uint32(h>>32) || u.released == 0 {
		return 0, false
	}
	return float64(u.released), true
}

// release takes in that a request with these blocks has ended.
func (r *reuse) release(blocks []block.Hash, now float64) {
	for _, h := range blocks {
		if !sampled(h) {
			continue
		}
		if u := r.of(h); u.tag == uint32(h>>32) {
			u.released = float32(now)
		}
	}
}

// gapBin is the half octave of a time in seconds: the exponent of its square.
func gapBin(seconds float64) int {
	if seconds < 1 {
		return 0
	}
	return min(gapBins-1, int(math.Float64bits(seconds*seconds)>>52)-1023+1)
}

// fade lets what was learnt long ago count less.
func (r *reuse) fade(now float64) {
	if now-r.at < 1 {
		return
	}
	f := math.Exp((r.at - now) / fading)
	r.uses *= f
	for i := range r.gaps {
		r.gaps[i] *= f
	}
	r.at = now
}

// again is h(age) for an age in seconds.
func (r *reuse) again(age float64) float64 {
	if r.stale {
		r.weigh()
		r.stale = false
	}
	return r.chance[gapBin(age)]
}
