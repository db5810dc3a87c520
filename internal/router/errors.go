package router

import (
	"fmt"
	"strings"
	"time"

	"attache/scoring/queue"
)

// NoWorkerError says that nobody can take the request now. It becomes HTTP 503.
type NoWorkerError struct {
	Pool string
	// Why counts the pool's workers by what keeps them out, as in "2 unhealthy, 1 draining"; "no workers known" when the
	// pool is empty, "excluded by the gateway's subset" when the hint left nobody.
	Why string
}

func (e *NoWorkerError) Error() string {
	return fmt.Sprintf("no worker of pool %q can take the request: %s", e.Pool, e.Why)
}

// ShedError says that every worker is at its limit and the request was turned away, at once or after it had waited. It becomes
// HTTP 429, or 503 if this process stops.
type ShedError struct {
	Pool string
	// Limit is requests in flight per worker; 0: another limit.
	Limit int
	// Reason is what happened, in llm-d's words.
	Reason queue.Reason
	// Detail is which limit of the queue was reached; "" none.
	Detail string
	// RetryAfter is when trying again is worth it; whole seconds, at least one.
	RetryAfter time.Duration
}

// Stopping reports whether the request was turned away because this process stops: another one may serve it at once.
func (e *ShedError) Stopping() bool { return e.Reason == queue.RejectedShuttingDown }

func (e *ShedError) Error() string {
	switch {
	case e.Reason == queue.RejectedTTLExpired:
		return fmt.Sprintf("no worker of pool %q had room for the request as long as it was allowed to wait", e.Pool)
	case e.Reason == queue.EvictedPriority:
		return fmt.Sprintf("a more urgent request took the place of this one in the queue of pool %q", e.Pool)
	case e.Stopping():
		return "the gateway is shutting down"
	case e.Detail != "":
		return fmt.Sprintf("every worker of pool %q is saturated, and its queue is full: %s", e.Pool, e.Detail)
	case e.Limit > 0:
		return fmt.Sprintf("every worker of pool %q already has %d requests in flight, its limit", e.Pool, e.Limit)
	default:
		return fmt.Sprintf("every worker of pool %q is saturated", e.Pool)
	}
}

// UnknownModelError says that no pool serves the model that the request names. It becomes HTTP 404.
type UnknownModelError struct {
	Model string
	// Known are the models that are served, sorted; "llama-*" stands for all that begin so.
	Known []string
}

func (e *UnknownModelError) Error() string {
	known := "none is configured"
	if len(e.Known) > 0 {
		known = strings.Join(e.Known, ", ")
	}
	return fmt.Sprintf("the model %q does not exist; served here: %s", e.Model, known)
}
