// Package prompt turns a request into its chain: the sequence hashes of the blocks of its prompt, by which the index
// finds who holds them.
//
// There are three ways to a chain, tried from the best down; a chain says which was taken, and why none above it:
//
//	exact        the pool's model folder is known: the chat template and the tokenizer run here (model.go, chat.go), and
//	             what was seen before is not tokenized again (exact.go, memo.go)
//	engine       an engine is asked for the tokens, if that is wanted (ask.go)
//	approximate  a canonical text is cut into pieces of as many bytes as a block of tokens is taken to have (canonical.go)
//
// The last is enough for routing by what we ourselves sent where: what matters is that prompts which begin alike for an
// engine begin alike here. The first two also match what engines tell of their caches. Whether counts agree with the
// engines' is watched all the time (check.go).
package prompt
