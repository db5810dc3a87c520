package sim

import (
	"attache/indexer/events/wire"
	"attache/internal/slot"
)

// The engines that an Engine can play: the names of its metrics, the form of its events, and how it announces its cache.
const (
	DialectVLLMArray = "vllm-array" // vLLM 0.23: events are arrays, replays come without topic
	DialectVLLMMap   = "vllm-map"   // vLLM 0.32: events are maps, replays come with topic
	DialectSGLang    = "sglang"     // SGLang 0.5.23
	DialectTensorRT  = "trtllm"     // TensorRT-LLM: events are pulled by HTTP
)

var dialects = []string{DialectVLLMMap, DialectVLLMArray, DialectSGLang, DialectTensorRT}

// Dialects are the values that Config.Dialect may have, the default first.
func Dialects() []string { return dialects }

// dialect is the one that it plays.
func (c *Config) dialect() string {
	if c.Dialect == "" {
		return dialects[0]
	}
	return c.Dialect
}

// records says whether the changes of the cache are recorded.
func (c *Config) records() bool { return c.Events != "" || c.Dialect == DialectTensorRT }

// rules are those of the dialect.
func (c *Config) rules() rules {
	switch c.Dialect {
	case DialectSGLang:
		return rules{gather: true}
	case DialectTensorRT:
		return rules{exclusive: true, partial: true, each: true}
	default:
		return rules{copies: true, report: c.Dialect != DialectVLLMArray}
	}
}

// encoder writes the dialect's batches.
func (c *Config) encoder() wire.Encoder {
	switch c.Dialect {
	case DialectVLLMArray:
		return wire.Encoder{Dialect: wire.VLLMArray}
	case DialectSGLang:
		return wire.Encoder{Dialect: wire.SGLangMap}
	default:
		return wire.Encoder{Dialect: wire.VLLMMap}
	}
}

// medium is the dialect's word for a tier.
func (c *Config) medium(t slot.Tier) string {
	words := [...]string{slot.Device: "GPU", slot.Host: "CPU", slot.Disk: "STORAGE"}
	if c.Dialect == DialectSGLang {
		words = [...]string{slot.Device: "GPU", slot.Host: "CPU_PINNED", slot.Disk: "DISK"}
	}
	return words[t]
}

// draft is a change as a batch of the dialect tells it; blockTokens is what it says the size of a block is.
func (c *Config) draft(ch *Change, blockTokens int) wire.DraftEvent {
	vllm := c.Dialect != DialectSGLang
	e := wire.DraftEvent{Kind: wire.Cleared}
	if ch.Kind == Cleared {
		return e
	}
	e = wire.DraftEvent{Kind: wire.Removed, Medium: c.medium(ch.Tier), HasGroup: vllm}
	for _, b := range ch.Blocks {
		e.Hashes = append(e.Hashes, b.Hash)
	}
	if ch.Kind != Stored {
		return e
	}
	first := ch.Blocks[0]
	e.Session = ch.Session
	e.Kind, e.BlockTokens, e.Parent, e.HasParent, e.LoRA = wire.Stored, uint32(blockTokens), first.Parent, first.HasParent, first.LoRA
	for _, b := range ch.Blocks {
		e.Tokens = append(e.Tokens, b.Tokens...)
	}
	if !vllm {
		e.Salt = first.Salt
		return e
	}
	e.Spec, e.Extra = "full_attention", extraKeys(ch.Blocks)
	if first.LoRA != "" {
		e.LoRAID, e.HasLoRAID = c.adapterID(first.LoRA), true
	}
	return e
}

// extraKeys are vLLM's: the adapter with each block, the salt with the first block of a sequence.
func extraKeys(blocks []*Block) [][]wire.DraftKey {
	extra := make([][]wire.DraftKey, len(blocks))
	for i, b := range blocks {
		if b.LoRA != "" {
			extra[i] = append(extra[i], wire.DraftKey{Form: wire.Text, Text: b.LoRA})
		}
		if b.Salt != "" && !b.HasParent {
			extra[i] = append(extra[i], wire.DraftKey{Form: wire.Text, Text: b.Salt})
		}
	}
	return extra
}

// adapterID is the number of an adapter, from 1.
func (c *Config) adapterID(name string) int64 {
	for i, lora := range c.LoRAs {
		if lora == name {
			return int64(i + 1)
		}
	}
	return 0
}

// draftTensorRT is a change as TensorRT-LLM tells it, without number and rank.
func (c *Config) draftTensorRT(ch *Change) wire.DraftTensorRT {
	e := wire.DraftTensorRT{Window: uint32(c.MaxModelTokens)}
	switch ch.Kind {
	case Stored:
		e.Type, e.Parent, e.HasParent = "stored", ch.Blocks[0].Parent, ch.Blocks[0].HasParent
		for _, b := range ch.Blocks {
			e.Blocks = append(e.Blocks, wire.DraftBlock{Hash: b.Hash, Tokens: b.Tokens, Level: uint32(ch.Tier)})
		}
		return e
	case Moved:
		e.Type, e.OldLevel, e.NewLevel = "updated", uint32(ch.From), uint32(ch.Tier)
	default:
		e.Type = "removed"
	}
	for _, b := range ch.Blocks {
		e.Hashes = append(e.Hashes, b.Hash)
	}
	return e
}
