package runs

import (
	"errors"
	"io"

	"attache/internal/packed"
	"attache/internal/slot"
)

var (
	// ErrSnapshot says that what was read is no snapshot of this version, or is damaged.
	ErrSnapshot = errors.New("not a sound snapshot of an index")
	// ErrTooLarge says that a snapshot needs more memory than the configuration allows.
	ErrTooLarge = errors.New("the snapshot exceeds max_bytes")
)

// Load makes an index from a snapshot. The configuration must have been validated. A snapshot that is damaged, even on
// purpose, makes an error, never a broken index; memory grows only with what was really read.
//
// Of a *bufio.Reader it reads no more than the snapshot.
func Load(from io.Reader, cfg Config) (*Index, error) {
	x := New(cfg)
	l := loader{Index: x, Reader: packed.NewReader(from, ErrSnapshot)}
	l.load()
	if err := l.Err(); err != nil {
		return nil, err
	}
	return x, nil
}

// loader reads the parts of a snapshot in turn. After an error it does nothing more.
type loader struct {
	*Index
	*packed.Reader

	holders []*holder
	byNum   []*set
	runsOf  []uint32 // ids by number
	painted []int    // blocks in runs, by holder bit
	named   []named  // by number of a run: its blocks that have a key of the holder at hand
}

func (l *loader) load() {
	var head [len(snapshotMagic) + 1]byte
	l.Raw(head[:])
	l.Check(string(head[:len(snapshotMagic)]) == snapshotMagic, "it begins otherwise")
	l.Check(head[len(snapshotMagic)] == snapshotVersion, "it is of another version")
	l.settings()
	l.loadHolders()
	l.loadSets()
	l.loadRuns()
	for _, h := range l.holders {
		l.loadMap(h)
	}
	_ = l.Close() // the error stays
}

func (l *loader) settings() {
	for n := l.Number(l.cfg.MaxSlots); n > 0 && l.Err() == nil; n-- {
		s := slot.Slot(l.Number(l.cfg.MaxSlots - 1))
		to := Settings{Sets: l.Number(1) == 1}
		for t := range to.Blocks {
			to.Blocks[t] = l.Number(1 << 40)
		}
		if l.Err() == nil {
			l.Configure(s, to)
		}
	}
}

func (l *loader) loadHolders() {
	for n := l.Number(tiers * l.cfg.MaxSlots); n > 0 && l.Err() == nil; n-- {
		h := Holder{Slot: slot.Slot(l.Number(l.cfg.MaxSlots - 1)), Tier: slot.Tier(l.Number(tiers - 1))}
		if l.Err() != nil {
			return
		}
		w := l.known(h.Slot)
		l.Check(w == nil || w.tiers[h.Tier] == nil, "a holder stands twice")
		if l.Err() == nil {
			_, o := l.holder(h)
			l.holders = append(l.holders, o)
		}
	}
	l.painted = make([]int, len(l.owners))
}

func (l *loader) loadSets() {
	for n := l.Number(1 << 40); n > 0 && l.Err() == nil; n-- {
		s, at := l.sets.empty, 0
		for in := l.Number(len(l.holders)); in > 0 && l.Err() == nil; in-- {
			at += l.Number(len(l.holders))
			if l.Check(at < len(l.holders), "a set has unknown holders"); l.Err() == nil {
				s = l.sets.with(s, l.holders[at].bit, true)
			}
		}
		l.byNum = append(l.byNum, s)
		l.fits()
	}
}

func (l *loader) fits() {
	if l.Err() == nil && l.memory() > l.limit() {
		l.Fail(ErrTooLarge)
	}
}

func (l *loader) loadRuns() {
	for n := l.Number(1 << 31); n > 0 && l.Err() == nil; n-- {
		length := l.Number(maxRun)
		if l.Check(length > 0, "a run is empty"); l.Err() != nil {
			return
		}
		hashes := extend(nil, make([]uint64, length))
		for i := range hashes {
			hashes[i] = l.Word()
		}
		l.Check(hashes[0] != 0 && l.table.get(hashes[0]) == nil, "a block stands twice")
		p := &l.painter
		p.pieces = p.pieces[:0]
		at := 0
		for pieces := l.Number(length); pieces > 0 && l.Err() == nil; pieces-- {
			from := at
			at += l.Number(length)
			s := l.Number(len(l.byNum) - 1)
			if l.Check(at > from && at <= length, "a piece is empty or too long"); l.Err() == nil {
				p.put(from, l.byNum[s])
				l.byNum[s].each(func(bit int) { l.painted[bit] += at - from })
			}
		}
		if l.Check(at == length, "pieces end before their run"); l.Err() != nil {
			return
		}
		l.addRun(hashes)
		l.fits()
	}
	l.sets.sweep()
}

// noRun is the id of a run that nobody holds any more.
const noRun = ^uint32(0)

// addRun makes a run of the pieces that were painted.
func (l *loader) addRun(hashes []uint64) {
	r := l.newRun()
	next := l.finish(r, hashes)
	if len(next.hashes) < len(hashes) {
		next.hashes = extend(nil, next.hashes)
	}
	l.replace(r, next)
	id := next.id
	if len(next.hashes) == 0 {
		id = noRun
	}
	l.runsOf = append(l.runsOf, id)
}

// named is a bit for every block of a run.
type named [maxRun / 64]uint64

// loadMap reads the keys of a holder. There must be one for each of its blocks, and one only.
func (l *loader) loadMap(h *holder) {
	if l.Err() != nil {
		return
	}
	if l.named == nil {
		l.named = make([]named, len(l.runsOf))
	}
	clear(l.named)
	n := l.Number(1 << 40)
	for ; n > 0 && l.Err() == nil; n-- {
		key, run, offset, count := l.Word(), l.Number(len(l.runsOf)-1), l.Number(maxRun-1), l.Number(maxCount)
		if l.Err() != nil {
			return
		}
		id := l.runsOf[run]
		if l.Check(id != noRun && count > 0, "a key leads to a run that nobody holds"); l.Err() != nil {
			return
		}
		r := l.runs[id].run
		if l.Check(offset < len(r.hashes), "a key leads behind a run"); l.Err() != nil {
			return
		}
		l.Check(r.at(offset).has(h.bit), "a key leads to a block that is not held")
		word, bit := &l.named[run][offset>>6], uint64(1)<<(offset&63)
		l.Check(*word&bit == 0, "a block has two keys")
		*word |= bit
		ref := l.enterKey(h, key)
		l.Check(*ref == 0, "a key stands twice")
		*ref = placeOf(r.id, offset) + place(count-1)*onePlace
		h.held++
		h.announced += count
		l.held++
		l.fits()
	}
	l.Check(h.held == l.painted[h.bit], "held blocks and keys differ")
}
