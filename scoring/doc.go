// Package scoring chooses the slot that answers a request: it turns what is known of every candidate into a cost, takes
// the lowest, and books the request's load there, all in one step, so that two requests at once never see the same
// unbooked load.
//
// It sees numbers only: how many prompt tokens a candidate has cached comes from the indexer, what its engine says from
// the registry of workers. A policy is a pure function of such numbers; randomness and time are arguments.
//
// # The time policy
//
// The default estimates, in seconds, what sending the request to a slot costs:
//
//	total = Q + P*(1 + alpha*n) + D
//
//	P = k * T(u, c)      own prefill: u uncached tokens (at least 1) behind c cached ones
//	Q = k * sum of T     booked prefill that the slot has not worked off yet
//	D = k * kv * C       one decode step over the C prompt tokens in flight, which the request will share
//	n                    requests in flight on the slot; each is slowed down by the new one's prefill
//	k                    how much slower engines are than the speed model T, learnt from observed first tokens
//
//	T(u, c) = chunks*over + max(chunks*weights, token*u) + pair*u*(c + u/2)      chunks = ceil(u / chunk)
//
// k scales D too: what makes prefill slower than the profile says, a larger model or a smaller accelerator, makes the
// decode steps slower as well.
//
// # The clock of predicted work
//
// Usually nobody tells when a worker has computed a prompt; the end of the request does come, but much later. Holding the
// prefill booked until then makes long answers look like long queues. So each slot works its booked prefill off, in the
// order of the bookings, at the predicted speed and by the wall clock; what leaves early (Prefilled, End) takes only what
// it has left. The clock needs k to be about right, and does not see a worker wait for room in its KV cache.
//
// Files: load.go is the only one with a lock; backlog.go is the clock; a policy is a file or part of one.
package scoring
