// Package tokenizer turns text into the token ids that an engine would make of it, exactly as the upstream tokenizers
// library does, from the tokenizer.json beside a model.
//
// In the common case (Llama 3, Qwen, DeepSeek) a text goes through five hands:
//
//	text ─ added tokens cut out ─ normalizer ─ words ─ merges ─ ids
//	       added.go               normal*.go   split*.go  bpe.go
//
// Each file of this package is one of these hands, or reads its part of the JSON (parse*.go). The models are byte pair encoding
// (bpe.go, merge.go) and Unigram (unigram.go). Whatever a tokenizer.json asks for that is not known here is an error of Parse,
// never a guess: wrong ids look right and cost every cache hit. What is known but not quite exact is in Notes.
//
// What decides speed is that text repeats. Every call borrows a workspace (workspace.go) with a table of the words met lately
// and their ids, and one of longer pieces (chunk.go); only words found in neither are merged. A workspace has a fixed size,
// and no text can make it grow: prompts are written by strangers.
//
// The character classes and normal forms are those that upstream was seen to use (tables.go, internal/unicodegen), because
// Go's are of another Unicode version.
package tokenizer
