// Package events keeps an index of what engines hold, from what they publish of their KV caches.
//
// In the common case a worker is known by the registry, a feed connects to its publisher and asks its replay socket for
// everything it still has, and from then on every batch of the engine changes the index within a millisecond:
//
//	engine                     feed (one per worker and rank)                        Ledger (one per pool)
//	PUB    --- batches ------> sequence: next? lost any? begun anew?
//	ROUTER <-- replay from n --  |
//	       --- batches ------> applier: pages into blocks, our own hashes ---------> runs.Index  <--- Overlap (requests)
//
// A feed is a state machine:
//
//	connecting --connected--> replaying --all applied--> live --number left out--> gap --replayed--> live
//	    ^                                                  |                        '--cannot be closed: rank cleared,
//	    '------------------- connection lost --------------+                            goes on as live, incomplete
//	                                                       '--silent, or makes no sense--> stale
//
// Its guarantee: once it says live, and until it says otherwise, the index credits the rank with no block that the engine
// has not announced and not taken back, whatever was lost, repeated or restarted before. A batch is applied only if its number
// follows the last one, or begins an empty history. The last batch's bytes are remembered: a replay is asked from that
// batch on, and if it comes back otherwise, the process is another one, whatever its numbers say.
//
// What an engine does not tell, or no longer in a way that can be trusted, is not guessed here: Evidence says, slot by slot,
// whether the index is exact, partial (it began in the middle: all that it credits is there, but more may be), or worth
// nothing, and the router falls back on what it remembers of its own decisions.
//
// Files: ledger.go is the pool's index and its feeds; feed.go one feed; sequence.go its numbers; replay.go asks for what was
// missed; apply.go turns events into changes, large.go those of large pages; pull.go asks TensorRT-LLM; source.go finds
// endpoints; status.go and metrics.go show.
package events
