package scoring

// calibration learns k, the ratio of observed to estimated prefill time, as one decayed sum over the other.
//
// Where the end of a prefill is told at once, what is observed is how long the first one of a backlog took once its turn had
// come. Elsewhere it is the engine's time to first token, which an access log brings when the request is over, and which is
// compared with the raw backlog that the request found plus its own prefill. The loop closes on the true speed: where k is too
// low the clock empties backlogs too early, estimates fall short of observations, and k rises.
//
// But that loop closes late. As many decisions as there are requests in flight have been made by an old k by then, and a
// memory shorter than that swings between too fast and too slow (by a factor of 2 at nine tenths of saturation). So the memory
// is several times the requests in flight.
type calibration struct{ observed, estimated float64 }

const (
	leastMemory = 50.0 // observations
	perInFlight = 8.0  // more of them for each request in flight, where it is learnt late
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

// speed is what is known of the speed of one slot: its own observations, and the pool's as long as those are few.
type speed struct{ own calibration }

// share is how many mean prefills a slot must have shown before its own observations count as much as the pool's.
const share = 10.0

// factor is the slot's k, when the pool's is k and the raw estimate of a request is mean seconds in the mean.
func (s *speed) factor(k, mean float64) float64 {
	if s.own.estimated <= 0 {
		return k
	}
	prior := share * mean
	return min(max((s.own.observed+prior*k)/(s.own.estimated+prior), fastest), slowest)
}
