package yardstick

import (
	"container/list"
	"slices"

	"attache/internal/block"
)

// Replay is the conversation trace as a fleet of workers with bounded caches would have it. A request goes to the worker that
// holds most of it, or in turn when none holds half. The worker then gives up what it used longest ago, as vLLM does: the ends
// of prompts first, one event for each block. It stores what it lacks.
type Replay struct {
	Workers int
	Steps   []Step
	// Sum is the checksum over the queries of all steps, each asked before its step changes anything; found with plain maps.
	Sum uint64
}

// Step is one request: a query, then the removes of single blocks, then the stores of Chain[From:].
type Step struct {
	Chain  []block.Hash
	Worker int
	From   int
	Gone   []uint64 // engine hashes, which are the sequence hashes
}

// Stored is how many blocks the step stores.
func (s *Step) Stored() int { return len(s.Chain) - s.From }

// NewReplay makes it of the first rows, each block of 512 tokens becoming expand blocks, for workers with room for a number of
// blocks. Prompts longer than that are cut off.
func NewReplay(rows, expand, workers, room int) (*Replay, error) {
	r := &Replay{Workers: workers}
	caches := make([]*cache, workers)
	for i := range caches {
		caches[i] = &cache{at: map[block.Hash]*list.Element{}}
	}
	err := eachRow(rows, expand, func(n int, own []uint64) {
		chain := Chain(own[:min(len(own), room)])
		best, most := n%workers, (len(chain)-1)/2
		for w, c := range caches {
			held := c.leading(chain)
			r.Sum += Sum(w, held)
			if held > most {
				best, most = w, held
			}
		}
		c := caches[best]
		s := Step{Chain: chain, Worker: best, From: c.leading(chain)}
		s.Gone = c.use(chain, room)
		r.Steps = append(r.Steps, s)
	})
	return r, err
}

// cache is what one worker holds, what was used last at the back.
type cache struct {
	order list.List
	at    map[block.Hash]*list.Element
}

func (c *cache) leading(chain []block.Hash) (n int) {
	for n < len(chain) && c.at[chain[n]] != nil {
		n++
	}
	return n
}

// use brings a prompt in and returns what had to go. A block never goes before those behind it.
func (c *cache) use(chain []block.Hash, room int) (gone []uint64) {
	for _, h := range slices.Backward(chain) {
		if e := c.at[h]; e != nil {
			c.order.MoveToBack(e)
		} else {
			c.at[h] = c.order.PushBack(h)
		}
	}
	for c.order.Len() > room {
		h := c.order.Remove(c.order.Front()).(block.Hash) //nolint:forcetypeassert // only hashes are put in
		delete(c.at, h)
		gone = append(gone, h)
	}
	return gone
}
