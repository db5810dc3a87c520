// Package wire reads, and for tests and simulated engines writes, the KV-cache events that LLM engines publish: which
// blocks an engine stored, which it removed, and when it forgot all of them.
//
// In the common case a message of three ZMQ frames (ParseLive) carries one batch in MessagePack, and Batch.Decode reads it
// into plain structs whose lists lie in memory that the next Decode uses again: with a Batch that is kept, nothing is
// allocated. Text is not copied; a Span says where in the payload it stands.
//
// One decoder takes all forms, told apart by their shape and not by a hint which engine sent them:
//
//	engine             batch               event
//	vLLM <= 0.23       array of 2 or 3     array: stored of 6, 7, 8, 9, 10 or 12 elements, removed of 2, 3 or 4
//	vLLM >= 0.24       array of 3          map with a key "type"
//	(unmerged vLLM)    map                 either
//	SGLang <= 0.5.15   array of 3          array: stored of 7 elements; with a salt an 8th that is a map
//	SGLang >= 0.5.20   array of 3          map
//	TensorRT-LLM       array of 3          map, as vLLM (ZMQ: Dynamo's publisher)
//	                   JSON, by HTTP       its own: DecodeTensorRT
//
// What is not known is passed over and counted, never an error: other tags, other fields, events of which a field has
// another type than agreed. Only a payload that is no MessagePack, or no batch, is an error, and then nothing of it is
// delivered.
//
// The package is a leaf. The formats are those of vllm/distributed/kv_events.py (0.9 to 0.32),
// sglang/srt/disaggregation/kv_events.py (0.5.10 to 0.5.23) and tensorrt_llm/_utils.py (2026).
package wire
