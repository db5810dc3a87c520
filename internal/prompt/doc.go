// Package prompt turns a request into its chain: the sequence hashes of the blocks of its prompt, by which the index
// finds who holds them.
//
// In the common case no tokenizer is known. The prompt is then rendered into a canonical text (see canonical.go), which is
// hashed in pieces of as many bytes as a block of tokens is taken to have. That is enough for routing: what matters is
// that prompts which begin alike for an engine begin alike here, not where exactly an engine's blocks end. Prompts that
// arrive as token ids are cut exactly.
package prompt
