// Package indexer knows which slot holds which prefix of which prompt.
//
// A prompt is named by its chain: the sequence hashes of its blocks, first to last, each naming its block and everything
// before it. In the common case a request asks Overlap how many leading blocks of its chain every slot holds, a worker is
// chosen, and Remember notes that this slot now holds the whole chain.
//
// What is known here comes from our own decisions: the approximate mode. It needs nothing from the engines but, if they
// tell, the size of their KV caches. It believes a block as long as an engine of that size with an LRU cache would keep
// it, and no longer than a time to live. Overlaps are therefore upper estimates: an engine that also serves others, or
// that needs its cache for long answers, has forgotten more. Engines say afterwards how much of a prompt they found in their
// caches: Correct compares that with what Remember saw, forgets what must be gone, and learns how much a slot really has
// room for. Touch keeps what requests in flight hold as fresh as it is in the engine, and Top tells what a slot holds.
//
// For slots whose exact contents are known from their engines' events (package runs) this memory says what was routed there
// in the last seconds: Overlap takes an age for each slot.
//
// Files: index.go is the safe type, and the only one with a lock; approximate.go is the structure, drawn at its top;
// rows.go is how blocks move in it; slab.go is the memory that its nodes lie in, heads.go finds them; feedback.go is what
// reports teach, with ghosts.go; top.go lists what is held.
package indexer
