package events

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/zeebo/xxh3"

	"attache/indexer/events/wire"
	"attache/indexer/pages"
	"attache/indexer/runs"
	"attache/internal/block"
	"attache/internal/slot"
)

// MismatchError says that the blocks of a rank cannot be told apart in the blocks of its pool.
type MismatchError struct{ Page, Block int }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("its events tell of blocks of %d tokens, but blocks of the pool have %d tokens, and neither is a multiple of the "+
		"other (at most %d to one): set prompt.block_tokens of the pool to a multiple of %d", e.Page, e.Block, maxPagesPerBlock, e.Page)
}

// Ignored is why an event, or what it says, is left out of the index. None of them is an error.
type Ignored uint8

// The reasons.
const (
	// IgnoredGroup: it is of a cache group that does not hold every block of a sequence, as those with a window.
	IgnoredGroup Ignored = iota
	// IgnoredUneven: blocks are left out, so that nothing says which tokens belong to which.
	IgnoredUneven
	// IgnoredPartial: a block that is not full. It is announced again when it is.
	IgnoredPartial
	// IgnoredTier: it is about a medium whose name we do not know.
	IgnoredTier
	// IgnoredMedia: extra keys on pages that are smaller than the pool's blocks.
	IgnoredMedia
	// IgnoredMove: a move told by hash alone, of such pages.
	IgnoredMove
	// IgnoredUnknownTag: an event of a kind that we do not know.
	IgnoredUnknownTag

	ignoredReasons
)

// String is the reason as a label of a metric.
func (r Ignored) String() string {
	return [...]string{"group", "uneven", "partial", "tier", "media", "move", "unknown_tag"}[r]
}

// applier turns the events of one rank into changes of the index. Not for concurrent use.
//
// An engine's page that is larger than the pool's blocks becomes several blocks; see largePages. Pages that are
// smaller are joined. All of that is worked out before the index is locked.
type applier struct {
	slot   slot.Slot
	block  int                // tokens of the pool's blocks
	page   int                // tokens of the engine's; 0 not known yet
	room   int                // blocks that the engine has room for; 0 not known
	plain  bool               // announcements are not counted
	joiner *pages.Joiner      // of pages smaller than blocks; nil for others
	large  largePages         // pages larger than blocks; nil for others
	joined func(pages.Blocks) // what is done with its blocks, and with those that it takes back: made once with it
	parted func(slot.Tier, []uint64)
	pulled bool // from TensorRT-LLM's own interface, whose removals mean all tiers

	hasGroup bool // that group's events are indexed, others' not
	group    int32
	window   uint32 // TensorRT-LLM: the largest that was seen

	ignored [ignoredReasons]uint64

	changes []change
	locals  []uint64
	keys    []uint64
}

// change is one step for the index.
type change struct {
	kind   changeKind
	tier   slot.Tier
	stored runs.Stored
	keys   []uint64
}

type changeKind uint8

const (
	store changeKind = iota
	move             // store what the slot holds on another tier
	remove
	removeAll // from every tier
	clearAll
)

// reset makes ready for the history of another process. page is the size of its pages, 0 to learn it.
func (a *applier) reset(page int) {
	a.page, a.hasGroup, a.group, a.window, a.joiner, a.large = page, false, 0, 0, nil, nil
}

// clear forgets which pages there are.
func (a *applier) clear() {
	a.large = nil
	if a.joiner != nil {
		a.joiner = a.newJoiner()
	}
}

// newJoiner makes room for what the engine has room for on its device, and as much again on lower tiers.
func (a *applier) newJoiner() *pages.Joiner {
	const least, unknown, most = 1 << 16, 1 << 22, 1 << 24
	width := a.block / a.page
	limit := unknown
	if a.room > 0 {
		limit = min(max(4*a.room*width, least), most)
	}
	j, err := pages.New(pages.Config{Page: a.page, Block: a.block, Limit: limit, Waiting: limit / 16, Sets: a.plain})
	if err != nil {
		panic(err) // fit lets only sizes pass that go together
	}
	a.joined, a.parted = a.bring, a.takeBack
	return j
}

// read turns a batch into changes, valid until the next call. The error is a *MismatchError or errLargerPages; then nothing of
// the batch may be applied.
func (a *applier) read(b *wire.Batch, payload []byte) ([]change, error) {
	a.changes, a.locals, a.keys = a.changes[:0], a.locals[:0], a.keys[:0]
	for i := range b.Events {
		if err := a.event(&b.Events[i], payload); err != nil {
			return nil, err
		}
	}
	a.ignored[IgnoredUnknownTag] += uint64(b.Counts.UnknownTags)
	return a.changes, nil
}

func (a *applier) event(e *wire.Event, payload []byte) error {
	switch {
	case e.Kind == wire.Cleared:
		a.clear()
		a.changes = append(a.changes, change{kind: clearAll})
		return nil
	case e.Kind == wire.Created:
		a.window = max(a.window, e.Window)
		return nil
	case !a.wanted(e):
		a.ignored[IgnoredGroup]++
		return nil
	}
	tier, ok := tierOf(e.Tier)
	switch {
	case !ok:
		a.ignored[IgnoredTier]++
	case a.joiner != nil && e.Kind == wire.Removed:
		if a.pulled && e.Tier == wire.TierUnsaid {
			tier = pages.EveryTier
		}
		a.joiner.Remove(tier, e.Hashes, a.joined, a.parted)
	case e.Kind == wire.Removed && a.pulled && e.Tier == wire.TierUnsaid:
		a.removedAll(e.Hashes)
	case e.Kind == wire.Removed:
		a.removed(e.Hashes, tier)
	case len(e.Hashes) == 0: // of a group that holds none of the blocks
	case e.Placeholder() && a.joiner != nil:
		a.ignored[IgnoredMove]++
	case e.Placeholder():
		a.moved(e.Hashes, tier)
	default:
		return a.stored(e, tier, payload)
	}
	return nil
}

// wanted tells whether the event is of the cache group that stands for the sequence. Every group of a hybrid model tells of the
// same tokens under the same hashes; only one with full attention holds all blocks. It need not be the first.
func (a *applier) wanted(e *wire.Event) bool {
	if a.pulled {
		return e.Window == 0 || e.Window >= a.window
	}
	if e.Kind == wire.Stored && e.Spec != wire.SpecUnsaid {
		if !e.Spec.Full() {
			return false
		}
		if !a.hasGroup {
			a.hasGroup, a.group = true, e.Group
		}
	}
	return !e.HasGroup || e.Group == a.group
}

// tierOf is where the index keeps blocks of a tier; what is not said is on the device, as in every vLLM that does not say.
func tierOf(t wire.Tier) (slot.Tier, bool) {
	switch t {
	case wire.TierUnsaid, wire.Device:
		return slot.Device, true
	case wire.Host:
		return slot.Host, true
	case wire.Disk:
		return slot.Disk, true
	case wire.Remote:
		return slot.Remote, true
	case wire.TierOther:
	}
	return 0, false
}

// stored reads blocks with their tokens.
func (a *applier) stored(e *wire.Event, tier slot.Tier, payload []byte) error {
	if !e.Even() {
		a.ignored[IgnoredUneven]++
		return nil
	}
	full, err := a.fit(int(e.BlockTokens))
	if err != nil || !full {
		return err
	}
	seed := block.Plain
	if !e.HasParent {
		seed = seedOf(e, payload)
	}
	if a.joiner != nil {
		a.join(e, tier, seed)
		return nil
	}
	from := len(a.locals)
	a.locals = block.AppendLocals(a.locals, e.Tokens, a.block, seed)
	locals := a.locals[from:len(a.locals):len(a.locals)]
	pieces := a.pieces()
	if pieces > 1 && len(a.large)+len(e.Hashes) > a.mostLarge() {
		a.ignored[IgnoredUneven]++ // removals must have been lost: no engine has so many
		return nil
	}
	for _, k := range e.Keys {
		for i := range pieces {
			at := int(k.Block)*pieces + i
			locals[at] = mixKey(locals[at], k)
		}
	}
	s := runs.Stored{Root: !e.HasParent, Parent: e.Parent, Hashes: locals}
	if pieces > 1 && e.HasParent {
		s.Parent = lastKey(e.Parent)
	}
	s.Engine = a.storedKeys(e.Hashes, tier, locals, s.Parent)
	a.changes = append(a.changes, change{kind: store, tier: tier, stored: s})
	return nil
}

// join gives pages to the joiner.
func (a *applier) join(e *wire.Event, tier slot.Tier, seed uint64) {
	if len(e.Keys) > 0 {
		a.ignored[IgnoredMedia]++
		return
	}
	a.joiner.Store(pages.Stored{Tier: tier, Root: !e.HasParent, Seed: seed, Parent: e.Parent, Pages: e.Hashes, Tokens: e.Tokens}, a.joined, a.parted)
}

// bring notes that blocks became complete.
func (a *applier) bring(b pages.Blocks) {
	a.changes = append(a.changes, change{kind: store, tier: b.Tier, stored: runs.Stored{
		Root: b.Root, Parent: b.Parent, Engine: a.keep(&a.keys, b.Keys), Hashes: a.keep(&a.locals, b.Locals)}})
}

// takeBack notes that blocks are not complete any more.
func (a *applier) takeBack(t slot.Tier, keys []uint64) {
	a.changes = append(a.changes, change{kind: remove, tier: t, keys: a.keep(&a.keys, keys)})
}

// keep copies what is valid for a moment only into memory that lasts as long as the changes.
func (*applier) keep(arena *[]uint64, values []uint64) []uint64 {
	from := len(*arena)
	*arena = append(*arena, values...)
	return (*arena)[from:len(*arena):len(*arena)]
}

// errLargerPages says that pages turned out larger than those seen before, which were incomplete ones: all that is known of
// the rank is in the wrong units.
var errLargerPages = errors.New("its blocks turned out to be larger than the first ones")

// maxPagesPerBlock is how many pages are joined to a block at most.
const maxPagesPerBlock = 64

// fit learns the size of the engine's pages. full is false for one that is incomplete, and to be left out.
func (a *applier) fit(tokens int) (full bool, err error) {
	switch {
	case tokens == a.page:
		return true, nil
	case tokens < a.page, a.pulled && tokens < a.block && a.page == 0:
		a.ignored[IgnoredPartial]++
		return false, nil
	case tokens%a.block != 0 && (a.block%tokens != 0 || a.block/tokens > maxPagesPerBlock):
		return false, &MismatchError{Page: tokens, Block: a.block}
	}
	learnt := a.page
	a.page, a.joiner = tokens, nil
	if tokens < a.block {
		a.joiner = a.newJoiner()
	}
	if learnt != 0 {
		return false, errLargerPages
	}
	return true, nil
}

// pieceKey names a part of a page; splitmix64 keeps it apart from other pages' hashes.
func pieceKey(page uint64, piece int) uint64 {
	z := page + uint64(piece+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// seedOf is the namespace of a prompt whose first block is told.
func seedOf(e *wire.Event, payload []byte) uint64 {
	name := string(e.LoRA.In(payload))
	if name == "" && e.HasLoRAID && e.LoRAID != 0 {
		// No request names an adapter by its number: its blocks are kept apart, and found by nobody.
		name = "\x00" + strconv.FormatInt(e.LoRAID, 10)
	}
	return block.Seed(name, string(e.Salt.In(payload)))
}

// mixKey makes a block's hash depend on what else than tokens the engine's does.
func mixKey(local uint64, k wire.Key) uint64 {
	var b [25]byte
	binary.LittleEndian.PutUint64(b[0:], local)
	binary.LittleEndian.PutUint64(b[8:], k.Hash)
	binary.LittleEndian.PutUint64(b[16:], uint64(k.Offset))
	b[24] = byte(k.Form)
	return xxh3.Hash(b[:])
}

// leftOut counts the events so far whose blocks the engine holds and the index will not know.
func (a *applier) leftOut() uint64 { return a.ignored[IgnoredUneven] + a.ignored[IgnoredMedia] }

// emptied tells whether the engine says that it has forgotten everything.
func emptied(changes []change) bool {
	return slices.ContainsFunc(changes, func(c change) bool { return c.kind == clearAll })
}

// apply makes changes visible, and counts the announcements that the index had no room for. The caller holds the index.
func apply(x *runs.Index, s slot.Slot, changes []change) (refused int) {
	for i := range changes {
		switch c := &changes[i]; c.kind {
		case store:
			if x.Store(runs.Holder{Slot: s, Tier: c.tier}, c.stored) == runs.Refused {
				refused++
			}
		case move:
			x.StoreKnown(runs.Holder{Slot: s, Tier: c.tier}, c.keys)
		case remove:
			x.Remove(runs.Holder{Slot: s, Tier: c.tier}, c.keys)
		case removeAll:
			for t := slot.Device; t <= slot.Remote; t++ {
				x.Remove(runs.Holder{Slot: s, Tier: t}, c.keys)
			}
		case clearAll:
			clearSlot(x, s)
		}
	}
	return refused
}

func clearSlot(x *runs.Index, s slot.Slot) {
	for t := slot.Device; t <= slot.Remote; t++ {
		x.Clear(runs.Holder{Slot: s, Tier: t})
	}
}
