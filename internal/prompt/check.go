package prompt

import "sync"

// Check compares our token counts with those that engines report. Too many that differ mean that a pool's engines do not
// run the model, template or settings that we think they do: then exact chains match nothing, and the next rung serves
// better. It trusts again once counts agree for as long as it looked back. Safe for concurrent use. The zero value with
// a Bound set is ready.
type Check struct {
	// Bound is the share of counts that may differ, 0 to 1; above it the counts are not trusted.
	Bound float64

	mu       sync.Mutex
	recent   [checkWindow]bool // whether a count differed, in a ring
	seen     int               // counts so far
	wrong    int               // in recent
	agreed   int               // counts in a row that agreed
	distrust bool
	totals   [2]uint64 // counts that agreed, that differed
}

const (
	checkWindow = 64 // counts that are looked back at
	checkLeast  = 10 // before so many nothing is concluded
)

// Observe takes in one comparison. changed says that trust was lost or regained with it.
func (c *Check) Observe(ours, engines int) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	differs := ours != engines
	at := &c.recent[c.seen%checkWindow]
	if *at {
		c.wrong--
	}
	*at = differs
	c.seen++
	c.agreed++
	if differs {
		c.wrong++
		c.agreed = 0
		c.totals[1]++
	} else {
		c.totals[0]++
	}
	before := c.distrust
	switch {
	case c.seen >= checkLeast && float64(c.wrong) > c.Bound*float64(min(c.seen, checkWindow)):
		c.distrust = true
	case c.agreed >= checkWindow:
		c.distrust = false
	}
	return c.distrust != before
}

// Trusted reports whether counts may be relied upon.
func (c *Check) Trusted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.distrust
}

// Totals are the numbers of counts that agreed and that differed.
func (c *Check) Totals() (agreed, differed uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.totals[0], c.totals[1]
}
