package sim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"attache/internal/block"
)

// plainCache is the dumb twin of cache: a slice of pages in the order in which they were given up, searched from the front.
type plainCache struct {
	pages int
	order []*plainPage // all with a name or a holder; idle ones in the order of release
}

type plainPage struct {
	hash  block.Hash
	named int // 0: no; else when, so that the first of twins is found
	refs  int
}

func (c *plainCache) find(h block.Hash) *plainPage {
	var first *plainPage
	for _, p := range c.order {
		if p.named > 0 && p.hash == h && (first == nil || p.named < first.named) {
			first = p
		}
	}
	return first
}

func (c *plainCache) match(chain []block.Hash) int {
	n := 0
	for n < len(chain) && c.find(chain[n]) != nil {
		n++
	}
	return n
}

func (c *plainCache) held() int {
	n := 0
	for _, p := range c.order {
		if p.refs > 0 {
			n++
		}
	}
	return n
}

func (c *plainCache) take(n int) []*plainPage {
	var taken []*plainPage
	for range n {
		if len(c.order) == c.pages {
			oldest := slices.IndexFunc(c.order, func(p *plainPage) bool { return p.refs == 0 })
			c.order = slices.Delete(c.order, oldest, oldest+1)
		}
		p := &plainPage{refs: 1}
		c.order = append(c.order, p)
		taken = append(taken, p)
	}
	return taken
}

func (c *plainCache) release(pages []*plainPage) {
	for _, p := range slices.Backward(pages) {
		if p.refs--; p.refs > 0 {
			continue
		}
		c.order = slices.DeleteFunc(c.order, func(q *plainPage) bool { return q == p })
		if p.named > 0 {
			c.order = append(c.order, p)
		}
	}
}

// Requests of a few overlapping chains come, compute and go at random; both caches must find the same at every moment.
func TestCacheAgainstDumbTwin(t *testing.T) {
	type holder struct {
		chain []block.Hash
		pages []int32
		plain []*plainPage
		named int
	}
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 12).Draw(t, "pages")
		c, twin := newCache(size), &plainCache{pages: size}
		var holders []*holder
		clock := 0
		chainOf := func() []block.Hash {
			// A chain is a walk: hash i names the whole path, so chains share prefixes and nothing else.
			var chain []block.Hash
			path := block.Hash(1)
			for range rapid.IntRange(1, 6).Draw(t, "length") {
				path = path*3 + block.Hash(rapid.IntRange(0, 1).Draw(t, "branch"))
				chain = append(chain, path)
			}
			return chain
		}
		t.Repeat(map[string]func(*rapid.T){
			"admit": func(t *rapid.T) {
				h := &holder{chain: chainOf()}
				n := c.match(h.chain)
				if got := twin.match(h.chain); got != n {
					t.Fatalf("%d blocks match, the twin finds %d", n, got)
				}
				fresh := len(h.chain) - n
				if c.room()-c.idleOf(h.chain[:n]) < fresh {
					t.Skip("no room")
				}
				h.pages = c.take(fresh, c.hold(h.chain[:n], nil))
				for _, hash := range h.chain[:n] {
					p := twin.find(hash)
					p.refs++
					h.plain = append(h.plain, p)
				}
				h.plain = append(h.plain, twin.take(fresh)...)
				h.named = n
				holders = append(holders, h)
			},
			"compute": func(t *rapid.T) {
				if len(holders) == 0 {
					t.Skip("nobody")
				}
				h := rapid.SampledFrom(holders).Draw(t, "holder")
				if h.named == len(h.chain) {
					t.Skip("done")
				}
				c.name(h.pages[h.named], h.chain[h.named], nil)
				clock++
				h.plain[h.named].hash, h.plain[h.named].named = h.chain[h.named], clock
				h.named++
			},
			"go": func(t *rapid.T) {
				if len(holders) == 0 {
					t.Skip("nobody")
				}
				i := rapid.IntRange(0, len(holders)-1).Draw(t, "holder")
				c.release(holders[i].pages)
				twin.release(holders[i].plain)
				holders = slices.Delete(holders, i, i+1)
			},
			"reset": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
					t.Skip("not now")
				}
				c.reset()
				twin.order = slices.DeleteFunc(twin.order, func(p *plainPage) bool { return p.refs == 0 })
				for _, p := range twin.order {
					p.named = 0
				}
			},
			"": func(t *rapid.T) {
				if c.held() != twin.held() || c.idle != len(twin.order)-twin.held() {
					t.Fatalf("%d held and %d idle, the twin has %d and %d", c.held(), c.idle, twin.held(), len(twin.order)-twin.held())
				}
				names := map[block.Hash]bool{}
				for _, p := range twin.order {
					if p.named > 0 {
						names[p.hash] = true
					}
				}
				if len(names) != len(c.byName) {
					t.Fatalf("%d names, the twin has %d", len(c.byName), len(names))
				}
				for h := range names {
					if c.match([]block.Hash{h}) != 1 {
						t.Fatalf("%x is not found", h)
					}
				}
			},
		})
	})
}

func TestDeepestBlockIsEvictedFirst(t *testing.T) {
	c := newCache(3)
	chain := []block.Hash{1, 2, 3}
	pages := c.take(3, nil)
	for i, id := range pages {
		c.name(id, chain[i], nil)
	}
	c.release(pages)
	for want := 3; want > 0; want-- {
		if got := c.match(chain); got != want {
			t.Errorf("%d blocks match, want %d", got, want)
		}
		c.take(1, nil)
	}
	if got := c.match(chain); got != 0 {
		t.Errorf("%d blocks match after all were evicted", got)
	}
}
