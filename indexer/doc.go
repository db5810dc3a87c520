// Package indexer knows which slot holds which prefix of which prompt.
//
// A prompt is named by its chain: the sequence hashes of its blocks, first to last, each naming its block and everything
// before it. In the common case a request asks Overlap how many leading blocks of its chain every slot holds, a worker is
// chosen, and Remember notes that this slot now holds the whole chain.
//
// What is known here comes from our own decisions: the approximate mode. It needs nothing from the engines but, if they
// tell, the size of their KV caches. It believes a block as long as an engine of that size with an LRU cache would keep
// it, and no longer than a time to live. Overlaps are therefore upper estimates: an engine that also serves others, or
// that needs its cache for long answers, has forgotten more.
//
// Files: index.go is the safe type, and the only one with a lock; approximate.go is the structure, drawn at its top;
// slab.go is the memory that its nodes lie in.
package indexer
