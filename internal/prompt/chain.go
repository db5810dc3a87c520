package prompt

import "attache/internal/block"

// Chain is a prompt as the index sees it.
type Chain struct {
	// Hashes are the sequence hashes of the complete blocks, in order. The rest after the last one has none.
	Hashes []block.Hash
	// Tokens is the length of the prompt: counted for token ids, estimated for text. A request with several prompts is the
	// sum of them, though only the first is in Hashes.
	Tokens int
	// BlockTokens is the size of a block in tokens.
	BlockTokens int
	// Rung is how the chain was made.
	Rung Rung
}

// Rung says how much is known of a prompt's tokens. Higher is better.
type Rung uint8

// The rungs.
const (
	// None: the prompt is not known at all.
	None Rung = iota
	// Approximate: blocks are pieces of text, or token ids that the client sent.
	Approximate
	// Exact: blocks are the engine's own, made by its template and tokenizer.
	Exact
)

// String names the rung as it appears in metrics and explanations.
func (r Rung) String() string {
	switch r {
	case None:
		return "none"
	case Approximate:
		return "approximate"
	case Exact:
		return "exact"
	default:
		return "unknown"
	}
}
