package events

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"attache/indexer/runs"
	"attache/internal/slot"
	"attache/internal/wholefile"
)

// A snapshot is a file, compressed by gzip, with one line of JSON (frozenFeeds) and the index behind it (see runs.Frozen). It
// spares an engine's whole replay after a restart of ours, and keeps a history complete that the engine itself no longer has
// from its start. Nothing in it is believed untested: a feed that begins with a snapshot asks the engine for the last batch that
// is in it, and only if that comes back byte for byte, what was saved is of the same process.

// snapshotVersion changes with everything that older files would be misread by.
const snapshotVersion = 1

// frozenFeeds is what a snapshot says of the feeds.
type frozenFeeds struct {
	Version     int          `json:"version"`
	Pool        string       `json:"pool"`
	BlockTokens int          `json:"block_tokens"`
	At          time.Time    `json:"at"`
	Feeds       []frozenFeed `json:"feeds"`
}

// frozenFeed is where a feed stood, and how its slot was numbered.
type frozenFeed struct {
	place

	Worker   string    `json:"worker"`
	Rank     int       `json:"rank"`
	Endpoint string    `json:"endpoint"`
	Slot     slot.Slot `json:"slot"`
}

// place is up to where the index knows a rank's history. It changes together with the index.
type place struct {
	Known    bool   `json:"known"`
	Sequence uint64 `json:"sequence"`
	Digest   uint64 `json:"digest"`
	Page     int    `json:"page"`
	HasGroup bool   `json:"has_group"`
	Group    int32  `json:"group"`
	Plain    bool   `json:"plain"`
}

// placeNow is where the feed stands. A history that is not complete is not gone on from: the engine's replay brings as much.
func (f *feed) placeNow() place {
	if !f.seq.has || !f.complete || f.barred || f.source.Pull || f.applier.joiner != nil || f.applier.large != nil {
		return place{}
	}
	a := &f.applier
	return place{Known: true, Sequence: f.seq.last, Digest: f.seq.ring[f.seq.last%remembered].digest, Page: a.page, HasGroup: a.hasGroup, Group: a.group, Plain: f.drifted.Load()}
}

// resume goes on from a snapshot.
func (f *feed) resume(p place) {
	f.seq.applied(p.Sequence, p.Digest)
	f.complete, f.place = true, p
	f.applier.page, f.applier.hasGroup, f.applier.group, f.applier.plain = p.Page, p.HasGroup, p.Group, p.Plain
	f.drifted.Store(p.Plain)
}

// save writes a snapshot of the index and of where the feeds stand; it takes the place of the former one when it is complete.
func (l *Ledger) save(path string) error {
	head := frozenFeeds{Version: snapshotVersion, Pool: l.pool, BlockTokens: l.blockTokens, At: l.now()}
	var frozen *runs.Frozen
	l.write(func(x *runs.Index) {
		for _, f := range *l.feeds.Load() {
			if f != nil && f.place.Known {
				head.Feeds = append(head.Feeds, frozenFeed{f.place, f.worker, f.source.Rank, f.source.address(), f.slot})
			}
		}
		frozen = x.Freeze()
	})
	return wholefile.Replace(path, func(to io.Writer) error { return writeSnapshot(to, head, frozen) })
}

func writeSnapshot(to io.Writer, head frozenFeeds, frozen *runs.Frozen) error {
	z, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(z).Encode(head); err != nil { // one line
		return err
	}
	if _, err := frozen.WriteTo(z); err != nil {
		return err
	}
	return z.Close()
}

// maxHead bounds the line of a snapshot that says of the feeds: some 300 bytes each.
const maxHead = 16 << 20

// load reads a snapshot, if there is one, for the feeds that are wanted; others' slots are given back.
func (l *Ledger) load(path string, wanted map[key]bool) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	z, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	in := bufio.NewReader(z)
	head, err := readHead(in)
	switch {
	case err != nil:
		return err
	case head.Version != snapshotVersion || head.Pool != l.pool || head.BlockTokens != l.blockTokens:
		return fmt.Errorf("it is of version %d, pool %q and blocks of %d tokens; here are version %d, %q and %d: it is left unread",
			head.Version, head.Pool, head.BlockTokens, snapshotVersion, l.pool, l.blockTokens)
	}
	renamed := map[slot.Slot]slot.Slot{}
	taken := map[slot.Slot]bool{}
	for _, was := range head.Feeds {
		for k := range wanted {
			if k.worker == was.Worker && k.source.Rank == was.Rank && k.source.Endpoint == was.Endpoint && !taken[k.slot] {
				renamed[was.Slot], taken[k.slot] = k.slot, true
				l.resumed[k] = was.place
			}
		}
	}
	index, err := runs.Load(in, l.cfg.Index, func(s slot.Slot) (slot.Slot, bool) {
		to, ok := renamed[s]
		return to, ok
	})
	if err == nil {
		err = ended(in)
	}
	if err != nil {
		clear(l.resumed)
		return err
	}
	l.index.Store(index)
	l.log.Info("the index was read from a snapshot", "file", path, "age", l.now().Sub(head.At).Round(time.Second).String(),
		"feeds", len(l.resumed), "blocks", index.Stats().Held)
	return nil
}

// ended reads to the end of a snapshot, where gzip compares its checksum: that of the feeds is in no other.
func ended(in io.Reader) error {
	n, err := io.Copy(io.Discard, in)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d bytes follow the index", n)
	}
	return err
}

func readHead(in *bufio.Reader) (head frozenFeeds, err error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > maxHead {
			return head, fmt.Errorf("it does not begin with a line of JSON: %w", err)
		}
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return head, fmt.Errorf("its first line: %w", err)
	}
	return head, nil
}
