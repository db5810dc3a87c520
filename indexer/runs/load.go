package runs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

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
// rename says which slot each one of the snapshot is now; what it does not know is forgotten. nil: slots are as they were.
func Load(from io.Reader, cfg Config, rename func(slot.Slot) (slot.Slot, bool)) (*Index, error) {
	x := New(cfg)
	d := &decoder{r: bufio.NewReader(from)}
	l := loader{Index: x, decoder: d, rename: rename, renamed: map[slot.Slot]slot.Slot{}}
	if rename != nil {
		for s := range slot.Slot(cfg.MaxSlots) {
			if to, known := rename(s); known {
				l.unknown = max(l.unknown, to+1)
			}
		}
	}
	l.next = l.unknown
	l.load()
	if d.err != nil {
		return nil, d.err
	}
	for s := l.unknown; s < l.next; s++ {
		x.RemoveSlot(s)
	}
	return x, nil
}

// slot is what a slot is called now. Those that nobody knows any more are loaded under numbers above all others, and then
// removed.
func (l *loader) slot(was slot.Slot) slot.Slot {
	if l.rename == nil {
		return was
	}
	now, met := l.renamed[was]
	if !met {
		var known bool
		if now, known = l.rename(was); !known {
			now = l.next
			l.next++
			l.check(int(now) < l.cfg.MaxSlots, "it has too many slots")
		}
		l.renamed[was] = now
	}
	return now
}

// loader reads the parts of a snapshot in turn. After an error it does nothing more.
type loader struct {
	*Index
	*decoder

	holders []*holder
	byNum   []*set
	runsOf  []uint32 // ids by number
	painted []int    // blocks in runs, by holder bit

	rename  func(slot.Slot) (slot.Slot, bool)
	renamed map[slot.Slot]slot.Slot
	unknown slot.Slot // from here on are slots that nobody knows
	next    slot.Slot // of them
	named   []named   // by number of a run: its blocks that have a key of the holder at hand
}

func (l *loader) load() {
	var head [len(snapshotMagic) + 1]byte
	l.raw(head[:])
	l.check(string(head[:len(snapshotMagic)]) == snapshotMagic, "it begins otherwise")
	l.check(head[len(snapshotMagic)] == snapshotVersion, "it is of another version")
	l.settings()
	l.loadHolders()
	l.loadSets()
	l.loadRuns()
	for _, h := range l.holders {
		l.loadMap(h)
	}
	sum := l.sum.Sum64()
	l.check(l.word() == sum, "its checksum differs")
}

func (l *loader) settings() {
	for n := l.number(l.cfg.MaxSlots); n > 0 && l.err == nil; n-- {
		s := l.slot(slot.Slot(l.number(l.cfg.MaxSlots - 1)))
		to := Settings{Sets: l.number(1) == 1}
		for t := range to.Blocks {
			to.Blocks[t] = l.number(1 << 40)
		}
		if l.err == nil {
			l.Configure(s, to)
		}
	}
}

func (l *loader) loadHolders() {
	for n := l.number(tiers * l.cfg.MaxSlots); n > 0 && l.err == nil; n-- {
		h := Holder{Slot: l.slot(slot.Slot(l.number(l.cfg.MaxSlots - 1))), Tier: slot.Tier(l.number(tiers - 1))}
		if l.err != nil {
			return
		}
		w := l.known(h.Slot)
		l.check(w == nil || w.tiers[h.Tier] == nil, "a holder stands twice")
		if l.err == nil {
			_, o := l.holder(h)
			l.holders = append(l.holders, o)
		}
	}
	l.painted = make([]int, len(l.owners))
}

func (l *loader) loadSets() {
	for n := l.number(1 << 40); n > 0 && l.err == nil; n-- {
		s, at := l.sets.empty, 0
		for in := l.number(len(l.holders)); in > 0 && l.err == nil; in-- {
			at += l.number(len(l.holders))
			if l.check(at < len(l.holders), "a set has unknown holders"); l.err == nil {
				s = l.sets.with(s, l.holders[at].bit, true)
			}
		}
		l.byNum = append(l.byNum, s)
		l.fits()
	}
}

func (l *loader) fits() {
	if l.err == nil && l.memory() > l.limit() {
		l.err = ErrTooLarge
	}
}

func (l *loader) loadRuns() {
	for n := l.number(1 << 31); n > 0 && l.err == nil; n-- {
		length := l.number(maxRun)
		if l.check(length > 0, "a run is empty"); l.err != nil {
			return
		}
		hashes := extend(nil, make([]uint64, length))
		for i := range hashes {
			hashes[i] = l.word()
		}
		l.check(hashes[0] != 0 && l.table.get(hashes[0]) == nil, "a block stands twice")
		p := &l.painter
		p.pieces = p.pieces[:0]
		at := 0
		for pieces := l.number(length); pieces > 0 && l.err == nil; pieces-- {
			from := at
			at += l.number(length)
			s := l.number(len(l.byNum) - 1)
			if l.check(at > from && at <= length, "a piece is empty or too long"); l.err == nil {
				p.put(from, l.byNum[s])
				l.byNum[s].each(func(bit int) { l.painted[bit] += at - from })
			}
		}
		if l.check(at == length, "pieces end before their run"); l.err != nil {
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
	if l.err != nil {
		return
	}
	if l.named == nil {
		l.named = make([]named, len(l.runsOf))
	}
	clear(l.named)
	n := l.number(1 << 40)
	for ; n > 0 && l.err == nil; n-- {
		key, run, offset, count := l.word(), l.number(len(l.runsOf)-1), l.number(maxRun-1), l.number(maxCount)
		if l.err != nil {
			return
		}
		id := l.runsOf[run]
		if l.check(id != noRun && count > 0, "a key leads to a run that nobody holds"); l.err != nil {
			return
		}
		r := l.runs[id].run
		if l.check(offset < len(r.hashes), "a key leads behind a run"); l.err != nil {
			return
		}
		l.check(r.at(offset).has(h.bit), "a key leads to a block that is not held")
		word, bit := &l.named[run][offset>>6], uint64(1)<<(offset&63)
		l.check(*word&bit == 0, "a block has two keys")
		*word |= bit
		ref := l.enterKey(h, key)
		l.check(*ref == 0, "a key stands twice")
		*ref = placeOf(r.id, offset) + place(count-1)*onePlace
		h.held++
		h.announced += count
		l.held++
		l.fits()
	}
	l.check(h.held == l.painted[h.bit], "held blocks and keys differ")
}

// decoder reads and sums. The first error stays; after it everything is 0.
type decoder struct {
	r   *bufio.Reader
	sum xxh3.Hasher
	err error
}

func (d *decoder) check(ok bool, what string) {
	if d.err == nil && !ok {
		d.err = fmt.Errorf("%w: %s", ErrSnapshot, what)
	}
}

func (d *decoder) raw(p []byte) {
	if d.err != nil {
		return
	}
	if _, err := io.ReadFull(d.r, p); err != nil {
		d.fail(err)
		return
	}
	d.sum.Write(p) //nolint:errcheck // a hash takes all
}

// fail tells the end of a snapshot that was cut off from trouble in reading it.
func (d *decoder) fail(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: it ends early", ErrSnapshot)
	}
	d.err = err
}

// number reads one that may be 0 to most; if most is below 0 there is none that fits.
func (d *decoder) number(most int) int {
	var n uint64
	for shift := 0; d.err == nil; shift += 7 {
		b, err := d.r.ReadByte()
		if err != nil {
			d.fail(err)
			return 0
		}
		d.sum.Write([]byte{b}) //nolint:errcheck // a hash takes all
		n |= uint64(b&0x7F) << shift
		if b < 0x80 {
			break
		}
		d.check(shift < 56, "a number is too long")
	}
	d.check(most >= 0 && n <= uint64(max(most, 0)), "a number is too large")
	if d.err != nil {
		return 0
	}
	return int(n)
}

func (d *decoder) word() uint64 {
	var p [8]byte
	d.raw(p[:])
	return binary.LittleEndian.Uint64(p[:])
}
