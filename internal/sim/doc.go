// Package sim is a simulated vLLM worker, and a load to put on it.
//
// Core is the engine itself, pure: it queues requests first come, first served, forms one batch after another out of
// prompt chunks and running answers, keeps a paged prefix cache, and tells how long each step takes on the accelerator
// that a Model describes. It has no clock, so it runs in virtual time as well as in real time, and equal input gives equal
// output.
//
// Engine is the shell around it that the demo and the end-to-end tests use: an HTTP server that speaks what vLLM speaks
// and waits out every step in real time. In the common case a chat request is rendered, cut into tokens and submitted; the
// loop steps the core, sleeps as long as the step takes, and wakes every stream that got a token. Answers are words drawn
// from a hash of the prompt. Prompts that begin alike share cached blocks, and the answer is cached, too, so the next turn
// of a conversation finds it. Faults (a closed port, silence, 503, a cut stream …) can be set while it runs.
//
// RunLoad plays the clients: agents that share long system prompts and grow turn by turn.
package sim
