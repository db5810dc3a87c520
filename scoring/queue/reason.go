package queue

// Reason says why a request was not served, in the words of the header x-llm-d-request-dropped-reason of llm-d.
type Reason string

// The reasons. This package gives RejectedSaturated (a Rejection), RejectedTTLExpired (Expire) and EvictedPriority
// (Push); the others are for its owner, who knows that a client left or that nobody serves.
const (
	// RejectedSaturated: a limit of the queue is reached.
	RejectedSaturated Reason = "rejected-saturated"
	// RejectedTTLExpired: it waited as long as it may.
	RejectedTTLExpired Reason = "rejected-ttl-expired"
	// RejectedContextCancelled: its client left.
	RejectedContextCancelled Reason = "rejected-context-cancelled"
	// RejectedNoEndpoints: there is no worker left that could serve it.
	RejectedNoEndpoints Reason = "rejected-no-endpoints"
	// RejectedShuttingDown: the gateway stops.
	RejectedShuttingDown Reason = "rejected-shutting-down"
	// EvictedQueuePressure: the queue must shrink.
	EvictedQueuePressure Reason = "evicted-queue-pressure"
	// EvictedPriority: a request of a higher tier took its place in a full queue.
	EvictedPriority Reason = "evicted-priority"
)

// Drop is an entry that left the queue unserved.
type Drop[T any] struct {
	Entry  *Entry[T]
	Reason Reason
}
