package queue

import (
	"math"
	"time"
)

// rank is where a policy puts a request among those of its class: the lower window first, in it the lower key. It is
// computed once, when the request is pushed: every policy ages in a way that keeps the order of two requests as it is
// while both wait (doc.go).
type rank struct {
	window int64
	key    float64
}

func (r rank) before(other rank) bool {
	if r.window != other.window {
		return r.window < other.window
	}
	return r.key < other.key
}

// policy ranks a request that arrives at a given second; priority is that of the request, within its bounds.
type policy func(c *ClassConfig, r *Request, priority, arrival float64) rank

var policies = []struct {
	name string
	rank policy
}{{"fcfs", fcfs}, {"lcfs", lcfs}, {"wspt", wspt}, {"edf", edf}}

// policyOf returns nil when there is none of that name.
func policyOf(name string) policy {
	for _, p := range policies {
		if p.name == name {
			return p.rank
		}
	}
	return nil
}

// fcfs is first come, first served.
func fcfs(_ *ClassConfig, _ *Request, priority, arrival float64) rank {
	return rank{key: arrival - priority}
}

// lcfs is last come, first served, within windows of the ageing time.
func lcfs(c *ClassConfig, _ *Request, priority, arrival float64) rank {
	r := rank{key: -(arrival + priority)}
	if c.Ageing > 0 {
		r.window = int64(math.Floor((arrival - priority) / c.Ageing.Seconds()))
	}
	return r
}

// wspt is weighted shortest processing time; the weight doubles with every ageing time.
func wspt(c *ClassConfig, r *Request, priority, arrival float64) rank {
	work := r.Work
	if !(work > 0) { // so written, NaN is none
		work = float64(r.UncachedTokens)
	}
	key := math.Log2(max(1, work)) - math.Log2(1+priority)
	if c.Ageing > 0 {
		key += arrival / c.Ageing.Seconds()
	}
	return rank{key: key}
}

// edf is earliest deadline first, the deadline being that of the first token.
func edf(c *ClassConfig, r *Request, priority, arrival float64) rank {
	return rank{key: arrival + sloOf(c, r).Seconds() - priority}
}

func sloOf(c *ClassConfig, r *Request) time.Duration {
	if r.SLO > 0 {
		return r.SLO
	}
	return c.DefaultSLO
}

// bounded is the priority that counts.
func bounded(priority, most float64) float64 {
	if !(priority > 0) { // so written, NaN is none
		return 0
	}
	return min(priority, most)
}
