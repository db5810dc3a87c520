package wire

// Draft is a batch as an engine has it, to be written by an Encoder. Tests and simulated engines make drafts.
type Draft struct {
	Time   float64 // Unix seconds
	Rank   uint32
	Events []DraftEvent
}

// DraftEvent is one event. What the dialect cannot say is left out. Empty strings and nil lists stand for None.
type DraftEvent struct {
	Kind Kind
	// Hashes are written as integers; Digests, if there are any, as bytes instead of them.
	Hashes  []uint64
	Digests [][]byte
	// Parent likewise.
	Parent       uint64
	HasParent    bool
	ParentDigest []byte
	Tokens       []uint32
	// Bigram writes pairs of each token with the one behind it, NextToken behind the last.
	Bigram      bool
	NextToken   uint32
	BlockTokens uint32
	LoRAID      int64
	HasLoRAID   bool
	Medium      string
	LoRA        string
	// Extra are vLLM's extra keys, an entry for each block; nil entries are None. With Extra nil the field is None.
	Extra     [][]DraftKey
	Group     int32
	HasGroup  bool
	Spec      string
	Window    uint32
	Locality  string
	Ownership string
	Session   string
	// Salt is SGLang's cache_salt; vLLM's stands in Extra.
	Salt string
}

// DraftKey is one extra key of a block.
type DraftKey struct {
	// Form is Text (a name, a salt), Item (Text and Offset), Digest or Opaque.
	Form   KeyForm
	Text   string
	Offset int64
	// Raw is the digest, or MessagePack that is written as it is.
	Raw []byte
}

// DraftTensorRT is an answer of TensorRT-LLM to be written as JSON.
type DraftTensorRT struct {
	ID      uint64
	Window  uint32
	Rank    uint32
	HasRank bool
	// Type is the word of the engine: "created", "stored", "removed", "updated".
	Type      string
	Parent    uint64
	HasParent bool
	Blocks    []DraftBlock
	// Hashes are the removed blocks, or the one that is updated.
	Hashes []uint64
	// OldLevel and NewLevel are the cache levels of an update; equal, the update is of the priority.
	OldLevel, NewLevel uint32
}

// DraftBlock is a block that TensorRT-LLM stored.
type DraftBlock struct {
	Hash   uint64
	Tokens []uint32
	Level  uint32
	// Media are pairs of hash (hexadecimal) and offset: forms other than Item are left out.
	Media []DraftKey
}
