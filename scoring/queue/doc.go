// Package queue decides when a request is dispatched, as package scoring decides where: requests for which every
// candidate is saturated wait here, and whenever load falls the owner offers them their turn.
//
// In the common case a request finds its lane empty and a worker with room, and is never pushed. Else:
//
//	c := q.ClassOf(header, uncached)
//	if q.Backlog(c, lane) > 0 || !room {
//		entry, evicted, refused := q.Push(now, queue.Request{Class: c, Lane: lane, ...}, value)
//	}
//	drops = q.Expire(now, drops[:0])    // before each Dispatch, and at NextExpiry
//	q.Dispatch(now, place)              // whenever load falls
//	q.Remove(entry)                     // the client left
//
// It is a pure data structure: no clock, no lock, no goroutine. Pushing, dispatching and removing take O(log n) for n
// entries; in a class that is fair among flows, times the lanes that the flow waits in. Dispatching allocates nothing.
//
// # Who is next
//
// Of all entries whose lane is not blocked:
//
//  1. those of the highest strict tier (Request.Tier);
//  2. of these, those of the class whose turn it is by deficit round robin (rounds.go);
//  3. in a class that is fair, those of the flow that attained least; of equals, the one whose turn is longest ago;
//  4. the first by the policy of the class; then the first to arrive, then the first to be pushed.
//
// A lane is what waits, in one class, for the same workers: all of them, or the one or few that a request is bound to.
// An entry that finds no room blocks its lane until the next Dispatch: nobody overtakes it there because of being
// smaller. Other lanes go on, and so do other classes, which may have other ideas of what saturated means.
//
// # The policies
//
// With, for a request,
//
//	a   arrival, seconds since the start         p   priority, 0 to max_priority (P): seconds, or a plain number in wspt
//	w   work, tokens or milliseconds, at least 1 s   time to first token wanted, seconds
//	A   ageing of the class, seconds             t   now, seconds since the start
//
// the lowest key goes first:
//
//	fcfs   a - p
//	lcfs   (floor((a - p) / A), -(a + p))        compared part by part; A = 0: -(a + p)
//	wspt   log2(w / (1 + p)) + a / A             A = 0: log2(w / (1 + p))
//	edf    a + s - p
//
// fcfs, lcfs and wspt with A = 0 are the orders of NVIDIA Dynamo's router (lib/kv-router, policy.rs), which takes the
// highest p - a, p + a and (1 + p) / w. wspt is Smith's rule (1956), which makes the weighted mean wait shortest; with
// ageing it takes the highest
//
//	(1 + p) / w * 2^((t - a) / A)
//
// so the weight of an entry doubles with every A that it waits. The logarithm of this is the key above but for t / A,
// which is the same for all that wait: that is why keys never need to be computed again. edf is the earliest deadline
// first of Liu and Layland (1973), as llm-d offers it.
//
// # Nobody starves
//
// An entry is overtaken, in its lane, tier and flow, only by requests that arrive less than this much later (or at any
// time, without ageing):
//
//	fcfs   P               lcfs   A + P
//	edf    s + P           wspt   A * log2((1 + P) * w / (1 + p))
//
// While workers keep serving, what is before it thus runs out. Classes get their share of tokens whatever others do.
// Two things can starve by intent: a lower strict tier, as long as there is work of higher ones, and a flow that
// attained much, as long as there are others with less; there max_wait is the bound.
//
// # Shares
//
// A class earns its quantum of uncached tokens per round and pays max(1, uncached tokens) for each request. One that is
// empty loses what it saved; one whose lanes are all blocked, or which has nothing of the tier that is served, keeps it
// and earns nothing (Shreedhar and Varghese, 1995; as in Dynamo).
//
// The service that a flow attained is input + 2 * output tokens, each counting half after every half-life; it is least
// attained service as llm-d's program-aware fairness counts it. How much of it there is is told by the owner (Served).
//
// # When to come back
//
// A request that is refused is told
//
//	ceil(n / r) seconds, 1 to 60
//
// for the n requests that wait under the limit it met, in the class or in all, and the rate r at which they were served
// per second of backlog, both counts decaying with a half-life of 10 s.
package queue
