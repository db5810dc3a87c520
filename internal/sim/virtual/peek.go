package virtual

import (
	"iter"
	"time"
)

// Workers is how many workers there are, up or not.
func (c *Cluster) Workers() int { return len(c.nodes) }

// Up says whether a worker can be chosen. The other peeks are about workers that are up; of others all is 0.
func (c *Cluster) Up(worker int) bool { return c.nodes[worker].engine != nil }

// Capacity is the KV memory of a worker in blocks.
func (c *Cluster) Capacity(worker int) int {
	if p := c.pool(worker); p != nil {
		return p.capacity
	}
	return 0
}

// Free is how many blocks of a worker's memory are empty: so many can be taken before anything is evicted.
func (c *Cluster) Free(worker int) int {
	if p := c.pool(worker); p != nil {
		return p.capacity - p.used
	}
	return 0
}

// InUse is how many blocks the requests on a worker hold.
func (c *Cluster) InUse(worker int) int {
	if p := c.pool(worker); p != nil {
		return p.held()
	}
	return 0
}

// Requests counts the requests that run on a worker and those that wait to.
func (c *Cluster) Requests(worker int) (running, waiting int) {
	if e := c.nodes[worker].engine; e != nil {
		return e.requests()
	}
	return 0, 0
}

// Held counts how many leading blocks of a prompt (trace.Request.IDs) a worker could reuse at this moment.
func (c *Cluster) Held(worker int, ids []int32) int {
	if c.shared != nil {
		return c.shared.match(ids)
	}
	if p := c.pool(worker); p != nil {
		return p.match(ids)
	}
	return 0
}

// Alone is how long a worker that has nothing else to do takes until the first token of a prompt of which so many tokens are to
// be computed and so many are cached.
func (c *Cluster) Alone(worker, uncached, cached int) time.Duration {
	n := &c.nodes[worker]
	t := 0.0 // seconds
	for done, left := cached, max(1, uncached); left > 0; {
		chunk := min(left, c.cfg.MaxTokens)
		if e, hardware := n.engine.(*reserving); hardware {
			m := &e.model
			t += m.Over + max(m.Weights, m.PerToken*float64(chunk)) + m.PerPair*float64(chunk)*(float64(done)+float64(chunk)/2)
		} else {
			t += mockedPrefill(float64(chunk)) / 1e3
		}
		done, left = done+chunk, left-chunk
	}
	return time.Duration(t / n.speed * float64(time.Second))
}

// Idle is a block that no request holds, so that it can be evicted.
type Idle struct {
	// ID is that of trace.Request.IDs, -1 for a block of an answer.
	ID int32
	// Released is when its last holder released it.
	Released time.Duration
	// InUse says that a request holds another copy of the block.
	InUse bool
}

// IdleBlocks are a worker's idle blocks in the order in which they will be evicted. The cluster must not go on meanwhile.
func (c *Cluster) IdleBlocks(worker int) iter.Seq[Idle] {
	return func(yield func(Idle) bool) {
		p := c.pool(worker)
		if p == nil {
			return
		}
		for i := p.c[0].next; i != 0; i = p.c[i].next {
			b := &p.c[i]
			o := Idle{ID: b.id, Released: b.released}
			if b.id >= p.prompts {
				o.ID = -1
			}
			for j := b.after; j != i && !o.InUse; j = p.c[j].after {
				o.InUse = p.c[j].refs > 0
			}
			if !yield(o) {
				return
			}
		}
	}
}

func (c *Cluster) pool(worker int) *pool {
	if e := c.nodes[worker].engine; e != nil {
		return e.memory()
	}
	return nil
}
