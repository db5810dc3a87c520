package scoring

// calibration learns k, the ratio of observed to estimated time to first token, as one decayed sum over the other.
//
// An estimate is the raw backlog that a request found plus its own raw prefill; the observation is the engine's time to
// first token, which holds the same two. The loop closes on the true speed: where k is too low the clock empties backlogs
// too early, estimates fall short of observations, and k rises.
//
// But it closes late, because an observation comes when its request ends. As many decisions as there are requests in
// flight have been made by an old k by then, and a memory shorter than that swings between too fast and too slow (by a
// factor of 2 at nine tenths of saturation). So the memory is several times the requests in flight.
type calibration struct{ observed, estimated float64 }

const (
	leastMemory = 50.0 // observations
	perInFlight = 8.0  // more of them for each request in flight
	fastest     = 0.1  // bounds of k
	slowest     = 10.0
	unlearnt    = 1.0 // k before the first observation
)

// add takes one observation in, made while so many requests are in flight. One beyond the bounds counts as being at them:
// a request that stood still for a minute says nothing of speed.
func (c *calibration) add(observed, estimated float64, inFlight int) {
	keep := 1 - 1/(leastMemory+perInFlight*float64(inFlight))
	c.observed = keep*c.observed + min(max(observed, fastest*estimated), slowest*estimated)
	c.estimated = keep*c.estimated + estimated
}

// factor is k.
func (c *calibration) factor() float64 {
	if c.estimated <= 0 {
		return unlearnt
	}
	return min(max(c.observed/c.estimated, fastest), slowest)
}
