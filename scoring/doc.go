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
//	total = Q + P*(1 + again + alpha*n) + D + evict*E + room*K + crowd*F
//
//	Q = k * sum of T     booked prefill that the slot has not worked off yet
//	P = k * T(u, c)      own prefill: u uncached tokens (at least 1) behind c cached ones
//	D = k * kv * C       one decode step over the C prompt tokens in flight, which the request will share
//	E = k * t * B * sum of h(age)    computing again what the request pushes out of the cache: over the oldest blocks of the slot
//	                     that have to go for it, how probable it is that one that was not used for so long is asked for
//	K = R * max(0, f - 0.95)         waiting for KV memory
//	F = R * max(0, f - 0.3)^2        coming near to that
//
//	n  requests in flight on the slot; each is slowed down by the new one's prefill
//	k  how much slower the slot's engine is than the speed model T, learnt from observed first tokens
//	t  seconds of one more token in a long prompt, by T      B  tokens per block
//	f  what the requests in flight will need of the slot's KV cache, the new one and all answers included; prefixes that they
//	   share count once
//	R  seconds that requests stay, in the mean
//
//	T(u, c) = sum over steps of n tokens (over + max(weights, token*n) + square*n^2) + pair*u*(c + u/2)
//
// k scales D too: what makes prefill slower than the profile says, a larger model or a smaller accelerator, makes the
// decode steps slower as well. Again is there because what is computed where it was not held takes memory a second time.
// How the weights were found, and what was tried without use: docs/design/007-the-decision.md.
//
// # What is in the caches
//
// Which blocks lie in a cache without a request that needs them is known by their number and age only (idle.go): enough for E, at
// no cost per block. h is learnt from one block of 32 (reuse.go). What requests in flight share is a tree of their chains
// (active.go): a request costs as many look-ups as its prompt has branches.
//
// # The clock of predicted work
//
// Holding a prefill booked until the request's end makes long answers look like long queues. So each slot works its booked prefill
// off, in the order of the bookings, at the predicted speed and by the wall clock; what leaves early (Prefilled, Progress, End) takes
// only what it has left. The clock needs k to be about right, and does not see a worker wait for room in its KV cache.
//
// Where a worker's events tell how far a prefill has got (Candidate.Live), policies that count tokens, as those of other projects
// do, hold it until the events say that it is over, and what is left of the first one is never believed to be less than a tenth.
// Policies in seconds let the clock go on: they are as good when events are quick, and not misled when they are late.
//
// # Saturation
//
// Demand.Limits say when a slot is saturated. A request that finds all of them so is not booked, and whoever asked may hold it back
// (package queue) until one has room.
//
// # The other policies
//
// Of each candidate they know, beside Q, T, k and n of above, and in tokens unless it says otherwise:
//
//	L  prompt                                            B   tokens per block
//	c  cached, as far as it is to be counted on          u   max(1, L - c), left to compute
//	A  booked prefill that is not computed yet           R   L/B rounded up: blocks of the prompt
//
// n are requests in flight that were booked here; only time and weighted add those that the engine has beside them. Then
// policy, unit and formula; the lowest wins, then what stands behind "then", then chance:
//
//	dynamo        blocks    s*max(0, (A + L)/B - credit) + active blocks + new blocks + r*n      NVIDIA Dynamo, KV router
//	                        credit = w*decay*device + wh*host + wd*disk + m*shared, in blocks
//	                        decay  = 1/(1 + d*(A - least A)/B/R); the whole times exp(-tanh(weights of
//	                        preferred taints)); then blocks held, if asked for. See dynamo.go
//	weighted      share     1 - (0.6*cache + 0.3*load + 0.1*latency); then the largest. See weighted.go
//	lmetric       tokens x  (A + u) * (n + 1)                                                    LMetric, arXiv 2603.15202
//	              requests
//	token-load    tokens    A + u, then n                                                        llm-d, token-load-scorer
//	sticky        tokens    A + u, among those with floor(c/B) >= 0.8*floor(L/B),                llm-d,
//	                        unless least A among them > least A of the others + tau              prefix-cache-affinity-filter
//	least-load    requests  n, then A
//	power-of-two  requests  n, among two that are drawn                                          Mitzenmacher, 2001
//	chwbl         order     place of hash(key, candidate), among those with                      Mirrokni, Thorup and
//	                        n + 1 <= ceil(1.25*(sum of n + 1)/N)                                 Zadimoghaddam, 2016
//	session       requests  where the session was answered; a new one: n, then A
//	round-robin   turns     the last turn
//	random        none      0
//
// "Among" means that the others are passed over: they come after these, in their order (Terms.Passed).
//
// To compare with, there are restatements of rules that other projects publish; they are not those projects' code, and see
// the same numbers as all policies. See peers.go:
//
//	sglang-cache-aware      the longest c if it is above 0.3*L, else the fewest tokens held; n when n differs by more than 64
//	                        and half
//	aibrix-prefix           the longest c among those with n <= mean + 1 deviation, else n; n when it differs by more than 8
//	blend-3-2-2             share: 1 - (3*prefix + 2*queue + 2*free memory)/7, as the Gateway API inference extension and llm-d
//	preble                  seconds: Q + 0.02*n among the longest c if that is above L/2 and its worker not far busier, else
//	                        Q + 0.02*n + k*T(u, c)
//
// Files: load.go and booking.go hold the lock; backlog.go is the clock; learnt.go keeps what was learnt; a policy is a file or part
// of one.
package scoring
