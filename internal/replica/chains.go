package replica

import (
	"attache/internal/block"
)

// step is the distance of checkpoints, in blocks: those of every step-th block of a chain are remembered.
const step = 16

// mostCheckpoints is how many checkpoints a sender remembers in each of two generations: one million blocks, some 5 MiB with what
// hangs on them. A receiver remembers twice as many, so that it does not forget before the sender does.
const mostCheckpoints = 1 << 15

// generations is a map that forgets: when the young half is full the old half goes. What is asked for is young again.
type generations[V any] struct {
	most       int
	young, old map[block.Hash]V
}

func (g *generations[V]) get(h block.Hash) (v V, ok bool) {
	if v, ok = g.young[h]; ok {
		return v, true
	}
	if v, ok = g.old[h]; ok {
		g.put(h, v)
	}
	return v, ok
}

func (g *generations[V]) put(h block.Hash, v V) {
	if g.young == nil {
		g.young = map[block.Hash]V{}
	}
	if len(g.young) >= g.most {
		g.old, g.young = g.young, make(map[block.Hash]V, g.most)
	}
	g.young[h] = v
}

func (g *generations[V]) clear() { g.young, g.old = nil, nil }

// sent are the checkpoints that a sender's readers know. Not safe for concurrent use.
type sent struct{ known generations[struct{}] }

// base is how many leading blocks of a chain the readers know, a multiple of step; from then on they know all its checkpoints.
//
// If a checkpoint is known those before it were sent with it, so that the deepest known one is found by bisection. Where a generation
// has gone in between, less than the deepest may be found, which costs bytes and nothing else.
func (s *sent) base(chain []block.Hash) int {
	low, high := 0, len(chain)/step
	for low < high {
		mid := (low + high + 1) / 2
		if _, known := s.known.get(chain[mid*step-1]); known {
			low = mid
		} else {
			high = mid - 1
		}
	}
	for n := low + 1; n <= len(chain)/step; n++ {
		s.known.put(chain[n*step-1], struct{}{})
	}
	return low * step
}

// received are the chains that a sender's checkpoints stand for. Not safe for concurrent use.
type received struct {
	known generations[[]block.Hash]
}

// whole is the chain that begins as the checkpoint says and goes on with tail; ok is false when the checkpoint is not known. The
// result is kept and must not be changed.
func (r *received) whole(base int, checkpoint block.Hash, tail []block.Hash) (chain []block.Hash, ok bool) {
	var head []block.Hash
	if base > 0 {
		if head, ok = r.known.get(checkpoint); !ok || len(head) != base {
			return nil, false
		}
	}
	chain = append(append(make([]block.Hash, 0, base+len(tail)), head...), tail...)
	for n := base + step; n <= len(chain); n += step {
		r.known.put(chain[n-1], chain[:n:n])
	}
	return chain, true
}
