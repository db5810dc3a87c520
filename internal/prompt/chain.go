package prompt

import "attache/internal/block"

// Chain is a prompt as the index sees it.
type Chain struct {
	// Hashes are the sequence hashes of the complete blocks, in order. The rest after the last one has none.
	Hashes []block.Hash
	// Tokens is the length of the prompt: counted or estimated. A request with several prompts is the sum of them, though
	// only the first is in Hashes.
	Tokens int
	// BlockTokens is the size of a block in tokens.
	BlockTokens int
	// Rung is how the chain was made, and Why what kept it from a higher one; "" for nothing.
	Rung Rung
	Why  Reason
	// Own is how many of the leading blocks are exactly the engines' own. On the rungs Engine and Exact these are all, but
	// for prompts with media: from the first image on, blocks tell prompts apart, but engines count them otherwise.
	Own int
	// Count is how many prompt tokens the engine will report if we are right about its tokens; 0 when nothing is claimed.
	Count int
	// Ours says that Count was made with the model folder, so that the engine's count tells whether the folder is right.
	Ours bool
}

// Rung says how much is known of a prompt's tokens. Higher is better.
type Rung uint8

// The rungs.
const (
	// None: the prompt is not known at all.
	None Rung = iota
	// Approximate: blocks are pieces of text.
	Approximate
	// Engine: an engine was asked for the tokens.
	Engine
	// Exact: the tokens are the engine's own, made by its template and tokenizer, or sent by the client.
	Exact
)

// Rungs is how many there are.
const Rungs = int(Exact) + 1

// String names the rung as it appears in metrics and explanations.
func (r Rung) String() string {
	switch r {
	case None:
		return "none"
	case Approximate:
		return "approximate"
	case Engine:
		return "engine"
	case Exact:
		return "exact"
	default:
		return "unknown"
	}
}

// Reason says what kept a prompt from being exact, as it appears in metrics, explanations and the log.
type Reason string

// The reasons.
const (
	// NoPrompt: the request has none, or none that is known.
	NoPrompt Reason = "no_prompt"
	// NoModel: the pool has no model folder.
	NoModel Reason = "no_model"
	// Loading: the model folder is still being read.
	Loading Reason = "loading"
	// OtherAPI: the way from this API's requests to a prompt differs from engine to engine.
	OtherAPI Reason = "api"
	// NoTemplate: the model has no chat template.
	NoTemplate Reason = "no_template"
	// OwnTemplate: the request brings a chat template of its own.
	OwnTemplate Reason = "own_template"
	// Truncation: the request has its prompt cut to a length.
	Truncation Reason = "truncated"
	// MediaParts: images, sounds or videos become tokens in a way that is not known.
	MediaParts Reason = "media"
	// Refused: the template raised an error, as it will in the engine.
	Refused Reason = "refused"
	// TemplateFailed: the template asks for what is not supported here, or for too much.
	TemplateFailed Reason = "template_failed"
	// TokenizerFailed: an unusual pattern of the vocabulary takes too long on the text.
	TokenizerFailed Reason = "tokenizer_failed"
	// Odd: members have types that engines refuse.
	Odd Reason = "odd_body"
	// Mismatch: counts differ from those of the engines, so the model folder is not theirs.
	Mismatch Reason = "count_mismatch"
	// AskFailed: the engine did not say what the tokens are.
	AskFailed Reason = "tokenize_failed"
)

// Reasons lists all reasons.
func Reasons() []Reason {
	return []Reason{NoPrompt, NoModel, Loading, OtherAPI, NoTemplate, OwnTemplate, Truncation, MediaParts, Refused,
		TemplateFailed, TokenizerFailed, Odd, Mismatch, AskFailed}
}
