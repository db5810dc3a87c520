// Package sim is a simulated worker, and a load to put on it.
//
// Core is the engine itself, pure: it queues requests first come, first served, forms one batch after another out of
// prompt chunks and running answers, keeps a paged prefix cache with memories below it, and tells how long each step takes
// on the accelerator that a Model describes. What happens to the blocks of the cache is recorded, if somebody wants to know.
// It has no clock, so it runs in virtual time as well as in real time, and equal input gives equal output.
//
// Engine is the shell around it that the demo and the end-to-end tests use: an HTTP server that speaks what vLLM, SGLang or
// TensorRT-LLM speaks (a dialect) and waits out every step in real time. In the common case a chat request is rendered, cut
// into tokens and submitted; the loop steps the core, sleeps as long as the step takes, publishes what happened in the cache
// as a batch of KV events, and wakes every stream that got a token. Answers are words drawn from a hash of the prompt.
// Prompts that begin alike share cached blocks, and the answer is cached, too, so the next turn of a conversation finds it.
// Faults (a closed port, silence, 503, a cut stream, lost events …) can be set while it runs, and it can be restarted in
// place.
//
//	Engine   port, connections, faults: what a restart keeps
//	  life   one process: streams, metrics
//	    rank      a data-parallel rank: a Core and its loop
//	      publisher, pull   what tells of its cache
//
// RunLoad plays the clients: agents that share long system prompts and grow turn by turn.
package sim
