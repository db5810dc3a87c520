package replica

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"attache/internal/block"
)

// read takes a record apart; chains are what its sender has sent before.
func read(record []byte, chains *received) (h header, deltas []Delta, err error) {
	r := reader{rest: record}
	h = r.header()
	var tail []block.Hash
	for len(r.rest) > 0 {
		var d Delta
		tail, _ = r.delta(&d, chains, tail)
		deltas = append(deltas, d)
	}
	return h, deltas, r.err
}

func newReceived() *received {
	return &received{known: generations[[]block.Hash]{most: 2 * mostCheckpoints}}
}

func newSent(most int) *sent { return &sent{known: generations[struct{}]{most: most}} }

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent, known := newSent(mostCheckpoints), newReceived()
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var prompts chains
		for range rapid.IntRange(1, 20).Draw(t, "records") {
			h := header{name: "gateway-1", life: rnd.Uint64(), number: rnd.Uint64N(1 << 40), waiting: Waiting{rnd.IntN(9), rnd.Int64N(99), rnd.Int64N(999)}}
			if rnd.IntN(3) == 0 {
				h.marks, h.learnt = markBegin|markFinish, []byte("learnt")
			}
			if rnd.IntN(3) == 0 {
				h.marks |= markLeave
				h.kept = time.Duration(rnd.IntN(1e6)) * time.Microsecond
			}
			record, want := h.append(nil), []Delta(nil)
			for range rnd.IntN(10) {
				d := Delta{Kind: Booked + Kind(rnd.IntN(int(kinds-Booked))), Number: rnd.Uint64()}
				switch d.Kind {
				case Booked:
					d.Worker, d.Rank = netip.MustParseAddrPort("[fd00::7]:8000"), rnd.IntN(8)
					d.Chain = prompts.draw(rnd)
					d.PromptTokens, d.CachedTokens, d.BlockTokens, d.OutputTokens = rnd.IntN(1e5), rnd.IntN(1e5), 16, rnd.IntN(1e4)
					d.Named, d.Stream, d.Flow = rnd.IntN(2) == 0, rnd.IntN(2) == 0, strings.Repeat("f", rnd.IntN(9))
					if rnd.IntN(2) == 0 {
						d.Session, d.SessionTTL, d.SessionKept, d.SessionOver = 1+rnd.Uint64N(9), time.Minute, rnd.IntN(2) == 0, rnd.IntN(2) == 0
					}
				case Moved:
					d.Worker, d.Rank = netip.MustParseAddrPort("10.1.2.3:80"), rnd.IntN(8)
				case Bound:
					d.Worker, d.Session, d.SessionTTL = netip.MustParseAddrPort("10.1.2.3:80"), 1+rnd.Uint64N(9), time.Hour
				case Drained:
					d.Worker, d.Drain, d.At = netip.MustParseAddrPort("10.1.2.3:80"), rnd.IntN(2) == 0, time.UnixMicro(rnd.Int64N(1<<50))
				case Answered:
					d.Outcome = Outcome{
						Status: rnd.IntN(600), Attempts: rnd.IntN(4), TTFT: time.Duration(rnd.IntN(1e7)) * time.Microsecond,
						EngineTTFT: time.Duration(rnd.IntN(1e7)) * time.Microsecond, Duration: time.Duration(rnd.IntN(1e7)) * time.Microsecond,
						Aborted: rnd.IntN(2) == 0, Broken: rnd.IntN(2) == 0, Unreached: rnd.IntN(2) == 0, Usage: rnd.IntN(2) == 0, CachedKnown: rnd.IntN(2) == 0,
						PromptTokens: rnd.IntN(1e5), AnswerTokens: rnd.IntN(1e4), Cached: rnd.IntN(1e5),
					}
					if rnd.IntN(2) == 0 {
						d.Of, d.Worker = "gateway-2", netip.MustParseAddrPort("10.1.2.3:80")
					}
				}
				record, want = d.append(record, sent), append(want, d)
			}
			got, deltas, err := read(record, known)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(h, got, cmp.AllowUnexported(header{}), cmpopts.EquateEmpty()); diff != "" {
				t.Fatal("header:\n" + diff)
			}
			if diff := cmp.Diff(want, deltas, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Fatal("deltas:\n" + diff)
			}
		}
	})
}

// TestNextTurnsAreShort: a turn of a conversation repeats the last one's prompt, which is not sent again.
func TestNextTurnsAreShort(t *testing.T) {
	rnd, sent := rand.New(rand.NewPCG(3, 4)), newSent(mostCheckpoints)
	var chain []block.Hash
	for turn := range 10 {
		fresh := 20 + rnd.IntN(20)
		for range fresh {
			chain = append(chain, rnd.Uint64())
		}
		d := Delta{Kind: Booked, Number: 1, Worker: netip.MustParseAddrPort("10.0.0.1:8000"), Chain: chain}
		if n, most := len(d.append(nil, sent)), 64+8*(fresh+step); n > most {
			t.Errorf("turn %d with %d new blocks of %d takes %d bytes, more than %d", turn, fresh, len(chain), n, most)
		}
	}
}

// TestForgetfulChains: with little memory chains are sent whole more often, and never wrong.
func TestForgetfulChains(t *testing.T) {
	rnd, out := rand.New(rand.NewPCG(5, 6)), newSent(8)
	in := &received{known: generations[[]block.Hash]{most: 16}}
	var prompts chains
	unknown := 0
	for range 2000 {
		chain := prompts.draw(rnd)
		if len(chain) == 0 {
			continue
		}
		base := out.base(chain)
		checkpoint := block.Hash(0)
		if base > 0 {
			checkpoint = chain[base-1]
		}
		got, ok := in.whole(base, checkpoint, slices.Clone(chain[base:]))
		if !ok {
			unknown++
		} else if !slices.Equal(got, chain) {
			t.Fatalf("a chain of %d blocks came as one of %d", len(chain), len(got))
		}
	}
	if unknown > 400 {
		t.Errorf("%d of 2000 chains are not known to the reader", unknown)
	}
}

func TestBadRecords(t *testing.T) {
	good := (&header{name: "a", life: 1, number: 2}).append(nil)
	for _, c := range []struct {
		name   string
		record []byte
		want   string
	}{
		{"nothing", nil, "is cut short"},
		{"another version", []byte{9, 0}, "is of version 9: must be 1; do all replicas run the same version?"},
		{"unknown marks", []byte{1, 0x80}, "has unknown marks 0x80"},
		{"no name", []byte{1, 0, 0, 1, 1, 0, 0, 0}, "has no name"},
		{"a long name", []byte{1, 0, 0xff, 0x7f}, "name: 16383: must be at most 255"},
		{"an unknown kind", append(slices.Clone(good), 77, 1), "has a delta of unknown kind 77"},
		{"an address of 5 bytes", append(slices.Clone(good), byte(Moved), 1, 5, 1, 2, 3, 4, 5, 0, 80, 0), "has a worker's address of 5 bytes: must be 4 or 16"},
		{"a chain cut short", append(slices.Clone(good), byte(Booked), 1, 4, 1, 2, 3, 4, 0, 80, 0, 1, 1, 1, 1, 0, 0, 100, 0, 1, 2, 3), "is cut short"},
		{"a checkpoint behind the end", append(slices.Clone(good), byte(Booked), 1, 4, 1, 2, 3, 4, 0, 80, 0, 1, 1, 1, 1, 0, 0, 3, 16, 1, 2, 3, 4, 5, 6, 7, 8),
			"has a chain of 3 blocks with a checkpoint at 16"},
	} {
		got := ""
		if _, _, err := read(c.record, newReceived()); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzRecord(f *testing.F) {
	h := header{name: "a", life: 1, number: 2, marks: markBegin, learnt: []byte("x")}
	d := Delta{Kind: Booked, Number: 1, Worker: netip.MustParseAddrPort("10.0.0.1:8000"), Chain: make([]block.Hash, 40), Session: 3, Flow: "f"}
	f.Add(d.append(h.append(nil), newSent(mostCheckpoints)))
	f.Fuzz(func(t *testing.T, record []byte) {
		h, deltas, err := read(record, newReceived())
		if err != nil {
			return
		}
		again, sent := h.append(nil), newSent(mostCheckpoints)
		for i := range deltas {
			again = deltas[i].append(again, sent)
		}
		if _, more, err := read(again, newReceived()); err != nil || len(more) != len(deltas) {
			t.Fatalf("written again it has %d deltas instead of %d (%v)", len(more), len(deltas), err)
		}
	})
}

// BenchmarkShare is what a decision costs the request that it is of: the next turn of one of 64 conversations of 512 blocks, its end
// and its outcome; Apply is taking the same apart.
func BenchmarkShare(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 2))
	turns := make([][]block.Hash, 64)
	for i := range turns {
		for range 512 {
			turns[i] = append(turns[i], rnd.Uint64())
		}
	}
	next := func(i int) []block.Hash {
		at := i % len(turns)
		if len(turns[at]) > 1000 {
			turns[at] = turns[at][:512]
		}
		for range 8 {
			turns[at] = append(turns[at], rnd.Uint64())
		}
		return turns[at]
	}
	worker := netip.MustParseAddrPort("10.0.0.1:8000")
	write := func(into []byte, s *sent, i int, chain []block.Hash) []byte {
		n := uint64(i)
		booked := Delta{Kind: Booked, Number: n, Worker: worker, PromptTokens: 8192, CachedTokens: 8000, BlockTokens: 16, Chain: chain, Named: true, Session: n}
		ended := Delta{Kind: Ended, Number: n}
		answered := Delta{Kind: Answered, Number: n, Worker: worker, Outcome: Outcome{Status: 200, Attempts: 1, TTFT: time.Second, EngineTTFT: time.Second,
			Usage: true, CachedKnown: true, PromptTokens: 8192, AnswerTokens: 300, Cached: 8000}}
		return answered.append(ended.append(booked.append(into, s), s), s)
	}
	b.Run("share", func(b *testing.B) {
		b.ReportAllocs()
		s, size, n := newSent(mostCheckpoints), 0, 0
		buffer := make([]byte, 0, 1<<20)
		for i := 0; b.Loop(); i++ {
			buffer = write(buffer[:0], s, i, next(i))
			size, n = size+len(buffer), n+1
		}
		b.ReportMetric(float64(size)/float64(n), "bytes/op")
	})
	b.Run("apply", func(b *testing.B) {
		b.ReportAllocs()
		s, records := newSent(mostCheckpoints), make([][]byte, 1024)
		for i := range records {
			records[i] = write(nil, s, i, next(i))
		}
		in := newReceived()
		var tail []block.Hash
		for i := 0; b.Loop(); i++ {
			r, d := reader{rest: records[i%len(records)]}, Delta{}
			for len(r.rest) > 0 {
				tail, _ = r.delta(&d, in, tail)
			}
		}
	})
}

// chains draws prompts that begin alike, as conversations do: replicatest.Chains, which tests inside this package cannot import.
type chains struct{ all [][]block.Hash }

func (c *chains) draw(rnd *rand.Rand) []block.Hash {
	var chain []block.Hash
	if len(c.all) > 0 && rnd.IntN(4) > 0 {
		of := c.all[rnd.IntN(len(c.all))]
		chain = slices.Clone(of[:len(of)-rnd.IntN(min(len(of), 20)+1)])
	}
	for range rnd.IntN(60) {
		chain = append(chain, rnd.Uint64())
	}
	if len(chain) > 0 {
		c.all = append(c.all, chain)
	}
	return chain
}
