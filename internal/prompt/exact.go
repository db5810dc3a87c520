package prompt

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"attache/internal/block"
)

// Tokenizer is what chaining needs of one. Its methods are safe for concurrent use.
type Tokenizer interface {
	// Append appends the tokens of text to dst; added tokens in the text are recognised.
	Append(dst []uint32, text []byte) []uint32
	// NextAdded finds the first added token in text: where it begins and ends. What stands before it and what follows are
	// tokenized independently of each other.
	NextAdded(text []byte) (start, end int, id uint32, ok bool)
	// GaveUp counts the texts so far whose tokens are wrong, because finding them would have taken too long.
	GaveUp() uint64
}

// texts turns rendered prompts into chains, and remembers what it has seen before.
type texts struct {
	tokenizer   Tokenizer
	blockTokens int
	memo        *memo
}

// spacing is how many tokens lie at least between two checkpoints that one prompt leaves behind. The last added token of
// a prompt always gets one: it is where the next turn goes on.
const spacing = 256

// textScratch is memory that is used again. Not for concurrent use.
type textScratch struct {
	keys []xxh3.Uint128
	ends []int
	ids  []uint32
}

// chain makes the chain of a text into dst. before and after are tokens around it. seed is the namespace, see block.Seed. It
// reports false when the tokenizer gave up, on this text or on another at the same time: then the chain may be wrong.
func (x *texts) chain(dst *Chain, text []byte, before, after []uint32, seed uint64, s *textScratch) bool {
	gaveUp := x.tokenizer.GaveUp()
	x.cut(text, before, seed, s)
	at, hashes, rest := x.memo.find(s.keys)
	dst.Hashes = append(dst.Hashes[:0], hashes...)
	s.ids = append(s.ids[:0], rest...)
	done, reused := 0, 0
	var parent *xxh3.Uint128
	if at >= 0 {
		done, parent = s.ends[at], &s.keys[at]
		reused = len(hashes)*x.blockTokens + len(rest)
	} else {
		s.ids = append(s.ids, before...)
	}
	last := reused // tokens at the last checkpoint
	for k := at + 1; k < len(s.ends); k++ {
		s.ids = x.tokenizer.Append(s.ids, text[done:s.ends[k]])
		done = s.ends[k]
		x.complete(dst, seed, s)
		tokens := len(dst.Hashes)*x.blockTokens + len(s.ids)
		if (tokens-last >= spacing || k == len(s.ends)-1) && x.tokenizer.GaveUp() == gaveUp {
			x.memo.put(s.keys[k], parent, dst.Hashes, s.ids)
			parent, last = &s.keys[k], tokens
		}
	}
	s.ids = append(x.tokenizer.Append(s.ids, text[done:]), after...)
	x.complete(dst, seed, s)
	dst.Tokens = len(dst.Hashes)*x.blockTokens + len(s.ids)
	dst.BlockTokens = x.blockTokens
	x.memo.count(reused, dst.Tokens)
	return x.tokenizer.GaveUp() == gaveUp
}

// complete moves complete blocks from the tokens to the chain.
func (x *texts) complete(dst *Chain, seed uint64, s *textScratch) {
	dst.Hashes = block.AppendBlocks(dst.Hashes, s.ids, x.blockTokens, seed)
	n := copy(s.ids, s.ids[len(s.ids)/x.blockTokens*x.blockTokens:])
	s.ids = s.ids[:n]
}

// cut finds the ends of the added tokens, and for each the key of the text up to there.
func (x *texts) cut(text []byte, before []uint32, seed uint64, s *textScratch) {
	s.keys, s.ends = s.keys[:0], s.ends[:0]
	key := xxh3.Uint128{Lo: seed, Hi: uint64(x.blockTokens)}
	for _, id := range before {
		key = follow(key, xxh3.Uint128{Lo: uint64(id), Hi: 1})
	}
	for at := 0; ; {
		_, end, _, ok := x.tokenizer.NextAdded(text[at:])
		if !ok {
			return
		}
		key = follow(key, xxh3.Hash128(text[at:at+end]))
		at += end
		s.keys, s.ends = append(s.keys, key), append(s.ends, at)
	}
}

// follow is the key of a text and what follows it.
func follow(key, piece xxh3.Uint128) xxh3.Uint128 {
	var both [32]byte
	for i, word := range [4]uint64{key.Lo, key.Hi, piece.Lo, piece.Hi} {
		binary.LittleEndian.PutUint64(both[8*i:], word)
	}
	return xxh3.Hash128(both[:])
}
