package indexer

import (
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"attache/internal/block"
	"attache/internal/packed"
	"attache/internal/slot"
)

// A snapshot of what one slot is believed to hold is, in the form of package packed:
//
//	"attache indexer" and the version, one byte
//	the engine's own figure of its capacity, 0 unknown; whether reports corrected it; the capacity
//	blocks, from the freshest to the oldest: how many; each
//	    its hash (8 bytes)
//	    by how many seconds its last use is longer ago than that of the one before
//	    how far back the block is that stands before it in its prompt; 0: none, it is a first one
//	XXH3-64 of all before it
const (
	snapshotMagic   = "attache indexer"
	snapshotVersion = 1
)

// ErrSnapshot says that what was read is no snapshot of this version, or is damaged.
var ErrSnapshot = errors.New("not a sound snapshot of a worker's prompts")

// past is for how long before its start an index can remember: as long as the longest TTL.
const past = 1000 * time.Hour

// Frozen is what one slot is believed to hold, at one moment. It is immutable.
type Frozen struct {
	figure, capacity int
	learnt           bool
	blocks           []frozenBlock // the freshest first, parents before their children
}

type frozenBlock struct {
	hash block.Hash
	age  uint32 // seconds since its last use
	back uint32 // the parent is so many places before it; 0: a first block
}

// Len is how many blocks there are.
func (f *Frozen) Len() int { return len(f.blocks) }

// Freeze captures what a slot is believed to hold, in pieces between which others get their turn: what changes meanwhile may or may
// not be in it.
func (x *Index) Freeze(s slot.Slot) *Frozen {
	f := &Frozen{}
	x.mu.RLock()
	if id := x.table.owner(s); id != 0 {
		o, e := &x.table.owners[id], &x.table.taught[id]
		f.figure, f.capacity, f.learnt = e.figure, o.capacity, e.learnt
	}
	x.mu.RUnlock()
	w := x.walkAll(s)
	f.blocks = make([]frozenBlock, 0, len(w.seen))
	place := make(map[int32]uint32, len(w.seen)) // in blocks, plus 1
	last := int32(0)
	for _, n := range slices.Backward(w.seen) { // from the front: parents first, and the latest sight of a node
		if n.at < w.oldest || place[n.id] != 0 {
			continue
		}
		b := frozenBlock{hash: n.hash, age: max(w.now, n.at) - n.at}
		switch {
		case n.parent == 0:
		case n.parent == last: // mostly
			b.back = 1
		case place[n.parent] == 0:
			continue
		default:
			b.back = uint32(len(f.blocks)) + 1 - place[n.parent]
		}
		if i := len(f.blocks); i > 0 {
			b.age = max(b.age, f.blocks[i-1].age)
		}
		f.blocks = append(f.blocks, b)
		place[n.id], last = uint32(len(f.blocks)), n.id
	}
	return f
}

// WriteTo writes the snapshot.
func (f *Frozen) WriteTo(to io.Writer) (int64, error) {
	w := packed.NewWriter(to)
	w.Raw([]byte(snapshotMagic))
	w.Raw([]byte{snapshotVersion})
	w.Number(f.figure)
	w.Flag(f.learnt)
	w.Number(f.capacity)
	w.Number(len(f.blocks))
	age := uint32(0)
	for _, b := range f.blocks {
		w.Word(b.hash)
		w.Number(int(b.age - age))
		w.Number(int(b.back))
		age = b.age
	}
	return w.Close()
}

// Load reads a snapshot. Of a *bufio.Reader it reads no more than that. Memory grows only with what was really read: 16 bytes
// for each block.
func Load(from io.Reader) (*Frozen, error) {
	r := packed.NewReader(from, ErrSnapshot)
	var head [len(snapshotMagic) + 1]byte
	r.Raw(head[:])
	r.Check(string(head[:len(snapshotMagic)]) == snapshotMagic, "it begins otherwise")
	r.Check(head[len(snapshotMagic)] == snapshotVersion, "it is of another version")
	f := &Frozen{figure: r.Number(math.MaxInt32), learnt: r.Flag(), capacity: r.Number(math.MaxInt32)}
	age := 0
	for n := r.Number(math.MaxInt32); n > 0 && r.Err() == nil; n-- {
		hash := r.Word()
		age += r.Number(math.MaxUint32 - age)
		f.blocks = append(f.blocks, frozenBlock{hash, uint32(age), uint32(r.Number(len(f.blocks)))})
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	return f, nil
}

// Restore makes a slot remember what a snapshot says, as something that was used before all that it remembers already. ago is how
// old the snapshot is. What has passed its time to live, or exceeds the slot's capacity or the index's bound, is left out, the
// least recently used first. The snapshot must be of the same process of the same engine.
func (x *Index) Restore(s slot.Slot, f *Frozen, ago time.Duration) {
	if s == slot.None {
		return
	}
	r := restoring{frozen: f, ago: uint32(min(max(ago, 0), past) / time.Second), nodes: make([]int32, len(f.blocks))}
	now := x.second()
	for more := true; more; {
		more = x.change(func(t *table) bool {
			t.now = max(t.now, now)
			return t.restore(s, &r, step)
		})
	}
}

// restoring is how far a snapshot has come back.
type restoring struct {
	frozen *Frozen
	ago    uint32
	next   int
	birth  uint32  // of the owner; 0 before the first step
	nodes  []int32 // of blocks; 0: it was left out
}

// restore adds at most budget blocks at the far end of the slot's list; more says that there are more.
func (t *table) restore(s slot.Slot, r *restoring, budget int) (more bool) {
	id := t.ownerOf(s)
	o, e := &t.owners[id], &t.taught[id]
	if r.birth == 0 {
		r.birth = e.birth
		t.recall(id, r.frozen)
	}
	if e.birth != r.birth {
		return false // it was cleared
	}
	oldest := t.oldest(t.now)
	for ; budget > 0 && r.next < len(r.frozen.blocks); budget-- {
		b := &r.frozen.blocks[r.next]
		at := t.now - min(t.now, b.age+min(r.ago, math.MaxUint32-b.age))
		if at < oldest || o.held >= o.capacity || t.held >= t.bound {
			return false
		}
		if parent, ok := t.restored(id, r, b); ok {
			if r.nodes[r.next] = t.find(id, b.hash); r.nodes[r.next] == 0 {
				r.nodes[r.next] = t.append(id, b.hash, at, parent)
			}
		}
		r.next++
	}
	return r.next < len(r.frozen.blocks)
}

// restored returns the node before a block, 0 for a first block; ok is false when it is not there.
func (t *table) restored(id uint32, r *restoring, b *frozenBlock) (parent int32, ok bool) {
	if b.back == 0 {
		return 0, true
	}
	i := r.next - int(b.back)
	parent = r.nodes[i]
	// It may have been evicted between two steps, and its node be another one's.
	return parent, parent != 0 && t.links(parent).owner == id && t.at(parent).hash == r.frozen.blocks[i].hash
}

// recall takes over what was known of the capacity, unless the engine has told another figure since.
func (t *table) recall(id uint32, f *Frozen) {
	o, e := &t.owners[id], &t.taught[id]
	if e.learnt || f.capacity < 1 || e.figure != 0 && e.figure != f.figure {
		return
	}
	if e.figure = f.figure; f.learnt || f.figure > 0 {
		e.learnt, o.capacity = f.learnt, max(f.capacity, o.held)
		e.ghosts.fit(o.capacity)
	}
}

// append makes a node for a block that the owner does not hold, at the far end of its list, last used at second at or before.
func (t *table) append(id uint32, hash block.Hash, at uint32, parent int32) int32 {
	tail := t.owners[id].tail
	if tail != 0 {
		at = min(at, t.at(tail).at)
	}
	return t.enter(id, node{hash: hash, at: at}, parent, tail)
}
