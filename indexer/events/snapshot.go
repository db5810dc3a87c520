package events

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"attache/indexer/pages"
	"attache/indexer/runs"
	"attache/internal/packed"
	"attache/internal/slot"
)

// A snapshot spares an engine's whole replay after a restart of ours, and keeps a history that the engine itself no longer has
// from its start. It is, in the form of package packed:
//
//	"attache events" and the version, one byte
//	tokens of the pool's blocks
//	feeds: how many; each the worker's address, the rank, the slot it had, and up to where its history is known (place)
//	XXH3-64 of all before it
//	for each feed of small pages: its pages (see package pages)
//	the index of all others (see package runs)
//
// Blocks of small pages are not in the index: they are made of the pages again.
//
// Nothing in a snapshot is believed untested: a feed that begins with one asks the engine for the last batch that is in it, and
// only if that comes back byte for byte, what was saved is of the same process.
const (
	snapshotMagic   = "attache events"
	snapshotVersion = 2
)

// ErrSnapshot says that what was read is no snapshot of this version and for these blocks, or is damaged.
var ErrSnapshot = errors.New("not a sound snapshot of feeds")

// Parked is how long what a snapshot says of a worker waits for that worker to appear.
const Parked = 2 * time.Minute

const (
	maxFeeds   = 1 << 20
	maxAddress = 1 << 10
)

// place is up to where the index knows a rank's history. It changes together with the index.
type place struct {
	Known    bool
	Sequence uint64
	Digest   uint64
	Complete bool
	Page     int
	HasGroup bool
	Group    int32
	Plain    bool
	Small    bool // pages are smaller than blocks
}

// home names a rank over restarts.
type home struct {
	addr string
	rank int
}

// resumed is what a snapshot says of a rank.
type resumed struct {
	place

	was    slot.Slot
	joiner *pages.Joiner // nil for pages that are blocks
}

// placeNow is where the feed stands. What cannot be compared with the engine later on is not gone on from, nor is what a replay
// is owed for: it will bring more.
func (f *feed) placeNow() place {
	a := &f.applier
	if !f.seq.has || f.ask == nil || f.owed || f.barred || f.source.Pull || a.large != nil {
		return place{}
	}
	return place{Known: true, Sequence: f.seq.last, Digest: f.seq.digest(), Complete: f.complete, Page: a.page, HasGroup: a.hasGroup, Group: a.group,
		Plain: f.drifted.Load(), Small: a.joiner != nil}
}

// Frozen is what a ledger knows at one moment, ready to be written while it goes on.
type Frozen struct {
	blockTokens int
	feeds       []frozenFeed
	pages       []*pages.Frozen // of those with small pages, in their order
	index       *runs.Frozen
}

type frozenFeed struct {
	home
	place

	slot slot.Slot
}

// Freeze captures what is known. Each feed of small pages waits while its pages are copied, and all wait while the rest is: about
// 10 ms for a million blocks. A feed of small pages that is busy with a replay is left out.
func (l *Ledger) Freeze() *Frozen {
	z := &Frozen{blockTokens: l.blockTokens}
	feeds := *l.feeds.Load()
	places := make([]place, len(feeds))
	l.write(func(*runs.Index) {
		for i, f := range feeds {
			if f != nil {
				places[i] = f.place
			}
		}
	})
	for i, f := range feeds {
		if places[i].Known && places[i].Small {
			z.addSmall(f)
		}
	}
	l.write(func(x *runs.Index) {
		taken := make([]bool, len(feeds))
		for i, f := range feeds {
			if f == nil || !f.place.Known || f.place.Small {
				continue
			}
			taken[i] = true
			z.feeds = append(z.feeds, frozenFeed{home{f.addr, f.source.Rank}, f.place, f.slot})
		}
		z.index = x.Freeze(func(s slot.Slot) bool { return int(s) < len(taken) && taken[s] })
	})
	return z
}

// addSmall captures a feed whose pages are joined, which change before the index does.
func (z *Frozen) addSmall(f *feed) {
	if !f.tryLock() {
		return
	}
	defer f.mu.Unlock()
	if p := f.placeNow(); p.Known && p.Small {
		z.feeds = append(z.feeds, frozenFeed{home{f.addr, f.source.Rank}, p, f.slot})
		z.pages = append(z.pages, f.applier.joiner.Freeze())
	}
}

// tryLock waits for a batch to be applied, but not for a replay.
func (f *feed) tryLock() bool {
	for range 100 {
		if f.mu.TryLock() {
			return true
		}
		if f.status.Load().State == Replaying {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// WriteTo writes the snapshot. Any goroutine may call it, once.
func (z *Frozen) WriteTo(to io.Writer) (int64, error) {
	w := packed.NewWriter(to)
	w.Raw([]byte(snapshotMagic))
	w.Raw([]byte{snapshotVersion})
	w.Number(z.blockTokens)
	w.Number(len(z.feeds))
	for _, f := range z.feeds {
		w.Text(f.addr)
		w.Number(f.rank)
		w.Number(int(f.slot))
		w.Word(f.Sequence)
		w.Word(f.Digest)
		w.Number(f.Page)
		w.Word(uint64(uint32(f.Group)))
		for _, flag := range [...]bool{f.Complete, f.HasGroup, f.Plain, f.Small} {
			w.Flag(flag)
		}
	}
	n, err := w.Close()
	parts := make([]io.WriterTo, 0, len(z.pages)+1)
	for _, p := range z.pages {
		parts = append(parts, p)
	}
	for _, p := range append(parts, z.index) {
		if err != nil {
			break
		}
		var more int64
		more, err = p.WriteTo(to)
		n += more
	}
	return n, err
}

// Restore reads a snapshot: a feed that begins within Parked goes on from what it says of its worker, named by address and rank. It
// must be called before Run, at most once. After an error nothing is restored. Of a *bufio.Reader it reads no more than the
// snapshot.
func (l *Ledger) Restore(from io.Reader) error {
	in := bufio.NewReader(from)
	feeds, err := readFeeds(in, l.blockTokens)
	if err != nil {
		return err
	}
	resume := map[home]resumed{}
	for _, f := range feeds {
		r := resumed{place: f.place, was: f.slot}
		if f.Small {
			if r.joiner, err = pages.Load(in); err != nil {
				return err
			}
			if page, blocks := r.joiner.Sizes(); page != f.Page || blocks != l.blockTokens {
				return fmt.Errorf("%w: pages of %s/%d are of %d tokens in blocks of %d, not %d in %d", ErrSnapshot, f.addr, f.rank, page, blocks,
					f.Page, l.blockTokens)
			}
		}
		resume[f.home] = r
	}
	index, err := runs.Load(in, l.cfg.Index)
	if err != nil {
		return err
	}
	index.Park()
	l.writing.Lock()
	defer l.writing.Unlock()
	l.index.Store(index)
	l.resumed = resume
	l.parked.Store(len(resume) > 0)
	return nil
}

func readFeeds(in io.Reader, blockTokens int) ([]frozenFeed, error) {
	r := packed.NewReader(in, ErrSnapshot)
	var head [len(snapshotMagic) + 1]byte
	r.Raw(head[:])
	r.Check(string(head[:len(snapshotMagic)]) == snapshotMagic, "it begins otherwise")
	r.Check(head[len(snapshotMagic)] == snapshotVersion, fmt.Sprintf("it is of version %d, expected is %d", head[len(snapshotMagic)], snapshotVersion))
	blocks := r.Number(math.MaxInt32)
	r.Check(blocks == blockTokens, fmt.Sprintf("its blocks have %d tokens, expected are %d", blocks, blockTokens))
	var feeds []frozenFeed
	for n := r.Number(maxFeeds); n > 0 && r.Err() == nil; n-- {
		f := frozenFeed{home: home{r.Text(maxAddress), r.Number(math.MaxInt32)}, slot: slot.Slot(r.Number(math.MaxInt32))}
		f.Known, f.Sequence, f.Digest, f.Page, f.Group = true, r.Word(), r.Word(), r.Number(math.MaxInt32), int32(uint32(r.Word()))
		f.Complete, f.HasGroup, f.Plain, f.Small = r.Flag(), r.Flag(), r.Flag(), r.Flag()
		r.Check(!f.Small || f.Page < blocks, "small pages are no smaller than blocks")
		feeds = append(feeds, f)
	}
	return feeds, r.Close()
}

// Waiting reports whether parts of a snapshot wait for their workers. One that is taken now is without them.
func (l *Ledger) Waiting() bool { return l.parked.Load() }

// unpark gives up what still waits for its worker.
func (l *Ledger) unpark() {
	if len(l.resumed) > 0 {
		l.log.Info("a snapshot tells of workers that have not appeared; it is forgotten", "ranks", len(l.resumed))
	}
	l.resumed = nil
	l.write(func(x *runs.Index) { x.DropParked() })
	l.parked.Store(false)
}

// resume lets a feed that has not begun go on from what the snapshot says of its rank, if it says anything.
func (l *Ledger) resume(f *feed) {
	at := home{f.addr, f.source.Rank}
	r, ok := l.resumed[at]
	if !ok {
		return
	}
	delete(l.resumed, at)
	if f.ask != nil {
		f.resume(r)
	}
	if len(l.resumed) == 0 {
		l.unpark()
	}
}

// resume goes on from a snapshot.
func (f *feed) resume(r resumed) {
	a := &f.applier
	f.seq.applied(r.Sequence, r.Digest)
	f.complete = r.Complete
	if r.joiner != nil {
		f.rejoin(r.joiner)
	} else {
		f.ledger.write(func(x *runs.Index) { x.Unpark(r.was, f.slot) }) // if it says no, nothing was held
	}
	a.page, a.hasGroup, a.group, a.plain = r.Page, r.HasGroup, r.Group, r.Plain
	f.drifted.Store(r.Plain)
	f.ledger.write(func(x *runs.Index) {
		f.place = r.place
		f.onDevice.Store(int64(x.SlotStats(f.slot).Held[slot.Device]))
	})
}

// rejoin makes blocks of pages again.
func (f *feed) rejoin(j *pages.Joiner) {
	const atOnce = 1 << 12 // blocks
	a := &f.applier
	a.joiner, a.joined, a.parted = j, a.bring, a.takeBack
	flush := func() {
		f.ledger.write(func(x *runs.Index) {
			if apply(x, f.slot, a.changes) > 0 {
				f.complete = false // the index is full
			}
		})
		a.changes, a.locals, a.keys = a.changes[:0], a.locals[:0], a.keys[:0]
	}
	j.Tell(func(b pages.Blocks) {
		a.bring(b)
		if len(a.keys) >= atOnce {
			flush()
		}
	})
	flush()
}
