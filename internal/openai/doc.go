// Package openai reads the bodies that clients and engines exchange, as far as a gateway must: which model, is it a
// stream, what is the prompt, what did it cost.
//
// In the common case Scan walks a request body once, checks that it is JSON, and notes where in the body things stand.
// It copies nothing, builds no maps and, with a Request that is used again, allocates nothing. Apply changes a body by
// splicing bytes at the noted places, so that everything a client sent which the gateway does not know about reaches the
// engine as it was. UsageOf and EventReader read the way back.
//
// Four surfaces are understood: OpenAI's chat completions, completions and responses, and Anthropic's messages. Members
// that are not known are skipped. When a key is repeated the last one counts, as in Python.
//
// The package is a leaf.
package openai
