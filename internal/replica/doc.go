// Package replica lets several gateways decide as one.
//
// Each replica tells the others what it has booked where, when that is over and what became of it; each applies what it is told, and
// decides by all of it. Nobody waits for anybody: what a replica says is gathered for a few milliseconds and sent as one record
// over a Link, which all replicas of a pool write and read: a log that they share (LogLink), or connections between them (package direct).
//
//	Share ──> outbox ──record──> Link ──record──> inbox ──> Target
//	          encodes             each sender's    finds gaps
//	          (request path)      in order         (one goroutine)
//
// A record has a sender, the sender's life (one more for every process of its name) and a number. Who finds a number missing, or has
// just come, says hello; every replica answers with a snapshot: all that it has under way, in the same stream as everything else,
// so that whoever has applied it knows what the sender knew then. Whoever is not heard for a lease is gone, and what it had under
// way with it.
//
// Bookings of long prompts have long chains, and the next turn of a conversation repeats the last one's. A chain is therefore sent as
// the deepest checkpoint that the sender has sent before, and the hashes behind it (chains.go).
package replica
