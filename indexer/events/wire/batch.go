package wire

import "slices"

// Caps. A length that a payload claims is first checked against the bytes that are left, then against these. They bound the
// memory that one batch can take, whatever it contains, to about 200 MB, and in practice to a few times its size.
const (
	// MaxPayload is the size of a payload, in bytes: many times a batch that tells a context of a million tokens.
	MaxPayload = 64 << 20
	// MaxHashes and MaxTokens bound one event, as in SGLang's experimental router.
	MaxHashes = 65_536
	MaxTokens = 1_048_576
	// MaxKeys bounds the extra keys of one event: two per block.
	MaxKeys = 2 * MaxHashes
	// MaxEvents bounds the events of one batch: more than any cache has blocks to evict in one step.
	MaxEvents = 1 << 16

	// leastEvent is the size of the smallest event that is delivered, in bytes: ["BlockRemoved", []].
	leastEvent = 15

	maxBatchHashes = 1 << 22
	maxBatchTokens = 1 << 23
	maxBatchKeys   = 1 << 20
)

// What a Batch keeps for the next Decode at most: enough for every batch but the monstrous.
const (
	keepEvents = 1 << 13
	keepHashes = 1 << 17
	keepTokens = 1 << 20
	keepKeys   = 1 << 15
)

// Batch is what one message tells: the events of one step of one engine's scheduler, in the order in which they are to be
// applied. A Batch that is used again keeps its memory; its events are valid until then. It holds no reference to the
// payload. The zero value is ready. Not for concurrent use.
type Batch struct {
	// Events is empty after an error.
	Events []Event
	// Time is when the engine made the batch, in Unix seconds by its clock. 0 when it was not said.
	Time float64
	// Rank is the data-parallel rank that the engine believes to be. Absent before vLLM 0.9.1.
	Rank    int32
	HasRank bool
	// Counts is what was not understood.
	Counts Counts

	hashes []uint64
	tokens []uint32 // and copies
	keys   []Key
}

// Counts is what a decoder passed over in one batch.
type Counts struct {
	// UnknownTags are events of a kind that we do not know.
	UnknownTags int
	// ExtraFields are fields that we do not know, of batches and of events that were delivered.
	ExtraFields int
	// OpaqueKeys are extra keys of an unknown shape: they keep blocks apart, but nobody can compute them from a request.
	OpaqueKeys int
	// Unread are events of a known kind that are not delivered, by reason. Whoever counts blocks has missed something.
	Unread [reasons]int
	// UnreadAt is where the first of them begins.
	UnreadAt uint32
}

// Reason says why an event could not be read.
type Reason uint8

// The reasons.
const (
	// ReasonShape: neither array nor map, or without a tag.
	ReasonShape Reason = iota + 1
	// ReasonMissing: no hashes; or stored, and no tokens or no block size.
	ReasonMissing
	// ReasonHashes: hashes or parent are neither integers nor bytes.
	ReasonHashes
	// ReasonTokens: tokens are no unsigned 32-bit integers, nor pairs of them that overlap.
	ReasonTokens
	// ReasonField: another field is of the wrong type or range.
	ReasonField
	// ReasonCap: more of something than the caps allow.
	ReasonCap

	reasons
)

// String is the reason as a label of a metric.
func (r Reason) String() string {
	names := [...]string{"", "shape", "missing", "hashes", "tokens", "field", "cap"}
	return names[min(int(r), len(names)-1)]
}

// Reasons are all reasons, for metrics that want to show zeros.
func Reasons() []Reason {
	return []Reason{ReasonShape, ReasonMissing, ReasonHashes, ReasonTokens, ReasonField, ReasonCap}
}

// Missed is how many events are not delivered for any reason.
func (c *Counts) Missed() int {
	var n int
	for _, k := range c.Unread {
		n += k
	}
	return n
}

func (c *Counts) unread(why Reason, at int) {
	if c.Missed() == 0 {
		c.UnreadAt = uint32(at)
	}
	c.Unread[why]++
}

// reset makes a used Batch empty.
func (b *Batch) reset() {
	*b = Batch{
		Events: keep(b.Events, keepEvents),
		hashes: keep(b.hashes, keepHashes),
		tokens: keep(b.tokens, keepTokens),
		keys:   keep(b.keys, keepKeys),
	}
}

func keep[T any](s []T, most int) []T {
	if cap(s) > most {
		return nil
	}
	return s[:0]
}

// mark remembers how full a Batch is, so that an event that turns out to be unreadable leaves nothing behind.
type mark struct{ hashes, tokens, keys, opaque, extra int }

func (b *Batch) mark() mark {
	return mark{len(b.hashes), len(b.tokens), len(b.keys), b.Counts.OpaqueKeys, b.Counts.ExtraFields}
}

func (b *Batch) backTo(m mark) {
	b.hashes, b.tokens, b.keys = b.hashes[:m.hashes], b.tokens[:m.tokens], b.keys[:m.keys]
	b.Counts.OpaqueKeys, b.Counts.ExtraFields = m.opaque, m.extra
}

// take returns n more elements of an arena, for the caller to fill. Lists that were taken before stay valid when the arena
// has to move: they keep the memory they were read into.
func take[T any](arena *[]T, n int) []T {
	from := len(*arena)
	*arena = slices.Grow(*arena, n)[:from+n]
	return (*arena)[from : from+n : from+n]
}
