package sim

import (
	"github.com/zeebo/xxh3"

	"attache/internal/block"
	"attache/internal/slot"
)

// Block is a block of KV that is in the cache of a Core whose changes are recorded. It does not change.
type Block struct {
	// Hash is the engine's own name of the block and all before it. It depends on Config.HashSeed, so that nobody can take it
	// for a hash of another engine, or of ours.
	Hash uint64
	// Sequence is our name; see SequenceHashes.
	Sequence block.Hash
	// Parent is the Hash of the block before it, if there is one.
	Parent    uint64
	HasParent bool
	// Tokens are what it holds.
	Tokens []uint32
	// LoRA is the adapter that computed it and Salt separates it from other tenants' blocks; empty: none.
	LoRA, Salt string
	// Partial says that it is the end of a sequence and not full. Nobody can use it, but TensorRT-LLM tells of it.
	Partial bool
}

// continues reports whether b stands right behind a in a sequence.
func (b *Block) continues(a *Block) bool {
	return b.HasParent && b.Parent == a.Hash && b.Partial == a.Partial && b.LoRA == a.LoRA && b.Salt == a.Salt
}

// SequenceHashes are our names of the complete blocks of ids, each of size tokens: a chain whose namespace (an adapter takes
// the place of the model, whose own name stays out) enters through its first block alone.
func SequenceHashes(ids []uint32, size int, lora, salt string) []block.Hash {
	return appendSequence(nil, ids, size, lora, salt)
}

// appendSequence appends to a chain that has begun, or begins it.
func appendSequence(chain []block.Hash, ids []uint32, size int, lora, salt string) []block.Hash {
	if len(chain) == 0 && len(ids) >= size {
		chain = block.AppendBlocks(chain, ids[:size], size, block.Seed(lora, salt))
		ids = ids[size:]
	}
	return block.AppendBlocks(chain, ids, size, block.Seed("", ""))
}

// ChangeKind says what happened.
type ChangeKind uint8

// The kinds.
const (
	// Stored: consecutive blocks are in the tier now, or another copy of each.
	Stored ChangeKind = iota + 1
	// Removed: a copy of each block is gone from the tier.
	Removed
	// Moved: the block went from the tier From to the tier Tier. Only with TensorRT-LLM.
	Moved
	// Cleared: nothing is in any tier.
	Cleared
)

// Change is one thing that happened to the cache of a Core.
type Change struct {
	Kind   ChangeKind
	Tier   slot.Tier
	From   slot.Tier
	Blocks []*Block
	// Again says that the blocks, Stored, were there already and are only told of again, because a request wished so.
	Again bool
	// Session is that of the request that Stored the blocks; empty: it has none, or there is no such request.
	Session string
}

// rules are what engines do differently.
type rules struct {
	// copies: every page of a block is told of, as vLLM does. Otherwise only the first one that comes and the last that goes.
	copies bool
	// exclusive: a block is in one tier at a time, and moves. Otherwise it stays below when it comes up again.
	exclusive bool
	// partial: blocks that are not full are kept and told of when their request ends.
	partial bool
	// each: there is no word for a reset, so that every block is removed by itself.
	each bool
	// gather: neighbouring removals are one.
	gather bool
	// report: requests can wish for a report of what they find in the cache.
	report bool
}

// changes records what happens to a cache. All methods of a nil one do nothing.
type changes struct {
	rules

	list    []Change
	session string // of the request whose blocks come
}

// most bounds the tokens of one Change: decoders refuse events without end.
const most = 1 << 19

// stored notes a block that came; first says that it is the only copy.
func (l *changes) stored(tier slot.Tier, b *Block, first bool) {
	if l == nil || !first && !l.copies {
		return
	}
	if last := l.last(Stored, tier); last != nil {
		n := len(last.Blocks)
		if !last.Again && last.Session == l.session && b.continues(last.Blocks[n-1]) && (n+1)*len(b.Tokens) <= most {
			last.Blocks = append(last.Blocks, b)
			return
		}
	}
	l.list = append(l.list, Change{Kind: Stored, Tier: tier, Blocks: []*Block{b}, Session: l.session})
}

// again notes blocks of one sequence that are on the device already.
func (l *changes) again(blocks []*Block) {
	if l != nil && l.report && len(blocks) > 0 {
		l.list = append(l.list, Change{Kind: Stored, Blocks: blocks, Again: true, Session: l.session})
	}
}

// of says whose blocks come from now on.
func (l *changes) of(session string) {
	if l != nil {
		l.session = session
	}
}

// removed notes a block that went.
func (l *changes) removed(tier slot.Tier, b *Block) {
	if l == nil {
		return
	}
	if last := l.last(Removed, tier); last != nil && l.gather && len(last.Blocks) < most {
		last.Blocks = append(last.Blocks, b)
		return
	}
	l.list = append(l.list, Change{Kind: Removed, Tier: tier, Blocks: []*Block{b}})
}

func (l *changes) moved(from, to slot.Tier, b *Block) {
	if l != nil {
		l.list = append(l.list, Change{Kind: Moved, From: from, Tier: to, Blocks: []*Block{b}})
	}
}

func (l *changes) cleared() {
	if l != nil && !l.each {
		l.list = append(l.list, Change{Kind: Cleared})
	}
}

// last is the latest change, if it is of this kind and tier.
func (l *changes) last(kind ChangeKind, tier slot.Tier) *Change {
	if len(l.list) == 0 {
		return nil
	}
	if c := &l.list[len(l.list)-1]; c.Kind == kind && c.Tier == tier {
		return c
	}
	return nil
}

// named is how the blocks of a sequence are called; nil when nobody wants to know.
type named struct {
	seed       uint64
	size       int
	tokens     []uint32
	lora, salt string
	chain      []block.Hash // our names
}

func newNamed(r *Request, size int, seed uint64) *named {
	return &named{
		seed: seed, size: size, tokens: r.Tokens, lora: r.LoRA, salt: r.Salt,
		chain: SequenceHashes(r.Tokens, size, r.LoRA, r.Salt),
	}
}

// block is the ith block. The engine's hash is made of ours, which is chained and salted, and of the seed.
func (n *named) block(i int) *Block {
	if n == nil {
		return nil
	}
	return n.blockOf(i, n.chain[i], n.tokens[i*n.size:(i+1)*n.size])
}

// rest is the block behind the ith that has only some tokens.
func (n *named) rest(i, tokens int) *Block {
	ids := n.tokens[i*n.size : i*n.size+tokens]
	chain := appendSequence(n.chain[:i:i], ids, tokens, n.lora, n.salt)
	b := n.blockOf(i, chain[i], ids)
	b.Partial = true
	return b
}

func (n *named) blockOf(i int, ours block.Hash, ids []uint32) *Block {
	b := &Block{Hash: n.hash(ours), Sequence: ours, Tokens: append([]uint32{}, ids...), LoRA: n.lora, Salt: n.salt}
	if i > 0 {
		b.Parent, b.HasParent = n.hash(n.chain[i-1]), true
	}
	return b
}

func (n *named) hash(ours block.Hash) uint64 {
	var raw [8]byte
	for i := range raw {
		raw[i] = byte(ours >> (8 * i))
	}
	return xxh3.HashSeed(raw[:], n.seed)
}
