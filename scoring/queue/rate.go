package queue

import (
	"math"
	"time"
)

// rate is how many requests leave a queue served, per second in which any were waiting. Both are counted with the same
// exponential decay, so their quotient is right from the first request on, and times without a backlog, which say
// nothing of how fast it would shrink, do not blur it.
type rate struct {
	served, seconds float64
	at              time.Duration
}

const rateHalfLife = 10 * time.Second

// advance counts the time until now; waiting says whether there was a backlog all along.
func (r *rate) advance(now time.Duration, waiting bool) {
	passed := now - r.at
	if passed <= 0 {
		return
	}
	r.at = now
	if waiting {
		keep := math.Exp2(-passed.Seconds() / rateHalfLife.Seconds())
		r.served *= keep
		r.seconds = r.seconds*keep + (1-keep)*rateHalfLife.Seconds()/math.Ln2
	}
}

// serve counts one request.
func (r *rate) serve(now time.Duration) {
	r.advance(now, true)
	r.served++
}

// The bounds of what clients are told.
const (
	minRetry = time.Second
	maxRetry = 60 * time.Second
)

// retryAfter is when a backlog of so many requests will be gone, in whole seconds within the bounds; the upper one when
// nothing was served yet.
func (r *rate) retryAfter(requests int) time.Duration {
	if !(r.served > 0) {
		return maxRetry
	}
	seconds := math.Ceil(float64(requests) * r.seconds / r.served)
	return time.Duration(min(max(seconds, minRetry.Seconds()), maxRetry.Seconds())) * time.Second
}
