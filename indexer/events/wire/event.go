package wire

// Span is a half-open range of bytes of a payload.
type Span struct{ From, To uint32 }

// In is the part of payload that the span covers. It shares memory with payload.
func (s Span) In(payload []byte) []byte { return payload[s.From:s.To] }

// Empty reports whether the span covers nothing; so does the zero value.
func (s Span) Empty() bool { return s.From == s.To }

// Event is one thing that happened to the cache of one rank of an engine. Its lists belong to the Batch it came in, and its
// spans to the payload; both are valid until the Batch decodes again.
//
// A field that the sender left out, or sent as nil, has its zero value; where zero is a value of its own, Has... tells.
type Event struct {
	Kind Kind
	// Tier is where the blocks are, as far as Medium says; Medium is the engine's word for it.
	Tier   Tier
	Medium Span

	// Hashes are the engine's names of the blocks, in the order of the sequence. Stored: consecutive blocks, except that
	// groups with a window leave out blocks they do not hold; an empty list is legal then. Removed: any blocks.
	//
	// Every form is reduced to 64 bits so that forms join. Integers are taken as they are, negative ones (SGLang) in two's
	// complement. Of bytes (vLLM with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0: 32 of SHA-256, 16 of xxh3-128) the last eight,
	// big-endian, are the integer that the same vLLM would have sent; fewer bytes are taken as one integer.
	Hashes []uint64
	// Digests says that at least one hash, or the parent, came as bytes.
	Digests bool
	// Parent is the block before the first of Hashes, reduced like them; absent when the sequence begins here. It may never
	// have been announced.
	Parent    uint64
	HasParent bool
	// Tokens are the ids that the blocks hold. len(Tokens) differs from len(Hashes)*BlockTokens when blocks are left out, and
	// then nothing says which tokens belong to which block.
	Tokens []uint32
	// Bigram says that the ids came as overlapping pairs (SGLang with EAGLE): [10,20],[20,30] is Tokens 10, 20 with NextToken
	// 30, the one token behind the last block that the hash of that block covers as well.
	Bigram    bool
	NextToken uint32
	// BlockTokens is the size of one block, in tokens. 0 with hashes and no tokens: see Placeholder.
	BlockTokens uint32
	// Copies says of every removed hash how many physical blocks still hold it, where a vLLM says so (a proposal: #48933).
	Copies []uint32

	// LoRA is the adapter's name; LoRAID its number, which only old versions send.
	LoRA      Span
	LoRAID    int64
	HasLoRAID bool
	// Salt separates caches of tenants. SGLang repeats it in every event of a sequence (cache_salt). vLLM puts it into the extra
	// keys of the first block of a sequence alone, so that events with a parent inherit what their parent had.
	Salt Span
	// Keys are what else than tokens and salt made the hashes, by block: media, prompt embeddings, and what we do not know.
	Keys []Key

	// Group is the KV cache group of a hybrid model; every group tells of the same tokens.
	Group    int32
	HasGroup bool
	// Spec is what kind of attention the group serves; SpecText the engine's word for it.
	Spec     Spec
	SpecText Span
	// Window is the attention window in tokens: of vLLM's group, or the window_size of TensorRT-LLM. 0: not said, or none.
	Window uint32

	// Locality says whether the tier is the engine's own; Ownership names the offloading tier that sent the event (vLLM 0.32).
	Locality  Locality
	Ownership Span
	// Session is the session of the request that caused the event. It says nothing about who may use the block.
	Session Span

	// Rank is the data-parallel rank: TensorRT-LLM's attention_dp_rank, else that of the batch.
	Rank    int32
	HasRank bool
	// ID numbers the events of TensorRT-LLM without gaps, from 0. Events that were split from one have the same. 0 for others.
	ID uint64
	// At is where in the payload the event stands, for logs.
	At Span
}

// Placeholder reports whether a Stored event names blocks by hash alone, as offloading connectors of vLLM do (without
// self_describing_kv_events): a tier announcement to be joined with one that tells the tokens.
func (e *Event) Placeholder() bool {
	return e.Kind == Stored && e.BlockTokens == 0 && len(e.Tokens) == 0
}

// Even reports whether every hash has BlockTokens tokens, so that the tokens of each block are known.
func (e *Event) Even() bool {
	return e.BlockTokens > 0 && uint64(len(e.Tokens)) == uint64(len(e.Hashes))*uint64(e.BlockTokens)
}

// Kind says what happened.
type Kind uint8

// The kinds.
const (
	// Stored: the blocks are there now. A block can be stored several times, as copies.
	Stored Kind = iota + 1
	// Removed: of each block one copy is gone, from this tier; from every tier when the tier is not said.
	Removed
	// Cleared: nothing of the rank is there any more, in any group.
	Cleared
	// Created: TensorRT-LLM made a cache with this window. Nothing is stored yet.
	Created
)

// Key is one thing besides tokens that a block's hash was made of. Two blocks with equal tokens are the same only if their
// keys are, each with form, hash and offset.
type Key struct {
	// Block is the index into Hashes.
	Block uint32
	Form  KeyForm
	// Hash is xxh3_64 (seed 0) of the text, of the bytes, or of an opaque key as it was encoded.
	Hash uint64
	// Offset is where the item begins, in tokens from the beginning of the block: negative when it began before. Only Item.
	Offset int64
	// At is what was hashed. Empty for TensorRT-LLM's token_extra_id, which has no bytes of its own.
	At Span
}

// KeyForm says what a key looked like.
type KeyForm uint8

// The forms.
const (
	// Item is a multimodal item: a pair of identifier and offset.
	Item KeyForm = iota + 1
	// Text is a string on its own: the identifier of a multimodal item, in vLLM before 2026-03-20.
	Text
	// Digest is bytes: of the prompt embeddings of the block.
	Digest
	// Opaque is anything else.
	Opaque
)
